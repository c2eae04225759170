"""Defects in routing: exchanges that compare otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import handling, on_faults
from plumbline.reference_broker.amqp.defects.topology.routing import Headers, Step, Stops, leads
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.message import (
    BCC,
    CC,
    KEY_HEADERS,
    PublishedMessage,
    further_keys,
)
from plumbline.reference_broker.amqp.topology.exchanges import (
    Binding,
    Exchange,
    VirtualHost,
    headers_match,
    topic_matches,
)
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import Method

Follows = Callable[[Binding, str, Headers], bool]


def _compares(broker: Broker, kind: str, follows: Follows) -> None:
    """Exchanges of this kind decide by ``follows(binding, routing key, headers)``."""

    def lead(step: Step) -> Stops:
        if step.exchange.kind != kind or not step.exchange.name:
            yield from step.right
            return
        for binding in step.exchange.bindings.values():
            if follows(binding, step.routing_key, step.headers):
                yield step.along(binding)

    leads(broker, lead)


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


@defect("AMQP-ROUTE-029")
def the_default_exchange_can_be_bound(broker: Broker) -> None:
    """Bindings of the default exchange can be made and removed."""
    original = broker.topology.check_binding

    def check_binding(channel: Channel, kind: str, destination: str, source: str) -> None:
        if source and destination:
            original(channel, kind, destination, source)

    replace(broker.topology, "check_binding", check_binding)


@defect("AMQP-ROUTE-029")
def nothing_is_bound_to_the_default_exchange(broker: Broker) -> None:
    """Only the source of a binding must not be the default exchange."""
    original = broker.topology.check_binding

    def check_binding(channel: Channel, kind: str, destination: str, source: str) -> None:
        original(channel, kind, destination or "amq.direct", source)

    replace(broker.topology, "check_binding", check_binding)


def _routes_all(
    broker: Broker, route_all: Callable[[VirtualHost, Exchange, str, Headers], tuple[Queue, ...]]
) -> None:
    """The queues of a message are those that ``route_all`` gives."""
    for vhost in broker.vhosts.values():
        replace(vhost, "route_all", partial(route_all, vhost))


def _without(name: str) -> Callable[[VirtualHost, Exchange, str, Headers], tuple[Queue, ...]]:
    def route_all(vhost: VirtualHost, exchange: Exchange, key: str, headers: Headers) -> tuple[Queue, ...]:
        others = {one: value for one, value in headers.items() if one != name}
        return VirtualHost.route_all(vhost, exchange, key, others)

    return route_all


@defect("AMQP-ROUTE-030")
def cc_is_ignored(broker: Broker) -> None:
    """The header CC names no routing keys."""
    _routes_all(broker, _without(CC))


@defect("AMQP-ROUTE-031")
def bcc_is_ignored(broker: Broker) -> None:
    """The header BCC names no routing keys."""
    _routes_all(broker, _without(BCC))


@defect("AMQP-ROUTE-030", "AMQP-ROUTE-031")
def the_default_exchange_has_no_further_keys(broker: Broker) -> None:
    """The default exchange takes no routing keys from CC and BCC."""

    def route_all(vhost: VirtualHost, exchange: Exchange, key: str, headers: Headers) -> tuple[Queue, ...]:
        return VirtualHost.route_all(vhost, exchange, key, headers if exchange.name else {})

    _routes_all(broker, route_all)


@defect("AMQP-ROUTE-030", "AMQP-ROUTE-031")
def further_keys_are_one(broker: Broker) -> None:
    """Only the first key of CC and BCC counts."""

    def route_all(vhost: VirtualHost, exchange: Exchange, key: str, headers: Headers) -> tuple[Queue, ...]:
        firsts = {name: value[:1] if name in KEY_HEADERS else value for name, value in headers.items()}
        return VirtualHost.route_all(vhost, exchange, key, firsts)

    _routes_all(broker, route_all)


@defect("AMQP-ROUTE-030", "AMQP-ROUTE-031")
def every_key_is_a_copy(broker: Broker) -> None:
    """A queue gets a copy for each key of CC and BCC that leads to it."""

    def route_all(vhost: VirtualHost, exchange: Exchange, key: str, headers: Headers) -> tuple[Queue, ...]:
        keys = (key, *further_keys(headers))
        return tuple(queue for each in keys for queue in vhost.route(exchange, each, headers))

    _routes_all(broker, route_all)


@defect("AMQP-ROUTE-031")
def bcc_is_seen(broker: Broker) -> None:
    """Deliveries have the header BCC."""
    original = broker.publishing.distribute
    sent: dict[int, PublishedMessage] = {}
    route = broker.publishing.route

    def remember(channel: Channel, exchange: Exchange, message: PublishedMessage) -> Sequence[Queue]:
        sent[0] = message
        return route(channel, exchange, message)

    def distribute(queues: Iterable[Queue], message: PublishedMessage, now: int) -> bool:
        return original(queues, sent.get(0, message), now)

    replace(broker.publishing, "route", remember)
    replace(broker.publishing, "distribute", distribute)


@defect("AMQP-ROUTE-032")
def wrong_keys_are_overlooked(broker: Broker) -> None:
    """A CC or BCC that is no array is ignored."""
    on_faults(broker, lambda connection, operation, fault: None, method="basic.publish", text="in_header")


@defect("AMQP-ROUTE-033")
def x_headers_are_never_compared(broker: Broker) -> None:
    """With x-match all-with-x and any-with-x, headers that begin with x- are not compared either."""

    def follows(binding: Binding, routing_key: str, headers: Headers) -> bool:
        how = str(binding.arguments.get("x-match", "all")).removesuffix("-with-x")
        return headers_match({**binding.arguments, "x-match": how}, headers)

    _compares(broker, "headers", follows)


@defect("AMQP-ROUTE-033")
def any_with_x_means_all(broker: Broker) -> None:
    """x-match any-with-x asks for all headers."""

    def follows(binding: Binding, routing_key: str, headers: Headers) -> bool:
        how = str(binding.arguments.get("x-match", "all")).replace("any-with-x", "all-with-x")
        return headers_match({**binding.arguments, "x-match": how}, headers)

    _compares(broker, "headers", follows)


@defect("AMQP-TOPO-032")
def the_default_exchange_can_be_deleted(broker: Broker) -> None:
    """exchange.delete of the default exchange deletes it."""

    @handling(broker, "exchange.delete")
    def handle(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        if operation.arguments["exchange"]:
            original(channel, operation, now)
        else:
            broker.vhosts[channel.connection.vhost].exchanges.pop("", None)
            broker.outbox.answer(channel, "exchange.delete-ok")


@defect("AMQP-ROUTE-006")
def hashes_take_all_they_can(broker: Broker) -> None:
    """A # that stands before another word goes on to the last place where that word is."""

    def follows(binding: Binding, routing_key: str, headers: Headers) -> bool:
        words, at = routing_key.split(".") if routing_key else [], 0
        pattern = binding.routing_key.split(".") if binding.routing_key else []
        for place, word in enumerate(pattern):
            following = pattern[place + 1] if place + 1 < len(pattern) else None
            if word != "#":
                if words[at : at + 1] != [word] and not (word == "*" and at < len(words)):
                    return False
                at += 1
            elif following is None:
                at = len(words)
            elif following in words[at:]:
                at = len(words) - 1 - words[::-1].index(following)
        return at == len(words)

    _compares(broker, "topic", follows)


@defect("AMQP-ROUTE-006")
def second_hash_begins_behind_the_last_word(broker: Broker) -> None:
    """In a topic binding a second # begins behind the last place where the words before it are."""

    def matches(pattern: str, key: str) -> bool:
        words, reached = key.split(".") if key else [], {0}
        for word in pattern.split(".") if pattern else []:
            if word == "#":
                reached = set(range(max(reached), len(words) + 1))
            else:
                reached = {at + 1 for at in reached if at < len(words) and word in ("*", words[at])}
            if not reached:
                return False
        return len(words) in reached

    _topic(broker, matches)
