"""Answers of the JetStream API, as checks expect them: an error, or some fields. Holds no check.

Errors are recognised by ``code`` and ``err_code``: clients may rely on them; descriptions may change (ADR-7).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.nats.stage import SERVER_ERROR_CODE
from plumbline.conformance.outcomes import Failed, Inconclusive, Unsupported
from plumbline.wire.nats import HMsg, Msg
from plumbline.wire.nats.jetstream import ApiError

Answer = dict[str, Any]

# docs.nats.io, "Configuring JetStream": what settings of a server or an account may fill in.
CONFIGURABLE = frozenset({"duplicate_window", "max_ack_pending", "max_batch", "max_bytes", "max_consumers"})


def refused(session: NatsSession, answer: Answer, code: int, *err_codes: int, what: str) -> None:
    """``answer`` is an error with this code and one of these err_codes."""
    error = ApiError.of(answer)
    session.require(
        error is not None and error.code == code and error.err_code in err_codes,
        f"{what} is not refused like that",
        expected=f"code {code}, err_code {' or '.join(map(str, err_codes))}",
        actual=json.dumps(answer),
    )


def accepted(answer: Answer, what: str) -> None:
    """``answer`` is no error. Raises ``Failed``, or ``Inconclusive`` for the server's own trouble.

    nats-server may fail to create a stream while it deletes another's files: 500, then fine.
    """
    error = ApiError.of(answer)
    if error is not None and error.code >= SERVER_ERROR_CODE:
        raise Inconclusive(f"{what} met the server's own trouble: {error}", actual=json.dumps(answer))
    if error is not None:
        raise Failed(f"{what} is refused", expected="no error", actual=str(error))


def shows(session: NatsSession, answer: Answer, path: str, value: object) -> None:
    """The field of ``answer`` at ``path`` (``config.retention``) has this value, and this JSON type.

    A flag that is False may be left out: both say the same.
    """
    found = field(answer, path)
    parent, _, name = path.rpartition(".")
    if value is False and name not in (field(answer, parent) if parent else answer):
        found = False
    session.require(
        type(found) is type(value) and found == value,
        f"{path} is another",
        expected=f"{path}: {json.dumps(value)}",
        actual=f"{path}: {json.dumps(found)}",
    )


def shows_default(session: NatsSession, answer: Answer, path: str, value: object) -> None:
    """As ``shows``, of what the server fills in.

    Settings of a server (``jetstream.limits``) change some of it. Where they may be the reason, because
    Plumbline did not start the server, the check is unsupported.
    """
    found = field(answer, path)
    name = path.rpartition(".")[2]
    may_be_configured = name in CONFIGURABLE and type(found) is type(value) and not session.has_plain_settings
    if may_be_configured and found != value:
        raise Unsupported(
            f"the server fills in {name} {found}: whether that was configured, the wire does not say"
        )
    shows(session, answer, path, value)


def fits(session: NatsSession, answer: Answer, path: str, fit: Callable[[Any], bool], expected: str) -> None:
    """The field of ``answer`` at ``path`` is as ``expected`` says."""
    found = field(answer, path)
    session.require(
        fit(found), f"{path} is another", expected=expected, actual=f"{path}: {json.dumps(found)}"
    )


def field(answer: Answer, path: str) -> Any:
    """None for a field that is not there. Raises ``Failed`` if the answer is an error."""
    accepted(answer, "the request")
    found: Any = answer
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def object_in(operation: Msg | HMsg, expected: str) -> Answer:
    """The JSON object in a payload. Raises ``Failed``."""
    try:
        answer = json.loads(operation.payload)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Failed("the answer is not a JSON object", expected=expected, actual=str(operation))
    return answer
