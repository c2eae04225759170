"""How defects alter a broker: what comes in, what goes out, what is refused and what is forgiven."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

from msgspec.structs import replace as with_fields

from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection, Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.errors import AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import OTHER, ChannelPhase, Handler, Phase
from plumbline.reference_broker.registry import replace
from plumbline.wire.amqp import AmqpError, Method
from plumbline.wire.errors import ErrorKind

Values = tuple[Any, ...]
# Called in the place of a handler, with that handler first.
Around = Callable[[Handler, Any, Any, int], None]


def before_sending(
    broker: Broker, method: str, change: Callable[[AmqpClientConnection, int, Values], Values | None]
) -> None:
    """The arguments of each ``method`` without content are changed on their way out; None: it is not sent."""
    original = broker.outbox.send

    def send(connection: AmqpClientConnection, number: int, name: str, *values: Any) -> None:
        changed = change(connection, number, values) if name == method else values
        if changed is not None:
            original(connection, number, name, *changed)

    replace(broker.outbox, "send", send)


def handling(
    broker: Broker, *methods: str, phase: Phase | ChannelPhase = ChannelPhase.OPENED
) -> Callable[[Around], Around]:
    """Decorate what handles these methods from now on; it gets the handler that did so before."""

    def register(around: Around) -> Around:
        handlers = broker.handlers[phase]
        for method in methods:
            handlers[method] = partial(around, handlers.get(method) or handlers[OTHER])
        return around

    return register


def before_handling(broker: Broker, method: str, change: Callable[[Channel, Method], Method | None]) -> None:
    """Each ``method`` on an open channel is changed before it is handled; None: it is not handled."""

    @handling(broker, method)
    def handle(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        changed = change(channel, operation)
        if changed is not None:
            original(channel, changed, now)


def with_arguments(operation: Method, **arguments: Any) -> Method:
    """The same operation with other arguments."""
    return with_fields(operation, arguments={**operation.arguments, **arguments})


def on_faults(
    broker: Broker,
    change: Callable[[AmqpClientConnection, Method, AmqpReplyError], AmqpReplyError | None],
    *,
    code: int = 0,
    method: str = "",
    text: str = "",
) -> None:
    """Refusals with this code, method and text are changed; None: the method has no effect and no answer."""
    original = broker.closing.fail

    def fail(connection: AmqpClientConnection, operation: Method, fault: AmqpReplyError, now: int) -> None:
        changed: AmqpReplyError | None = fault
        if code in (0, fault.code) and method in ("", operation.method) and text in fault.detail:
            changed = change(connection, operation, fault)
        if changed is not None:
            original(connection, operation, changed, now)

    replace(broker.closing, "fail", fail)


def forgives(
    broker: Broker, kind: ErrorKind, *, cause: tuple[int, int] | None = None, words: str = ""
) -> None:
    """What is malformed in this way is dropped, with all that came with it, and the decoder begins again."""
    original = broker.closing.handle_malformed

    def malformed(connection: AmqpClientConnection, error: AmqpError, now: int) -> None:
        as_meant = cause in (None, (error.class_id, error.method_id)) and words in error.message
        if error.kind is kind and as_meant:
            connection.decoder = broker.closing.new_decoder(connection)
        else:
            original(connection, error, now)

    replace(broker.closing, "handle_malformed", malformed)


def on_reopening(broker: Broker, change: Callable[[Channel, Channel], object]) -> None:
    """A channel that is opened again is changed: ``change(channel that was closed, new channel)``."""
    original_leave, original_open = broker.channels.leave, broker.channels.open
    left: dict[tuple[int, int], Channel] = {}

    def leave(channel: Channel, now: int) -> None:
        left[channel.connection.id, channel.number] = copy(channel)
        original_leave(channel, now)

    def opens(connection: AmqpClientConnection, number: int) -> None:
        original_open(connection, number)
        if (before := left.get((connection.id, number))) is not None:
            change(before, connection.channels[number])

    replace(broker.channels, "leave", leave)
    replace(broker.channels, "open", opens)


def before_connection_errors(broker: Broker, change: Callable[[AmqpClientConnection], object]) -> None:
    """A connection is changed before an error closes it."""
    original = broker.closing.close

    def close(connection: AmqpClientConnection, *arguments: Any) -> None:
        change(connection)
        original(connection, *arguments)

    replace(broker.closing, "close", close)
