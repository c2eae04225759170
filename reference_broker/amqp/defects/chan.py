"""Defects in channels: opening, closing, the scope of errors, contents on them."""

from __future__ import annotations

from collections.abc import Sequence

from plumbline.reference_broker.amqp.connection import Channel, Connection
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import (
    before_handling,
    before_sending,
    forgives,
    handling,
    never_sent,
    on_faults,
    overlooked,
    refused_with,
)
from plumbline.reference_broker.amqp.errors import (
    ACCESS_REFUSED,
    CHANNEL_ERROR,
    COMMAND_INVALID,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
    SYNTAX_ERROR,
    AmqpFault,
)
from plumbline.reference_broker.amqp.lifecycle import OTHER, ChannelPhase, Handler, Phase
from plumbline.wire.amqp import AmqpError, Method, Operation
from plumbline.wire.errors import ErrorKind


@defect(
    "open-ok-on-another-channel",
    breaks=("AMQP-CHAN-001",),
    summary="channel.open of a connection's first channel is answered on channel 1, whatever its number.",
)
def _(broker: Broker) -> None:
    def opens_channel(connection: Connection, number: int) -> None:
        first = not connection.channels
        connection.channels[number] = Channel(connection, number)
        broker.outbox.send(connection, 1 if first else number, "channel.open-ok", "")

    replace(broker.channels, "open", opens_channel)


@defect(
    "second-channel-open-is-answered",
    breaks=("AMQP-CHAN-002",),
    summary="channel.open of an open channel is ignored.",
)
def _(broker: Broker) -> None:
    overlooked(broker, code=CHANNEL_ERROR, text="second 'channel.open'")


@defect(
    "methods-on-closed-channels-are-dropped",
    breaks=("AMQP-CHAN-003", "AMQP-ERRORS-010"),
    summary="Methods on a channel that was never opened are ignored.",
)
def _(broker: Broker) -> None:
    @handling(broker, OTHER, phase=ChannelPhase.UNOPENED)
    def refuse(original: Handler, connection: Connection, operation: Method, now: int) -> None:
        if operation.method in ("channel.close", "channel.close-ok"):
            original(connection, operation, now)


@defect(
    "channel-0-takes-any-method",
    breaks=("AMQP-CHAN-004",),
    summary="Methods of channels are ignored on channel 0.",
)
def _(broker: Broker) -> None:
    @handling(broker, OTHER, phase=Phase.RUNNING)
    def refuse(original: Handler, connection: Connection, operation: Method, now: int) -> None:
        if operation.method.startswith("connection."):
            original(connection, operation, now)


@defect(
    "connection-methods-on-channels-are-dropped",
    breaks=("AMQP-CHAN-005",),
    summary="Methods of the connection are ignored on a channel.",
)
def _(broker: Broker) -> None:
    @handling(broker, OTHER)
    def refuse(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        if not operation.method.startswith("connection."):
            original(channel, operation, now)


@defect(
    "channel-max-is-not-kept",
    breaks=("AMQP-CHAN-006",),
    summary="More channels than channel_max can be opened.",
)
def _(broker: Broker) -> None:
    original = broker.channels.open

    def opens_channel(connection: Connection, number: int) -> None:
        connection.channel_max, agreed = 65535, connection.channel_max
        original(connection, number)
        connection.channel_max = agreed

    replace(broker.channels, "open", opens_channel)


@defect(
    "channel-close-is-not-answered",
    breaks=("AMQP-CHAN-008",),
    summary="channel.close of another channel than 1 gets no close-ok.",
)
def _(broker: Broker) -> None:
    before_sending(
        broker, "channel.close-ok", lambda connection, number, values: values if number == 1 else None
    )


@defect(
    "unopened-channel-can-be-closed",
    breaks=("AMQP-CHAN-009",),
    summary="channel.close of a channel that was never opened is ignored.",
)
def _(broker: Broker) -> None:
    overlooked(broker, code=CHANNEL_ERROR, method="channel.close")


@defect(
    "soft-errors-close-all-channels",
    breaks=("AMQP-CHAN-012",),
    summary="After an error on one channel the others answer no more.",
)
def _(broker: Broker) -> None:
    def change(connection: Connection, operation: Method, fault: AmqpFault) -> AmqpFault:
        if not fault.is_hard:
            for channel in connection.channels.values():
                channel.closing = True
        return fault

    on_faults(broker, change)


@defect(
    "closing-channels-still-work",
    breaks=("AMQP-CHAN-013",),
    summary="Methods that come between channel.close and its close-ok are carried out.",
)
def _(broker: Broker) -> None:
    broker.handlers[ChannelPhase.CLOSING] = {
        **broker.handlers[ChannelPhase.OPENED],
        "channel.close": broker.handlers[ChannelPhase.CLOSING]["channel.close"],
        "channel.close-ok": broker.handlers[ChannelPhase.CLOSING]["channel.close-ok"],
    }


@defect(
    "failed-channels-stay-closed",
    breaks=("AMQP-CHAN-014",),
    summary="After an error and its close-ok the channel's number cannot be opened again.",
)
def _(broker: Broker) -> None:
    @handling(broker, "channel.close-ok", phase=ChannelPhase.CLOSING)
    def close_ok(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        """The channel keeps its number."""


@defect(
    "closed-channels-swallow-methods",
    breaks=("AMQP-CHAN-015",),
    summary="Methods on a channel that was closed are ignored.",
)
def _(broker: Broker) -> None:
    opened: set[tuple[Connection, int]] = set()
    original_open = broker.channels.open

    def opens_channel(connection: Connection, number: int) -> None:
        original_open(connection, number)
        opened.add((connection, number))

    @handling(broker, OTHER, phase=ChannelPhase.UNOPENED)
    def refuse(original: Handler, connection: Connection, operation: Method, now: int) -> None:
        if (connection, operation.channel) not in opened:
            original(connection, operation, now)

    replace(broker.channels, "open", opens_channel)


@defect(
    "hard-errors-on-the-channel",
    breaks=("AMQP-CHAN-016",),
    summary="connection.close after an error of a channel is sent on channel 1.",
)
def _(broker: Broker) -> None:
    original = broker.outbox.send

    def send(connection: Connection, number: int, name: str, *values: object) -> None:
        original(connection, 1 if name == "connection.close" else number, name, *values)

    replace(broker.outbox, "send", send)


@defect("flow-is-not-answered", breaks=("AMQP-CHAN-017",), summary="channel.flow gets no flow-ok.")
def _(broker: Broker) -> None:
    never_sent(broker, "channel.flow-ok")


@defect(
    "contents-do-not-interleave",
    breaks=("AMQP-CHAN-019",),
    summary="What comes on another channel together with a content is thrown away.",
)
def _(broker: Broker) -> None:
    original = broker.decode

    def decode(
        connection: Connection, data: bytes | Sequence[Operation]
    ) -> tuple[Sequence[Operation], AmqpError | None]:
        held = connection.decoder.held > 0
        operations, error = original(connection, data)
        contents = [one for one in operations if isinstance(one, Method) and one.properties is not None]
        if held or contents:
            last = contents[-1].channel if contents else None
            return [one for one in operations if one.channel == last], error
        return operations, error

    replace(broker, "decode", decode)


@defect(
    "interrupted-contents-are-forgotten",
    breaks=("AMQP-CHAN-020",),
    summary="A method in the place of a content header or body is no error.",
)
def _(broker: Broker) -> None:
    forgives(broker, ErrorKind.UNEXPECTED_FRAME, cause=(60, 40), words="frame type")


@defect(
    "contents-without-method-are-dropped",
    breaks=("AMQP-CHAN-021", "AMQP-ERRORS-011"),
    summary="Header and body frames without a method are dropped.",
)
def _(broker: Broker) -> None:
    forgives(broker, ErrorKind.UNEXPECTED_FRAME, cause=(0, 0), words="where a method")


@defect(
    "content-class-is-not-checked",
    breaks=("AMQP-CHAN-022",),
    summary="A content header of another class than its method is no error.",
)
def _(broker: Broker) -> None:
    forgives(broker, ErrorKind.UNEXPECTED_FRAME, words="a content header of class")


@defect(
    "bodies-may-be-longer",
    breaks=("AMQP-CHAN-024",),
    summary="A body longer than its header said is no error.",
)
def _(broker: Broker) -> None:
    forgives(broker, ErrorKind.UNEXPECTED_FRAME, words="more than the body has")
    forgives(broker, ErrorKind.UNEXPECTED_FRAME, words="frame type 3 where a method")


@defect(
    "empty-bodies-are-lost",
    breaks=("AMQP-CHAN-025",),
    summary="A message with a body of no bytes is lost.",
)
def _(broker: Broker) -> None:
    before_handling(broker, "basic.publish", lambda channel, operation: operation if operation.body else None)


@defect(
    "server-methods-are-dropped",
    breaks=("AMQP-CHAN-028",),
    summary="Methods that only servers send are ignored.",
)
def _(broker: Broker) -> None:
    @handling(broker, OTHER)
    def refuse(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        if operation.sent_by != "server" or operation.method.startswith("connection."):
            original(channel, operation, now)


# The codes themselves


@defect(
    "returns-close-the-channel",
    breaks=("AMQP-ERRORS-001",),
    summary="An unroutable mandatory message closes the channel with 312, too.",
)
def _(broker: Broker) -> None:
    original = broker.publishing.give_back

    def give_back(channel: Channel, message: object) -> None:
        original(channel, message)  # type: ignore[arg-type]
        broker.outbox.answer(channel, "channel.close", 312, "NO_ROUTE", 60, 40)
        channel.closing = True

    replace(broker.publishing, "give_back", give_back)


for _name, _code, _requirement, _other in (
    ("access-refused-is-a-connection-error", ACCESS_REFUSED, "AMQP-ERRORS-003", NOT_ALLOWED),
    ("not-found-is-a-connection-error", NOT_FOUND, "AMQP-ERRORS-004", NOT_ALLOWED),
    ("locked-is-a-connection-error", RESOURCE_LOCKED, "AMQP-ERRORS-005", NOT_ALLOWED),
    ("precondition-failed-is-a-connection-error", PRECONDITION_FAILED, "AMQP-ERRORS-006", NOT_ALLOWED),
    ("command-invalid-is-a-syntax-error", COMMAND_INVALID, "AMQP-ERRORS-009", SYNTAX_ERROR),
    ("not-implemented-is-a-channel-error", NOT_IMPLEMENTED, "AMQP-ERRORS-013", PRECONDITION_FAILED),
):

    def _alter(broker: Broker, code: int = _code, other: int = _other) -> None:
        refused_with(broker, other, code=code)

    defect(_name, breaks=(_requirement,), summary=f"What should be refused with {_code} is with {_other}.")(
        _alter
    )
