"""How defects alter a broker: what comes in, what goes out, what is refused and what is forgiven."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace as with_fields

from plumbline.reference_broker.amqp.connection import Channel, Connection
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.errors import AmqpFault
from plumbline.reference_broker.registry import replace
from plumbline.wire.amqp import AmqpError, Method
from plumbline.wire.errors import ErrorKind

Values = tuple[Any, ...]


def before_sending(
    broker: Broker, method: str, change: Callable[[Connection, int, Values], Values | None]
) -> None:
    """The arguments of each ``method`` without content are changed on their way out; None: it is not sent."""
    original = broker.send

    def send(connection: Connection, number: int, name: str, *values: Any) -> None:
        changed = change(connection, number, values) if name == method else values
        if changed is not None:
            original(connection, number, name, *changed)

    replace(broker, "send", send)


def never_sent(broker: Broker, *methods: str) -> None:
    """These methods are never sent."""
    for method in methods:
        before_sending(broker, method, lambda connection, number, values: None)


def before_handling(broker: Broker, handler: str, change: Callable[[Channel, Method], Method | None]) -> None:
    """Each operation is changed before ``handler`` gets it; None: it does not."""
    original = getattr(broker, handler)

    def handle(channel: Channel, operation: Method, now: int) -> None:
        changed = change(channel, operation)
        if changed is not None:
            original(channel, changed, now)

    replace(broker, handler, handle)


def with_arguments(operation: Method, **arguments: Any) -> Method:
    """The same operation with other arguments."""
    given = {name.rstrip("_"): value for name, value in arguments.items()}
    return with_fields(operation, arguments={**operation.arguments, **given})


def on_faults(
    broker: Broker,
    change: Callable[[Connection, Method, AmqpFault], AmqpFault | None],
    *,
    code: int = 0,
    method: str = "",
    text: str = "",
) -> None:
    """Refusals with this code, method and text are changed; None: there is none."""
    original = broker.fail

    def fail(connection: Connection, operation: Method, fault: AmqpFault, now: int) -> None:
        changed: AmqpFault | None = fault
        if code in (0, fault.code) and method in ("", operation.method) and text in fault.detail:
            changed = change(connection, operation, fault)
        if changed is not None:
            original(connection, operation, changed, now)

    replace(broker, "fail", fail)


def overlooked(broker: Broker, *, code: int = 0, method: str = "", text: str = "") -> None:
    """The refusal does not happen: the method has no effect and no answer."""
    on_faults(broker, lambda connection, operation, fault: None, code=code, method=method, text=text)


def refused_with(broker: Broker, other: int, *, code: int = 0, method: str = "", text: str = "") -> None:
    """The refusal has another reply code."""
    on_faults(
        broker,
        lambda connection, operation, fault: AmqpFault(other, fault.detail, fault.cause),
        code=code,
        method=method,
        text=text,
    )


def forgives(
    broker: Broker, kind: ErrorKind, *, cause: tuple[int, int] | None = None, words: str = ""
) -> None:
    """What is malformed in this way is dropped, with all that came with it, and the decoder begins anew."""
    original = broker.malformed

    def malformed(connection: Connection, error: AmqpError, now: int) -> None:
        as_meant = cause in (None, (error.class_id, error.method_id)) and words in error.message
        if error.kind is kind and as_meant:
            connection.decoder = broker.new_decoder(connection)
        else:
            original(connection, error, now)

    replace(broker, "malformed", malformed)
