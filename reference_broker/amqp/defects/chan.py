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


@defect("AMQP-CHAN-001")
def open_ok_on_another_channel(broker: Broker) -> None:
    """channel.open of a connection's first channel is answered on channel 1, whatever its number."""

    def opens_channel(connection: Connection, number: int) -> None:
        first = not connection.channels
        connection.channels[number] = Channel(connection, number)
        broker.outbox.send(connection, 1 if first else number, "channel.open-ok", "")

    replace(broker.channels, "open", opens_channel)


@defect("AMQP-CHAN-002")
def second_channel_open_is_answered(broker: Broker) -> None:
    """channel.open of an open channel is ignored."""
    overlooked(broker, code=CHANNEL_ERROR, text="second 'channel.open'")


@defect("AMQP-CHAN-003", "AMQP-ERRORS-010")
def methods_on_closed_channels_are_dropped(broker: Broker) -> None:
    """Methods on a channel that was never opened are ignored."""

    @handling(broker, OTHER, phase=ChannelPhase.UNOPENED)
    def refuse(original: Handler, connection: Connection, operation: Method, now: int) -> None:
        if operation.method in ("channel.close", "channel.close-ok"):
            original(connection, operation, now)


@defect("AMQP-CHAN-004")
def channel_0_takes_any_method(broker: Broker) -> None:
    """Methods of channels are ignored on channel 0."""

    @handling(broker, OTHER, phase=Phase.RUNNING)
    def refuse(original: Handler, connection: Connection, operation: Method, now: int) -> None:
        if operation.method.startswith("connection."):
            original(connection, operation, now)


@defect("AMQP-CHAN-005")
def connection_methods_on_channels_are_dropped(broker: Broker) -> None:
    """Methods of the connection are ignored on a channel."""

    @handling(broker, OTHER)
    def refuse(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        if not operation.method.startswith("connection."):
            original(channel, operation, now)


@defect("AMQP-CHAN-006")
def channel_max_is_not_kept(broker: Broker) -> None:
    """More channels than channel_max can be opened."""
    original = broker.channels.open

    def opens_channel(connection: Connection, number: int) -> None:
        connection.channel_max, agreed = 65535, connection.channel_max
        original(connection, number)
        connection.channel_max = agreed

    replace(broker.channels, "open", opens_channel)


@defect("AMQP-CHAN-008")
def channel_close_is_not_answered(broker: Broker) -> None:
    """channel.close of another channel than 1 gets no close-ok."""
    before_sending(
        broker, "channel.close-ok", lambda connection, number, values: values if number == 1 else None
    )


@defect("AMQP-CHAN-009")
def unopened_channel_can_be_closed(broker: Broker) -> None:
    """channel.close of a channel that was never opened is ignored."""
    overlooked(broker, code=CHANNEL_ERROR, method="channel.close")


@defect("AMQP-CHAN-012")
def soft_errors_close_all_channels(broker: Broker) -> None:
    """After an error on one channel the others answer no more."""

    def change(connection: Connection, operation: Method, fault: AmqpFault) -> AmqpFault:
        if not fault.is_hard:
            for channel in connection.channels.values():
                channel.closing = True
        return fault

    on_faults(broker, change)


@defect("AMQP-CHAN-013")
def closing_channels_still_work(broker: Broker) -> None:
    """Methods that come between channel.close and its close-ok are carried out."""
    broker.handlers[ChannelPhase.CLOSING] = {
        **broker.handlers[ChannelPhase.OPENED],
        "channel.close": broker.handlers[ChannelPhase.CLOSING]["channel.close"],
        "channel.close-ok": broker.handlers[ChannelPhase.CLOSING]["channel.close-ok"],
    }


@defect("AMQP-CHAN-014")
def failed_channels_stay_closed(broker: Broker) -> None:
    """After an error and its close-ok the channel's number cannot be opened again."""

    @handling(broker, "channel.close-ok", phase=ChannelPhase.CLOSING)
    def close_ok(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        """The channel keeps its number."""


@defect("AMQP-CHAN-015")
def closed_channels_swallow_methods(broker: Broker) -> None:
    """Methods on a channel that was closed are ignored."""
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


@defect("AMQP-CHAN-016")
def hard_errors_on_the_channel(broker: Broker) -> None:
    """connection.close after an error of a channel is sent on channel 1."""
    original = broker.outbox.send

    def send(connection: Connection, number: int, name: str, *values: object) -> None:
        original(connection, 1 if name == "connection.close" else number, name, *values)

    replace(broker.outbox, "send", send)


@defect("AMQP-CHAN-017")
def flow_is_not_answered(broker: Broker) -> None:
    """channel.flow gets no flow-ok."""
    never_sent(broker, "channel.flow-ok")


@defect("AMQP-CHAN-019")
def contents_do_not_interleave(broker: Broker) -> None:
    """What comes on another channel together with a content is thrown away."""
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


@defect("AMQP-CHAN-020")
def interrupted_contents_are_forgotten(broker: Broker) -> None:
    """A method in the place of a content header or body is no error."""
    forgives(broker, ErrorKind.UNEXPECTED_FRAME, cause=(60, 40), words="frame type")


@defect("AMQP-CHAN-021", "AMQP-ERRORS-011")
def contents_without_method_are_dropped(broker: Broker) -> None:
    """Header and body frames without a method are dropped."""
    forgives(broker, ErrorKind.UNEXPECTED_FRAME, cause=(0, 0), words="where a method")


@defect("AMQP-CHAN-022")
def content_class_is_not_checked(broker: Broker) -> None:
    """A content header of another class than its method is no error."""
    forgives(broker, ErrorKind.UNEXPECTED_FRAME, words="a content header of class")


@defect("AMQP-CHAN-024")
def bodies_may_be_longer(broker: Broker) -> None:
    """A body longer than its header said is no error."""
    forgives(broker, ErrorKind.UNEXPECTED_FRAME, words="more than the body has")
    forgives(broker, ErrorKind.UNEXPECTED_FRAME, words="frame type 3 where a method")


@defect("AMQP-CHAN-025")
def empty_bodies_are_lost(broker: Broker) -> None:
    """A message with a body of no bytes is lost."""
    before_handling(broker, "basic.publish", lambda channel, operation: operation if operation.body else None)


@defect("AMQP-CHAN-028")
def server_methods_are_dropped(broker: Broker) -> None:
    """Methods that only servers send are ignored."""

    @handling(broker, OTHER)
    def refuse(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        if operation.sent_by != "server" or operation.method.startswith("connection."):
            original(channel, operation, now)


# The codes themselves


@defect("AMQP-ERRORS-001")
def returns_close_the_channel(broker: Broker) -> None:
    """An unroutable mandatory message closes the channel with 312, too."""
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
