"""The optional arguments of queue.declare, queue.bind and basic.consume: what they mean, when two are equal.

Sources: RabbitMQ, "Queues" (optional arguments), "Queue Length Limit", "Time-To-Live and Expiration", "Dead
Letter Exchanges", "Priority Queue Support"; AMQP 0-9-1 XML, queue.declare, rule "equivalent".
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from plumbline.reference_broker.amqp.errors import PRECONDITION_FAILED, AmqpReplyError, quoted
from plumbline.reference_broker.amqp.topology.queues import (
    CLASSIC,
    QUEUE_TYPE,
    QUORUM,
    PriorityEntryQueue,
    Queue,
)
from plumbline.wire.amqp import Decimal, Float, Integer, Timestamp

OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")
MAX_PRIORITIES = 255
MAX_TTL_MS = 2**32 - 1  # milliseconds
X_MATCH, MATCHES = "x-match", ("all", "any", "all-with-x", "any-with-x")
MATCHES_TEXT = "all, any, all-with-x, or any-with-x"
_NUMBERS = {
    "x-message-ttl": MAX_TTL_MS,
    "x-expires": MAX_TTL_MS,
    "x-max-length": None,
    "x-max-length-bytes": None,
    "x-max-priority": MAX_PRIORITIES,
    "x-delivery-limit": None,
}
_NAMES = ("x-dead-letter-exchange", "x-dead-letter-routing-key")
_COMPARED = (
    *_NUMBERS,
    *_NAMES,
    "x-overflow",
    QUEUE_TYPE,
    "x-queue-mode",
    "x-single-active-consumer",
)
_INTEGER_TYPES = {
    "b": "byte",
    "B": "unsignedbyte",
    "s": "short",
    "u": "unsignedshort",
    "I": "signedint",
    "i": "unsignedint",
    "l": "long",
}
_INT32 = range(-(2**31), 2**31)


def type_name(value: Any) -> str:
    """RabbitMQ's name of a field value's type."""
    match value:
        case None:
            return "void"
        case bool():
            return "bool"
        case Integer():
            return _INTEGER_TYPES[value.type]
        case Timestamp():
            return "timestamp"
        case int():
            return "signedint" if value in _INT32 else "long"
        case Float():
            return "float"
        case float():
            return "double"
        case Decimal():
            return "decimal"
        case str():
            return "longstr"
        case bytes():
            return "binary"
        case Mapping():
            return "table"
    return "array"


def is_integer(value: Any) -> bool:
    """Of any of the integer types."""
    return isinstance(value, int) and not isinstance(value, bool | Timestamp)


def wrong_type_text(expected: str, value: Any) -> str:
    """The reason that servers give for a value of a wrong type."""
    return f'"expected {expected}, got {type_name(value)}"'


def invalid(name: str, kind: str, where: str, vhost: str, why: str) -> AmqpReplyError:
    """A 406 for an optional argument."""
    return AmqpReplyError(
        PRECONDITION_FAILED, f"invalid arg '{name}' for {quoted(kind, where, vhost)}: {why}"
    )


def check_x_match(arguments: Mapping[str, Any]) -> None:
    """Of a binding to a headers exchange. Raises ``AmqpReplyError`` (406)."""
    how = arguments.get(X_MATCH, MATCHES[0])
    if not isinstance(how, str):
        text = f"Invalid x-match field type {type_name(how)} (value {_erlang_term(how)}); expected longstr"
        raise AmqpReplyError(PRECONDITION_FAILED, text)
    if how not in MATCHES:
        text = f"Invalid x-match field value {_erlang_term(how.encode())}; expected {MATCHES_TEXT}"
        raise AmqpReplyError(PRECONDITION_FAILED, text)


def _erlang_term(value: Any) -> str:
    """As RabbitMQ prints it; not of tables and arrays, which it prints with their types."""
    match value:
        case None:
            return "undefined"
        case bool():
            return str(value).lower()
        case bytes():
            return f'<<"{value.decode("latin-1")}">>' if value else "<<>>"
    return str(value)


def configure(queue: Queue, arguments: Mapping[str, Any], types: Container[str] = (CLASSIC,)) -> None:
    """Give ``queue`` what its arguments ask for; ``types`` are those that it may have. Raises
    ``AmqpReplyError`` (406)."""
    kind = arguments.get(QUEUE_TYPE, CLASSIC)
    if not isinstance(kind, str) or kind not in types:
        raise invalid(QUEUE_TYPE, "queue", queue.name, queue.vhost, f"\"unsupported queue type '{kind}'\"")
    for name, value in arguments.items():
        if name in _NAMES and not isinstance(value, str):
            where = quoted("queue", queue.name, queue.vhost)
            text = f"invalid type '{type_name(value)}' for arg '{name}' in {where}"
            raise AmqpReplyError(PRECONDITION_FAILED, text)
        why = _argument_error(name, value)
        if why is not None:
            raise invalid(name, "queue", queue.name, queue.vhost, why)
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        why = "routing_key_but_no_dlx_defined"
        raise invalid("x-dead-letter-routing-key", "queue", queue.name, queue.vhost, why)
    queue.arguments = arguments
    queue.message_ttl = arguments.get("x-message-ttl")
    queue.expires = arguments.get("x-expires")
    queue.max_length = arguments.get("x-max-length")
    queue.max_length_bytes = arguments.get("x-max-length-bytes")
    queue.overflow = arguments.get("x-overflow", queue.overflow)
    queue.dead_letter_exchange = arguments.get("x-dead-letter-exchange")
    queue.dead_letter_routing_key = arguments.get("x-dead-letter-routing-key")
    queue.delivery_limit = arguments.get("x-delivery-limit") if queue.kind == QUORUM else None
    queue.single_active = arguments.get("x-single-active-consumer") is True
    if "x-max-priority" in arguments:
        queue.ready = PriorityEntryQueue(arguments["x-max-priority"])
    queue.limited = any(
        limit is not None for limit in (queue.message_ttl, queue.max_length, queue.max_length_bytes)
    )


def _argument_error(name: str, value: Any) -> str | None:
    if name in _NUMBERS:
        if not is_integer(value):
            return wrong_type_text("integer", value)
        maximum = _NUMBERS[name]
        if value < 0:
            return f"{{value_negative,{value}}}"
        if name == "x-expires" and value == 0:
            return "{value_zero,0}"
        if name == "x-max-priority" and value > MAX_PRIORITIES:
            return f"{{max_value_exceeded,{value}}}"
        return f"{{value_too_large,{value}}}" if maximum is not None and value > maximum else None
    if name == "x-overflow":
        if not isinstance(value, str):
            return f"{{unacceptable_type,{type_name(value)}}}"
        return None if value in OVERFLOWS else "invalid_overflow"
    return None


def check_quorum(queue: Queue, *, exclusive: bool) -> None:
    """A quorum queue lasts, and is for everybody. RabbitMQ, "Quorum Queues". Raises ``AmqpReplyError``
    (406)."""
    where = quoted("queue", queue.name, queue.vhost)
    wrong = {"auto-delete": queue.auto_delete, "exclusive-owner": exclusive, "non-durable": not queue.durable}
    for what, is_so in wrong.items():
        if is_so:
            raise AmqpReplyError(PRECONDITION_FAILED, f"invalid property '{what}' for {where}")


def check_may_be_unnamed(arguments: Mapping[str, Any]) -> None:
    """The server gives no names to quorum queues. Raises ``AmqpReplyError`` (406)."""
    if arguments.get(QUEUE_TYPE) == QUORUM:
        text = f"Cannot declare a server-named queue for type rabbit_{QUORUM}_queue"
        raise AmqpReplyError(PRECONDITION_FAILED, text)


def check_priority(queue: Queue, arguments: Mapping[str, Any]) -> int:
    """``x-priority`` of a consumer. Raises ``AmqpReplyError`` (406)."""
    value = arguments.get("x-priority", 0)
    if not is_integer(value):
        raise invalid("x-priority", "queue", queue.name, queue.vhost, wrong_type_text("integer", value))
    return int(value)


def check_equivalent(queue: Queue, arguments: Mapping[str, Any]) -> None:
    """The arguments of a second declaration. Raises ``AmqpReplyError`` (406)."""
    for name in _COMPARED:
        received, current = arguments.get(name, _ABSENT), queue.arguments.get(name, _ABSENT)
        if (received is _ABSENT and current is _ABSENT) or received == current:
            continue
        start = f"inequivalent arg '{name}' for {quoted('queue', queue.name, queue.vhost)}: "
        detail = (
            f"{start}received {_shown(received)} but current is {_shown(current)}"
            if _ABSENT in (received, current)
            else f"{start}received '{received}' but current is '{current}'"
        )
        raise AmqpReplyError(PRECONDITION_FAILED, detail)


class _Absent:
    """Not given, which is not the same as void."""


_ABSENT = _Absent()


def _shown(value: Any) -> str:
    return "none" if value is _ABSENT else f"the value '{value}' of type '{type_name(value)}'"
