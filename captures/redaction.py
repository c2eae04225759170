"""What redactors of both protocols share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from plumbline.wire.errors import ProtocolError

MASK = ord("*")


class Redactor(Protocol):
    """What a client sends on one connection, to what may be written of it."""

    @property
    def masked(self) -> int:
        """Bytes so far."""

    def feed(self, data: bytes) -> bytes:
        """``data``, or a copy of it with secrets masked."""


class OperationDecoder(Protocol):
    """Bytes to operations: see ``dialects.StreamDecoder``."""

    def feed(self, data: bytes) -> Sequence[Any]:
        """The operations that ``data`` completes. Raises ``wire.errors.ProtocolError``."""


def redacted_text(operation: Any, redactor: Redactor, decoder: OperationDecoder) -> str:
    """``operation`` on one line, without secrets. Redactor and decoder are new."""
    masked = redactor.feed(operation.raw)
    if masked == operation.raw:
        return str(operation)
    try:
        return " ".join(map(str, decoder.feed(masked)))
    except ProtocolError:
        return f"an operation of {len(masked)} bytes with a secret"
