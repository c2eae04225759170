"""Defects in channels: opening, closing, the scope of errors, contents on them."""

from __future__ import annotations

from collections.abc import Sequence

from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection, Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import (
    before_handling,
    handling,
    on_faults,
)
from plumbline.reference_broker.amqp.errors import (
    AmqpReplyError,
)
from plumbline.reference_broker.amqp.lifecycle import OTHER, ChannelPhase, Handler
from plumbline.wire.amqp import AmqpError, Heartbeat, Method, Operation


@defect("AMQP-CHAN-001")
def open_ok_on_another_channel(broker: Broker) -> None:
    """channel.open of a connection's first channel is answered on channel 1, whatever its number."""

    def opens_channel(connection: AmqpClientConnection, number: int) -> None:
        first = not connection.channels
        connection.channels[number] = Channel(connection, number)
        broker.outbox.send(connection, 1 if first else number, "channel.open-ok", "")

    replace(broker.channels, "open", opens_channel)


@defect("AMQP-CHAN-006")
def channel_max_is_not_kept(broker: Broker) -> None:
    """More channels than channel_max can be opened."""
    original = broker.channels.open

    def opens_channel(connection: AmqpClientConnection, number: int) -> None:
        connection.channel_max, agreed = 65535, connection.channel_max
        original(connection, number)
        connection.channel_max = agreed

    replace(broker.channels, "open", opens_channel)


@defect("AMQP-CHAN-012")
def soft_errors_close_all_channels(broker: Broker) -> None:
    """After an error on one channel the others answer no more."""

    def change(connection: AmqpClientConnection, operation: Method, fault: AmqpReplyError) -> AmqpReplyError:
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
    opened: set[tuple[AmqpClientConnection, int]] = set()
    original_open = broker.channels.open

    def opens_channel(connection: AmqpClientConnection, number: int) -> None:
        original_open(connection, number)
        opened.add((connection, number))

    @handling(broker, OTHER, phase=ChannelPhase.UNOPENED)
    def refuse(original: Handler, connection: AmqpClientConnection, operation: Method, now: int) -> None:
        if (connection, operation.channel) not in opened:
            original(connection, operation, now)

    replace(broker.channels, "open", opens_channel)


@defect("AMQP-CHAN-019")
def contents_do_not_interleave(broker: Broker) -> None:
    """What comes on another channel together with a content is thrown away."""
    original = broker.decode

    def decode(
        connection: AmqpClientConnection, data: bytes | Sequence[Operation]
    ) -> tuple[Sequence[Operation], AmqpError | None]:
        held = connection.decoder.held > 0
        operations, error = original(connection, data)
        contents = [one for one in operations if isinstance(one, Method) and one.properties is not None]
        if held or contents:
            last = contents[-1].channel if contents else None
            return [one for one in operations if one.channel == last], error
        return operations, error

    replace(broker, "decode", decode)


@defect("AMQP-CHAN-019")
def heartbeats_end_contents(broker: Broker) -> None:
    """A message is lost if a heartbeat comes together with its frames."""
    original = broker.decode

    def decode(
        connection: AmqpClientConnection, data: bytes | Sequence[Operation]
    ) -> tuple[Sequence[Operation], AmqpError | None]:
        operations, error = original(connection, data)
        if any(isinstance(one, Heartbeat) for one in operations):
            operations = [
                one for one in operations if not (isinstance(one, Method) and one.properties is not None)
            ]
        return operations, error

    replace(broker, "decode", decode)


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


@defect("AMQP-ERRORS-001")
def returns_close_the_channel(broker: Broker) -> None:
    """An unroutable mandatory message closes the channel with 312, too."""
    original = broker.publishing.return_message

    def give_back(channel: Channel, message: object) -> None:
        original(channel, message)  # type: ignore[arg-type]
        broker.outbox.answer(channel, "channel.close", 312, "NO_ROUTE", 60, 40)
        channel.closing = True

    replace(broker.publishing, "return_message", give_back)
