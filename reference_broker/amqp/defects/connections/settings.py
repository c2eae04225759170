"""Defects in what settings limit: the time for an acknowledgement, the size of a message, memory."""

from __future__ import annotations

from collections.abc import Iterable

from plumbline.reference_broker.amqp.config import NS
from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection, Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import before_sending, handling
from plumbline.reference_broker.amqp.errors import PRECONDITION_FAILED
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.outbox import Output
from plumbline.wire.amqp import Method, Operation

# The time for an acknowledgement


def _timeout(broker: Broker, factor: float) -> None:
    broker.deliveries.consumer_timeout = round(broker.config.consumer_timeout * factor * NS)


@defect("AMQP-CONSUME-028")
def consumers_time_out_at_half(broker: Broker) -> None:
    """A channel is closed after half of consumer_timeout."""
    _timeout(broker, 0.5)


@defect("AMQP-CONSUME-028")
def consumers_time_out_late(broker: Broker) -> None:
    """A channel is closed after six times consumer_timeout."""
    _timeout(broker, 6)


@defect("AMQP-CONSUME-028", "AMQP-CONSUME-033", "AMQP-CONSUME-034")
def consumers_never_time_out(broker: Broker) -> None:
    """consumer_timeout is ignored."""
    _timeout(broker, 1e6)


@defect("AMQP-CONSUME-028")
def timeouts_close_with_another_code(broker: Broker) -> None:
    """A channel whose consumer does not acknowledge is closed with 404."""
    original = broker.channels.close

    def close(channel: Channel, code: int, detail: str, cause: tuple[int, int], now: int) -> None:
        original(channel, 404 if "timed out" in detail else code, detail, cause, now)

    replace(broker.channels, "close", close)


@defect("AMQP-CONSUME-028", "AMQP-CONSUME-034")
def timeouts_close_the_connection(broker: Broker) -> None:
    """A consumer that does not acknowledge in time ends its connection."""

    def end_overdue(connection: AmqpClientConnection, now: int) -> None:
        if broker.deliveries.overdue(connection, now) is not None:
            text = "delivery acknowledgement timed out"
            broker.closing.close(connection, PRECONDITION_FAILED, text, (0, 0), 0, now)

    replace(broker, "end_overdue", end_overdue)


@defect("AMQP-CONSUME-034")
def timeouts_close_all_channels(broker: Broker) -> None:
    """A consumer that does not acknowledge in time ends every channel of its connection."""

    def end_overdue(connection: AmqpClientConnection, now: int) -> None:
        if broker.deliveries.overdue(connection, now) is not None:
            for channel in list(connection.channels.values()):
                broker.channels.close(channel, PRECONDITION_FAILED, "timed out", (0, 0), now)

    replace(broker, "end_overdue", end_overdue)


@defect("AMQP-CONSUME-033")
def timeouts_drop_what_was_delivered(broker: Broker) -> None:
    """What a consumer did not acknowledge in time is lost."""
    original = broker.channels.close

    def close(channel: Channel, code: int, detail: str, cause: tuple[int, int], now: int) -> None:
        if "timed out" in detail:
            for delivery in channel.outstanding.values():
                broker.deliveries.discard(delivery.queue, delivery.entry)
            channel.outstanding = {}
        original(channel, code, detail, cause, now)

    replace(broker.channels, "close", close)


@defect("AMQP-CONSUME-033")
def timeouts_forget_the_delivery(broker: Broker) -> None:
    """What a consumer did not acknowledge in time is delivered again as if for the first time."""
    original = broker.channels.close

    def close(channel: Channel, code: int, detail: str, cause: tuple[int, int], now: int) -> None:
        entries = [delivery.entry for delivery in channel.outstanding.values()]
        original(channel, code, detail, cause, now)
        if "timed out" in detail:
            for entry in entries:
                entry.redelivered = False

    replace(broker.channels, "close", close)


@defect("AMQP-CONSUME-035")
def acknowledgements_do_not_stop_the_timeout(broker: Broker) -> None:
    """consumer_timeout runs from the first delivery of a channel, whatever is acknowledged."""
    first: dict[Channel, int] = {}
    original = broker.deliveries.watch

    def watch(connection: AmqpClientConnection, since: int) -> None:
        for channel in connection.channels.values():
            if channel.outstanding:
                since = min(since, first.setdefault(channel, since))
        original(connection, since)

    def overdue(connection: AmqpClientConnection, now: int) -> Channel | None:
        connection.is_watched = False
        late = [channel for channel in connection.channels.values() if channel in first and channel.consumers]
        return late[0] if late else None

    replace(broker.deliveries, "watch", watch)
    replace(broker.deliveries, "overdue", overdue)


@defect("AMQP-CONSUME-036")
def no_ack_consumers_time_out(broker: Broker) -> None:
    """A consumer with no_ack is ended by consumer_timeout."""
    original = broker.deliveries.overdue
    waiting: dict[Channel, int] = {}

    @handling(broker, "basic.consume")
    def consume(handler: Handler, channel: Channel, operation: Method, now: int) -> None:
        handler(channel, operation, now)
        if operation.arguments["no_ack"]:
            waiting[channel] = now
            broker.deliveries.watch(channel.connection, now)

    def overdue(connection: AmqpClientConnection, now: int) -> Channel | None:
        for channel, since in list(waiting.items()):
            if channel.connection is connection and since + broker.deliveries.consumer_timeout <= now:
                del waiting[channel]
                return channel
        return original(connection, now)

    replace(broker.deliveries, "overdue", overdue)


# The size of a message


@defect("AMQP-PUB-014")
def messages_have_any_size(broker: Broker) -> None:
    """max_message_size is ignored."""
    replace(broker.publishing, "check_size", lambda operation: None)


@defect("AMQP-PUB-019")
def the_largest_message_is_too_large(broker: Broker) -> None:
    """A message of exactly max_message_size is refused."""
    broker.publishing.max_message_size -= 1


@defect("AMQP-PUB-020")
def what_is_too_large_is_stored(broker: Broker) -> None:
    """A message that is refused for its size is in its queue all the same."""
    original = broker.publishing.check_size

    @handling(broker, "basic.publish")
    def publish(handler: Handler, channel: Channel, operation: Method, now: int) -> None:
        if len(operation.body) > broker.publishing.max_message_size:
            replace(broker.publishing, "check_size", lambda operation: None)
            handler(channel, operation, now)
            replace(broker.publishing, "check_size", original)
            original(operation)
        else:
            handler(channel, operation, now)


# Memory


def _silent(broker: Broker, method: str) -> None:
    before_sending(broker, method, lambda connection, number, values: None)


@defect("AMQP-CONN-044", "AMQP-CONN-046")
def waiting_publishers_are_not_told(broker: Broker) -> None:
    """connection.blocked is not sent."""
    _silent(broker, "connection.blocked")


@defect("AMQP-CONN-046")
def the_end_of_an_alarm_is_not_told(broker: Broker) -> None:
    """connection.unblocked is not sent."""
    _silent(broker, "connection.unblocked")


@defect("AMQP-CONN-045")
def blocked_publishers_publish(broker: Broker) -> None:
    """During an alarm messages are queued and confirmed."""

    def handle_all(connection: AmqpClientConnection, operations: Iterable[Operation], now: int) -> None:
        for operation in operations:
            if not connection.ending:
                broker.handle(connection, operation, now)

    replace(broker, "handle_all", handle_all)


@defect("AMQP-CONN-047")
def what_waited_is_lost(broker: Broker) -> None:
    """What was published during an alarm is dropped at its end."""
    original = broker.unblock

    def unblock(now: int) -> list[Output]:
        for connection in broker.connections.values():
            if connection.held_operations is not None:
                connection.held_operations = []
        return original(now)

    replace(broker, "unblock", unblock)


@defect("AMQP-CONN-047")
def what_waited_comes_in_reverse(broker: Broker) -> None:
    """What was published during an alarm is queued with the last first."""
    original = broker.unblock

    def unblock(now: int) -> list[Output]:
        for connection in broker.connections.values():
            if connection.held_operations is not None:
                connection.held_operations.reverse()
        return original(now)

    replace(broker, "unblock", unblock)


@defect("AMQP-CONN-048")
def every_client_is_told_of_alarms(broker: Broker) -> None:
    """connection.blocked is sent to clients that do not know it."""
    replace(broker.blocking, "is_known_to", lambda connection: True)


@defect("AMQP-CONN-049")
def consumers_wait_too(broker: Broker) -> None:
    """During an alarm no queue delivers anything."""
    original = broker.deliveries.deliver_ready

    def deliver_ready(queue: object, now: int) -> None:
        if broker.blocking.reason is None:
            original(queue, now)  # type: ignore[arg-type]

    replace(broker.deliveries, "deliver_ready", deliver_ready)
