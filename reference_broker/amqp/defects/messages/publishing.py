"""Defects in publishing and returns."""

from __future__ import annotations

from typing import Any

from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import handling
from plumbline.reference_broker.amqp.errors import ACCESS_REFUSED, AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.message import PublishedMessage
from plumbline.reference_broker.amqp.topology.exchanges import Exchange
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import Method


@defect("AMQP-PUB-003")
def unroutable_messages_close_the_channel(broker: Broker) -> None:
    """An unroutable message without mandatory is a channel error."""

    @handling(broker, "basic.publish")
    def published(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        original(channel, operation, now)
        arguments = operation.arguments
        vhost = broker.vhosts[channel.connection.vhost]
        message = broker.publishing.message(operation)
        exchange = vhost.exchanges[message.exchange]
        if not arguments["mandatory"] and not broker.publishing.route(channel, exchange, message):
            raise AmqpReplyError(ACCESS_REFUSED, "no route")


@defect("AMQP-PUB-004")
def mandatory_is_ignored(broker: Broker) -> None:
    """Unroutable mandatory messages are not returned."""
    replace(broker.publishing, "return_message", lambda channel, message: None)


def _returns(broker: Broker, change: Any) -> None:
    """What is returned is another message."""
    original = broker.publishing.return_message
    replace(broker.publishing, "return_message", lambda channel, message: original(channel, change(message)))


@defect("AMQP-PUB-005")
def returns_lose_their_properties(broker: Broker) -> None:
    """basic.return has no properties."""
    _returns(
        broker,
        lambda message: PublishedMessage.make(
            message.exchange, message.routing_key, {}, b"\0\0", message.operation.body
        ),
    )


@defect("AMQP-PUB-006")
def routable_messages_are_returned(broker: Broker) -> None:
    """Every mandatory message is returned, even if a queue took it."""

    @handling(broker, "basic.publish")
    def published(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        message = broker.publishing.message(operation)
        vhost = broker.vhosts[channel.connection.vhost]
        exchange = vhost.exchanges.get(message.exchange)
        if (
            operation.arguments["mandatory"]
            and exchange
            and broker.publishing.route(channel, exchange, message)
        ):
            broker.publishing.return_message(channel, message)
        original(channel, operation, now)


@defect("AMQP-PUB-007")
def returned_bodies_are_not_split(broker: Broker) -> None:
    """The body of a basic.return goes out in one frame."""
    original = broker.publishing.return_message

    def give_back(channel: Channel, message: PublishedMessage) -> None:
        agreed, channel.connection.frame_max = channel.connection.frame_max, 0
        original(channel, message)
        channel.connection.frame_max = agreed

    replace(broker.publishing, "return_message", give_back)


@defect("AMQP-PUB-009")
def returns_come_on_the_last_channel(broker: Broker) -> None:
    """basic.return comes on the highest channel of the connection."""
    original = broker.publishing.return_message

    def give_back(channel: Channel, message: PublishedMessage) -> None:
        original(channel.connection.channels[max(channel.connection.channels)], message)

    replace(broker.publishing, "return_message", give_back)


@defect("AMQP-PUB-011")
def headers_lose_a_property(broker: Broker) -> None:
    """A message with all properties arrives without any."""
    original = broker.publishing.message

    def message(operation: Method) -> PublishedMessage:
        made = original(operation)
        if len(made.properties) < 10:
            return made
        return PublishedMessage.make(made.exchange, made.routing_key, {}, b"\0\0", operation.body)

    replace(broker.publishing, "message", message)


@defect("AMQP-PUB-015")
def every_third_message_overtakes(broker: Broker) -> None:
    """In a queue of several ready messages each third one overtakes the one before it."""
    original = broker.deliveries.enqueue

    def enqueue(queue: Queue, message: PublishedMessage, now: int) -> bool:
        taken = original(queue, message, now)
        if len(queue.ready) > 1 and queue.last_position % 3 == 0:
            entries = queue.clear()
            entries[-1], entries[-2] = entries[-2], entries[-1]
            for entry in entries:
                queue.append(entry)
        return taken

    replace(broker.deliveries, "enqueue", enqueue)


@defect("AMQP-PUB-016")
def default_exchange_knows_patterns(broker: Broker) -> None:
    """The default exchange delivers to every queue whose name begins with the routing key."""
    original = broker.publishing.route

    def route(channel: Channel, exchange: Exchange, message: PublishedMessage) -> list[Queue]:
        found = list(original(channel, exchange, message))
        if exchange.name or not message.routing_key:
            return found
        queues = broker.vhosts[channel.connection.vhost].queues
        return [queue for name, queue in queues.items() if name.startswith(message.routing_key)]

    replace(broker.publishing, "route", route)


@defect("AMQP-PUB-022")
def returns_come_on_the_first_channel(broker: Broker) -> None:
    """basic.return comes on the channel with the lowest number."""
    original = broker.publishing.return_message

    def return_message(channel: Channel, message: PublishedMessage) -> None:
        channels = channel.connection.channels
        original(channels[min(channels)], message)

    replace(broker.publishing, "return_message", return_message)
