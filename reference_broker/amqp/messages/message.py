"""A message on its way: what was published, and its place in one queue.

Properties and body are delivered as they came, byte for byte; frames are only rewritten where channel
number or frame_max ask for it. Source: AMQP 0-9-1, section 4.2.6 ("Content Framing").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plumbline.wire.amqp import Method, content_frames, encode_properties
from plumbline.wire.amqp.fields import encode_short

PERSISTENT = 2
KEY_HEADERS = (CC, BCC) = ("CC", "BCC")  # the receiver does not see BCC
_NO_HEADERS: Mapping[str, Any] = {}


class PublishedMessage:
    """What was published; every queue that got it shares it. Read-only."""

    __slots__ = ("exchange", "operation", "persistent", "properties", "route", "routing_key")

    def __init__(self, operation: Method, exchange: str, routing_key: str, route: bytes) -> None:
        properties = operation.properties or _NO_HEADERS
        self.operation = operation
        self.exchange = exchange
        self.routing_key = routing_key
        self.route = route  # both, as they end the method frames of a delivery
        self.properties = properties
        self.persistent = bool(properties) and properties.get("delivery_mode") == PERSISTENT

    @classmethod
    def make(
        cls, exchange: str, routing_key: str, properties: Mapping[str, Any], raw: bytes, body: bytes
    ) -> PublishedMessage:
        """A message that no client's frames made; ``raw`` is its properties as they are sent."""
        operation = _publish(exchange, routing_key, properties, raw, body)
        return cls(operation, exchange, routing_key, encode_route(exchange, routing_key))

    @property
    def headers(self) -> Mapping[str, Any]:
        headers: Mapping[str, Any] = self.properties.get("headers") or _NO_HEADERS
        return headers

    @property
    def size(self) -> int:
        """Of the body, in bytes."""
        return len(self.operation.body)

    def content(self, channel: int, frame_max: int) -> bytes:
        """Its content header and body frames, none larger than ``frame_max``; 0: in one frame."""
        operation = self.operation
        raw, head = operation.raw, operation.head
        if operation.channel == channel and len(raw) - head <= frame_max:
            return raw[head:]
        size_limit = frame_max or len(raw)
        return content_frames(channel, operation.raw_properties, operation.body, frame_max=size_limit)


def _publish(exchange: str, key: str, properties: Mapping[str, Any], raw: bytes, body: bytes) -> Method:
    method = Method.make("basic.publish", 0, exchange=exchange, routing_key=key)
    frames = method.raw[: method.head] + content_frames(0, raw, body, frame_max=len(body) + 64)
    return Method(frames, 0, method.shape, method.arguments, properties, method.head)


def altered(
    message: PublishedMessage, exchange: str, routing_key: str, properties: Mapping[str, Any]
) -> PublishedMessage:
    """The same body with other properties, published elsewhere."""
    return PublishedMessage.make(
        exchange, routing_key, properties, encode_properties(properties), message.operation.body
    )


def further_keys(headers: Mapping[str, Any]) -> list[str]:
    """The routing keys that a message has besides that of basic.publish. RabbitMQ, "Sender-selected
    Distribution"."""
    lists = (headers.get(name) for name in KEY_HEADERS)
    return [key for keys in lists if isinstance(keys, list) for key in keys if isinstance(key, str)]


def without_header(message: PublishedMessage, name: str) -> PublishedMessage:
    """The same message without one of its headers."""
    headers = {one: value for one, value in message.headers.items() if one != name}
    properties = {**message.properties, "headers": headers}
    return altered(message, message.exchange, message.routing_key, properties)


def encode_route(exchange: str, routing_key: str) -> bytes:
    """As the last two arguments of basic.deliver and basic.return stand on the wire."""
    return encode_short(exchange) + encode_short(routing_key)


class QueueEntry:
    """A message's place in one queue. ``position`` rises with each; a requeued one gets its own again."""

    __slots__ = ("expires", "message", "position", "redelivered")

    def __init__(self, message: PublishedMessage, position: int, expires: int | None) -> None:
        self.message = message
        self.position = position
        self.expires = expires  # nanoseconds since the epoch
        self.redelivered = False
