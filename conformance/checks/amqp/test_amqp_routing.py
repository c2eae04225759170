"""AMQP: which messages a binding of each type of exchange leads to its queue, and which it does not."""

from __future__ import annotations

from typing import Any

from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.checks.amqp.amqp_routes import (
    publish,
    publish_confirmed,
    require_queues,
    require_routes,
)
from plumbline.conformance.outcomes import Unsupported

TYPES = "AMQP 0-9-1, section 3.1.3"
HEADERS = f"{TYPES}.4 (The Headers Exchange Type)"


@verifies("AMQP-ROUTE-001", source=f"{TYPES}.1 (The Direct Exchange Type)")
def test_direct(session: AmqpSession) -> None:
    """A direct exchange routes by the exact key: no wildcards, no prefixes, no other case."""
    require_routes(
        session,
        "direct",
        "red red.dark Red re * # - blue",
        {
            "red": "red",
            "red.dark": "red.dark",
            "red.*": "",
            "*": "*",
            "#": "#",
            "-": "-",
            "green": "",
        },
    )


@verifies("AMQP-ROUTE-001", source=f"{TYPES}.1 (The Direct Exchange Type)")
def test_direct_by_long_keys(session: AmqpSession) -> None:
    """A direct exchange compares all 255 octets that a key may have."""
    first, second = "k" * 254 + "1", "k" * 254 + "2"
    require_routes(session, "direct", f"{first} {second} {first[:254]}", {first: first})


@verifies("AMQP-ROUTE-002", source=f"{TYPES}.1 (The Direct Exchange Type)")
def test_direct_to_several_queues(session: AmqpSession) -> None:
    """Every queue that is bound with a key gets a copy, and a queue may be bound with several keys."""
    exchange = session.stage.exchange("EVENTS", type="direct")
    names = {label: session.stage.queue(label) for label in ("BOTH", "RED", "ALSO-RED", "NONE")}
    for label, key in (("BOTH", "red"), ("BOTH", "blue"), ("RED", "red"), ("ALSO-RED", "red")):
        session.stage.bind(names[label], exchange, key)
    client = session.connect()
    publish_confirmed(client, *(publish(exchange, key, key) for key in ("red", "blue", "green")))
    expected = {"BOTH": ["red", "blue"], "RED": ["red"], "ALSO-RED": ["red"], "NONE": []}
    require_queues(session, client, expected, names)


@verifies("AMQP-ROUTE-003", source=f"{TYPES}.2 (The Fanout Exchange Type)")
def test_fanout(session: AmqpSession) -> None:
    """A fanout exchange gives every bound queue every message, whatever the keys."""
    keys = "red red.dark * -"
    require_routes(session, "fanout", keys, {"red": keys, "green": keys, "-": keys, "a.*": keys})


@verifies("AMQP-ROUTE-004", source=f"{TYPES}.3 (The Topic Exchange Type)")
def test_topic_words(session: AmqpSession) -> None:
    """Without wildcards a topic binding takes its own key only: dots separate words."""
    require_routes(
        session,
        "topic",
        "a a.b a.b.c ab axb b.a A.B b -",
        {"a": "a", "a.b": "a.b", "a.b.c": "a.b.c", "a.b.c.d": "", "-": "-"},
    )


@verifies("AMQP-ROUTE-005", source=f"{TYPES}.3 (The Topic Exchange Type)", is_long=True)
def test_topic_star(session: AmqpSession) -> None:
    """In a topic binding * takes exactly one word, wherever it is."""
    require_routes(
        session,
        "topic",
        "a x.b a.x a.b.c a.x.c x.b.c a.b.x a.c b.c a.x.y.c x.y x.y.z x.y.z.w -",
        {
            "*": "a",
            "*.*": "x.b a.x a.c b.c x.y",
            "*.b": "x.b",
            "a.*": "a.x a.c",
            "*.b.c": "a.b.c x.b.c",
            "a.*.c": "a.b.c a.x.c",
            "a.b.*": "a.b.c a.b.x",
            "*.*.*": "a.b.c a.x.c x.b.c a.b.x x.y.z",
        },
    )


@verifies("AMQP-ROUTE-006", source=f"{TYPES}.3 (The Topic Exchange Type)", is_long=True)
def test_topic_hash(session: AmqpSession) -> None:
    """In a topic binding # takes any number of words, none too, wherever it is."""
    keys = "a b a.b a.x.b a.x.y.b a.b.c x.a.b x.y.a.b b.a a.x.b.y a.b.a a.x.a -"
    require_routes(
        session,
        "topic",
        keys,
        {
            "#": keys,
            "a.#": "a a.b a.x.b a.x.y.b a.b.c a.x.b.y a.b.a a.x.a",
            "#.b": "b a.b a.x.b a.x.y.b x.a.b x.y.a.b",
            "a.#.b": "a.b a.x.b a.x.y.b",
            "#.a.b": "a.b x.a.b x.y.a.b",
            "#.a.#": "a a.b a.x.b a.x.y.b a.b.c x.a.b x.y.a.b b.a a.x.b.y a.b.a a.x.a",
            "#.a.#.b.a": "a.b.a",
            "a.b.#": "a.b a.b.c a.b.a",
        },
    )


@verifies("AMQP-ROUTE-004", "AMQP-ROUTE-005", "AMQP-ROUTE-006", source=f"{TYPES}.3 (The Topic Exchange Type)")
def test_topic_of_many_words(session: AmqpSession) -> None:
    """A key of many words, or of words that are no ASCII, is compared to its end."""
    key, longer = ".".join("abcdefghijklmnopqrst"), ".".join("abcdefghijklmnopqrstu")
    require_routes(
        session,
        "topic",
        f"{key} {longer} ä.t ö.t",
        {
            key: key,
            ".".join("*" * 20): key,
            "a.#.t": key,
            "#.u": longer,
            "ä.*": "ä.t",
            "#.t": f"{key} ä.t ö.t",
        },
    )


@verifies("AMQP-ROUTE-006", source=f"{TYPES}.3 (The Topic Exchange Type)")
def test_topic_three_hashes(session: AmqpSession) -> None:
    """In a topic binding with three # each takes any number of words. Some brokers refuse so many."""
    binding = "#.a.#.x.#"
    queue, exchange = session.stage.queue("FIRST"), session.stage.exchange("FIRST", type="topic")
    answer = session.stage.answer("queue.bind", queue=queue, exchange=exchange, routing_key=binding)
    if answer.method == "channel.close":
        raise Unsupported(f"a binding key with three # is refused: {answer.arguments['reply_text']}")
    require_routes(
        session,
        "topic",
        "a b a.x x.a a.b a.x.b a.x.y.b a.b.x b.a.x b.a.b.x.b a.x.b.y x.a.b x.a.x -",
        {binding: "a.x a.x.b a.x.y.b a.b.x b.a.x b.a.b.x.b a.x.b.y x.a.x"},
    )


@verifies("AMQP-ROUTE-006", "AMQP-ROUTE-005", source=f"{TYPES}.3 (The Topic Exchange Type)", is_long=True)
def test_topic_star_and_hash(session: AmqpSession) -> None:
    """In a topic binding * and # together take at least as many words as there are *."""
    require_routes(
        session,
        "topic",
        "a a.b a.b.c a.b.c.d x.b x.c -",
        {
            "*.#": "a a.b a.b.c a.b.c.d x.b x.c",
            "#.*": "a a.b a.b.c a.b.c.d x.b x.c",
            "*.#.*": "a.b a.b.c a.b.c.d x.b x.c",
            "*.b.#": "a.b a.b.c a.b.c.d x.b",
            "#.*.c": "a.b.c x.c",
            "a.*.#.d": "a.b.c.d",
        },
    )


def _require_header_routes(
    session: AmqpSession,
    bindings: dict[str, dict[str, Any]],
    messages: dict[str, dict[str, Any] | None],
    **routes: str,
) -> None:
    """``messages`` are their headers, None for no property headers. ``routes``: the messages of each
    binding, by their names in ``messages``."""
    exchange = session.stage.exchange("EVENTS", type="headers")
    names = {label: session.stage.queue(label.upper().replace("_", "-")) for label in bindings}
    for label, table in bindings.items():
        session.stage.bind(names[label], exchange, "", arguments=table)
    client = session.connect()
    publish_confirmed(
        client,
        *(
            publish(exchange, "", name, properties={} if table is None else {"headers": table})
            for name, table in messages.items()
        ),
    )
    require_queues(session, client, {label: routes[label].split() for label in bindings}, names)


@verifies("AMQP-ROUTE-007", "AMQP-ROUTE-008", source=HEADERS)
def test_headers_all_and_any(session: AmqpSession) -> None:
    """A headers binding takes messages with all of its headers, or with any of them, as x-match says."""
    pair = {"format": "pdf", "type": "report"}
    _require_header_routes(
        session,
        {
            "all_of": {"x-match": "all", **pair},
            "any_of": {"x-match": "any", **pair},
            "unsaid": pair,
        },
        {
            "both": pair,
            "more": {**pair, "author": "jones"},
            "first": {"format": "pdf"},
            "second": {"type": "report", "format": "zip"},
            "other": {"format": "zip", "type": "log"},
            "swapped": {"format": "report", "type": "pdf"},
            "capitals": {"Format": "pdf", "Type": "report"},
            "none": {},
        },
        all_of="both more",
        any_of="both more first second",
        unsaid="both more",
    )


@verifies("AMQP-ROUTE-007", "AMQP-ROUTE-008", source=HEADERS)
def test_headers_of_a_binding_that_names_none(session: AmqpSession) -> None:
    """Without headers in a binding all of them agree for each message, and any of them for none."""
    _require_header_routes(
        session,
        {"all_of_none": {"x-match": "all"}, "unsaid": {}, "any_of_none": {"x-match": "any"}},
        {"some": {"v": 1}, "empty": {}, "absent": None},
        all_of_none="some empty absent",
        unsaid="some empty absent",
        any_of_none="",
    )


@verifies("AMQP-ROUTE-009", source=HEADERS)
def test_headers_by_value(session: AmqpSession) -> None:
    """Headers are compared by value: texts, numbers and booleans."""
    _require_header_routes(
        session,
        {
            "text": {"x-match": "all", "v": "1"},
            "number": {"x-match": "all", "v": 1},
            "large": {"x-match": "all", "v": 2**40},
            "truth": {"x-match": "all", "v": True},
            "empty": {"x-match": "all", "v": ""},
        },
        {
            "is-text": {"v": "1"},
            "is-number": {"v": 1},
            "is-large": {"v": 2**40},
            "is-true": {"v": True},
            "is-false": {"v": False},
            "is-empty": {"v": ""},
            "is-other": {"w": 1},
        },
        text="is-text",
        number="is-number",
        large="is-large",
        truth="is-true",
        empty="is-empty",
    )


@verifies("AMQP-ROUTE-010", source=HEADERS)
def test_headers_without_value(session: AmqpSession) -> None:
    """A header without a value in a binding takes messages with any value of it."""
    _require_header_routes(
        session,
        {"present": {"x-match": "all", "v": None, "kind": "a"}},
        {
            "text": {"v": "t", "kind": "a"},
            "number": {"v": 5, "kind": "a"},
            "otherwise": {"v": 5, "kind": "b"},
        },
        present="text number",
    )


@verifies("AMQP-ROUTE-011", source=f'{HEADERS}; RabbitMQ, "Exchanges", "Headers Exchange"')
def test_headers_that_begin_with_x(session: AmqpSession) -> None:
    """Headers that begin with x- are not compared."""
    _require_header_routes(
        session,
        {
            "all_of": {"x-match": "all", "v": 1, "x-w": 2},
            "any_of": {"x-match": "any", "v": 1, "x-w": 2},
        },
        {"both": {"v": 1, "x-w": 2}, "plain": {"v": 1}, "other": {"v": 1, "x-w": 3}, "only-x": {"x-w": 2}},
        all_of="both plain other",
        any_of="both plain other",
    )


@verifies("AMQP-ROUTE-012", source=HEADERS)
def test_headers_and_routing_keys(session: AmqpSession) -> None:
    """A headers exchange does not look at routing keys."""
    exchange = session.stage.exchange("EVENTS", type="headers")
    queue = session.stage.queue("ORDERS")
    session.stage.bind(queue, exchange, "red", arguments={"x-match": "all", "v": 1})
    client = session.connect()
    publish_confirmed(
        client,
        publish(exchange, "blue", "m1", properties={"headers": {"v": 1}}),
        publish(exchange, "red", "m2", properties={"headers": {"v": 2}}),
        publish(exchange, "", "m3", properties={"headers": {"v": 1}}),
    )
    require_queues(session, client, {"red": ["m1", "m3"]}, {"red": queue})


@verifies("AMQP-PUB-016", source='AMQP 0-9-1 XML, class exchange, rule "default-exchange"')
def test_default_exchange(session: AmqpSession) -> None:
    """The default exchange compares the whole key with names of queues: no case, prefix or wildcard."""
    queue = session.stage.queue("ORDERS")
    client = session.connect()
    keys = (queue, queue.lower(), queue[:-1], f"{queue}.a", f"{queue}-", "#", "*", f"{queue[:-1]}*")
    publish_confirmed(client, *(publish("", key, f"m{number}") for number, key in enumerate(keys)))
    require_queues(session, client, {"ORDERS": ["m0"]}, {"ORDERS": queue})
