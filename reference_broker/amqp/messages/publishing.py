"""basic.publish, basic.return and publisher confirms.

Sources: AMQP 0-9-1 XML, basic.publish and basic.return; RabbitMQ, "Consumer Acknowledgements and Publisher
Confirms", "Publishers", "Validated User-ID", "Time-To-Live and Expiration".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from plumbline.reference_broker.amqp.access import WRITE, Access
from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.errors import (
    ACCESS_REFUSED,
    NO_ROUTE,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    AmqpReplyError,
    quoted,
)
from plumbline.reference_broker.amqp.messages.delivery import Deliveries
from plumbline.reference_broker.amqp.messages.direct_replies import DirectReplies
from plumbline.reference_broker.amqp.messages.message import (
    BCC,
    KEY_HEADERS,
    PublishedMessage,
    without_header,
)
from plumbline.reference_broker.amqp.outbox import Outbox
from plumbline.reference_broker.amqp.topology.arguments import MAX_TTL_MS, type_name
from plumbline.reference_broker.amqp.topology.exchanges import Exchange, VirtualHost
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import SHAPES, FrameType, Method, frame

_RETURN = SHAPES["basic.return"]
_MAX_CACHED_ROUTES = 4096
_LONGEST_NUMBER = 20  # characters; a short string may hold more, which is too large anyway


class Confirms:
    """The channels with something to confirm at the end of this event."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.confirming: list[Channel] = []

    def on_confirm_select(self, channel: Channel, operation: Method, now: int) -> None:
        """confirm.select."""
        if channel.transaction is not None:
            raise AmqpReplyError(PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
        channel.confirms = True
        if not operation.arguments["no_wait"]:
            self.outbox.answer(channel, "confirm.select-ok")

    def confirm(self, channel: Channel, tag: int, *, taken: bool) -> None:
        """Ack once every queue took it, nack if one did not.

        Where it has to survive, the write queue has it by then, and the shell writes before it sends.
        """
        if not channel.acked and not channel.nacked:
            self.confirming.append(channel)
        (channel.acked if taken else channel.nacked).append(tag)

    def send(self) -> None:
        """What this event has to be confirmed, in as few frames as may be."""
        for channel in self.confirming:
            acked, nacked = channel.acked, channel.nacked
            if not channel.closed and not channel.closing:
                self.send_settled(channel, "basic.ack", (), acked, nacked)
                self.send_settled(channel, "basic.nack", (True,), nacked, acked)
            channel.acked, channel.nacked = [], []
        self.confirming.clear()

    def send_settled(
        self, channel: Channel, method: str, more: tuple[bool, ...], tags: list[int], others: list[int]
    ) -> None:
        """One frame with ``multiple`` for all below what is settled otherwise; then one for each."""
        together = len(tags) if not others else sum(tag < others[0] for tag in tags)
        if together > 1:
            self.outbox.answer(channel, method, tags[together - 1], True, *more)
            tags = tags[together:]
        for tag in tags:
            self.outbox.answer(channel, method, tag, False, *more)


class Publishing:
    """From a publisher to queues."""

    def __init__(
        self,
        vhosts: Mapping[str, VirtualHost],
        deliveries: Deliveries,
        confirms: Confirms,
        replies: DirectReplies,
        access: Access,
        outbox: Outbox,
        max_message_size: int,
    ) -> None:
        self.vhosts = vhosts
        self.deliveries = deliveries
        self.confirms = confirms
        self.replies = replies
        self.access = access
        self.outbox = outbox
        self.max_message_size = max_message_size  # bytes
        self._encoded_routes: dict[tuple[str, str], bytes] = {}

    def on_basic_publish(self, channel: Channel, operation: Method, now: int) -> None:
        """basic.publish with its content."""
        arguments = operation.arguments
        if arguments["immediate"]:
            raise AmqpReplyError(NOT_IMPLEMENTED, "immediate=true")
        message = self.message(operation)
        vhost = self.vhosts[channel.connection.vhost]
        exchange = vhost.exchanges.get(message.exchange)
        if len(operation.raw) > self.max_message_size:
            self.check_size(operation)
        if channel.connection.permission is not None:
            self.access.check(channel.connection, WRITE, "exchange", message.exchange)
        if exchange is None:
            raise AmqpReplyError(NOT_FOUND, f"no {quoted('exchange', message.exchange, vhost.name)}")
        if exchange.internal:
            what = quoted("internal exchange", exchange.name, vhost.name)
            raise AmqpReplyError(ACCESS_REFUSED, f"cannot publish to {what}")
        if self.access.topic_permissions:
            connection, key = channel.connection, arguments["routing_key"]
            self.access.check_topic(connection, WRITE, exchange.name, exchange.kind, key)
        if message.properties:
            self.check_properties(channel, message.properties)
            message = self.replies.with_address(channel, message)
        queues = self.route(channel, exchange, message)
        if message.properties and BCC in message.headers:
            message = without_header(message, BCC)
        if not queues and not exchange.name:
            self.replies.deliver(message)
        transaction = channel.transaction
        if transaction is not None:
            transaction.publishes.append((message, arguments["mandatory"], list(queues)))
            return
        if channel.confirms:
            channel.published += 1
        if not queues and arguments["mandatory"]:
            self.return_message(channel, message)
        taken = self.distribute(queues, message, now)
        if channel.confirms:
            self.confirms.confirm(channel, channel.published, taken=taken)

    def message(self, operation: Method) -> PublishedMessage:
        arguments = operation.arguments
        exchange, key = arguments["exchange"], arguments["routing_key"]
        route = self._encoded_routes.get((exchange, key))
        if route is None:
            if len(self._encoded_routes) >= _MAX_CACHED_ROUTES:
                self._encoded_routes.clear()
            shape = operation.shape
            # exchange and routing key follow class, method and reserved-1 in the method frame
            start = 7 + len(shape.ids) + 2
            route = operation.raw[start : operation.head - 2]
            self._encoded_routes[exchange, key] = route
        return PublishedMessage(operation, exchange, key, route)

    def route(self, channel: Channel, exchange: Exchange, message: PublishedMessage) -> Sequence[Queue]:
        vhost = self.vhosts[channel.connection.vhost]
        return vhost.route_all(exchange, message.routing_key, message.headers)

    def distribute(self, queues: Iterable[Queue], message: PublishedMessage, now: int) -> bool:
        """One copy for each queue; whether all of them took it."""
        taken = True
        for queue in queues:
            taken &= self.deliveries.enqueue(queue, message, now)
        return taken

    def check_size(self, operation: Method) -> None:
        if (size := len(operation.body)) > self.max_message_size:
            text = f"message size {size} is larger than configured max size {self.max_message_size}"
            raise AmqpReplyError(PRECONDITION_FAILED, text)

    def check_properties(self, channel: Channel, properties: Mapping[str, Any]) -> None:
        user = properties.get("user_id")
        if user is not None and user != channel.connection.user:
            text = f"user_id property set to '{user}' but authenticated user was '{channel.connection.user}'"
            raise AmqpReplyError(PRECONDITION_FAILED, text)
        for name in KEY_HEADERS:
            keys = (properties.get("headers") or {}).get(name, [])
            if not isinstance(keys, list):
                fault = f'{{unacceptable_type_in_header,"{name}",{type_name(keys)}}}'
                raise AmqpReplyError(PRECONDITION_FAILED, f"invalid message: {fault}")
        expiration = properties.get("expiration")
        if expiration is not None and (why := _invalid_expiration(expiration)) is not None:
            raise AmqpReplyError(PRECONDITION_FAILED, f"invalid expiration '{expiration}': {why}")

    def return_message(self, channel: Channel, message: PublishedMessage) -> None:
        """basic.return, with the content as it came."""
        values = (NO_ROUTE, "NO_ROUTE", message.exchange, message.routing_key)
        method = frame(FrameType.METHOD, channel.number, _RETURN.encode_values(values))
        self.outbox.send_content(channel, method, message)


def _invalid_expiration(expiration: str) -> str | None:
    """Milliseconds, in digits; None if that is what it is."""
    number = re.match(r"[+-]?[0-9]+", expiration)
    if number is None:
        return "no_integer"
    if rest := expiration[number.end() :]:
        return f'{{leftover_string,"{rest}"}}'
    value = int(number[0][:_LONGEST_NUMBER])
    if value < 0:
        return f"{{value_negative,{value}}}"
    return f"{{value_too_large,{value}}}" if value > MAX_TTL_MS else None
