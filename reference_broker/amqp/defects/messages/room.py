"""Defects in who has room again: several consumers, several deliveries, the limit of a channel."""

from __future__ import annotations

from collections.abc import Iterable

from plumbline.reference_broker.amqp.connections.connection import (
    AmqpClientConnection,
    Channel,
    UnackedDelivery,
)
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import handling
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.message import QueueEntry
from plumbline.reference_broker.amqp.topology.queues import Queue, QueueConsumer
from plumbline.wire.amqp import Method


def _keeps_places(broker: Broker, how: str, *, of_consumer: bool, first: int = 0) -> None:
    """What is settled so still counts, from number ``first`` on: for its consumer, or for its channel."""
    original = broker.acknowledging.apply_settlement

    def apply_settlement(deliveries: dict[int, UnackedDelivery], settlement: str, now: int) -> None:
        for delivery in list(deliveries.values())[first:] if settlement == how else ():
            if delivery.consumer is not None and of_consumer:
                delivery.consumer.outstanding += 1
            elif delivery.consumer is not None:
                delivery.consumer.channel.limited += 1
        original(deliveries, settlement, now)

    replace(broker.acknowledging, "apply_settlement", apply_settlement)


@defect("AMQP-QOS-005")
def rejects_free_no_shared_place(broker: Broker) -> None:
    """What is rejected still counts for the limit of the channel."""
    _keeps_places(broker, "discard", of_consumer=False)


@defect("AMQP-QOS-005")
def requeues_free_no_shared_place(broker: Broker) -> None:
    """What is given back still counts for the limit of the channel."""
    _keeps_places(broker, "requeue", of_consumer=False)


@defect("AMQP-QOS-005", "AMQP-RECOVER-001")
def requeue_of_several_frees_one_place(broker: Broker) -> None:
    """Of several deliveries that are given back together all but one still count for their consumer."""
    _keeps_places(broker, "requeue", of_consumer=True, first=1)


@defect("AMQP-QOS-007")
def channel_limits_hold_for_no_ack(broker: Broker) -> None:
    """The consumers without acknowledgements of a channel get no more messages than its limit."""
    original, original_deliver = broker.deliveries.has_capacity, broker.deliveries.deliver
    given: dict[Channel, int] = {}

    def has_capacity(consumer: QueueConsumer) -> bool:
        limit = consumer.channel.limit if consumer.no_ack else 0
        return not (limit and given.get(consumer.channel, 0) >= limit) and original(consumer)

    def deliver(consumer: QueueConsumer, entry: QueueEntry, now: int) -> None:
        if consumer.no_ack:
            given[consumer.channel] = given.get(consumer.channel, 0) + 1
        original_deliver(consumer, entry, now)

    replace(broker.deliveries, "has_capacity", has_capacity)
    replace(broker.deliveries, "deliver", deliver)


@defect("AMQP-QOS-013", "AMQP-QOS-014")
def changed_limits_reach_one_consumer(broker: Broker) -> None:
    """When the limit of a channel changes, only its first consumer is served at once."""

    def offer_again(channel: Channel, now: int) -> None:
        for consumer in list(channel.consumers.values())[:1]:
            if not consumer.active:
                broker.deliveries.wait_for_turn(consumer)
            broker.deliveries.deliver_ready(consumer.queue, now)

    replace(broker.deliveries, "offer_again", offer_again)


def _resumes_one(broker: Broker, how: str) -> None:
    """Of the consumers whose deliveries are settled together only that of the last is served at once."""
    original, original_resume = broker.acknowledging.apply_settlement, broker.acknowledging.resume_delivery
    ready: list[UnackedDelivery] = []

    def apply_settlement(deliveries: dict[int, UnackedDelivery], settlement: str, now: int) -> None:
        ready[:] = list(deliveries.values())[-1:] if settlement == how else deliveries.values()
        original(deliveries, settlement, now)

    def resume_delivery(delivery: UnackedDelivery, now: int) -> None:
        if delivery in ready:
            original_resume(delivery, now)

    replace(broker.acknowledging, "apply_settlement", apply_settlement)
    replace(broker.acknowledging, "resume_delivery", resume_delivery)


@defect("AMQP-QOS-004")
def ack_multiple_serves_one_consumer(broker: Broker) -> None:
    """After an ack with multiple only the consumer of its last delivery is served."""
    _resumes_one(broker, "ack")


@defect("AMQP-QOS-005")
def nack_multiple_serves_one_consumer(broker: Broker) -> None:
    """After a nack with multiple only the consumer of its last delivery is served."""
    _resumes_one(broker, "discard")


@defect("AMQP-QOS-025")
def prefetch_is_the_connections(broker: Broker) -> None:
    """basic.qos sets the prefetch count of every channel of the connection that is open."""

    @handling(broker, "basic.qos")
    def sets_qos(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        original(channel, operation, now)
        for other in channel.connection.channels.values():
            other.prefetch = channel.prefetch


@defect("AMQP-QOS-025")
def prefetch_outlives_its_channel(broker: Broker) -> None:
    """A channel that is opened again has the prefetch count that it had."""
    known: dict[tuple[int, int], int] = {}
    original = broker.channels.open

    @handling(broker, "basic.qos")
    def sets_qos(other: Handler, channel: Channel, operation: Method, now: int) -> None:
        other(channel, operation, now)
        known[channel.connection.id, channel.number] = channel.prefetch

    def opened(connection: AmqpClientConnection, number: int) -> None:
        original(connection, number)
        connection.channels[number].prefetch = known.get((connection.id, number), 0)

    replace(broker.channels, "open", opened)


@defect("AMQP-QOS-006")
def prefetch_0_changes_nothing(broker: Broker) -> None:
    """basic.qos with a prefetch_count of 0 leaves the one that was set before."""

    @handling(broker, "basic.qos")
    def sets_qos(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        before = channel.prefetch
        original(channel, operation, now)
        channel.prefetch = channel.prefetch or before


# What is given back together, and belongs to several queues or channels


def _one_queue(deliveries: dict[int, UnackedDelivery]) -> dict[int, UnackedDelivery]:
    """Those of the queue of the first."""
    first = next(iter(deliveries.values()), None)
    return {tag: one for tag, one in deliveries.items() if first is not None and one.queue is first.queue}


@defect("AMQP-RECOVER-001", "AMQP-RECOVER-007")
def recover_gives_back_to_one_queue(broker: Broker) -> None:
    """basic.recover leaves out deliveries of other queues than that of the first."""

    @handling(broker, "basic.recover", "basic.recover-async")
    def recovered(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        held = channel.outstanding
        channel.outstanding = _one_queue(held)
        original(channel, operation, now)
        channel.outstanding.update({tag: one for tag, one in held.items() if one.queue not in _queues(held)})


def _queues(deliveries: dict[int, UnackedDelivery]) -> set[Queue]:
    return {one.queue for one in _one_queue(deliveries).values()}


@defect("AMQP-RECOVER-007")
def recover_async_passes_over_what_was_got(broker: Broker) -> None:
    """basic.recover-async leaves out deliveries of basic.get."""

    @handling(broker, "basic.recover-async")
    def recovered(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        got = {tag: one for tag, one in channel.outstanding.items() if one.consumer is None}
        for tag in got:
            del channel.outstanding[tag]
        original(channel, operation, now)
        channel.outstanding = dict(sorted({**channel.outstanding, **got}.items()))


@defect("AMQP-REQUEUE-005", "AMQP-REQUEUE-009")
def channels_give_back_to_one_queue(broker: Broker) -> None:
    """When a channel ends, what it has not settled of a second queue is lost."""
    original = broker.channels.leave

    def leave(channel: Channel, now: int) -> None:
        channel.outstanding = _one_queue(channel.outstanding)
        original(channel, now)

    replace(broker.channels, "leave", leave)


@defect("AMQP-REQUEUE-006", "AMQP-REQUEUE-007", "AMQP-REQUEUE-008", "AMQP-REQUEUE-010")
def connections_give_back_of_one_channel(broker: Broker) -> None:
    """When a connection ends, what its channels but the first have not settled is lost."""
    original = broker.channels.leave_all

    def leave_all(connection: AmqpClientConnection, now: int) -> None:
        for channel in list(connection.channels.values())[1:]:
            channel.outstanding = {}
        original(connection, now)

    replace(broker.channels, "leave_all", leave_all)


@defect("AMQP-REQUEUE-018")
def requeue_looks_for_the_name_of_the_queue(broker: Broker) -> None:
    """What a queue that was deleted should get back goes to the queue that has its name now."""
    original = broker.deliveries.requeue

    def requeue(deliveries: Iterable[UnackedDelivery], now: int) -> set[Queue]:
        for delivery in deliveries:
            vhost = broker.vhosts[delivery.queue.vhost]
            delivery.queue = vhost.queues.get(delivery.queue.name, delivery.queue)
        return original(deliveries, now)

    replace(broker.deliveries, "requeue", requeue)


@defect("AMQP-CONSUME-003")
def redelivered_is_of_the_message(broker: Broker) -> None:
    """A message that one queue got back is marked as redelivered in all that have it."""
    original = broker.deliveries.requeue
    seen: list[object] = []

    def requeue(deliveries: Iterable[UnackedDelivery], now: int) -> set[Queue]:
        seen.extend(delivery.entry.message for delivery in deliveries)
        return original(deliveries, now)

    replace(broker.deliveries, "requeue", requeue)
    replace(
        broker.deliveries,
        "is_redelivered",
        lambda entry: entry.redelivered or any(one is entry.message for one in seen),
    )
