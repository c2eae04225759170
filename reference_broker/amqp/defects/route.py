"""Defects in routing: exchanges that compare otherwise, bindings that stay, alternate exchanges."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import before_handling, handling, with_arguments
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.message import PublishedMessage
from plumbline.reference_broker.amqp.topology.exchanges import (
    Binding,
    Exchange,
    VirtualHost,
    headers_match,
    topic_matches,
)
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import Method

Headers = Mapping[str, Any]
Follows = Callable[[Binding, str, Headers], bool]


def _compares(broker: Broker, kind: str, follows: Follows) -> None:
    """Exchanges of this kind decide by ``follows(binding, routing key, headers)``."""
    for vhost in broker.vhosts.values():
        replace(vhost, "next_stops", _next_stops(vhost, kind, follows))


def _next_stops(vhost: VirtualHost, kind: str, follows: Follows) -> Callable[..., Iterator[str | None]]:
    original = vhost.next_stops

    def next_stops(
        exchange: Exchange, routing_key: str, headers: Headers, queues: dict[str, Queue]
    ) -> Iterator[str | None]:
        if exchange.kind != kind or not exchange.name:
            yield from original(exchange, routing_key, headers, queues)
            return
        for binding in exchange.bindings.values():
            if not follows(binding, routing_key, headers):
                continue
            if binding.to_queue:
                queues[binding.destination] = vhost.queues[binding.destination]
                yield None
            else:
                yield binding.destination

    return next_stops


# Direct and fanout


@defect("AMQP-ROUTE-001")
def direct_ignores_case(broker: Broker) -> None:
    """A direct exchange does not tell capital letters from small ones."""
    _compares(broker, "direct", lambda binding, key, _: binding.routing_key.lower() == key.lower())


@defect("AMQP-ROUTE-001")
def direct_compares_beginnings(broker: Broker) -> None:
    """A direct exchange takes keys that begin with the binding's."""
    _compares(broker, "direct", lambda binding, key, _: key.startswith(binding.routing_key))


@defect("AMQP-ROUTE-001")
def direct_knows_wildcards(broker: Broker) -> None:
    """A direct exchange compares as a topic exchange does."""
    _compares(broker, "direct", lambda binding, key, _: topic_matches(binding.routing_key, key))


@defect("AMQP-ROUTE-001")
def direct_takes_everything(broker: Broker) -> None:
    """A direct exchange does not look at keys."""
    _compares(broker, "direct", lambda binding, key, headers: True)


@defect("AMQP-ROUTE-001")
def direct_binding_without_key_takes_everything(broker: Broker) -> None:
    """In a direct exchange a binding with the empty key takes every message."""
    _compares(broker, "direct", lambda binding, key, _: binding.routing_key in ("", key))


def _finds_one_queue(broker: Broker, kind: str) -> None:
    original = broker.publishing.route

    def route(channel: Channel, exchange: Exchange, message: PublishedMessage) -> list[Queue]:
        queues = list(original(channel, exchange, message))
        return queues[:1] if exchange.kind == kind else queues

    replace(broker.publishing, "route", route)


@defect("AMQP-ROUTE-002")
def direct_finds_one_queue(broker: Broker) -> None:
    """A direct exchange gives a message to the first queue only."""
    _finds_one_queue(broker, "direct")


@defect("AMQP-ROUTE-002")
def direct_keeps_one_key_of_a_queue(broker: Broker) -> None:
    """A queue has one binding to a direct exchange: the last."""
    original = broker.topology.add_binding

    def add_binding(vhost: VirtualHost, binding: Binding) -> None:
        exchange = vhost.exchanges[binding.source]
        for other in list(exchange.bindings.values()):
            if exchange.kind == "direct" and other.destination == binding.destination:
                del exchange.bindings[other.key]
        original(vhost, binding)

    replace(broker.topology, "add_binding", add_binding)


@defect("AMQP-ROUTE-003")
def fanout_compares_keys(broker: Broker) -> None:
    """A fanout exchange compares keys."""
    _compares(broker, "fanout", lambda binding, key, _: binding.routing_key in ("", key))


@defect("AMQP-ROUTE-003")
def fanout_finds_one_queue(broker: Broker) -> None:
    """A fanout exchange gives a message to the first queue only."""
    _finds_one_queue(broker, "fanout")


# Topic


def _topic(broker: Broker, matches: Callable[[str, str], bool]) -> None:
    _compares(broker, "topic", lambda binding, key, _: matches(binding.routing_key, key))


def _as_pattern(star: str, many: str, dot: str = r"\.") -> Callable[[str, str], bool]:
    """Words as a regular expression: one that is ``*``, one that is ``#``, and what is between two."""

    def matches(pattern: str, key: str) -> bool:
        words = [{"*": star, "#": many}.get(word, re.escape(word)) for word in pattern.split(".")]
        return re.fullmatch(dot.join(words), key) is not None

    return matches


@defect("AMQP-ROUTE-004", "AMQP-ROUTE-005", "AMQP-ROUTE-006")
def topic_takes_everything(broker: Broker) -> None:
    """A topic exchange does not look at keys."""
    _topic(broker, lambda pattern, key: True)


@defect("AMQP-ROUTE-005", "AMQP-ROUTE-006")
def topic_is_direct(broker: Broker) -> None:
    """A topic exchange knows no wildcards."""
    _topic(broker, lambda pattern, key: pattern == key)


@defect("AMQP-ROUTE-004")
def topic_compares_beginnings(broker: Broker) -> None:
    """A topic binding takes keys that have further words."""
    _topic(broker, lambda pattern, key: topic_matches(pattern, key) or topic_matches(f"{pattern}.#", key))


@defect("AMQP-ROUTE-004")
def topic_dots_are_any_character(broker: Broker) -> None:
    """A dot in a topic binding takes any character."""
    _topic(
        broker,
        lambda pattern, key: topic_matches(pattern, key) or _as_pattern("[^.]+", ".*", ".")(pattern, key),
    )


@defect("AMQP-ROUTE-004")
def topic_ignores_case(broker: Broker) -> None:
    """A topic exchange does not tell capital letters from small ones."""
    _topic(broker, lambda pattern, key: topic_matches(pattern.lower(), key.lower()))


@defect("AMQP-ROUTE-005")
def star_takes_no_word(broker: Broker) -> None:
    """In a topic binding * takes one word or none."""

    def matches(pattern: str, key: str) -> bool:
        words = pattern.split(".")
        fewer = [".".join(words[:at] + words[at + 1 :]) for at, word in enumerate(words) if word == "*"]
        return any(topic_matches(one, key) for one in (pattern, *fewer))

    _topic(broker, matches)


@defect("AMQP-ROUTE-005")
def star_takes_several_words(broker: Broker) -> None:
    """In a topic binding * takes one word or more."""
    _topic(broker, lambda pattern, key: topic_matches(pattern, key) or _as_pattern(".+", ".*")(pattern, key))


@defect("AMQP-ROUTE-005")
def star_is_no_first_word(broker: Broker) -> None:
    """In a topic binding * is a wildcard only behind another word."""
    _topic(broker, lambda pattern, key: topic_matches(pattern, key) and not pattern.startswith("*."))


@defect("AMQP-ROUTE-005")
def last_star_takes_the_rest(broker: Broker) -> None:
    """In a topic binding * as the last word takes all further words."""

    def matches(pattern: str, key: str) -> bool:
        more = f"{pattern}.#" if pattern.endswith(".*") else pattern
        return topic_matches(more, key)

    _topic(broker, matches)


@defect("AMQP-ROUTE-006")
def hash_needs_a_word(broker: Broker) -> None:
    """In a topic binding # takes one word or more."""
    _topic(
        broker, lambda pattern, key: topic_matches(pattern, key) and _as_pattern("[^.]+", ".+")(pattern, key)
    )


@defect("AMQP-ROUTE-006")
def hash_takes_one_word(broker: Broker) -> None:
    """In a topic binding # takes one word or none."""
    _topic(
        broker,
        lambda pattern, key: (
            topic_matches(pattern, key) and (pattern == "#" or len(key.split(".")) <= len(pattern.split(".")))
        ),
    )


@defect("AMQP-ROUTE-006")
def hash_is_only_a_last_word(broker: Broker) -> None:
    """In a topic binding # is a wildcard only at the end."""
    _topic(broker, lambda pattern, key: topic_matches(pattern, key) and "#." not in pattern)


@defect("AMQP-ROUTE-006")
def hash_takes_as_little_as_it_can(broker: Broker) -> None:
    """In a topic binding # ends at the first word that the next one takes, and does not try further ones."""

    def matches(pattern: str, key: str) -> bool:
        words, rest = pattern.split("."), key.split(".") if key else []
        while words:
            word = words.pop(0)
            if word != "#":
                if not rest or word not in ("*", rest.pop(0)):
                    return False
            elif not words:
                return True
            else:
                while rest and words[0] not in ("*", "#", rest[0]):
                    rest.pop(0)
        return not rest

    _topic(broker, matches)


# Headers


def _headers(broker: Broker, matches: Callable[[Headers, Headers], bool]) -> None:
    _compares(broker, "headers", lambda binding, _, headers: matches(binding.arguments, headers))


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
    _compares(
        broker,
        "headers",
        lambda binding, key, headers: (
            headers_match(binding.arguments, headers) and binding.routing_key in ("", key)
        ),
    )


# The default exchange


def _default_route(broker: Broker, same: Callable[[str, str], bool]) -> None:
    original = broker.publishing.route

    def route(channel: Channel, exchange: Exchange, message: PublishedMessage) -> list[Queue]:
        queues = list(original(channel, exchange, message))
        if exchange.name or queues:
            return queues
        vhost = broker.vhosts[channel.connection.vhost]
        return [queue for name, queue in vhost.queues.items() if same(name, message.routing_key)]

    replace(broker.publishing, "route", route)


@defect("AMQP-PUB-016")
def default_exchange_ignores_case(broker: Broker) -> None:
    """The default exchange does not tell capital letters from small ones."""
    _default_route(broker, lambda name, key: name.lower() == key.lower())


@defect("AMQP-PUB-016")
def default_exchange_compares_beginnings(broker: Broker) -> None:
    """The default exchange takes keys that begin with the name of a queue."""
    _default_route(broker, lambda name, key: key.startswith(name))


@defect("AMQP-PUB-016")
def default_exchange_knows_wildcards(broker: Broker) -> None:
    """The default exchange takes the key # for every queue."""
    _default_route(broker, lambda name, key: key in ("#", "*"))


# Bindings end


def _unbinds(broker: Broker, same: Callable[[Binding, Binding], bool]) -> None:
    """Unbinding removes every binding that is the ``same`` as the one that is named."""

    def drop_binding(channel: Channel, binding: Binding) -> None:
        vhost = broker.vhosts[channel.connection.vhost]
        exchange = vhost.exchanges.get(binding.source)
        for other in list(exchange.bindings.values()) if exchange is not None else ():
            if other.to_queue is binding.to_queue and same(other, binding):
                broker.topology.remove_binding(vhost, other)

    replace(broker.topology, "drop_binding", drop_binding)


@defect("AMQP-ROUTE-013", "AMQP-ROUTE-016")
def unbind_does_nothing(broker: Broker) -> None:
    """queue.unbind and exchange.unbind are answered, and the binding stays."""
    _unbinds(broker, lambda other, named: False)


@defect("AMQP-ROUTE-013", "AMQP-ROUTE-016")
def unbind_ignores_the_key(broker: Broker) -> None:
    """Unbinding removes all bindings between the two, whatever their keys."""
    _unbinds(broker, lambda other, named: other.destination == named.destination)


@defect("AMQP-ROUTE-013")
def unbind_removes_other_queues(broker: Broker) -> None:
    """queue.unbind removes the bindings of all queues with that key."""
    _unbinds(broker, lambda other, named: other.routing_key == named.routing_key)


@defect("AMQP-ROUTE-014")
def unbind_ignores_arguments(broker: Broker) -> None:
    """queue.unbind removes bindings with any arguments."""
    _unbinds(
        broker,
        lambda other, named: (other.destination, other.routing_key) == (named.destination, named.routing_key),
    )


@defect("AMQP-ROUTE-014")
def bindings_differ_by_key_alone(broker: Broker) -> None:
    """A binding with other arguments takes the place of the one before."""
    original = broker.topology.add_binding

    def add_binding(vhost: VirtualHost, binding: Binding) -> None:
        bindings = vhost.exchanges[binding.source].bindings
        for other in list(bindings.values()):
            if (other.destination, other.routing_key) == (binding.destination, binding.routing_key):
                del bindings[other.key]
        original(vhost, binding)

    replace(broker.topology, "add_binding", add_binding)


@defect("AMQP-ROUTE-021")
def deleted_exchanges_keep_bindings(broker: Broker) -> None:
    """An exchange that is declared anew has the bindings that it had before it was deleted."""
    old: dict[str, dict[Any, Binding]] = {}
    original_make = broker.exchange_methods.make_exchange

    @handling(broker, "exchange.delete")
    def deleted(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        name = operation.arguments["exchange"]
        exchange = broker.vhosts[channel.connection.vhost].exchanges.get(name)
        if exchange is not None:
            old[name] = dict(exchange.bindings)
        original(channel, operation, now)

    def make_exchange(vhost: VirtualHost, name: str, arguments: Any) -> None:
        original_make(vhost, name, arguments)
        vhost.exchanges[name].bindings.update(old.pop(name, {}))

    replace(broker.exchange_methods, "make_exchange", make_exchange)


@defect("AMQP-ROUTE-021")
def deleted_exchanges_swallow(broker: Broker) -> None:
    """What is published to an exchange that was deleted is dropped silently."""
    deleted: set[str] = set()

    @handling(broker, "exchange.delete")
    def delete(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        original(channel, operation, now)
        deleted.add(operation.arguments["exchange"])

    before_handling(
        broker,
        "basic.publish",
        lambda channel, operation: (
            None
            if operation.arguments["exchange"] in deleted
            and operation.arguments["exchange"] not in broker.vhosts[channel.connection.vhost].exchanges
            else operation
        ),
    )


@defect("AMQP-ROUTE-022")
def deleted_queues_keep_bindings(broker: Broker) -> None:
    """A queue that is declared anew has the bindings that it had before it was deleted."""
    old: dict[str, list[Binding]] = {}
    original_remove, original_make = broker.topology.remove_queue, broker.queue_methods.make_queue

    def remove_queue(queue: Queue) -> None:
        if not queue.deleted:
            old[queue.name] = broker.vhosts[queue.vhost].bound_to(queue.name, is_queue=True)
        original_remove(queue)

    def make_queue(vhost: VirtualHost, name: str, channel: Channel, arguments: Any) -> Queue:
        queue = original_make(vhost, name, channel, arguments)
        for binding in old.pop(name, []):
            if binding.source in vhost.exchanges:
                vhost.bind(binding)
        return queue

    replace(broker.topology, "remove_queue", remove_queue)
    replace(broker.queue_methods, "make_queue", make_queue)


# Exchange to exchange


@defect("AMQP-ROUTE-015")
def exchange_bindings_lead_back(broker: Broker) -> None:
    """exchange.bind leads messages from the destination to the source, too."""
    original = broker.exchange_methods.exchange_binding

    def exchange_binding(vhost: VirtualHost, arguments: Any) -> Binding:
        there = original(vhost, arguments)
        back = Binding(there.destination, False, there.source, "x.y", there.arguments)
        broker.topology.add_binding(vhost, back)
        return there

    replace(broker.exchange_methods, "exchange_binding", exchange_binding)


@defect("AMQP-ROUTE-015", "AMQP-ROUTE-016")
def exchange_bindings_take_every_key(broker: Broker) -> None:
    """A binding between exchanges takes every message."""
    for vhost in broker.vhosts.values():
        for kind in ("direct", "topic"):
            original = vhost.next_stops

            def next_stops(
                exchange: Exchange,
                routing_key: str,
                headers: Headers,
                queues: dict[str, Queue],
                original: Callable[..., Iterator[str | None]] = original,
                kind: str = kind,
            ) -> Iterator[str | None]:
                yield from original(exchange, routing_key, headers, queues)
                if exchange.kind == kind:
                    yield from (one.destination for one in exchange.bindings.values() if not one.to_queue)

            replace(vhost, "next_stops", next_stops)


@defect("AMQP-ROUTE-015")
def exchange_bindings_skip_the_second_key(broker: Broker) -> None:
    """What comes from another exchange goes to every queue of the destination."""
    for vhost in broker.vhosts.values():
        original = vhost.next_stops

        def next_stops(
            exchange: Exchange,
            routing_key: str,
            headers: Headers,
            queues: dict[str, Queue],
            original: Callable[..., Iterator[str | None]] = original,
            vhost: VirtualHost = vhost,
        ) -> Iterator[str | None]:
            for name in original(exchange, routing_key, headers, queues):
                yield name
                if name is not None:
                    for binding in vhost.exchanges[name].bindings.values():
                        if binding.to_queue:
                            queues[binding.destination] = vhost.queues[binding.destination]
                            yield None

        replace(vhost, "next_stops", next_stops)


@defect("AMQP-ROUTE-027")
def internal_exchanges_take_nothing(broker: Broker) -> None:
    """An internal exchange takes no messages from other exchanges either."""
    for vhost in broker.vhosts.values():
        original = vhost.next_stops

        def next_stops(
            exchange: Exchange,
            routing_key: str,
            headers: Headers,
            queues: dict[str, Queue],
            original: Callable[..., Iterator[str | None]] = original,
        ) -> Iterator[str | None]:
            if not exchange.internal:
                yield from original(exchange, routing_key, headers, queues)

        replace(vhost, "next_stops", next_stops)


def _each_way(broker: Broker) -> None:
    """A queue gets a copy for each way, of at most four exchanges."""

    def found(vhost: VirtualHost, exchange: Exchange, message: PublishedMessage, depth: int) -> list[Queue]:
        queues: dict[str, Queue] = {}
        names = list(vhost.next_stops(exchange, message.routing_key, message.headers, queues))
        ways = list(queues.values())
        for name in names:
            if name is not None and depth:
                ways += found(vhost, vhost.exchanges[name], message, depth - 1)
        return ways

    def route(channel: Channel, exchange: Exchange, message: PublishedMessage) -> list[Queue]:
        return found(broker.vhosts[channel.connection.vhost], exchange, message, 3)

    replace(broker.publishing, "route", route)


@defect("AMQP-ROUTE-017")
def each_way_delivers(broker: Broker) -> None:
    """A queue gets one copy for each way through exchanges."""
    _each_way(broker)


# Alternate exchanges


def _alternates(broker: Broker, change: Callable[[str, Any], Any]) -> None:
    """The alternate exchange of an exchange that is declared is changed: ``change(exchange, alternate)``."""

    def changed(channel: Channel, operation: Method) -> Method:
        table = operation.arguments["arguments"]
        if "alternate-exchange" not in table:
            return operation
        name = change(operation.arguments["exchange"], table["alternate-exchange"])
        rest = {key: value for key, value in table.items() if key != "alternate-exchange"}
        return with_arguments(
            operation, arguments=rest if name is None else {**rest, "alternate-exchange": name}
        )

    before_handling(broker, "exchange.declare", changed)


@defect("AMQP-ROUTE-018", "AMQP-ROUTE-019")
def alternates_are_ignored(broker: Broker) -> None:
    """Exchanges have no alternate exchange."""
    _alternates(broker, lambda exchange, alternate: None)


@defect("AMQP-ROUTE-018")
def alternates_get_everything(broker: Broker) -> None:
    """An alternate exchange gets what its exchange could route, too."""
    for vhost in broker.vhosts.values():
        original = vhost.next_stops

        def next_stops(
            exchange: Exchange,
            routing_key: str,
            headers: Headers,
            queues: dict[str, Queue],
            original: Callable[..., Iterator[str | None]] = original,
            vhost: VirtualHost = vhost,
        ) -> Iterator[str | None]:
            yield from original(exchange, routing_key, headers, queues)
            if exchange.alternate is not None and exchange.alternate in vhost.exchanges:
                yield exchange.alternate

        replace(vhost, "next_stops", next_stops)


def _takes(exchange: Exchange | None, message: PublishedMessage) -> bool:
    """Whether one of its bindings takes the message."""
    return exchange is not None and any(exchange.matching(message.routing_key, message.headers))


@defect("AMQP-ROUTE-018")
def alternates_do_not_stop_returns(broker: Broker) -> None:
    """A mandatory message that only an alternate exchange routes is returned, too."""

    @handling(broker, "basic.publish")
    def published(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        message = broker.publishing.message(operation)
        exchange = broker.vhosts[channel.connection.vhost].exchanges.get(message.exchange)
        is_meant = exchange is not None and exchange.alternate is not None
        if is_meant and operation.arguments["mandatory"] and not _takes(exchange, message):
            broker.publishing.return_message(channel, message)
        original(channel, operation, now)


@defect("AMQP-ROUTE-019")
def alternates_have_no_alternates(broker: Broker) -> None:
    """The alternate exchange of an alternate exchange gets nothing."""
    used: set[str] = set()

    def change(exchange: str, alternate: str) -> str | None:
        if any(alternate == one for one in used):
            return None
        used.add(exchange)
        return alternate

    _alternates(broker, change)


@defect("AMQP-ROUTE-019", "AMQP-ROUTE-020")
def alternates_are_not_mandatory(broker: Broker) -> None:
    """A mandatory message to an exchange with an alternate exchange is never returned."""
    original = broker.publishing.return_message

    def return_message(channel: Channel, message: PublishedMessage) -> None:
        exchange = broker.vhosts[channel.connection.vhost].exchanges[message.exchange]
        if exchange.alternate is None:
            original(channel, message)

    replace(broker.publishing, "return_message", return_message)


# Exchanges


@defect("AMQP-ROUTE-023")
def auto_delete_exchanges_stay(broker: Broker) -> None:
    """An auto-delete exchange stays when its last binding goes."""
    before_handling(
        broker, "exchange.declare", lambda channel, operation: with_arguments(operation, auto_delete=False)
    )


@defect("AMQP-ROUTE-023")
def auto_delete_exchanges_go_with_any_binding(broker: Broker) -> None:
    """An auto-delete exchange goes when any of its bindings goes."""
    original = broker.topology.remove_binding

    def remove_binding(vhost: VirtualHost, binding: Binding) -> None:
        exchange = vhost.exchanges[binding.source]
        original(vhost, binding)
        if exchange.auto_delete:
            exchange.bindings.clear()
            broker.topology.remove_exchange(vhost, exchange)

    replace(broker.topology, "remove_binding", remove_binding)


@defect("AMQP-ROUTE-024")
def unused_exchanges_are_not_deleted(broker: Broker) -> None:
    """exchange.delete with if_unused is answered, and nothing is deleted."""

    @handling(broker, "exchange.delete")
    def delete(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        name = operation.arguments["exchange"]
        exchange = broker.vhosts[channel.connection.vhost].exchanges.get(name)
        if operation.arguments["if_unused"] and exchange is not None and not exchange.bindings:
            broker.outbox.answer(channel, "exchange.delete-ok")
        else:
            original(channel, operation, now)


@defect("AMQP-TOPO-033")
def refused_deletes_drop_bindings(broker: Broker) -> None:
    """exchange.delete with if_unused of an exchange in use is refused, and its bindings go."""

    @handling(broker, "exchange.delete")
    def delete(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        vhost = broker.vhosts[channel.connection.vhost]
        exchange = vhost.exchanges.get(operation.arguments["exchange"])
        try:
            original(channel, operation, now)
        finally:
            if exchange is not None and operation.arguments["if_unused"]:
                exchange.bindings.clear()
                vhost.forget_routes()


def _takes_other(broker: Broker, name: str) -> None:
    """exchange.declare of an existing exchange with another value of ``name`` is answered."""

    def change(channel: Channel, operation: Method) -> Method:
        existing = broker.vhosts[channel.connection.vhost].exchanges.get(operation.arguments["exchange"])
        if existing is None:
            return operation
        return with_arguments(operation, **{name: getattr(existing, name)})

    before_handling(broker, "exchange.declare", change)


@defect("AMQP-ROUTE-025")
def exchanges_may_become_transient(broker: Broker) -> None:
    """exchange.declare does not compare durable."""
    _takes_other(broker, "durable")


@defect("AMQP-ROUTE-025")
def exchanges_may_become_auto_delete(broker: Broker) -> None:
    """exchange.declare does not compare auto_delete."""
    _takes_other(broker, "auto_delete")


@defect("AMQP-ROUTE-025")
def exchanges_may_become_internal(broker: Broker) -> None:
    """exchange.declare does not compare internal."""
    _takes_other(broker, "internal")


@defect("AMQP-ROUTE-025")
def exchanges_may_get_another_alternate(broker: Broker) -> None:
    """exchange.declare does not compare alternate-exchange."""
    _takes_other(broker, "arguments")


@defect("AMQP-ROUTE-025")
def refused_declares_change_exchanges(broker: Broker) -> None:
    """exchange.declare with other properties is refused, and the exchange has them all the same."""
    original = broker.exchange_methods.check_same_exchange

    def check_same_exchange(vhost: VirtualHost, exchange: Exchange, arguments: Any) -> None:
        try:
            original(vhost, exchange, arguments)
        finally:
            exchange.durable, exchange.internal = arguments["durable"], arguments["internal"]
            exchange.auto_delete, exchange.arguments = arguments["auto_delete"], arguments["arguments"]

    replace(broker.exchange_methods, "check_same_exchange", check_same_exchange)


@defect("AMQP-ROUTE-026")
def passive_declares_drop_bindings(broker: Broker) -> None:
    """A passive exchange.declare declares the exchange anew, without bindings."""

    def change(channel: Channel, operation: Method) -> Method:
        vhost = broker.vhosts[channel.connection.vhost]
        exchange = vhost.exchanges.get(operation.arguments["exchange"])
        if operation.arguments["passive"] and exchange is not None:
            exchange.bindings.clear()
            vhost.forget_routes()
        return operation

    before_handling(broker, "exchange.declare", change)


@defect("AMQP-TOPO-018")
def each_topic_binding_delivers(broker: Broker) -> None:
    """A queue gets one copy for each binding with another key that takes a message."""
    original = broker.publishing.route

    def route(channel: Channel, exchange: Exchange, message: PublishedMessage) -> list[Queue]:
        found = original(channel, exchange, message)
        taken = [one for one in exchange.matching(message.routing_key, message.headers) if one.to_queue]
        return [
            queue for queue in found for _ in range(sum(one.destination == queue.name for one in taken) or 1)
        ]

    replace(broker.publishing, "route", route)
