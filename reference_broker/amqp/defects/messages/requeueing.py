"""Defects in what is requeued: when, where, and how it is marked; basic.recover."""

from __future__ import annotations

from collections.abc import Iterable

from plumbline.reference_broker.amqp.connections.connection import (
    AmqpClientConnection,
    Channel,
    UnackedDelivery,
)
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import (
    before_connection_errors,
    before_handling,
    handling,
)
from plumbline.reference_broker.amqp.errors import AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import Handler, Phase
from plumbline.reference_broker.amqp.messages.message import QueueEntry
from plumbline.reference_broker.amqp.topology.queues import Queue, QueueConsumer
from plumbline.wire.amqp import Method


@defect("AMQP-REQUEUE-004")
def redelivered_is_never_set(broker: Broker) -> None:
    """redelivered is not set on messages that come again."""
    replace(broker.deliveries, "is_redelivered", lambda entry: False)


@defect("AMQP-REQUEUE-005")
def closed_channels_lose_messages(broker: Broker) -> None:
    """What is outstanding when a client closes a channel is lost."""

    def change(channel: Channel, operation: Method) -> Method:
        channel.outstanding = {}
        return operation

    before_handling(broker, "channel.close", change)


@defect("AMQP-REQUEUE-006")
def closed_connections_lose_messages(broker: Broker) -> None:
    """What is outstanding when a client closes its connection is lost."""

    @handling(broker, "connection.close", phase=Phase.RUNNING)
    def close(original: Handler, connection: AmqpClientConnection, operation: Method, now: int) -> None:
        for channel in connection.channels.values():
            channel.outstanding = {}
        original(connection, operation, now)


@defect("AMQP-REQUEUE-007", "AMQP-REQUEUE-008")
def lost_connections_lose_messages(broker: Broker) -> None:
    """What is outstanding when a socket is closed without connection.close is lost."""
    original = broker.on_disconnected

    def closed(connection_id: int, now: int) -> object:
        connection = broker.connections.get(connection_id)
        for channel in connection.channels.values() if connection is not None else ():
            channel.outstanding = {}
        return original(connection_id, now)

    replace(broker, "on_disconnected", closed)


@defect("AMQP-REQUEUE-009")
def failed_channels_lose_messages(broker: Broker) -> None:
    """What is outstanding when an error closes a channel is lost."""
    original = broker.closing.fail

    def fail(connection: AmqpClientConnection, operation: Method, fault: AmqpReplyError, now: int) -> None:
        if not fault.is_hard:
            connection.channels[operation.channel].outstanding = {}
        original(connection, operation, fault, now)

    replace(broker.closing, "fail", fail)


@defect("AMQP-REQUEUE-010")
def failed_connections_lose_messages(broker: Broker) -> None:
    """What is outstanding when an error closes a connection is lost."""

    def lose(connection: AmqpClientConnection) -> None:
        for channel in connection.channels.values():
            channel.outstanding = {}

    before_connection_errors(broker, lose)


@defect("AMQP-REQUEUE-011")
def requeued_comes_last(broker: Broker) -> None:
    """What is requeued goes to the end of its queue."""

    def put_back(queue: Queue, entry: QueueEntry) -> None:
        queue.last_position += 1
        entry.position = queue.last_position
        queue.append(entry)

    replace(broker.deliveries, "put_back", put_back)


@defect("AMQP-REQUEUE-013")
def requeued_waits_for_its_consumer(broker: Broker) -> None:
    """A requeued message is not given to another consumer than the first one."""
    first: dict[QueueEntry, object] = {}
    original_deliver, original_pump = broker.deliveries.deliver, broker.deliveries.deliver_ready

    def deliver(consumer: QueueConsumer, entry: QueueEntry, now: int) -> None:
        first.setdefault(entry, consumer)
        original_deliver(consumer, entry, now)

    def pump(queue: Queue, now: int) -> None:
        if len(queue.ready) and queue.turn:
            mine = first.get(queue.ready.first())
            if mine is not None and mine is not queue.turn[0]:
                return
        original_pump(queue, now)

    replace(broker.deliveries, "deliver", deliver)
    replace(broker.deliveries, "deliver_ready", pump)


# basic.recover


@defect("AMQP-RECOVER-002")
def recover_brings_back_what_was_acknowledged(broker: Broker) -> None:
    """basic.recover requeues the last delivery that was acknowledged, too."""
    original_ack = broker.acknowledging.acknowledge
    last: list[UnackedDelivery] = []

    def acknowledge(delivery: UnackedDelivery, now: int) -> None:
        last[:] = [delivery]
        original_ack(delivery, now)

    @handling(broker, "basic.recover", "basic.recover-async")
    def recovered(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        queues = broker.deliveries.requeue(last, now)
        last.clear()
        original(channel, operation, now)
        broker.deliveries.deliver_ready_all(queues, now)

    replace(broker.acknowledging, "acknowledge", acknowledge)


@defect("AMQP-RECOVER-003")
def recover_passes_over_what_was_got(broker: Broker) -> None:
    """basic.recover leaves out deliveries of basic.get."""

    @handling(broker, "basic.recover", "basic.recover-async")
    def recovered(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        got = {tag: one for tag, one in channel.outstanding.items() if one.consumer is None}
        for tag in got:
            del channel.outstanding[tag]
        original(channel, operation, now)
        channel.outstanding = dict(sorted({**channel.outstanding, **got}.items()))


@defect("AMQP-RECOVER-004")
def recover_takes_all_channels(broker: Broker) -> None:
    """basic.recover requeues what is outstanding on all channels of the connection."""

    @handling(broker, "basic.recover", "basic.recover-async")
    def recovered(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        for other in channel.connection.channels.values():
            if other is not channel:
                taken, other.outstanding = other.outstanding, {}
                broker.acknowledging.apply_settlement(taken, "requeue", now)
        original(channel, operation, now)


@defect("AMQP-RECOVER-005")
def recover_of_nothing_is_silent(broker: Broker) -> None:
    """basic.recover with nothing outstanding is not answered."""
    before_handling(
        broker, "basic.recover", lambda channel, operation: operation if channel.outstanding else None
    )


@defect("AMQP-RECOVER-008")
def recover_needs_the_consumer(broker: Broker) -> None:
    """basic.recover after basic.cancel loses what that consumer had."""
    original = broker.deliveries.requeue

    def requeue(deliveries: Iterable[UnackedDelivery], now: int) -> set[Queue]:
        return original(
            [
                one
                for one in deliveries
                if one.consumer is None
                or one.consumer.channel.closed
                or one.consumer.tag in one.consumer.channel.consumers
            ],
            now,
        )

    replace(broker.deliveries, "requeue", requeue)
