"""How clients ask for messages: basic.consume, basic.cancel, basic.get, basic.qos.

Sources: AMQP 0-9-1 XML, class basic; RabbitMQ, "Consumers", "Consumer Prefetch", "Consumer Cancel
Notification", "Consumer Priorities".
"""

from __future__ import annotations

from plumbline.reference_broker.amqp.acknowledging import Acknowledging
from plumbline.reference_broker.amqp.arguments import check_priority
from plumbline.reference_broker.amqp.connection import Channel, Delivery
from plumbline.reference_broker.amqp.errors import (
    ACCESS_REFUSED,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    RESOURCE_LOCKED,
    AmqpFault,
    quoted,
)
from plumbline.reference_broker.amqp.queues import Consumer, Queue
from plumbline.wire.amqp import SHAPES, FrameType, Method, frame
from plumbline.wire.amqp.fields import encode_short

_DELIVER = SHAPES["basic.deliver"]
_GET_OK = SHAPES["basic.get-ok"]


class Consuming(Acknowledging):
    """Consumers, and single gets."""

    def named_queue(self, channel: Channel, name: str) -> Queue:
        """The queue of that name, or the last one declared on the channel. Raises ``AmqpFault``."""
        if not name:
            name = self.last_declared(channel)
        queue = self.vhosts[channel.connection.vhost].queues.get(name)
        if queue is None:
            raise AmqpFault(NOT_FOUND, f"no {quoted('queue', name, channel.connection.vhost)}")
        return queue

    def last_declared(self, channel: Channel) -> str:
        if not channel.last_queue:
            raise AmqpFault(NOT_FOUND, "no previously declared queue")
        return channel.last_queue

    def usable_queue(self, channel: Channel, name: str) -> Queue:
        """The same, if the client may touch it."""
        queue = self.named_queue(channel, name)
        self.check_owner(queue, channel)
        return queue

    def check_owner(self, queue: Queue, channel: Channel) -> None:
        """An exclusive queue is its connection's alone."""
        if queue.owner is not None and queue.owner is not channel.connection:
            self.refuse_locked(queue)

    def refuse_locked(self, queue: Queue) -> None:
        what = quoted("queue", queue.name, queue.vhost)
        text = (
            f"cannot obtain exclusive access to locked {what}. It could be originally declared on another "
            "connection or the exclusive property value does not match that of the original declaration."
        )
        raise AmqpFault(RESOURCE_LOCKED, text)

    def consumes(self, channel: Channel, operation: Method, now: int) -> None:
        """basic.consume."""
        arguments = operation.arguments
        tag = arguments["consumer_tag"]
        if tag in channel.consumers:
            self.refuse_tag(tag)
        queue = self.usable_queue(channel, arguments["queue"])
        tag = tag or self.unique("amq.ctag-")
        priority = check_priority(queue, arguments["arguments"])
        self.check_exclusive_use(queue, wanted=arguments["exclusive"])
        consumer = Consumer(channel, queue, tag, _DELIVER.ids + encode_short(tag))
        consumer.no_ack = arguments["no_ack"]
        consumer.exclusive = arguments["exclusive"]
        consumer.priority = priority
        consumer.prefetch = self.prefetch_of(channel)
        channel.consumers[tag] = consumer
        queue.consumers.append(consumer)
        if not arguments["no_wait"]:
            self.answer(channel, "basic.consume-ok", tag)
        queue.queue_up(consumer)
        self.in_use(queue, now)
        self.pump(queue, now)

    def refuse_tag(self, tag: str) -> None:
        raise AmqpFault(NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")

    def check_exclusive_use(self, queue: Queue, *, wanted: bool) -> None:
        if (wanted and queue.consumers) or any(one.exclusive for one in queue.consumers):
            what = quoted("queue", queue.name, queue.vhost)
            raise AmqpFault(ACCESS_REFUSED, f"{what} in exclusive use")

    def prefetch_of(self, channel: Channel) -> int:
        """What basic.qos said before counts for each new consumer by itself."""
        return channel.prefetch

    def cancels(self, channel: Channel, operation: Method, now: int) -> None:
        """basic.cancel. What was delivered stays outstanding; an unknown tag is no error."""
        tag = operation.arguments["consumer_tag"]
        consumer = channel.consumers.pop(tag, None)
        if consumer is not None:
            consumer.queue.remove(consumer)
        if not operation.arguments["no_wait"]:
            self.answer(channel, "basic.cancel-ok", tag)
        if consumer is not None:
            self.consumer_left(consumer.queue, now)

    def notify_cancel(self, consumer: Consumer) -> None:
        """Its queue went away. Told only to clients that know what that means."""
        channel = consumer.channel
        channel.consumers.pop(consumer.tag, None)
        if channel.connection.capabilities.get("consumer_cancel_notify") is True and not channel.closing:
            self.answer(channel, "basic.cancel", consumer.tag, True)

    def gets(self, channel: Channel, operation: Method, now: int) -> None:
        """basic.get."""
        queue = self.usable_queue(channel, operation.arguments["queue"])
        self.in_use(queue, now)
        self.drop_expired(queue, now)
        if not len(queue.ready):
            self.answer(channel, "basic.get-empty", "")
            return
        entry = queue.pop()
        self.drop_expired(queue, now)
        tag, message = self.next_tag(channel), entry.message
        values = (
            tag,
            self.is_redelivered(entry),
            message.exchange,
            message.routing_key,
            len(queue.ready),
        )
        connection, number = channel.connection, channel.number
        self.write(
            connection,
            frame(FrameType.METHOD, number, _GET_OK.encode_values(values))
            + message.content(number, self.cut(connection)),
        )
        if operation.arguments["no_ack"]:
            self.discard(queue, entry, now)
        else:
            channel.outstanding[tag] = Delivery(entry, queue, None)

    def sets_qos(self, channel: Channel, operation: Method, now: int) -> None:
        """basic.qos."""
        arguments = operation.arguments
        if arguments["prefetch_size"]:
            text = f"prefetch_size!=0 ({arguments['prefetch_size']})"
            raise AmqpFault(NOT_IMPLEMENTED, text)
        if arguments["global"]:
            self.limit_channel(channel, arguments["prefetch_count"])
        else:
            channel.prefetch = arguments["prefetch_count"]
        self.answer(channel, "basic.qos-ok")
        if arguments["global"]:
            self.requeue_consumers(channel)
            self.pump_all({consumer.queue for consumer in channel.consumers.values()}, now)

    def limit_channel(self, channel: Channel, prefetch_count: int) -> None:
        """For all consumers of the channel together, those that are there included."""
        channel.limit = prefetch_count

    def in_use(self, queue: Queue, now: int) -> None:
        """The queue is used; ``topology`` knows what that puts off."""
        raise NotImplementedError

    def consumer_left(self, queue: Queue, now: int) -> None:
        """A consumer is gone; ``topology`` knows what follows."""
        raise NotImplementedError
