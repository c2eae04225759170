"""Defects in whose turn it is: priorities, single active consumers, round robin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace as with_fields

from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import before_handling, with_arguments
from plumbline.reference_broker.amqp.topology.queues import Queue, QueueConsumer
from plumbline.wire.amqp import Method


@defect("AMQP-CONSUME-030")
def priorities_are_ignored(broker: Broker) -> None:
    """x-max-priority means nothing."""

    def change(channel: Channel, operation: Method) -> Method:
        table = operation.arguments["arguments"]
        return with_arguments(
            operation, arguments={name: value for name, value in table.items() if name != "x-max-priority"}
        )

    before_handling(broker, "queue.declare", change)


def _priorities(broker: Broker, change: Callable[[int], int]) -> None:
    """What is published has another priority for the queue, but is delivered as it came."""

    def changed(channel: Channel, operation: Method) -> Method:
        priority = (operation.properties or {}).get("priority")
        if priority is None:
            return operation
        return with_fields(
            operation, properties={**(operation.properties or {}), "priority": change(priority)}
        )

    before_handling(broker, "basic.publish", changed)


@defect("AMQP-CONSUME-030")
def low_priorities_come_first(broker: Broker) -> None:
    """Messages of lower priority are delivered first."""
    _priorities(broker, lambda priority: max(5 - priority, 0))


@defect("AMQP-CONSUME-030")
def too_high_priorities_are_none(broker: Broker) -> None:
    """A priority above the maximum is taken as none."""
    _priorities(broker, lambda priority: 0 if priority > 5 else priority)


@defect("AMQP-CONSUME-030")
def two_priorities_are_known(broker: Broker) -> None:
    """Priorities are low or high, nothing between."""
    _priorities(broker, lambda priority: 5 if priority >= 3 else 0)


@defect("AMQP-CONSUME-031")
def every_queue_has_priorities(broker: Broker) -> None:
    """A queue without x-max-priority has ten priorities."""

    def change(channel: Channel, operation: Method) -> Method:
        table = operation.arguments["arguments"]
        return with_arguments(operation, arguments={"x-max-priority": 9, **table})

    before_handling(broker, "queue.declare", change)


@defect("AMQP-CONSUME-032")
def all_consumers_are_active(broker: Broker) -> None:
    """x-single-active-consumer means nothing."""
    original = broker.queue_methods.make_queue

    def make_queue(*arguments: Any) -> Queue:
        queue = original(*arguments)
        queue.single_active = False
        return queue

    replace(broker.queue_methods, "make_queue", make_queue)


@defect("AMQP-CONSUME-032")
def nobody_takes_over(broker: Broker) -> None:
    """When the single active consumer ends, no other one becomes active."""
    original = broker.topology.consumer_gone

    def consumer_gone(queue: Queue, now: int) -> None:
        if queue.single_active:
            for consumer in queue.consumers:
                queue.leave_turn(consumer)
        original(queue, now)

    replace(broker.topology, "consumer_gone", consumer_gone)


@defect("AMQP-CONSUME-032")
def lost_channels_stay_active(broker: Broker) -> None:
    """When the single active consumer ends with its channel, no other one becomes active."""
    original = broker.channels.leave

    def leave(channel: Channel, now: int) -> None:
        queues = [consumer.queue for consumer in channel.consumers.values()]
        original(channel, now)
        for queue in queues:
            for consumer in queue.consumers if queue.single_active else ():
                queue.leave_turn(consumer)

    replace(broker.channels, "leave", leave)


@defect("AMQP-CONSUME-032")
def others_help_when_the_active_is_full(broker: Broker) -> None:
    """When the single active consumer has no room, the next one gets messages."""
    original = broker.deliveries.deliver_ready

    def deliver_ready(queue: Queue, now: int) -> None:
        original(queue, now)
        free: list[QueueConsumer] = []
        if queue.single_active and len(queue.ready):
            free = [one for one in queue.consumers[1:] if broker.deliveries.has_capacity(one)]
        if free:
            broker.deliveries.deliver(free[0], queue.pop(), now)

    replace(broker.deliveries, "deliver_ready", deliver_ready)


@defect("AMQP-CONSUME-025")
def two_consumers_take_turns(broker: Broker) -> None:
    """Of several consumers the first two take turns, and the others get nothing."""

    def take_turns(queue: Queue) -> None:
        first = queue.turn.popleft()
        queue.turn.insert(1, first)

    replace(broker.deliveries, "take_turns", take_turns)


@defect("AMQP-CONSUME-025")
def without_acknowledgements_no_turn_ends(broker: Broker) -> None:
    """A consumer with no_ack keeps its turn."""
    original = broker.deliveries.take_turns

    def take_turns(queue: Queue) -> None:
        if not queue.turn[0].no_ack:
            original(queue)

    replace(broker.deliveries, "take_turns", take_turns)
