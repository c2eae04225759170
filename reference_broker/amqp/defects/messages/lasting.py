"""Defects in what ends with a consumer, and in limits of queues that do not hold, or hold for too much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import before_handling, handling, with_arguments
from plumbline.reference_broker.amqp.errors import ACCESS_REFUSED, NOT_ALLOWED, AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.dead_letters import EXPIRED, MAXLEN
from plumbline.reference_broker.amqp.messages.message import PublishedMessage
from plumbline.reference_broker.amqp.topology.queues import PriorityEntryQueue, Queue, QueueConsumer
from plumbline.wire.amqp import Method

# Consumers


@defect("AMQP-CONSUME-026")
def consumers_lose_their_priority_when_full(broker: Broker) -> None:
    """A consumer that was full comes last when it has room again."""

    def wait_for_turn(consumer: QueueConsumer) -> None:
        queue = consumer.queue
        if consumer.channel.consumers.get(consumer.tag) is not consumer or queue.deleted:
            return
        if queue.single_active:
            queue.enter_turn(consumer)
            return
        consumer.active = True
        queue.turn.append(consumer)

    replace(broker.deliveries, "wait_for_turn", wait_for_turn)


@defect("AMQP-CONSUME-041")
def exclusive_queues_stay_exclusive(broker: Broker) -> None:
    """A queue that had an exclusive consumer takes no other consumer."""
    original = broker.consuming.check_exclusive_use
    taken: set[Queue] = set()

    def check_exclusive_use(queue: Queue, *, exclusive: bool) -> None:
        original(queue, exclusive=exclusive)
        if queue in taken:
            raise AmqpReplyError(ACCESS_REFUSED, f"queue '{queue.name}' in exclusive use")
        if exclusive:
            taken.add(queue)

    replace(broker.consuming, "check_exclusive_use", check_exclusive_use)


def _notified(broker: Broker, hears: Callable[[list[QueueConsumer]], QueueConsumer]) -> None:
    """Of the consumers of a deleted queue one hears of it."""
    original_remove, original_notify = broker.topology.remove_queue, broker.topology.notify_cancel
    one: list[QueueConsumer] = []

    def remove_queue(queue: Queue) -> None:
        one[:] = [hears(queue.consumers)] if queue.consumers else []
        original_remove(queue)

    def notify_cancel(consumer: QueueConsumer) -> None:
        if consumer in one:
            original_notify(consumer)
        else:
            consumer.channel.consumers.pop(consumer.tag, None)

    replace(broker.topology, "remove_queue", remove_queue)
    replace(broker.topology, "notify_cancel", notify_cancel)


@defect("AMQP-CONSUME-021")
def one_consumer_hears_of_the_end(broker: Broker) -> None:
    """Of several consumers of a queue that is deleted the first is notified."""
    _notified(broker, lambda consumers: consumers[0])


@defect("AMQP-CONSUME-021")
def who_deletes_hears_of_no_end(broker: Broker) -> None:
    """Consumers of the connection that deletes their queue are not notified."""
    original = broker.topology.notify_cancel
    deleting: list[object] = []

    @handling(broker, "queue.delete")
    def deletes(other: Handler, channel: Channel, operation: Method, now: int) -> None:
        deleting[:] = [channel.connection]
        other(channel, operation, now)
        deleting.clear()

    def notify_cancel(consumer: QueueConsumer) -> None:
        if consumer.channel.connection in deleting:
            consumer.channel.consumers.pop(consumer.tag, None)
        else:
            original(consumer)

    replace(broker.topology, "notify_cancel", notify_cancel)


@defect("AMQP-CONSUME-042")
def consumer_tags_are_used_once(broker: Broker) -> None:
    """A consumer tag that a channel has had cannot be used again."""
    original = broker.consuming.check_tag
    used: set[tuple[Channel, str]] = set()

    def check_tag(channel: Channel, tag: str) -> None:
        original(channel, tag)
        if tag and (channel, tag) in used:
            raise AmqpReplyError(NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
        used.add((channel, tag))

    replace(broker.consuming, "check_tag", check_tag)


@defect("AMQP-CONSUME-001")
def server_tags_are_all_the_same(broker: Broker) -> None:
    """Every consumer without a tag is given the same one."""
    replace(broker.consuming, "unique", lambda start: f"{start}1")


# Mandatory messages


@defect("AMQP-PUB-021")
def mandatory_is_for_the_routing_key(broker: Broker) -> None:
    """A mandatory message is returned if its exchange has no queue for its routing key itself."""
    original = broker.publishing.route

    @handling(broker, "basic.publish")
    def published(other: Handler, channel: Channel, operation: Method, now: int) -> None:
        other(channel, operation, now)
        message = broker.publishing.message(operation)
        vhost = broker.vhosts[channel.connection.vhost]
        exchange = vhost.exchanges.get(message.exchange)
        if not operation.arguments["mandatory"] or exchange is None or channel.closing:
            return
        queues = original(channel, exchange, message)
        keys = {(one.to_queue, one.routing_key) for one in exchange.bindings.values()}
        is_bound = (True, message.routing_key) in keys or not exchange.name or exchange.kind != "direct"
        if queues and not is_bound:
            broker.publishing.return_message(channel, message)


@defect("AMQP-PUB-006")
def what_expires_at_once_is_returned(broker: Broker) -> None:
    """A mandatory message that expires at once in its queue is returned."""
    original = broker.deliveries.dead_letter
    mandatory: list[tuple[Channel, PublishedMessage]] = []

    @handling(broker, "basic.publish")
    def published(other: Handler, channel: Channel, operation: Method, now: int) -> None:
        mandatory.clear()
        if operation.arguments["mandatory"]:
            mandatory.append((channel, broker.publishing.message(operation)))
        other(channel, operation, now)
        mandatory.clear()

    def dead_letter(queue: Queue, message: PublishedMessage, reason: str, now: int) -> None:
        original(queue, message, reason, now)
        for channel, published_message in mandatory if reason == EXPIRED else ():
            broker.publishing.return_message(channel, published_message)

    replace(broker.deliveries, "dead_letter", dead_letter)


# Times to live and limits


@defect("AMQP-TTL-001")
def the_shortest_queue_decides(broker: Broker) -> None:
    """A message that several queues get lives in each as long as in that of the lowest x-message-ttl."""
    original = broker.publishing.distribute

    def distribute(queues: Any, message: PublishedMessage, now: int) -> bool:
        every = list(queues)
        before = [queue.message_ttl for queue in every]
        lowest = min((ttl for ttl in before if ttl is not None), default=None)
        for queue in every:
            queue.message_ttl = lowest
        taken = original(every, message, now)
        for queue, ttl in zip(every, before, strict=True):
            queue.message_ttl = ttl
        return taken

    replace(broker.publishing, "distribute", distribute)


@defect("AMQP-TTL-004")
def queues_with_priorities_keep_what_expires(broker: Broker) -> None:
    """Nothing expires in a queue with x-max-priority."""
    original = broker.deliveries.expiry

    def expiry(queue: Queue, message: PublishedMessage, now: int) -> int | None:
        return None if isinstance(queue.ready, PriorityEntryQueue) else original(queue, message, now)

    replace(broker.deliveries, "expiry", expiry)


def _declares(broker: Broker, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    before_handling(
        broker,
        "queue.declare",
        lambda channel, operation: with_arguments(
            operation, arguments=change(dict(operation.arguments["arguments"]))
        ),
    )


@defect("AMQP-TTL-010")
def queues_with_priorities_have_no_limit(broker: Broker) -> None:
    """x-max-length and x-max-length-bytes mean nothing beside x-max-priority."""
    limits = ("x-max-length", "x-max-length-bytes")
    _declares(
        broker,
        lambda table: {
            name: value
            for name, value in table.items()
            if "x-max-priority" not in table or name not in limits
        },
    )


@defect("AMQP-TTL-010")
def a_limit_of_0_is_none(broker: Broker) -> None:
    """x-max-length and x-max-length-bytes of 0 mean no limit."""
    limits = ("x-max-length", "x-max-length-bytes")
    _declares(
        broker, lambda table: {name: value for name, value in table.items() if value or name not in limits}
    )


@defect("AMQP-TTL-010")
def the_last_message_is_kept(broker: Broker) -> None:
    """A full queue never drops its only message."""
    original = broker.deliveries.drop_overflow

    def drop_overflow(queue: Queue, now: int) -> None:
        if len(queue.ready) > 1:
            original(queue, now)

    replace(broker.deliveries, "drop_overflow", drop_overflow)


@defect("AMQP-TTL-016")
def full_queues_drop_the_lowest_priority(broker: Broker) -> None:
    """A full queue with x-max-priority drops the oldest message of the lowest priority."""
    original = broker.deliveries.drop_overflow

    def drop_overflow(queue: Queue, now: int) -> None:
        ready = queue.ready
        while isinstance(ready, PriorityEntryQueue) and len(ready) and broker.deliveries.is_over(queue, 0, 0):
            lowest = next(lane for lane in ready._lanes if len(lane))
            entry = lowest.pop()
            queue.bytes_ready -= entry.message.size if queue.max_length_bytes is not None else 0
            broker.deliveries.discard(queue, entry)
            broker.deliveries.dead_letter(queue, entry.message, MAXLEN, now)
        original(queue, now)

    replace(broker.deliveries, "drop_overflow", drop_overflow)


@defect("AMQP-TTL-011")
def what_consumers_hold_fills_queues(broker: Broker) -> None:
    """What consumers have not settled counts for x-max-length."""
    original = broker.deliveries.is_over

    def is_over(queue: Queue, more: int, more_bytes: int) -> bool:
        held = sum(consumer.outstanding for consumer in queue.consumers) if len(queue.ready) + more else 0
        return original(queue, more + held, more_bytes)

    replace(broker.deliveries, "is_over", is_over)


@defect("AMQP-TTL-010", "AMQP-TTL-012")
def bytes_of_what_expired_count(broker: Broker) -> None:
    """What has expired still counts for x-max-length-bytes."""
    original = broker.deliveries.dead_letter

    def dead_letter(queue: Queue, message: PublishedMessage, reason: str, now: int) -> None:
        if reason == EXPIRED and queue.max_length_bytes is not None:
            queue.bytes_ready += message.size
        original(queue, message, reason, now)

    replace(broker.deliveries, "dead_letter", dead_letter)


@defect("AMQP-TTL-017")
def declarations_renew_no_lease(broker: Broker) -> None:
    """queue.declare of a queue that is there does not begin the time of x-expires again."""
    original = broker.topology.queue_used
    declared: set[Queue] = set()
    declaring = [False]

    @handling(broker, "queue.declare")
    def declares(other: Handler, channel: Channel, operation: Method, now: int) -> None:
        declaring[0] = True
        try:
            other(channel, operation, now)
        finally:
            declaring[0] = False

    def queue_used(queue: Queue, now: int) -> None:
        if not (declaring[0] and queue in declared):
            original(queue, now)
        declared.add(queue)

    replace(broker.topology, "queue_used", queue_used)
