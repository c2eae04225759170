"""Scenarios of publishing, confirms, limits, dead letters and transactions."""

from __future__ import annotations

from typing import Any

from plumbline.wire.amqp import Decimal, Float, Method, Timestamp
from tests.reference_broker.amqp.player import Player, Scenario
from tests.reference_broker.amqp.scenarios_topology import refused

REPLY_TO = "amq.rabbitmq.reply-to"
PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "headers": {"a": [1, {"b": None}], "f": Float(0.5), "d": 1.5, "m": Decimal(2, 5), "x": b"\0\xff"},
    "delivery_mode": 1,
    "priority": 3,
    "correlation_id": "c",
    "reply_to": "r",
    "expiration": "60000",
    "message_id": "m",
    "timestamp": Timestamp(1_700_000_000),
    "type": "t",
    "user_id": "guest",
    "app_id": "p",
    "cluster_id": "z",
}


def publishing(p: Player) -> None:
    p.connect()
    p.queue("q")
    p.ask("exchange.declare", exchange="inner", type="fanout", internal=True)
    p.ask("confirm.select")
    p.publish("q", "1", properties=PROPERTIES)
    p.publish("q", "2", mandatory=True)
    p.publish("nowhere", "3")
    p.confirms(3)
    p.drain("q")
    refused(p, "basic.publish", exchange="nosuch")
    refused(p, "basic.publish", exchange="inner")
    refused(p, "basic.publish", properties={"expiration": "abc"})
    refused(p, "basic.publish", properties={"expiration": "-1"})
    refused(p, "basic.publish", properties={"expiration": ""})
    refused(p, "basic.publish", properties={"expiration": "1 s"})
    refused(p, "basic.publish", properties={"user_id": "other"})


def further_routing_keys(p: Player) -> None:
    """The headers CC and BCC; dead letters keep CC unless they get a key of their own."""
    p.connect()
    for name in ("to", "cc", "bcc"):
        p.queue(name)
    for name, more in (("dead", {}), ("keyed", {"x-dead-letter-routing-key": "to"})):
        p.queue(name, arguments={"x-dead-letter-exchange": "amq.direct", "x-max-length": 0, **more})
        p.ask("queue.bind", queue="cc", exchange="amq.direct", routing_key=name)
    for name in ("to", "far"):
        p.ask("queue.bind", queue="to", exchange="amq.direct", routing_key=name)
    headers = {"CC": ["cc", "nowhere", 3, "to"], "BCC": ["bcc"], "other": 1}
    p.publish("to", "m", mandatory=True, properties={"headers": headers, "content_type": "text/plain"})
    p.send("basic.publish", exchange="amq.direct", routing_key="none", properties={"headers": headers})
    p.count("to", 2)
    for name in ("to", "cc", "bcc"):
        p.drain(name)
    for name in ("dead", "keyed"):
        p.publish(name, name, properties={"headers": {"CC": ["far"]}})
        p.count("to", 1)
        for target in ("to", "cc"):
            p.drain(target)
    refused(p, "basic.publish", routing_key="to", properties={"headers": {"CC": "cc"}})
    refused(p, "basic.publish", routing_key="to", properties={"headers": {"BCC": 3}})


def direct_replies(p: Player) -> None:
    """Requests and replies by amq.rabbitmq.reply-to."""
    p.connect("a", 2)
    p.connect("b")
    p.queue("q")
    refused(p, "basic.publish", routing_key="q", properties={"reply_to": REPLY_TO})
    refused(p, "basic.consume", queue=REPLY_TO, consumer_tag="c")
    for method in ("basic.get", "queue.purge"):
        refused(p, method, queue=REPLY_TO)
    p.queue(REPLY_TO, passive=True)
    p.queue(REPLY_TO)
    refused(p, "queue.declare", queue=f"{REPLY_TO}.none")
    p.ask("basic.consume", queue=REPLY_TO, consumer_tag="c", no_ack=True)
    refused(p, "basic.consume", queue=REPLY_TO, consumer_tag="d", no_ack=True)
    p.ask("basic.consume", queue=REPLY_TO, no_ack=True, consumer_tag="c")
    p.ask("basic.consume", 2, queue=REPLY_TO, no_ack=True)
    p.publish("q", "request", properties={"reply_to": REPLY_TO, "correlation_id": "1"})
    p.count("q", 1)
    (request,) = p.ask("basic.get", 1, "b", queue="q", no_ack=True)
    assert isinstance(request, Method)
    address = (request.properties or {})["reply_to"]
    p.queue(address, "b", passive=True)
    for number in range(2):
        p.publish(address, f"reply {number}", link="b", properties={"correlation_id": str(number)})
        p.expect(1)
    p.publish(address, "returned", link="b", mandatory=True)
    p.expect(1, "b")
    p.expect(1)
    p.send("basic.publish", 1, "b", exchange="amq.direct", routing_key=address, body=b"no reply")
    p.ask("basic.cancel", consumer_tag="c")
    p.publish(address, "too late", link="b")
    refused(p, "basic.publish", routing_key="q", properties={"reply_to": REPLY_TO})
    p.ask("queue.declare", 1, "b", queue=address, passive=True)


def replies_to_a_closed_channel(p: Player) -> None:
    """The address of a channel that the server has closed is there until channel.close-ok."""
    p.connect("a")
    p.connect("b")
    p.queue("q")
    p.ask("basic.consume", queue=REPLY_TO, consumer_tag="c", no_ack=True)
    p.publish("q", "request", properties={"reply_to": REPLY_TO})
    p.count("q", 1)
    (request,) = p.ask("basic.get", 1, "b", queue="q", no_ack=True)
    assert isinstance(request, Method)
    p.ask("basic.ack", delivery_tag=99)
    p.queue((request.properties or {})["reply_to"], "b", passive=True)


def returning(p: Player) -> None:
    p.connect("a", 2)
    p.send("basic.publish", routing_key="nowhere", mandatory=True, properties=PROPERTIES, body=b"1")
    p.expect(1)
    p.ask("confirm.select", 2)
    for number in range(3):
        p.publish("nowhere", str(number), channel=2, mandatory=True)
    p.confirms(3)
    p.send("basic.publish", routing_key="nowhere", mandatory=True, body=b"x" * 300_000)
    p.expect(1)
    p.send("basic.publish", routing_key="nowhere", mandatory=True)
    p.expect(1)


def confirming(p: Player) -> None:
    p.connect("a", 2)
    p.queue("q")
    p.publish("q", "uncounted")
    p.ask("confirm.select")
    p.publish("q", *map(str, range(10)))
    p.confirms(10)
    p.ask("confirm.select")
    p.publish("q", "one more")
    p.expect(1)
    p.send("confirm.select", 2, no_wait=True)
    p.publish("q", "other channel", channel=2)
    p.expect(1)
    p.ask("channel.close")
    p.ask("channel.open")
    p.ask("confirm.select")
    p.publish("q", "again from 1")
    p.expect(1)
    p.count("q", 14)


def modes(p: Player) -> None:
    p.connect()
    p.ask("confirm.select")
    refused(p, "tx.select")
    p.ask("tx.select")
    p.ask("tx.select")
    refused(p, "confirm.select")
    refused(p, "tx.commit")
    refused(p, "tx.rollback")


def unconfirmed(p: Player) -> None:
    p.connect()
    p.ask("confirm.select")
    p.send("basic.publish", exchange="nosuch", body=b"1")
    p.expect(1)


def transactions(p: Player) -> None:
    p.connect()
    p.queue("q")
    p.fill("q", "m1", "m2")
    p.ask("tx.select")
    p.publish("q", "t1", "t2")
    p.publish("nowhere", "t3", mandatory=True)
    p.ask("basic.get", queue="q")
    p.send("basic.ack", delivery_tag=1)
    p.count("q", 1)
    p.ask("tx.rollback")
    p.send("basic.ack", delivery_tag=1)
    p.publish("q", "t4")
    p.publish("nowhere", "t5", mandatory=True)
    p.ask("tx.commit", answers=2)
    p.count("q", 2)
    p.ask("basic.get", queue="q")
    p.send("basic.nack", delivery_tag=2, requeue=True)
    p.count("q", 1)
    p.ask("tx.commit")
    p.count("q", 2)
    p.ask("basic.get", queue="q")
    p.send("basic.ack", delivery_tag=3)
    p.ask("channel.close")
    p.count("q", 2)
    p.ask("channel.open")
    p.ask("tx.select")
    refused(p, "basic.ack", delivery_tag=9)
    p.drain("q")


def reject_publish(p: Player) -> None:
    p.connect()
    p.queue("q", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    p.queue("other")
    for name in ("q", "other"):
        p.ask("queue.bind", queue=name, exchange="amq.fanout")
    p.publish("q", "0")
    p.count("q", 1)
    p.ask("confirm.select")
    for body in "123":
        p.publish("q", body, mandatory=True)
        p.confirms(int(body))
    p.send("basic.publish", exchange="amq.fanout", body=b"4")
    p.confirms(4)
    p.drain("other")
    p.ask("basic.get", queue="q")
    p.publish("q", "5")
    p.expect(1)
    p.drain("q")


def drop_head(p: Player) -> None:
    p.connect()
    p.queue("q", arguments={"x-max-length": 2})
    p.ask("confirm.select")
    p.publish("q", "1", "2", "3", "4")
    p.confirms(4)
    p.drain("q")
    p.queue("b", arguments={"x-max-length-bytes": 5})
    p.publish("b", "1", "22", "333", "44", "5")
    p.confirms(9)
    p.drain("b")
    p.publish("b", "666666")
    p.confirms(10)
    p.drain("b")
    p.queue("none", arguments={"x-max-length": 0})
    p.publish("none", "1")
    p.confirms(11)
    p.drain("none")


def _dead_letters(p: Player, **arguments: Any) -> None:
    p.queue("dead")
    p.ask("queue.bind", queue="dead", exchange="amq.direct", routing_key="q")
    p.ask("queue.bind", queue="dead", exchange="amq.direct", routing_key="other")
    p.queue("q", arguments={"x-dead-letter-exchange": "amq.direct", **arguments})


def rejected(p: Player) -> None:
    p.connect()
    _dead_letters(p)
    p.fill("q", "1", "2", "3", properties={"headers": {"own": 1}, "delivery_mode": 2})
    for tag in (1, 2, 3):
        p.ask("basic.get", queue="q")
        if tag == 1:
            p.send("basic.reject", delivery_tag=tag)
    p.send("basic.nack", delivery_tag=3, multiple=True)
    p.count("dead", 3)
    p.drain("dead")


def overflown(p: Player) -> None:
    p.connect()
    _dead_letters(p, **{"x-max-length": 1})
    p.fill("q", "1", "2")
    p.count("dead", 1)
    p.drain("dead")
    p.queue(
        "r",
        arguments={
            "x-max-length": 1,
            "x-overflow": "reject-publish-dlx",
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        },
    )
    p.ask("confirm.select")
    p.publish("r", "1")
    p.confirms(1)
    p.publish("r", "2")
    p.confirms(2)
    p.count("dead", 1)
    p.drain("dead")


def expired(p: Player) -> None:
    p.connect()
    _dead_letters(p, **{"x-dead-letter-routing-key": "other"})
    p.fill("q", "1", properties={"expiration": "50"})
    p.fill("q", "2")
    p.fill("q", "3", properties={"expiration": "50"})
    p.count("dead", 1)
    p.drain("dead")
    p.ask("basic.get", queue="q", no_ack=True)
    p.count("dead", 1)
    p.drain("dead")
    p.queue(
        "t",
        arguments={"x-message-ttl": 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    )
    p.fill("t", "4", "5", properties={"expiration": "60000"})
    p.count("dead", 2)
    p.drain("dead")
    p.queue("now", arguments={"x-message-ttl": 0})
    p.fill("now", "6")
    p.ask("basic.get", queue="now")


def twice_dead(p: Player) -> None:
    p.connect()
    p.queue("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"})
    p.queue(
        "wait",
        arguments={"x-message-ttl": 30, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"},
    )
    p.fill("q", "1")
    for tag in (1, 2, 3):
        p.count("q", 1)
        p.ask("basic.get", queue="q")
        p.send("basic.reject", delivery_tag=tag)


def automatic_cycle(p: Player) -> None:
    p.connect()
    p.queue(
        "q", arguments={"x-message-ttl": 20, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    )
    p.fill("q", "1")
    p.count("q", 0)


def queue_expires(p: Player) -> None:
    p.connect()
    p.queue("q", arguments={"x-expires": 300})
    p.fill("q", "1")
    p.expect(1, within=1.5)
    p.ask("queue.declare", queue="q", passive=True)


def priorities(p: Player) -> None:
    p.connect()
    p.queue("q", arguments={"x-max-priority": 5})
    p.fill("q", "a", properties={"priority": 1})
    p.fill("q", "b", properties={"priority": 5})
    p.fill("q", "c")
    p.fill("q", "d", properties={"priority": 9})
    p.fill("q", "e", properties={"priority": 1})
    p.ask("basic.get", queue="q")
    p.send("basic.nack", delivery_tag=1, requeue=True)
    p.count("q", 5)
    p.drain("q")


SCENARIOS: list[Scenario] = [
    publishing,
    further_routing_keys,
    direct_replies,
    replies_to_a_closed_channel,
    returning,
    confirming,
    modes,
    unconfirmed,
    transactions,
    reject_publish,
    drop_head,
    rejected,
    overflown,
    expired,
    twice_dead,
    automatic_cycle,
    queue_expires,
    priorities,
]
