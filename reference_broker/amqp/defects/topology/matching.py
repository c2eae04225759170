"""Defects in routing: direct, fanout and topic exchanges that compare otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable

from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.topology.routing import Headers, compares
from plumbline.reference_broker.amqp.messages.message import PublishedMessage
from plumbline.reference_broker.amqp.topology.exchanges import Binding, Exchange, VirtualHost, topic_matches
from plumbline.reference_broker.amqp.topology.queues import Queue

# Direct and fanout


@defect("AMQP-ROUTE-001")
def direct_ignores_case(broker: Broker) -> None:
    """A direct exchange does not tell capital letters from small ones."""
    compares(broker, "direct", lambda binding, key, _: binding.routing_key.lower() == key.lower())


@defect("AMQP-ROUTE-001")
def direct_compares_beginnings(broker: Broker) -> None:
    """A direct exchange takes keys that begin with the binding's."""
    compares(broker, "direct", lambda binding, key, _: key.startswith(binding.routing_key))


@defect("AMQP-ROUTE-001")
def direct_knows_wildcards(broker: Broker) -> None:
    """A direct exchange compares as a topic exchange does."""
    compares(broker, "direct", lambda binding, key, _: topic_matches(binding.routing_key, key))


@defect("AMQP-ROUTE-001")
def direct_takes_everything(broker: Broker) -> None:
    """A direct exchange does not look at keys."""
    compares(broker, "direct", lambda binding, key, headers: True)


@defect("AMQP-ROUTE-001")
def direct_binding_without_key_takes_everything(broker: Broker) -> None:
    """In a direct exchange a binding with the empty key takes every message."""
    compares(broker, "direct", lambda binding, key, _: binding.routing_key in ("", key))


@defect("AMQP-ROUTE-001")
def direct_compares_127_octets(broker: Broker) -> None:
    """A direct exchange compares the first 127 characters of keys."""
    compares(broker, "direct", lambda binding, key, _: binding.routing_key[:127] == key[:127])


@defect("AMQP-ROUTE-004", "AMQP-ROUTE-005", "AMQP-ROUTE-006")
def topic_keys_have_eight_words(broker: Broker) -> None:
    """A topic exchange looks at the first eight words of a key."""
    compares(
        broker,
        "topic",
        lambda binding, key, _: topic_matches(binding.routing_key, ".".join(key.split(".")[:8])),
    )


@defect("AMQP-ROUTE-005")
def topic_words_are_ascii(broker: Broker) -> None:
    """A topic exchange compares what is ASCII in keys."""

    def plain(key: str) -> str:
        return key.encode("ascii", "ignore").decode()

    compares(broker, "topic", lambda binding, key, _: topic_matches(plain(binding.routing_key), plain(key)))


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
    compares(broker, "fanout", lambda binding, key, _: binding.routing_key in ("", key))


@defect("AMQP-ROUTE-003")
def fanout_finds_one_queue(broker: Broker) -> None:
    """A fanout exchange gives a message to the first queue only."""
    _finds_one_queue(broker, "fanout")


# Topic


def _topic(broker: Broker, matches: Callable[[str, str], bool]) -> None:
    compares(broker, "topic", lambda binding, key, _: matches(binding.routing_key, key))


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

    compares(broker, "topic", follows)


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
