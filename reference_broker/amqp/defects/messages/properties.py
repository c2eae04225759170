"""Defects in what messages carry: properties and headers that change on their way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.messages.message import PublishedMessage, altered
from plumbline.wire.amqp import Decimal, Float, Integer, Method, Timestamp

Properties = dict[str, Any]


def _carries(broker: Broker, change: Callable[[Properties], Properties]) -> None:
    """What is published has other properties."""
    original = broker.publishing.message

    def message(operation: Method) -> PublishedMessage:
        found = original(operation)
        return altered(found, found.exchange, found.routing_key, change(dict(found.properties)))

    replace(broker.publishing, "message", message)


def _values(broker: Broker, change: Callable[[Any], Any]) -> None:
    """Every value of a header is changed, in tables and arrays too."""

    def deep(value: Any) -> Any:
        value = change(value)
        if isinstance(value, dict):
            return {name: deep(item) for name, item in value.items()}
        return [deep(item) for item in value] if isinstance(value, list) else value

    _carries(
        broker,
        lambda properties: {
            name: deep(value) if name == "headers" else value for name, value in properties.items()
        },
    )


def _as_plain_integer(value: Any) -> Any:
    return int(value) if isinstance(value, Integer) else value


@defect("AMQP-PUB-017")
def integer_headers_lose_their_size(broker: Broker) -> None:
    """Integers in headers are delivered with 32 bits, or 64 if they need them."""
    _values(broker, _as_plain_integer)


@defect("AMQP-PUB-017")
def unsigned_headers_get_a_sign(broker: Broker) -> None:
    """Unsigned integers in headers are delivered as signed ones."""
    signed = {"B": ("b", 8), "u": ("s", 16), "i": ("I", 32)}

    def change(value: Any) -> Any:
        if not isinstance(value, Integer) or value.type not in signed:
            return value
        kind, bits = signed[value.type]
        return Integer(int(value) - (int(value) >> (bits - 1) << bits), kind)

    _values(broker, change)


@defect("AMQP-PUB-017")
def float_headers_become_double(broker: Broker) -> None:
    """Floats in headers are delivered as doubles."""
    _values(broker, lambda value: float(value) if isinstance(value, Float) else value)


@defect("AMQP-PUB-017")
def times_in_headers_become_numbers(broker: Broker) -> None:
    """Timestamps in headers are delivered as integers."""
    _values(broker, lambda value: int(value) if isinstance(value, Timestamp) else value)


@defect("AMQP-PUB-017")
def bytes_in_headers_become_text(broker: Broker) -> None:
    """Bytes in headers are delivered as text."""
    _values(
        broker,
        lambda value: value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value,
    )


@defect("AMQP-PUB-017")
def decimals_become_double(broker: Broker) -> None:
    """Decimals in headers are delivered as doubles."""
    _values(broker, lambda value: value.value / 10**value.scale if isinstance(value, Decimal) else value)


@defect("AMQP-PUB-017")
def void_headers_become_empty(broker: Broker) -> None:
    """Headers without a value are delivered as empty texts."""
    _values(broker, lambda value: "" if value is None else value)


@defect("AMQP-PUB-017")
def boolean_headers_become_numbers(broker: Broker) -> None:
    """Booleans in headers are delivered as numbers."""
    _values(broker, lambda value: int(value) if isinstance(value, bool) else value)


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: item for name, item in value.items() if item not in ("", b"", {}, [])}
    return value


@defect("AMQP-PUB-017")
def empty_headers_are_dropped(broker: Broker) -> None:
    """Empty texts, tables and arrays in headers are not delivered."""
    _values(broker, _without_empty)


@defect("AMQP-PUB-017")
def long_headers_are_cut(broker: Broker) -> None:
    """Texts in headers are cut at 255 characters."""
    _values(broker, lambda value: value[:255] if isinstance(value, str) else value)


@defect("AMQP-PUB-011")
def empty_properties_are_dropped(broker: Broker) -> None:
    """Properties that are empty or 0 are not delivered."""
    _carries(
        broker, lambda properties: {name: value for name, value in properties.items() if value not in ("", 0)}
    )


@defect("AMQP-PUB-011")
def empty_tables_of_headers_are_dropped(broker: Broker) -> None:
    """A table of headers without entries is not delivered."""
    _carries(broker, lambda properties: {name: value for name, value in properties.items() if value != {}})


@defect("AMQP-PUB-011")
def timestamps_have_32_bits(broker: Broker) -> None:
    """The property timestamp is delivered with its low 32 bits."""
    _carries(
        broker,
        lambda properties: {
            name: value % 2**32 if name == "timestamp" else value for name, value in properties.items()
        },
    )


@defect("AMQP-PUB-011")
def messages_get_a_delivery_mode(broker: Broker) -> None:
    """A message without delivery_mode is delivered with 1."""
    _carries(broker, lambda properties: {"delivery_mode": 1, **properties})


@defect("AMQP-PUB-018")
def headers_are_sorted(broker: Broker) -> None:
    """Headers are delivered in the order of their names."""
    _values(broker, lambda value: dict(sorted(value.items())) if isinstance(value, dict) else value)


@defect("AMQP-PUB-005")
def returns_lose_types_of_headers(broker: Broker) -> None:
    """Integers in headers of a returned message have 32 bits, or 64 if they need them."""
    original = broker.publishing.return_message

    def return_message(channel: Any, message: PublishedMessage) -> None:
        properties = dict(message.properties)
        if "headers" in properties:
            headers = properties["headers"]
            properties["headers"] = {name: _as_plain_integer(value) for name, value in headers.items()}
        original(channel, altered(message, message.exchange, message.routing_key, properties))

    replace(broker.publishing, "return_message", return_message)
