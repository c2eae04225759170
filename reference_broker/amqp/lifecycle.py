"""Which method a client may send when, and what happens to every other method: one table.

Two rules, as in h11's ``_state.py``, which is the model for this file. Whatever depends on the phase of a
connection or channel is in ``TABLE``. And ``TABLE`` knows nothing of what a method does: the broker looks up
a method here first, and the handler that it then calls need not ask for the phase.

A handler is named after its method: ``basic.recover-async`` is handled by ``on_basic_recover_async``. It is
called with the connection or channel, the operation and the time, and raises ``AmqpReplyError`` to refuse.

    HEADER -> START_OK -> TUNE_OK -> OPEN -> RUNNING -> CLOSING     and from each of them -> REFUSED
                                             UNOPENED -> OPENED -> CLOSING   for each channel

Sources: AMQP 0-9-1, 2.2.4 ("The Connection Class"), 2.2.5 ("The Channel Class"), 1.2 ("Reply codes");
RabbitMQ's texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from msgspec import Struct

from plumbline.reference_broker.amqp.errors import CHANNEL_ERROR, COMMAND_INVALID, AmqpReplyError


class Phase(Enum):
    """What a connection waits for."""

    HEADER = "the protocol header"
    START_OK = "connection.start-ok"
    TUNE_OK = "connection.tune-ok"
    OPEN = "connection.open"
    RUNNING = "methods"
    CLOSING = "connection.close-ok"  # connection.close was sent
    REFUSED = "the end of the socket"

    __hash__ = object.__hash__  # Enum's own is slow


class ChannelPhase(Enum):
    """What a channel of a running connection waits for."""

    UNOPENED = "channel.open"
    OPENED = "methods"
    CLOSING = "channel.close-ok"  # channel.close was sent

    __hash__ = object.__hash__


class Refuse(Struct, frozen=True):
    """The method is an error: the broker closes the channel or connection with this code and text."""

    code: int
    text: str


class Answer(Struct, frozen=True):
    """The broker only sends ``method``, which has no arguments."""

    method: str


class Fate(Enum):
    """What else can happen to a method."""

    HANDLE = "by the handler that has its name"
    IGNORE = "it has no effect"
    DROP = "the connection ends without an answer"


HANDLE, IGNORE, DROP = Fate.HANDLE, Fate.IGNORE, Fate.DROP
OTHER = "*"  # every method that its row does not name
Row = Mapping[str, Refuse | Answer | Fate]

HANDSHAKE = (Phase.HEADER, Phase.START_OK, Phase.TUNE_OK, Phase.OPEN)

_CHANNEL_METHODS = (
    "access.request",
    "basic.ack",
    "basic.cancel",
    "basic.cancel-ok",
    "basic.consume",
    "basic.get",
    "basic.nack",
    "basic.publish",
    "basic.qos",
    "basic.recover",
    "basic.recover-async",
    "basic.reject",
    "channel.close",
    "channel.flow",
    "confirm.select",
    "exchange.bind",
    "exchange.declare",
    "exchange.delete",
    "exchange.unbind",
    "queue.bind",
    "queue.declare",
    "queue.delete",
    "queue.purge",
    "queue.unbind",
    "tx.commit",
    "tx.rollback",
    "tx.select",
)

TABLE: Mapping[Phase | ChannelPhase, Row] = {
    Phase.HEADER: {"protocol-header": HANDLE, OTHER: IGNORE},
    Phase.START_OK: {"connection.start-ok": HANDLE, OTHER: DROP},
    Phase.TUNE_OK: {"connection.tune-ok": HANDLE, "connection.close": HANDLE, OTHER: DROP},
    Phase.OPEN: {"connection.open": HANDLE, "connection.close": HANDLE, OTHER: DROP},
    Phase.RUNNING: {  # on channel 0
        "connection.close": HANDLE,
        "connection.close-ok": HANDLE,
        "connection.update-secret": HANDLE,
        OTHER: Refuse(CHANNEL_ERROR, "unexpected method in connection state running"),
    },
    Phase.CLOSING: {
        "connection.close": Answer("connection.close-ok"),
        "connection.close-ok": HANDLE,
        OTHER: IGNORE,
    },
    Phase.REFUSED: {OTHER: IGNORE},
    ChannelPhase.UNOPENED: {
        "channel.open": HANDLE,
        OTHER: Refuse(CHANNEL_ERROR, "expected 'channel.open'"),
    },
    ChannelPhase.OPENED: {
        **dict.fromkeys(_CHANNEL_METHODS, HANDLE),
        "channel.open": Refuse(CHANNEL_ERROR, "second 'channel.open' seen"),
        OTHER: Refuse(COMMAND_INVALID, "unimplemented method"),
    },
    ChannelPhase.CLOSING: {
        "channel.close": Answer("channel.close-ok"),
        "channel.close-ok": HANDLE,
        OTHER: IGNORE,
    },
}

# Called with a connection (on OPENED and CLOSING channels with the channel), an operation and the time in
# nanoseconds.
Handler = Callable[[Any, Any, int], None]
Handlers = dict[str, Handler]


def handler_name(method: str) -> str:
    """``on_basic_recover_async`` for ``basic.recover-async``."""
    return "on_" + method.replace(".", "_").replace("-", "_")


def handlers(
    parts: Iterable[object],
    answer: Callable[[Any, str], None],
    drop: Callable[[Any, int], None],
) -> dict[Phase | ChannelPhase, Handlers]:
    """``TABLE`` with what is called in each place.

    ``answer(connection or channel, method)`` sends a method; ``drop(connection, now)`` ends a connection
    without an answer. Raises ``LookupError`` if no part, or more than one, has a handler.
    """

    def handler(method: str, what: Refuse | Answer | Fate) -> Handler:
        match what:
            case Refuse(code, text):
                return _refusal(code, text)
            case Answer(reply):
                return lambda subject, operation, now: answer(subject, reply)
            case Fate.HANDLE:
                return _find(parts, handler_name(method))
            case Fate.DROP:
                return lambda connection, operation, now: drop(connection, now)
        return lambda subject, operation, now: None

    parts = tuple(parts)
    return {
        phase: {method: handler(method, what) for method, what in row.items()} for phase, row in TABLE.items()
    }


def _refusal(code: int, text: str) -> Handler:
    def refuse(subject: Any, operation: Any, now: int) -> None:
        raise AmqpReplyError(code, text)

    return refuse


def _find(parts: Iterable[object], name: str) -> Handler:
    found: list[Handler] = [getattr(part, name) for part in parts if hasattr(part, name)]
    if len(found) != 1:
        raise LookupError(f"{len(found)} parts of the broker have {name}, not one")
    return found[0]
