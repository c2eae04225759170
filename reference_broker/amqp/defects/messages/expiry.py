"""Defects in expiry and length limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.amqp.alarms import AmqpTimer
from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import (
    before_handling,
    handling,
    on_faults,
    with_arguments,
)
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.dead_letters import MAXLEN
from plumbline.reference_broker.amqp.messages.message import PublishedMessage, QueueEntry
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import Integer, Method

HALF = 0.5


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
    """The time to live of a message begins again when it is requeued."""
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


@defect("AMQP-TTL-004")
def what_follows_a_delivery_has_time(broker: Broker) -> None:
    """What comes to the head because others were delivered expires only when someone looks."""
    original = broker.deliveries.deliver_ready

    def deliver_ready(queue: Queue, now: int) -> None:
        waited = len(queue.ready) > 1
        original(queue, now)
        if waited:
            broker.alarms.clear((AmqpTimer.HEAD, queue))

    replace(broker.deliveries, "deliver_ready", deliver_ready)


@defect("AMQP-TTL-004")
def what_follows_a_drop_has_time(broker: Broker) -> None:
    """What comes to the head because a full queue dropped others expires only when someone looks."""
    original = broker.deliveries.drop_overflow

    def drop_overflow(queue: Queue, now: int) -> None:
        before = len(queue.ready)
        original(queue, now)
        if len(queue.ready) < before:
            broker.alarms.clear((AmqpTimer.HEAD, queue))

    replace(broker.deliveries, "drop_overflow", drop_overflow)


@defect("AMQP-TTL-015")
def queues_that_had_a_consumer_stay(broker: Broker) -> None:
    """A queue with x-expires stays for ever once its last consumer is gone."""
    original = broker.topology.consumer_gone
    used = broker.topology.queue_used

    def consumer_gone(queue: Queue, now: int) -> None:
        broker.topology.queue_used = lambda queue, now: None  # type: ignore[method-assign]
        try:
            original(queue, now)
        finally:
            broker.topology.queue_used = used  # type: ignore[method-assign]

    replace(broker.topology, "consumer_gone", consumer_gone)


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
    """basic.get does not begin the time of x-expires again."""
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


@defect("AMQP-TTL-010")
def what_is_given_back_may_be_too_much(broker: Broker) -> None:
    """A queue may be longer than its limit by messages that were given back."""
    original = broker.deliveries.requeue

    def requeue(deliveries: Any, now: int) -> set[Queue]:
        queues = original(deliveries, now)
        for queue in queues:
            queue.limited = False
        return queues

    replace(broker.deliveries, "requeue", requeue)


@defect("AMQP-TTL-004")
def messages_live_twice_as_long(broker: Broker) -> None:
    """Messages expire after twice their time to live."""
    original = broker.deliveries.expiry

    def expiry(queue: Queue, message: PublishedMessage, now: int) -> int | None:
        due = original(queue, message, now)
        return None if due is None else now + 2 * (due - now)

    replace(broker.deliveries, "expiry", expiry)


@defect("AMQP-TTL-004")
def consumers_get_what_has_expired(broker: Broker) -> None:
    """A consumer is sent what has expired behind another message."""
    deliver_ready = broker.deliveries.deliver_ready

    def deliver_all(queue: Queue, now: int) -> None:
        deliver_ready(queue, 0)  # when nothing had expired

    replace(broker.deliveries, "deliver_ready", deliver_all)


@defect("AMQP-TTL-013")
def a_refused_message_has_one_byte(broker: Broker) -> None:
    """A queue that refuses messages does not ask how long they are."""
    original = broker.deliveries.is_over

    def is_over(queue: Queue, more: int, more_bytes: int) -> bool:
        return original(queue, more, min(more_bytes, more))

    replace(broker.deliveries, "is_over", is_over)


@defect("AMQP-TTL-013")
def refusing_queues_are_never_filled(broker: Broker) -> None:
    """A queue that refuses messages refuses one that would just fill it."""
    original = broker.deliveries.is_over

    def is_over(queue: Queue, more: int, more_bytes: int) -> bool:
        return original(queue, more, more_bytes + more)

    replace(broker.deliveries, "is_over", is_over)


@defect("AMQP-TTL-014")
def refusing_queues_drop_their_head(broker: Broker) -> None:
    """A full queue with reject-publish drops its head when a message is given back."""
    original = broker.deliveries.drop_overflow

    def drop_overflow(queue: Queue, now: int) -> None:
        overflow, queue.overflow = queue.overflow, "drop-head"
        original(queue, now)
        queue.overflow = overflow

    replace(broker.deliveries, "drop_overflow", drop_overflow)


@defect("AMQP-DLX-016")
def whatever_is_refused_is_dead(broker: Broker) -> None:
    """A message that reject-publish refuses is dead-lettered."""
    original = broker.deliveries.enqueue

    def enqueue(queue: Queue, message: PublishedMessage, now: int) -> bool:
        is_taken = original(queue, message, now)
        if not is_taken and queue.overflow == "reject-publish":
            broker.deliveries.dead_letter(queue, message, MAXLEN, now)
        return is_taken

    replace(broker.deliveries, "enqueue", enqueue)


@defect("AMQP-PUB-012")
def expirations_have_units(broker: Broker) -> None:
    """What stands behind the digits of an expiration is overlooked."""
    on_faults(broker, lambda connection, operation, fault: None, method="basic.publish", text="leftover")
