"""Defects in priorities: of consumers, who take turns by them, and of messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.messages.message import QueueEntry
from plumbline.reference_broker.amqp.topology.exchanges import VirtualHost
from plumbline.reference_broker.amqp.topology.queues import PriorityEntryQueue, Queue, QueueConsumer


def _new_queues(broker: Broker, change: Callable[[Queue], None]) -> None:
    """Each queue that is declared is changed."""
    original = broker.queue_methods.make_queue

    def make_queue(vhost: VirtualHost, name: str, channel: Channel, arguments: Any) -> Queue:
        queue = original(vhost, name, channel, arguments)
        change(queue)
        return queue

    replace(broker.queue_methods, "make_queue", make_queue)


# Consumers


def _places(broker: Broker, place: Callable[[Queue, QueueConsumer], int]) -> None:
    """A consumer that may take a message comes to this place of the turn."""

    def change(queue: Queue) -> None:
        def enter_turn(consumer: QueueConsumer) -> None:
            consumer.active = True
            queue.turn.insert(place(queue, consumer), consumer)

        if not queue.single_active:
            replace(queue, "enter_turn", enter_turn)

    _new_queues(broker, change)


def _behind(queue: Queue, priority: int) -> int:
    """The place behind all consumers of this priority or a higher one."""
    return sum(other.priority >= priority for other in queue.turn)


@defect("AMQP-CONSUME-026")
def priorities_below_the_highest_are_alike(broker: Broker) -> None:
    """A consumer of lower priority than the first comes last, whoever is before it."""

    def place(queue: Queue, consumer: QueueConsumer) -> int:
        if queue.turn and queue.turn[0].priority >= consumer.priority:
            return len(queue.turn)
        return _behind(queue, consumer.priority)

    _places(broker, place)


@defect("AMQP-CONSUME-026")
def one_lower_consumer_makes_first(broker: Broker) -> None:
    """A consumer that has a higher priority than the last one comes first, whoever is before it."""

    def place(queue: Queue, consumer: QueueConsumer) -> int:
        return 0 if queue.turn and queue.turn[-1].priority < consumer.priority else len(queue.turn)

    _places(broker, place)


@defect("AMQP-CONSUME-025")
def equals_take_no_turns_above_others(broker: Broker) -> None:
    """Where a consumer of lower priority waits, the first of those above it gets everything."""

    def place(queue: Queue, consumer: QueueConsumer) -> int:
        if queue.turn and queue.turn[-1].priority < consumer.priority:
            return _behind(queue, consumer.priority + 1)
        return _behind(queue, consumer.priority)

    _places(broker, place)


@defect("AMQP-CONSUME-012")
def active_consumers_stay_when_one_that_waits_leaves(broker: Broker) -> None:
    """When a consumer of a queue with x-single-active-consumer is cancelled that waits, the active one gets
    messages after its own end."""

    def change(queue: Queue) -> None:
        def remove(consumer: QueueConsumer) -> None:
            queue.leave_turn(consumer)
            queue.consumers.remove(consumer)
            if queue.single_active and queue.consumers:
                queue.enter_turn(queue.consumers[0])

        replace(queue, "remove", remove)

    _new_queues(broker, change)


@defect("AMQP-CONSUME-040")
def next_active_consumers_wait_for_a_message(broker: Broker) -> None:
    """After basic.cancel of the active consumer the next one gets nothing before another message comes."""
    original = broker.topology.consumer_gone

    def consumer_gone(queue: Queue, now: int) -> None:
        if queue.single_active:
            broker.topology.queue_used(queue, now)
        else:
            original(queue, now)

    replace(broker.topology, "consumer_gone", consumer_gone)


# Messages


@defect("AMQP-CONSUME-030")
def the_highest_priority_is_none(broker: Broker) -> None:
    """In a queue with x-max-priority 5, the priorities 4 and 5 are the same."""

    def change(queue: Queue) -> None:
        if isinstance(queue.ready, PriorityEntryQueue):
            queue.ready = PriorityEntryQueue(max(queue.arguments["x-max-priority"] - 1, 0))

    _new_queues(broker, change)


@defect("AMQP-CONSUME-030")
def what_is_given_back_has_no_priority(broker: Broker) -> None:
    """A message that is given back to a queue with x-max-priority has priority 0 from then on."""
    original = broker.deliveries.put_back

    def put_back(queue: Queue, entry: QueueEntry) -> None:
        if isinstance(queue.ready, PriorityEntryQueue):
            queue.ready._lanes[0].put_back(entry)
        else:
            original(queue, entry)

    replace(broker.deliveries, "put_back", put_back)


@defect("AMQP-CONSUME-030")
def what_is_given_back_to_priorities_is_lost(broker: Broker) -> None:
    """A message that is given back to a queue with x-max-priority is gone."""
    original = broker.deliveries.put_back

    def put_back(queue: Queue, entry: QueueEntry) -> None:
        if not isinstance(queue.ready, PriorityEntryQueue):
            original(queue, entry)

    replace(broker.deliveries, "put_back", put_back)


@defect("AMQP-TTL-010")
def limits_end_with_a_time_to_live(broker: Broker) -> None:
    """A queue with x-message-ttl drops nothing from its head, whatever its x-max-length."""
    original = broker.deliveries.drop_overflow

    def drop_overflow(queue: Queue, now: int) -> None:
        if queue.message_ttl is None:
            original(queue, now)

    replace(broker.deliveries, "drop_overflow", drop_overflow)
