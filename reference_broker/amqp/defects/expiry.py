"""Defects in expiry, length limits, dead letters, priorities and single active consumers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace as with_fields

from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import before_handling, handling, with_arguments
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.message import PublishedMessage, QueueEntry, altered
from plumbline.reference_broker.amqp.topology.queues import Queue, QueueConsumer
from plumbline.wire.amqp import Integer, Method

HALF = 0.5
Table = dict[str, Any]


def _scaled(operation: Method, name: str, by: float) -> Method:
    table = operation.arguments["arguments"]
    if name not in table:
        return operation
    return with_arguments(operation, arguments={**table, name: Integer(int(table[name] * by), "l")})


@defect("AMQP-TTL-001")
def queue_ttl_is_half(broker: Broker) -> None:
    """Messages expire after half of x-message-ttl."""
    before_handling(
        broker, "queue.declare", lambda channel, operation: _scaled(operation, "x-message-ttl", HALF)
    )


@defect("AMQP-TTL-007")
def queues_expire_after_half(broker: Broker) -> None:
    """Queues expire after half of x-expires."""
    before_handling(broker, "queue.declare", lambda channel, operation: _scaled(operation, "x-expires", HALF))


@defect("AMQP-TTL-007")
def queues_never_expire(broker: Broker) -> None:
    """Queues with x-expires stay."""
    before_handling(broker, "queue.declare", lambda channel, operation: _scaled(operation, "x-expires", 1e6))


def _expiry(broker: Broker, ttl: Callable[[int | None, int | None], float | None]) -> None:
    """A time to live by that of the queue and that of the message, in milliseconds."""

    def expiry(queue: Queue, message: PublishedMessage, now: int) -> int | None:
        own = message.properties.get("expiration")
        found = ttl(queue.message_ttl, None if own is None else int(own))
        return None if found is None else now + int(found * 1_000_000)

    replace(broker.deliveries, "expiry", expiry)


def _lower(queue: float | None, own: float | None) -> float | None:
    return min((one for one in (queue, own) if one is not None), default=None)


@defect("AMQP-TTL-002")
def expiration_is_half(broker: Broker) -> None:
    """Messages expire after half of their expiration."""
    _expiry(broker, lambda queue, own: _lower(queue, None if own is None else own * HALF))


@defect("AMQP-TTL-002")
def expiration_is_ignored(broker: Broker) -> None:
    """The property expiration means nothing."""
    _expiry(broker, lambda queue, own: queue)


@defect("AMQP-TTL-002")
def expiration_is_in_seconds(broker: Broker) -> None:
    """The property expiration is read as seconds."""
    _expiry(broker, lambda queue, own: _lower(queue, None if own is None else own * 1000))


@defect("AMQP-TTL-003")
def message_ttl_outweighs_the_queues(broker: Broker) -> None:
    """expiration counts, however much longer than x-message-ttl."""
    _expiry(broker, lambda queue, own: queue if own is None else own)


@defect("AMQP-TTL-003")
def queue_ttl_outweighs_the_messages(broker: Broker) -> None:
    """x-message-ttl counts, however much longer than expiration."""
    _expiry(broker, lambda queue, own: own if queue is None else queue)


@defect("AMQP-TTL-003")
def higher_ttl_counts(broker: Broker) -> None:
    """Of both times to live the higher counts."""
    _expiry(broker, lambda queue, own: max((one for one in (queue, own) if one is not None), default=None))


def _while_getting(broker: Broker) -> Callable[[], bool]:
    """Whether basic.get is being handled."""
    getting = [False]

    @handling(broker, "basic.get")
    def get(handler: Handler, channel: Channel, operation: Method, now: int) -> None:
        getting[0] = True
        handler(channel, operation, now)
        getting[0] = False

    return lambda: getting[0]


@defect("AMQP-TTL-004")
def expired_messages_are_got(broker: Broker) -> None:
    """basic.get gives out what has expired behind another message."""
    original = broker.deliveries.drop_expired
    is_getting = _while_getting(broker)

    def drop_expired(queue: Queue, now: int) -> None:
        if not is_getting():
            original(queue, now)

    replace(broker.deliveries, "drop_expired", drop_expired)


@defect("AMQP-TTL-004")
def one_expiration_is_for_all(broker: Broker) -> None:
    """When a message expires, all behind it go with it."""
    original = broker.deliveries.drop_expired

    def drop_expired(queue: Queue, now: int) -> None:
        before = len(queue.ready)
        original(queue, now)
        if len(queue.ready) < before:
            queue.clear()

    replace(broker.deliveries, "drop_expired", drop_expired)


@defect("AMQP-TTL-005")
def requeued_messages_live_anew(broker: Broker) -> None:
    """The time to live of a message begins anew when it is requeued."""
    original = broker.deliveries.put_back

    def put_back(queue: Queue, entry: QueueEntry) -> None:
        if entry.expires is not None and queue.message_ttl:
            entry.expires += queue.message_ttl * 1_000_000
        original(queue, entry)

    replace(broker.deliveries, "put_back", put_back)


@defect("AMQP-TTL-006")
def what_expires_at_once_reaches_nobody(broker: Broker) -> None:
    """A message with a time to live of 0 is dropped though a consumer waits."""
    original = broker.deliveries.enqueue

    def enqueue(queue: Queue, message: PublishedMessage, now: int) -> bool:
        expires = broker.deliveries.expiry(queue, message, now)
        return True if expires is not None and expires <= now else original(queue, message, now)

    replace(broker.deliveries, "enqueue", enqueue)


@defect("AMQP-TTL-008")
def used_queues_expire(broker: Broker) -> None:
    """A queue with x-expires is deleted though it has a consumer."""
    original = broker.topology.queue_used

    def queue_used(queue: Queue, now: int) -> None:
        if not queue.consumers:
            original(queue, now)

    replace(broker.topology, "queue_used", queue_used)


@defect("AMQP-TTL-008")
def get_renews_no_lease(broker: Broker) -> None:
    """basic.get does not begin the time of x-expires anew."""
    original = broker.topology.queue_used
    is_getting = _while_getting(broker)

    def queue_used(queue: Queue, now: int) -> None:
        if not is_getting():
            original(queue, now)

    replace(broker.topology, "queue_used", queue_used)


@defect("AMQP-TTL-009")
def expired_queues_dead_letter(broker: Broker) -> None:
    """The messages of a queue that expires are dead-lettered."""
    original_wake, original_remove = broker.wake, broker.topology.remove_queue
    moment: list[int] = []  # while a timer runs

    def wake(now: int) -> object:
        moment.append(now)
        outputs = original_wake(now)
        moment.clear()
        return outputs

    def remove_queue(queue: Queue) -> None:
        for entry in queue.clear() if moment else ():
            broker.deliveries.dead_letter(queue, entry.message, "expired", moment[0])
        original_remove(queue)

    replace(broker, "wake", wake)
    replace(broker.topology, "remove_queue", remove_queue)


# Length limits


@defect("AMQP-TTL-010")
def newest_messages_are_dropped(broker: Broker) -> None:
    """A full queue drops the message that comes."""
    original = broker.deliveries.enqueue

    def enqueue(queue: Queue, message: PublishedMessage, now: int) -> bool:
        if queue.overflow == "drop-head" and broker.deliveries.is_over(queue, 1, message.size):
            return True
        return original(queue, message, now)

    replace(broker.deliveries, "enqueue", enqueue)


@defect("AMQP-TTL-010")
def byte_limits_are_ignored(broker: Broker) -> None:
    """x-max-length-bytes means nothing."""

    def is_over(queue: Queue, more: int, more_bytes: int) -> bool:
        return queue.max_length is not None and len(queue.ready) + more > queue.max_length

    replace(broker.deliveries, "is_over", is_over)


@defect("AMQP-TTL-010")
def byte_limits_drop_one(broker: Broker) -> None:
    """A queue over x-max-length-bytes drops one message, however much it is over."""

    def drop_overflow(queue: Queue, now: int) -> None:
        if queue.overflow == "drop-head" and len(queue.ready) and broker.deliveries.is_over(queue, 0, 0):
            entry = queue.pop()
            broker.deliveries.discard(queue, entry)
            broker.deliveries.dead_letter(queue, entry.message, "maxlen", now)

    replace(broker.deliveries, "drop_overflow", drop_overflow)


@defect("AMQP-TTL-010")
def both_limits_must_be_exceeded(broker: Broker) -> None:
    """A queue with both limits drops only what exceeds both."""

    def is_over(queue: Queue, more: int, more_bytes: int) -> bool:
        limits = []
        if queue.max_length is not None:
            limits.append(len(queue.ready) + more > queue.max_length)
        if queue.max_length_bytes is not None:
            limits.append(queue.bytes_ready + more_bytes > queue.max_length_bytes)
        return bool(limits) and all(limits)

    replace(broker.deliveries, "is_over", is_over)


@defect("AMQP-TTL-010")
def a_full_queue_is_over(broker: Broker) -> None:
    """A queue of exactly as many bytes as x-max-length-bytes allows drops a message."""
    original = broker.deliveries.is_over

    def is_over(queue: Queue, more: int, more_bytes: int) -> bool:
        limit = queue.max_length_bytes
        return original(queue, more, more_bytes) or (
            limit is not None and queue.bytes_ready + more_bytes >= limit
        )

    replace(broker.deliveries, "is_over", is_over)


@defect("AMQP-TTL-011")
def unacknowledged_messages_fill_queues(broker: Broker) -> None:
    """What is delivered and not acknowledged counts for x-max-length."""

    def is_over(queue: Queue, more: int, more_bytes: int) -> bool:
        channels = [one for each in broker.connections.values() for one in each.channels.values()]
        held = sum(one.queue is queue for channel in channels for one in channel.outstanding.values())
        return queue.max_length is not None and len(queue.ready) + held + more > queue.max_length

    replace(broker.deliveries, "is_over", is_over)


@defect("AMQP-TTL-012")
def full_queues_stay_full(broker: Broker) -> None:
    """A queue that has refused a message refuses all further ones."""
    original = broker.deliveries.is_rejected_by_full_queue
    full: set[Queue] = set()

    def is_rejected(queue: Queue, message: PublishedMessage) -> bool:
        if original(queue, message):
            full.add(queue)
        return queue in full

    replace(broker.deliveries, "is_rejected_by_full_queue", is_rejected)


# Dead letters


def _letters(broker: Broker, change: Callable[[Queue, PublishedMessage, Table], Table]) -> None:
    """The headers of a dead letter are changed: ``change(queue, message, headers)``."""
    original = broker.deliveries.enqueue

    def enqueue(queue: Queue, message: PublishedMessage, now: int) -> bool:
        if "x-death" in message.headers:
            headers = change(queue, message, dict(message.headers))
            properties = {**message.properties, "headers": headers}
            message = altered(message, message.exchange, message.routing_key, properties)
        return original(queue, message, now)

    replace(broker.deliveries, "enqueue", enqueue)


def _deaths(headers: Table, change: Callable[[list[Table]], list[Table]]) -> Table:
    return {**headers, "x-death": change(list(headers["x-death"]))}


@defect("AMQP-DLX-008", "AMQP-DLX-009")
def deaths_replace_each_other(broker: Broker) -> None:
    """x-death has the last death only."""
    _letters(
        broker,
        lambda queue, message, headers: _deaths(
            headers, lambda deaths: [{**deaths[0], "count": Integer(1, "l")}]
        ),
    )


@defect("AMQP-DLX-008")
def deaths_are_not_counted(broker: Broker) -> None:
    """The count in x-death stays 1."""
    _letters(
        broker,
        lambda queue, message, headers: _deaths(
            headers, lambda deaths: [{**death, "count": Integer(1, "l")} for death in deaths]
        ),
    )


@defect("AMQP-DLX-009")
def deaths_come_in_time_order(broker: Broker) -> None:
    """x-death has the first death first."""
    _letters(
        broker,
        lambda queue, message, headers: _deaths(
            headers, lambda deaths: sorted(deaths, key=lambda death: death["queue"] != _first(headers))
        ),
    )


def _first(headers: Table) -> Any:
    return headers.get("x-first-death-queue")


@defect("AMQP-DLX-009")
def the_last_death_is_the_first(broker: Broker) -> None:
    """x-first-death-queue and -reason are those of the last death."""

    def change(queue: Queue, message: PublishedMessage, headers: Table) -> Table:
        last = headers["x-death"][0]
        return {**headers, "x-first-death-queue": last["queue"], "x-first-death-reason": last["reason"]}

    _letters(broker, change)


@defect("AMQP-DLX-009", "AMQP-DLX-010")
def deaths_tell_the_new_route(broker: Broker) -> None:
    """x-death has the exchange and routing key that the letter is published with."""

    def change(queue: Queue, message: PublishedMessage, headers: Table) -> Table:
        route = {"exchange": message.exchange, "routing-keys": [message.routing_key]}
        return _deaths(headers, lambda deaths: [{**deaths[0], **route}, *deaths[1:]])

    _letters(broker, change)


@defect("AMQP-DLX-010")
def dead_letters_ignore_the_routing_key(broker: Broker) -> None:
    """x-dead-letter-routing-key means nothing."""

    def change(channel: Channel, operation: Method) -> Method:
        table = operation.arguments["arguments"]
        rest = {name: value for name, value in table.items() if name != "x-dead-letter-routing-key"}
        return with_arguments(operation, arguments=rest)

    before_handling(broker, "queue.declare", change)


@defect("AMQP-DLX-010")
def dead_letters_are_routed_by_queue(broker: Broker) -> None:
    """Without x-dead-letter-routing-key the name of the queue is the routing key."""

    def change(channel: Channel, operation: Method) -> Method:
        table = operation.arguments["arguments"]
        if "x-dead-letter-exchange" not in table:
            return operation
        return with_arguments(
            operation, arguments={"x-dead-letter-routing-key": operation.arguments["queue"], **table}
        )

    before_handling(broker, "queue.declare", change)


@defect("AMQP-DLX-010")
def dead_letters_lose_their_headers(broker: Broker) -> None:
    """A dead letter has none of the headers that the message had."""
    _letters(
        broker,
        lambda queue, message, headers: {
            name: value for name, value in headers.items() if name.startswith("x-")
        },
    )


@defect("AMQP-DLX-010")
def dead_letters_lose_their_properties(broker: Broker) -> None:
    """A dead letter has no properties but headers."""
    original = broker.deliveries.enqueue

    def enqueue(queue: Queue, message: PublishedMessage, now: int) -> bool:
        if "x-death" in message.headers:
            message = altered(message, message.exchange, message.routing_key, {"headers": message.headers})
        return original(queue, message, now)

    replace(broker.deliveries, "enqueue", enqueue)


@defect("AMQP-DLX-011")
def missing_exchanges_keep_the_dead(broker: Broker) -> None:
    """What cannot be dead-lettered is requeued."""
    original = broker.deliveries.dead_letter

    def dead_letter(queue: Queue, message: PublishedMessage, reason: str, now: int) -> None:
        name = queue.dead_letter_exchange
        if name is not None and name not in broker.vhosts[queue.vhost].exchanges:
            queue.put_back(QueueEntry(message, 0, None))
        else:
            original(queue, message, reason, now)

    replace(broker.deliveries, "dead_letter", dead_letter)


@defect("AMQP-DLX-012")
def acknowledged_messages_are_dead(broker: Broker) -> None:
    """What is acknowledged is dead-lettered."""
    original = broker.acknowledging.acknowledge

    def acknowledge(delivery: Any, now: int) -> None:
        broker.deliveries.dead_letter(delivery.queue, delivery.entry.message, "rejected", now)
        original(delivery, now)

    replace(broker.acknowledging, "acknowledge", acknowledge)


@defect("AMQP-DLX-012")
def requeued_messages_are_dead(broker: Broker) -> None:
    """What is requeued is dead-lettered, too."""
    original = broker.deliveries.requeue

    def requeue(deliveries: Any, now: int) -> set[Queue]:
        deliveries = list(deliveries)
        for delivery in deliveries:
            broker.deliveries.dead_letter(delivery.queue, delivery.entry.message, "rejected", now)
        return original(deliveries, now)

    replace(broker.deliveries, "requeue", requeue)


@defect("AMQP-DLX-012")
def purged_messages_are_dead(broker: Broker) -> None:
    """What is purged is dead-lettered."""
    original = broker.queue_methods.purge

    def purge(queue: Queue) -> list[QueueEntry]:
        entries = original(queue)
        for entry in entries:
            broker.deliveries.dead_letter(queue, entry.message, "rejected", 0)
        return entries

    replace(broker.queue_methods, "purge", purge)


@defect("AMQP-DLX-013")
def dead_letters_come_first(broker: Broker) -> None:
    """A dead letter goes to the head of its queue."""
    original = broker.deliveries.enqueue

    def enqueue(queue: Queue, message: PublishedMessage, now: int) -> bool:
        if "x-death" not in message.headers:
            return original(queue, message, now)
        queue.put_back(QueueEntry(message, -len(queue.ready), None))
        return True

    replace(broker.deliveries, "enqueue", enqueue)


# Priorities and single active consumers


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
