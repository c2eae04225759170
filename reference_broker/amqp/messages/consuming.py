"""Consuming: basic.consume, basic.cancel, basic.get, basic.qos.

Sources: AMQP 0-9-1 XML, class basic; RabbitMQ, "Consumers", "Consumer Prefetch", "Consumer Cancel
Notification", "Consumer Priorities".
"""

from __future__ import annotations

from collections.abc import Callable

from plumbline.reference_broker.amqp.access import READ
from plumbline.reference_broker.amqp.connections.connection import Channel, UnackedDelivery
from plumbline.reference_broker.amqp.errors import (
    ACCESS_REFUSED,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    AmqpReplyError,
    quoted,
)
from plumbline.reference_broker.amqp.messages.delivery import Deliveries
from plumbline.reference_broker.amqp.messages.direct_replies import REPLY_TO, DirectReplies
from plumbline.reference_broker.amqp.outbox import Outbox
from plumbline.reference_broker.amqp.topology.arguments import check_priority
from plumbline.reference_broker.amqp.topology.queues import QUORUM, Queue, QueueConsumer
from plumbline.reference_broker.amqp.topology.topology import Topology
from plumbline.wire.amqp import SHAPES, FrameType, Method, frame
from plumbline.wire.amqp.fields import encode_short

_DELIVER = SHAPES["basic.deliver"]
_GET_OK = SHAPES["basic.get-ok"]


class Consuming:
    """Consumers, and single gets."""

    def __init__(
        self,
        topology: Topology,
        deliveries: Deliveries,
        replies: DirectReplies,
        outbox: Outbox,
        unique: Callable[[str], str],
    ) -> None:
        self.topology = topology
        self.deliveries = deliveries
        self.replies = replies
        self.outbox = outbox
        self.unique = unique  # a name that begins with what it is given

    def on_basic_consume(self, channel: Channel, operation: Method, now: int) -> None:
        """basic.consume."""
        arguments = operation.arguments
        tag = arguments["consumer_tag"]
        self.check_tag(channel, tag)
        if arguments["queue"] == REPLY_TO:
            self.replies.consume(channel, operation)
            return
        queue = self.readable_queue(channel, arguments["queue"])
        if channel.limit and queue.kind == QUORUM:
            what = quoted("queue", queue.name, queue.vhost)
            raise AmqpReplyError(NOT_IMPLEMENTED, f"{what} does not support global qos")
        tag = tag or self.unique("amq.ctag-")
        priority = check_priority(queue, arguments["arguments"])
        self.check_exclusive_use(queue, exclusive=arguments["exclusive"])
        consumer = QueueConsumer(channel, queue, tag, _DELIVER.ids + encode_short(tag))
        consumer.no_ack = arguments["no_ack"]
        consumer.exclusive = arguments["exclusive"]
        consumer.priority = priority
        consumer.prefetch = self.prefetch_of(channel)
        channel.consumers[tag] = consumer
        queue.consumers.append(consumer)
        if not arguments["no_wait"]:
            self.outbox.answer(channel, "basic.consume-ok", tag)
        queue.enter_turn(consumer)
        self.topology.queue_used(queue, now)
        self.deliveries.deliver_ready(queue, now)

    def readable_queue(self, channel: Channel, name: str) -> Queue:
        """The queue, if the client may take messages of it. Raises ``AmqpReplyError``."""
        name = name or self.topology.last_declared(channel)
        self.topology.check_access(channel, READ, "queue", name)
        return self.topology.usable_queue(channel, name)

    def check_tag(self, channel: Channel, tag: str) -> None:
        """A consumer's tag is its own on the channel. Raises ``AmqpReplyError`` (530)."""
        if tag in channel.consumers:
            raise AmqpReplyError(NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")

    def check_exclusive_use(self, queue: Queue, *, exclusive: bool) -> None:
        if (exclusive and queue.consumers) or any(one.exclusive for one in queue.consumers):
            what = quoted("queue", queue.name, queue.vhost)
            raise AmqpReplyError(ACCESS_REFUSED, f"{what} in exclusive use")

    def prefetch_of(self, channel: Channel) -> int:
        """What basic.qos set before counts for each new consumer by itself."""
        return channel.prefetch

    def on_basic_cancel(self, channel: Channel, operation: Method, now: int) -> None:
        """basic.cancel. What was delivered stays outstanding; an unknown tag is no error."""
        tag = operation.arguments["consumer_tag"]
        consumer = channel.consumers.pop(tag, None)
        self.replies.cancel(channel, tag)
        if consumer is not None:
            consumer.queue.remove(consumer)
        if not operation.arguments["no_wait"]:
            self.outbox.answer(channel, "basic.cancel-ok", tag)
        if consumer is not None:
            self.topology.consumer_gone(consumer.queue, now)

    def on_basic_cancel_ok(self, channel: Channel, operation: Method, now: int) -> None:
        """basic.cancel-ok: the client knows that a consumer has ended."""

    def on_basic_get(self, channel: Channel, operation: Method, now: int) -> None:
        """basic.get."""
        queue = self.readable_queue(channel, operation.arguments["queue"])
        self.topology.queue_used(queue, now)
        self.deliveries.drop_expired(queue, now)
        if not len(queue.ready):
            self.outbox.answer(channel, "basic.get-empty", "")
            return
        entry = queue.pop()
        self.deliveries.drop_expired(queue, now)
        tag, message = self.deliveries.next_tag(channel), entry.message
        values = (
            tag,
            self.deliveries.is_redelivered(entry),
            message.exchange,
            message.routing_key,
            len(queue.ready),
        )
        method = frame(FrameType.METHOD, channel.number, _GET_OK.encode_values(values))
        self.outbox.send_content(channel, method, message)
        if operation.arguments["no_ack"]:
            self.deliveries.discard(queue, entry)
        else:
            channel.outstanding[tag] = UnackedDelivery(entry, queue, None, now)

    def on_basic_qos(self, channel: Channel, operation: Method, now: int) -> None:
        """basic.qos."""
        arguments = operation.arguments
        if arguments["prefetch_size"]:
            text = f"prefetch_size!=0 ({arguments['prefetch_size']})"
            raise AmqpReplyError(NOT_IMPLEMENTED, text)
        if arguments["global"]:
            self.limit_channel(channel, arguments["prefetch_count"])
        else:
            channel.prefetch = arguments["prefetch_count"]
        self.outbox.answer(channel, "basic.qos-ok")
        if arguments["global"]:
            self.deliveries.offer_again(channel, now)

    def limit_channel(self, channel: Channel, prefetch_count: int) -> None:
        """For all consumers of the channel together, those that are there included."""
        channel.limit = prefetch_count
