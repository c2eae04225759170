"""Scenarios of queues, exchanges and bindings."""

from __future__ import annotations

from typing import Any

from plumbline.wire.amqp import Integer
from tests.reference_broker.amqp.player import Player, Scenario


def refused(p: Player, method: str, **arguments: Any) -> None:
    """A method that closes the channel, which is opened again."""
    p.ask(method, **arguments)
    p.send("channel.close-ok")
    p.ask("channel.open")


def declaring(p: Player) -> None:
    p.connect()
    p.queue("q", durable=True)
    p.queue("q", durable=True)
    p.queue("q", passive=True)
    p.queue("")
    p.send("queue.declare", queue="quiet", no_wait=True)
    p.queue("quiet", passive=True)
    p.queue("é ü", exclusive=True)
    p.queue("n" * 255)
    p.queue("a\r\nb")


def declaring_wrongly(p: Player) -> None:
    p.connect()
    p.queue("q")
    refused(p, "queue.declare", queue="q", durable=True)
    refused(p, "queue.declare", queue="q", auto_delete=True)
    refused(p, "queue.declare", queue="q", exclusive=True)
    refused(p, "queue.declare", queue="q", arguments={"x-max-length": 5})
    refused(p, "queue.declare", queue="amq.foo")
    refused(p, "queue.declare", queue="nosuch", passive=True)
    p.send("queue.declare", queue="nosuch", passive=True, no_wait=True)
    p.expect(1)


def arguments(p: Player) -> None:
    p.connect()
    p.queue("q", arguments={"x-max-length": 5, "x-message-ttl": 60000, "x-unknown": "x"})
    p.queue("q", arguments={"x-max-length": Integer(5, "l"), "x-message-ttl": 60000})
    refused(p, "queue.declare", queue="q", arguments={"x-max-length": 6, "x-message-ttl": 60000})
    refused(p, "queue.declare", queue="q")


def wrong_arguments(p: Player) -> None:
    p.connect()
    for wrong in (
        {"x-max-length": "5"},
        {"x-max-length": -1},
        {"x-max-length-bytes": 1.5},
        {"x-message-ttl": -1},
        {"x-message-ttl": "60"},
        {"x-expires": 0},
        {"x-expires": True},
        {"x-overflow": "bogus"},
        {"x-overflow": 5},
        {"x-dead-letter-exchange": 5},
        {"x-dead-letter-routing-key": "k"},
        {"x-max-priority": 256},
        {"x-max-priority": -1},
    ):
        refused(p, "queue.declare", queue="w", arguments=wrong)


def exclusive(p: Player) -> None:
    p.connect("a")
    p.connect("b")
    p.queue("mine", "a", exclusive=True)
    for method in ("queue.declare", "queue.purge", "queue.delete", "basic.consume", "basic.get"):
        p.ask(method, 1, "b", queue="mine")
        p.send("channel.close-ok", 1, "b")
        p.ask("channel.open", 1, "b")
    p.ask("queue.declare", 1, "b", queue="mine", passive=True)
    p.send("channel.close-ok", 1, "b")
    p.ask("channel.open", 1, "b")
    p.ask("queue.bind", 1, "b", queue="mine", exchange="amq.direct", routing_key="k")
    p.send("channel.close-ok", 1, "b")
    p.ask("channel.open", 1, "b")
    p.ask("queue.unbind", 1, "b", queue="mine", exchange="amq.direct", routing_key="k")
    p.ask("queue.declare", 1, "a", queue="mine")
    p.send("channel.close-ok", 1, "a")
    p.fill("mine", "m")
    p.ask("channel.open", 1, "a")
    p.ask("basic.get", 1, "a", queue="mine")
    p.ask("connection.close", 0, "a")
    p.ask("queue.declare", 1, "b", queue="mine", passive=True)


def auto_delete(p: Player) -> None:
    p.connect()
    p.queue("q", auto_delete=True)
    p.ask("basic.consume", queue="q", consumer_tag="a")
    p.ask("basic.consume", queue="q", consumer_tag="b")
    p.ask("basic.cancel", consumer_tag="a")
    p.ask("queue.declare", queue="q", passive=True)
    p.ask("basic.cancel", consumer_tag="b")
    p.ask("queue.declare", queue="q", passive=True)


def last_queue(p: Player) -> None:
    p.connect()
    refused(p, "basic.get", queue="")
    p.queue("q")
    p.ask("queue.bind", exchange="amq.direct")
    p.fill("q", "m")
    p.ask("basic.get", no_ack=True)
    p.ask("queue.purge")
    p.ask("basic.consume", consumer_tag="c")
    p.ask("queue.unbind", exchange="amq.direct")
    p.ask("queue.delete", answers=2)


def binding(p: Player) -> None:
    p.connect()
    p.queue("q")
    p.ask("queue.bind", queue="q", exchange="amq.topic", routing_key="a.*")
    p.ask("queue.bind", queue="q", exchange="amq.topic", routing_key="a.*")
    p.ask("queue.bind", queue="q", exchange="amq.topic", routing_key="#")
    p.ask("confirm.select")
    p.send("basic.publish", exchange="amq.topic", routing_key="a.b", body=b"once")
    p.confirms(1)
    p.drain("q")
    refused(p, "queue.bind", queue="nosuch", exchange="amq.direct")
    refused(p, "queue.bind", queue="q", exchange="nosuch")
    refused(p, "queue.bind", queue="q", exchange="")
    p.ask("queue.unbind", queue="q", exchange="amq.topic", routing_key="missing")
    p.ask("queue.unbind", queue="nosuch", exchange="amq.topic", routing_key="missing")
    refused(p, "queue.unbind", queue="q", exchange="")


def deleting(p: Player) -> None:
    p.connect("a", 2)
    p.queue("q")
    p.fill("q", "1", "2", "3")
    p.ask("basic.get", queue="q")
    p.count("q", 2)
    refused(p, "queue.delete", queue="q", if_empty=True)
    p.count("q", 3)
    p.ask("queue.purge", queue="q")
    p.ask("queue.delete", queue="nosuch")
    p.ask("basic.consume", 2, queue="q", consumer_tag="c")
    refused(p, "queue.delete", queue="q", if_unused=True)
    p.fill("q", "4")
    p.expect(1)
    p.ask("queue.delete", queue="q", answers=2)
    p.send("basic.ack", 2, delivery_tag=1)
    p.ask("basic.qos", 2)
    p.ask("basic.cancel", 2, consumer_tag="c")
    refused(p, "queue.purge", queue="q")


def purging(p: Player) -> None:
    p.connect()
    p.queue("q")
    p.fill("q", "1", "2", "3")
    p.ask("basic.get", queue="q")
    p.ask("queue.purge", queue="q")
    p.send("basic.nack", delivery_tag=1, requeue=True)
    p.count("q", 1)
    p.drain("q")


def exchanges(p: Player) -> None:
    p.connect()
    for kind in ("direct", "fanout", "topic", "headers"):
        p.ask("exchange.declare", exchange=f"x-{kind}", type=kind)
        p.ask("exchange.declare", exchange=f"x-{kind}", type=kind)
    for name in ("amq.direct", "amq.fanout", "amq.topic", "amq.match", "amq.headers"):
        p.ask("exchange.declare", exchange=name, passive=True)
    p.ask("exchange.declare", exchange="amq.direct", type="direct", durable=True)
    refused(p, "exchange.declare", exchange="amq.direct", type="direct")
    refused(p, "exchange.declare", exchange="x-direct", type="fanout")
    refused(p, "exchange.declare", exchange="x-direct", type="direct", durable=True)
    refused(p, "exchange.declare", exchange="x-direct", type="direct", internal=True)
    refused(p, "exchange.declare", exchange="x-direct", type="direct", auto_delete=True)
    refused(p, "exchange.declare", exchange="nosuch", type="direct", passive=True)
    refused(p, "exchange.declare", exchange="amq.zzz", type="direct")
    refused(p, "exchange.declare", exchange="", type="direct")
    refused(p, "exchange.delete", exchange="amq.direct")
    refused(p, "exchange.delete", exchange="")
    p.ask("exchange.delete", exchange="nosuch")
    p.queue("q")
    p.ask("queue.bind", queue="q", exchange="x-direct", routing_key="k")
    refused(p, "exchange.delete", exchange="x-direct", if_unused=True)
    p.ask("exchange.delete", exchange="x-direct")
    refused(p, "exchange.declare", exchange="x-direct", type="direct", passive=True)
    p.send("exchange.declare", exchange="x-quiet", type="direct", no_wait=True)
    p.send("exchange.delete", exchange="x-quiet", no_wait=True)
    p.ask("basic.qos")


def what_is_refused_first(p: Player) -> None:
    """Of two reasons to refuse, RabbitMQ gives the same one each time."""
    p.connect()
    p.queue("q")
    for method in ("queue.bind", "queue.unbind"):
        refused(p, method, queue="q", exchange="", routing_key="k")
        refused(p, method, queue="nosuch", exchange="", routing_key="k")
    refused(p, "queue.bind", queue="nosuch", exchange="no-exchange", routing_key="k")
    p.ask("queue.unbind", queue="nosuch", exchange="no-exchange", routing_key="k")
    for method in ("exchange.bind", "exchange.unbind"):
        for destination, source in (("", "amq.fanout"), ("amq.fanout", ""), ("", "")):
            refused(p, method, destination=destination, source=source, routing_key="k")
    refused(p, "exchange.bind", destination="no-target", source="no-source", routing_key="k")
    refused(p, "exchange.delete", exchange="amq.nosuch")
    p.ask("queue.bind", queue="q\r", exchange="amq.\nfanout", routing_key="k")
    p.ask("exchange.declare", exchange="x", type="fanout")
    p.ask("exchange.bind", destination="x\n", source="amq.\rfanout")
    p.ask("exchange.unbind", destination="x\n", source="amq.\rfanout")
    p.ask("exchange.delete", exchange="x\n")
    p.ask("queue.delete", queue="q\n")


def no_type_and_no_name(p: Player) -> None:
    p.connect()
    p.ask("exchange.declare", exchange="", type="nosuch")


def exchanges_that_go(p: Player) -> None:
    p.connect()
    p.ask("exchange.declare", exchange="x", type="direct", auto_delete=True)
    p.queue("q")
    p.ask("queue.bind", queue="q", exchange="x", routing_key="k")
    p.ask("queue.bind", queue="q", exchange="x", routing_key="l")
    p.ask("queue.unbind", queue="q", exchange="x", routing_key="k")
    p.ask("exchange.declare", exchange="x", passive=True)
    p.ask("queue.delete", queue="q")
    p.ask("exchange.declare", exchange="x", passive=True)


def routing(p: Player) -> None:
    p.connect()
    p.ask("confirm.select")
    p.ask("exchange.declare", exchange="x-topic", type="topic")
    patterns = ["a.b", "a.*", "a.#", "#", "*.b", "#.b", "*", "a.#.c", "", "*.*.*", "#.#"]
    for place, pattern in enumerate(patterns):
        p.queue(f"t{place}")
        p.ask("queue.bind", queue=f"t{place}", exchange="x-topic", routing_key=pattern)
    keys = ["a.b", "a", "", "a.b.c", "a.c", "b", "x.y.b", "a..b"]
    for key in keys:
        p.send("basic.publish", exchange="x-topic", routing_key=key, body=key.encode())
    p.confirms(len(keys))
    for place in range(len(patterns)):
        p.drain(f"t{place}")


def headers(p: Player) -> None:
    p.connect()
    p.ask("confirm.select")
    wanted: list[dict[str, Any]] = [
        {"x-match": "all", "a": 1, "b": "x"},
        {"x-match": "any", "a": 1, "b": "x"},
        {"a": 1},
        {"a": None},
        {},
        {"x-match": "any"},
        {"x-match": "all", "x-a": 1},
        {"x-match": "all-with-x", "x-a": 1},
        {"x-match": "any-with-x", "x-a": 1, "b": "x"},
    ]
    for place, one in enumerate(wanted):
        p.queue(f"h{place}")
        p.ask("queue.bind", queue=f"h{place}", exchange="amq.match", arguments=one)
    sent: list[dict[str, Any]] = [
        {"a": 1, "b": "x"},
        {"a": 1},
        {"a": "1"},
        {"b": "x"},
        {},
        {"x-a": 1},
        {"a": True},
        {"a": Integer(1, "l")},
    ]
    for place, one in enumerate(sent):
        p.send("basic.publish", exchange="amq.match", properties={"headers": one}, body=str(place).encode())
    p.send("basic.publish", exchange="amq.match", body=b"none")
    p.confirms(len(sent) + 1)
    for place in range(len(wanted)):
        p.drain(f"h{place}")


def wrong_matches_of_headers(p: Player) -> None:
    p.connect()
    p.queue("q")
    for wrong in (5, True, None, b"any", "none", "ANY", ""):
        refused(p, "queue.bind", queue="q", exchange="amq.headers", arguments={"x-match": wrong, "a": 1})
    refused(p, "exchange.bind", destination="amq.fanout", source="amq.match", arguments={"x-match": 5})
    p.ask("queue.bind", queue="q", exchange="amq.direct", arguments={"x-match": 5})
    p.ask("confirm.select")
    p.send("basic.publish", exchange="amq.headers", properties={"headers": {"a": 1}}, body=b"no queue")
    p.confirms(1)
    p.drain("q")


def between_exchanges(p: Player) -> None:
    p.connect()
    p.ask("confirm.select")
    p.ask("exchange.declare", exchange="x", type="topic")
    p.ask("exchange.declare", exchange="y", type="fanout")
    p.queue("q")
    p.ask("queue.bind", queue="q", exchange="y")
    p.ask("exchange.bind", destination="y", source="x", routing_key="a.#")
    p.ask("exchange.bind", destination="x", source="y")
    p.send("basic.publish", exchange="x", routing_key="a.b", body=b"1")
    p.send("basic.publish", exchange="x", routing_key="b", body=b"2")
    p.confirms(2)
    p.drain("q")
    p.ask("exchange.unbind", destination="y", source="x", routing_key="a.#")
    p.ask("exchange.unbind", destination="y", source="x", routing_key="a.#")
    refused(p, "exchange.bind", destination="nosuch", source="x")
    refused(p, "exchange.bind", destination="x", source="nosuch")
    refused(p, "exchange.bind", destination="", source="x")


def alternates(p: Player) -> None:
    p.connect()
    p.ask("confirm.select")
    p.ask("exchange.declare", exchange="other", type="fanout")
    p.ask("exchange.declare", exchange="x", type="direct", arguments={"alternate-exchange": "other"})
    p.queue("q")
    p.ask("queue.bind", queue="q", exchange="other")
    p.send("basic.publish", exchange="x", routing_key="k", mandatory=True, body=b"1")
    p.confirms(1)
    p.drain("q")
    refused(p, "exchange.declare", exchange="x", type="direct")


SCENARIOS: list[Scenario] = [
    declaring,
    declaring_wrongly,
    arguments,
    wrong_arguments,
    exclusive,
    auto_delete,
    last_queue,
    binding,
    deleting,
    purging,
    exchanges,
    what_is_refused_first,
    no_type_and_no_name,
    exchanges_that_go,
    routing,
    headers,
    wrong_matches_of_headers,
    between_exchanges,
    alternates,
]
