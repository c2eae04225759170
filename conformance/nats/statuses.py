"""What is read of the status line of an answer."""

from __future__ import annotations

from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats import HMsg, Operation


def status_code(answer: Operation) -> int | None:
    """The code of the status line; None without one, or in a block that is none.

    Of a status whose description no document gives, such as 503, the code alone is compared.
    """
    try:
        headers = answer.headers if isinstance(answer, HMsg) else None
    except ProtocolError:
        return None
    return headers.status.code if headers and headers.status else None
