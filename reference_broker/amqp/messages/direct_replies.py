"""Replies that go from channel to channel without a queue, by the name ``amq.rabbitmq.reply-to``.

Sources: RabbitMQ, "Direct Reply-to"; texts and order of the checks as RabbitMQ has them.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakValueDictionary

from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.errors import NOT_FOUND, PRECONDITION_FAILED, AmqpReplyError, quoted
from plumbline.reference_broker.amqp.messages.message import PublishedMessage, altered
from plumbline.reference_broker.amqp.outbox import Outbox
from plumbline.wire.amqp import SHAPES, FrameType, Method, frame

REPLY_TO = "amq.rabbitmq.reply-to"
_PREFIX = f"{REPLY_TO}."
_DELIVER = SHAPES["basic.deliver"]


class DirectReplies:
    """The channels that take replies, by the address that their requests carry."""

    def __init__(self, outbox: Outbox, unique: Callable[[str], str]) -> None:
        self.outbox = outbox
        self.unique = unique
        self._channels: WeakValueDictionary[str, Channel] = WeakValueDictionary()

    def consume(self, channel: Channel, operation: Method) -> None:
        """basic.consume of ``REPLY_TO``. Raises ``AmqpReplyError`` (406)."""
        arguments = operation.arguments
        if not arguments["no_ack"]:
            raise AmqpReplyError(PRECONDITION_FAILED, "reply consumer cannot acknowledge")
        if channel.reply_address:
            raise AmqpReplyError(PRECONDITION_FAILED, "reply consumer already set")
        channel.reply_tag = arguments["consumer_tag"] or self.unique("amq.ctag-")
        channel.reply_address = self.unique(_PREFIX)
        self._channels[channel.reply_address] = channel
        if not arguments["no_wait"]:
            self.outbox.answer(channel, "basic.consume-ok", channel.reply_tag)

    def cancel(self, channel: Channel, tag: str) -> None:
        """basic.cancel, if ``tag`` is that of the channel's replies."""
        if channel.reply_address and tag == channel.reply_tag:
            channel.reply_address = ""

    def declare(self, channel: Channel, operation: Method) -> None:
        """queue.declare of an address: it is there, with one consumer, or it is not. Raises
        ``AmqpReplyError`` (404)."""
        name = operation.arguments["queue"]
        if name != REPLY_TO and self._taker(name) is None:
            raise AmqpReplyError(NOT_FOUND, f"no {quoted('queue', name, channel.connection.vhost)}")
        if not operation.arguments["no_wait"]:
            self.outbox.answer(channel, "queue.declare-ok", name, 0, 1)

    def with_address(self, channel: Channel, message: PublishedMessage) -> PublishedMessage:
        """A request carries the address of its channel. Raises ``AmqpReplyError`` (406)."""
        if message.properties.get("reply_to") != REPLY_TO:
            return message
        if not channel.reply_address:
            raise AmqpReplyError(PRECONDITION_FAILED, "fast reply consumer does not exist")
        properties = {**message.properties, "reply_to": channel.reply_address}
        return altered(message, message.exchange, message.routing_key, properties)

    def deliver(self, message: PublishedMessage) -> None:
        """A message that goes to no queue of the default exchange may be a reply. Whether somebody takes it,
        the publisher does not learn."""
        channel = self._taker(message.routing_key)
        if channel is None or channel.closing:
            return
        values = (channel.reply_tag, channel.last_tag + 1, False, message.exchange, message.routing_key)
        method = frame(FrameType.METHOD, channel.number, _DELIVER.encode_values(values))
        self.outbox.send_content(channel, method, message)

    def _taker(self, address: str) -> Channel | None:
        """A channel that the broker closes has its address until channel.close-ok, as in RabbitMQ."""
        channel = self._channels.get(address)
        if channel is None or channel.reply_address != address:
            return None
        return channel if channel.connection.channels.get(channel.number) is channel else None


def is_reply_name(name: str) -> bool:
    """Whether it is no queue that is named."""
    return name.startswith(REPLY_TO)
