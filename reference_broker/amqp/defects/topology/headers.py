"""Defects in routing: headers exchanges that compare otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect
from plumbline.reference_broker.amqp.defects.topology.routing import Headers, compares
from plumbline.reference_broker.amqp.topology.exchanges import Binding, headers_match


def _headers(broker: Broker, matches: Callable[[Headers, Headers], bool]) -> None:
    compares(broker, "headers", lambda binding, _, headers: matches(binding.arguments, headers))


@defect("AMQP-ROUTE-007")
def headers_all_is_any(broker: Broker) -> None:
    """A headers binding takes messages with any of its headers, whatever x-match is."""
    _headers(broker, lambda table, headers: headers_match({**table, "x-match": "any"}, headers))


@defect("AMQP-ROUTE-008")
def headers_any_is_all(broker: Broker) -> None:
    """A headers binding takes messages with all of its headers, whatever x-match is."""
    _headers(broker, lambda table, headers: headers_match({**table, "x-match": "all"}, headers))


@defect("AMQP-ROUTE-007")
def headers_without_x_match_take_any(broker: Broker) -> None:
    """A headers binding without x-match takes messages with any of its headers."""
    _headers(broker, lambda table, headers: headers_match({"x-match": "any", **table}, headers))


@defect("AMQP-ROUTE-007", "AMQP-ROUTE-008", "AMQP-ROUTE-009")
def headers_need_no_values(broker: Broker) -> None:
    """A headers binding compares names of headers only."""
    _headers(
        broker,
        lambda table, headers: headers_match(
            {name: value if name == "x-match" else None for name, value in table.items()}, headers
        ),
    )


@defect("AMQP-ROUTE-007")
def headers_must_be_the_same(broker: Broker) -> None:
    """A headers binding with x-match all takes no messages with further headers."""

    def matches(table: Headers, headers: Headers) -> bool:
        return headers_match(table, headers) and (table.get("x-match") == "any" or set(headers) <= set(table))

    _headers(broker, matches)


@defect("AMQP-ROUTE-007", "AMQP-ROUTE-008")
def names_of_headers_ignore_case(broker: Broker) -> None:
    """A headers binding does not tell capital letters from small ones in the names of headers."""

    def small(table: Headers) -> Headers:
        return {name.lower(): value for name, value in table.items()}

    _headers(broker, lambda table, headers: headers_match(small(table), small(headers)))


def _of_no_header(broker: Broker, x_match: str, *, takes: bool) -> None:
    """A binding with this x-match that names no header takes every message, or none."""

    def matches(table: Headers, headers: Headers) -> bool:
        is_meant = set(table) <= {"x-match"} and table.get("x-match", "all") == x_match
        return takes if is_meant else headers_match(table, headers)

    _headers(broker, matches)


@defect("AMQP-ROUTE-008")
def any_of_no_header_takes_all(broker: Broker) -> None:
    """A headers binding with x-match any that names no header takes every message."""
    _of_no_header(broker, "any", takes=True)


@defect("AMQP-ROUTE-007")
def all_of_no_header_takes_none(broker: Broker) -> None:
    """A headers binding with x-match all that names no header takes no message."""
    _of_no_header(broker, "all", takes=False)


@defect("AMQP-ROUTE-007")
def messages_without_headers_match_nothing(broker: Broker) -> None:
    """A headers exchange takes no message without headers."""
    _headers(broker, lambda table, headers: bool(headers) and headers_match(table, headers))


@defect("AMQP-ROUTE-009")
def headers_are_compared_as_texts(broker: Broker) -> None:
    """A headers binding compares values as they are written: 1 and "1" are alike."""

    def as_texts(table: Headers) -> dict[str, Any]:
        return {name: None if value is None else str(value) for name, value in table.items()}

    _headers(broker, lambda table, headers: headers_match(as_texts(table), as_texts(headers)))


@defect("AMQP-ROUTE-009")
def false_headers_are_missing(broker: Broker) -> None:
    """Headers that are false, 0 or empty are taken as missing, in messages and in bindings."""

    def some(table: Headers) -> dict[str, Any]:
        return {name: value for name, value in table.items() if value or value is None}

    _headers(broker, lambda table, headers: headers_match(some(table), some(headers)))


@defect("AMQP-ROUTE-009")
def header_numbers_have_32_bits(broker: Broker) -> None:
    """A headers exchange compares the low 32 bits of numbers."""

    def low(table: Headers) -> dict[str, Any]:
        return {
            name: value % 2**32 if isinstance(value, int) and not isinstance(value, bool) else value
            for name, value in table.items()
        }

    _headers(
        broker, lambda table, headers: headers_match(low(table), low(headers)) and 2**40 not in table.values()
    )


@defect("AMQP-ROUTE-010")
def void_headers_match_void_only(broker: Broker) -> None:
    """A header without a value in a binding takes only messages with that header without a value."""

    def matches(table: Headers, headers: Headers) -> bool:
        names = [name for name in table if name != "x-match"]
        agree = [name in headers and table[name] == headers[name] for name in names]
        return any(agree) if table.get("x-match") == "any" else all(agree)

    _headers(broker, matches)


@defect("AMQP-ROUTE-011")
def headers_compare_x(broker: Broker) -> None:
    """Headers that begin with x- are compared as others are."""
    _headers(
        broker,
        lambda table, headers: headers_match(
            {**table, "x-match": f"{table.get('x-match', 'all')}-with-x"}, headers
        ),
    )


@defect("AMQP-ROUTE-012")
def headers_compare_keys(broker: Broker) -> None:
    """A headers exchange compares the routing key, too."""
    compares(
        broker,
        "headers",
        lambda binding, key, headers: (
            headers_match(binding.arguments, headers) and binding.routing_key in ("", key)
        ),
    )


@defect("AMQP-ROUTE-033")
def x_headers_are_never_compared(broker: Broker) -> None:
    """With x-match all-with-x and any-with-x, headers that begin with x- are not compared either."""

    def follows(binding: Binding, routing_key: str, headers: Headers) -> bool:
        how = str(binding.arguments.get("x-match", "all")).removesuffix("-with-x")
        return headers_match({**binding.arguments, "x-match": how}, headers)

    compares(broker, "headers", follows)


@defect("AMQP-ROUTE-033")
def any_with_x_means_all(broker: Broker) -> None:
    """x-match any-with-x asks for all headers."""

    def follows(binding: Binding, routing_key: str, headers: Headers) -> bool:
        how = str(binding.arguments.get("x-match", "all")).replace("any-with-x", "all-with-x")
        return headers_match({**binding.arguments, "x-match": how}, headers)

    compares(broker, "headers", follows)
