"""Scenarios of consumers, basic.get, prefetch, acknowledgements, requeueing and recovery."""

from __future__ import annotations

from tests.reference_broker.amqp.player import Player, Scenario
from tests.reference_broker.amqp.scenarios_topology import refused


def consuming(p: Player) -> None:
    p.connect("a", 2)
    p.queue("q")
    p.fill("q", "1", "2", "3")
    p.ask("basic.consume", queue="q", consumer_tag="c", answers=4)
    p.ask("basic.consume", 2, queue="q", consumer_tag="c")
    p.fill("q", "4", "5")
    p.expect(2)
    p.ask("basic.cancel", consumer_tag="c")
    p.ask("basic.cancel", consumer_tag="unknown")
    p.send("basic.cancel", 2, consumer_tag="c", no_wait=True)
    p.ask("basic.qos", 2)
    p.send("basic.ack", delivery_tag=1)
    p.ask("basic.consume", queue="q")
    p.ask("basic.consume", queue="q", consumer_tag="t" * 255)
    p.ask("channel.close")
    p.ask("channel.open")
    p.send("basic.consume", queue="q", consumer_tag="quiet", no_wait=True)
    p.expect(4)
    p.ask("basic.consume", queue="q", consumer_tag="quiet")
    p.send("connection.close-ok", 0)
    p.end()


def refused_consumers(p: Player) -> None:
    p.connect("a", 2)
    p.queue("q")
    refused(p, "basic.consume", queue="nosuch")
    refused(p, "basic.consume", queue="q", arguments={"x-priority": "high"})
    p.ask("basic.consume", queue="q", consumer_tag="a")
    p.ask("basic.consume", 2, queue="q", consumer_tag="b", exclusive=True)
    p.send("channel.close-ok", 2)
    p.ask("channel.open", 2)
    p.ask("basic.cancel", consumer_tag="a")
    p.ask("basic.consume", queue="q", consumer_tag="a", exclusive=True)
    p.ask("basic.consume", 2, queue="q", consumer_tag="b")
    p.send("channel.close-ok", 2)
    p.ask("channel.open", 2)
    p.ask("basic.get", 2, queue="q")


def own_messages(p: Player) -> None:
    p.connect()
    p.queue("q")
    p.ask("basic.consume", queue="q", consumer_tag="c", no_local=True, no_ack=True)
    p.publish("q", "1")
    p.expect(1)
    refused(p, "basic.ack", delivery_tag=1)
    p.count("q", 0)


def round_robin(p: Player) -> None:
    p.connect()
    p.queue("q")
    for tag in "abc":
        p.ask("basic.consume", queue="q", consumer_tag=tag, no_ack=True)
    p.fill("q", *map(str, range(9)))
    p.expect(9)


def consumer_priorities(p: Player) -> None:
    p.connect("a", 3)
    p.queue("q")
    for channel, priority in ((1, 1), (2, 10), (3, 1)):
        p.ask("basic.qos", channel, prefetch_count=2)
        p.ask("basic.consume", channel, queue="q", consumer_tag="c", arguments={"x-priority": priority})
    p.fill("q", *map(str, range(8)))
    p.expect(6)
    p.send("basic.ack", 2, delivery_tag=2, multiple=True)
    p.expect(2)


def cancel_notification(p: Player) -> None:
    p.connect("a", 2)
    p.queue("q")
    p.ask("basic.consume", 2, queue="q", consumer_tag="c")
    p.fill("q", "1")
    p.expect(1)
    p.ask("queue.delete", queue="q", answers=2)
    p.send("basic.nack", 2, delivery_tag=1, requeue=True)
    p.ask("basic.cancel", 2, consumer_tag="c")


def getting(p: Player) -> None:
    p.connect("a", 2)
    p.queue("q")
    p.ask("basic.get", queue="q")
    p.fill("q", "1", "2", "3", "4")
    p.ask("basic.qos", prefetch_count=1)
    p.ask("basic.get", queue="q", no_ack=True)
    refused(p, "basic.ack", delivery_tag=1)
    p.ask("basic.get", queue="q")
    p.ask("basic.get", queue="q")
    p.ask("basic.get", queue="q")
    p.send("basic.ack", delivery_tag=2, multiple=True)
    p.ask("channel.close")
    p.count("q", 1)
    p.ask("channel.open")
    p.ask("basic.get", queue="q")
    refused(p, "basic.get", queue="nosuch")


def acknowledging(p: Player) -> None:
    p.connect("a", 2)
    p.queue("q")
    p.fill("q", "1", "2", "3", "4")
    p.ask("basic.consume", queue="q", consumer_tag="c", answers=5)
    p.send("basic.ack", delivery_tag=3)
    p.send("basic.ack", delivery_tag=1)
    p.send("basic.ack", delivery_tag=0, multiple=True)
    p.send("basic.ack", delivery_tag=0, multiple=True)
    p.count("q", 0)
    p.fill("q", "5", "6")
    p.expect(2)
    p.ask("basic.ack", 2, delivery_tag=5)
    p.send("channel.close-ok", 2)
    p.send("basic.ack", delivery_tag=6)
    refused(p, "basic.ack", delivery_tag=6, multiple=True)
    p.count("q", 1)
    p.ask("basic.get", queue="q")


def unknown_tags(p: Player) -> None:
    p.connect()
    p.queue("q")
    p.fill("q", "1", "2")
    for method in ("basic.ack", "basic.nack", "basic.reject"):
        for tag in (0, 100, 2**63 - 1, 2**64 - 1):
            refused(p, method, delivery_tag=tag)
    for method in ("basic.ack", "basic.nack"):
        p.ask("basic.get", queue="q")
        refused(p, method, delivery_tag=2, multiple=True)
        p.count("q", 2)
    p.ask("basic.get", queue="q")
    p.send("basic.reject", delivery_tag=1)
    refused(p, "basic.ack", delivery_tag=1)
    p.drain("q")


def negative(p: Player) -> None:
    p.connect()
    p.queue("q")
    p.fill("q", "1", "2", "3", "4", "5")
    for _ in range(4):
        p.ask("basic.get", queue="q")
    p.send("basic.nack", delivery_tag=3, multiple=True, requeue=True)
    p.count("q", 4)
    p.ask("basic.get", queue="q")
    p.send("basic.nack", delivery_tag=5)
    p.ask("basic.get", queue="q")
    p.ask("basic.get", queue="q")
    p.send("basic.nack", delivery_tag=6, multiple=True)
    p.send("basic.nack", delivery_tag=0, multiple=True, requeue=True)
    p.count("q", 2)
    p.ask("basic.get", queue="q")
    p.send("basic.reject", delivery_tag=8, requeue=True)
    p.count("q", 2)
    p.drain("q")


def positions(p: Player) -> None:
    p.connect()
    p.queue("q")
    p.fill("q", "1", "2", "3", "4", "5")
    for _ in range(4):
        p.ask("basic.get", queue="q")
    for tag in (3, 1, 2):
        p.send("basic.nack", delivery_tag=tag, requeue=True)
    p.count("q", 4)
    p.drain("q")


def same_consumer(p: Player) -> None:
    p.connect()
    p.queue("q")
    p.fill("q", "1")
    p.ask("basic.qos", prefetch_count=1)
    p.ask("basic.consume", queue="q", consumer_tag="c", answers=2)
    p.send("basic.reject", delivery_tag=1, requeue=True)
    p.expect(1)
    p.send("basic.nack", delivery_tag=2, requeue=True)
    p.expect(1)


def lost(p: Player) -> None:
    p.connect("a")
    p.connect("b")
    p.queue("q")
    p.fill("q", "1", "2", "3", "4")
    p.ask("basic.qos", 1, "b", prefetch_count=3)
    p.ask("basic.consume", 1, "b", queue="q", consumer_tag="c", answers=4)
    p.send("basic.ack", 1, "b", delivery_tag=2)
    p.leave("b")
    p.count("q", 3)
    p.ask("basic.get", queue="q")
    p.ask("basic.get", queue="q")
    p.ask("basic.get", queue="q")
    refused(p, "basic.ack", delivery_tag=9)
    p.count("q", 3)
    p.ask("basic.consume", queue="q", consumer_tag="n", no_ack=True, answers=4)


def prefetching(p: Player) -> None:
    p.connect("a", 2)
    p.queue("q")
    p.fill("q", *map(str, range(20)))
    p.ask("basic.qos", prefetch_count=4)
    p.ask("basic.consume", queue="q", consumer_tag="c", answers=5)
    p.send("basic.ack", delivery_tag=3)
    p.expect(1)
    p.send("basic.ack", delivery_tag=4, multiple=True)
    p.expect(3)
    p.send("basic.nack", delivery_tag=6, multiple=True)
    p.expect(2)
    p.ask("basic.qos", prefetch_count=5)
    p.ask("basic.consume", queue="q", consumer_tag="d", answers=6)
    p.ask("basic.cancel", consumer_tag="c")
    p.ask("basic.get", queue="q")
    p.ask("basic.qos", 2, prefetch_count=65535)
    p.ask("basic.consume", 2, queue="q", consumer_tag="rest", no_ack=True, answers=5)


def channel_limit(p: Player) -> None:
    p.connect("a", 2)
    p.queue("q")
    p.queue("r")
    p.fill("q", *map(str, range(3)))
    p.fill("r", *map(str, range(6)))
    p.ask("basic.qos", prefetch_count=3, global_=True)
    p.ask("basic.consume", queue="q", consumer_tag="q", answers=4)
    p.ask("basic.consume", queue="r", consumer_tag="r")
    p.send("basic.ack", delivery_tag=1)
    p.expect(1)
    p.ask("basic.qos", prefetch_count=1, global_=True)
    p.send("basic.ack", delivery_tag=2)
    p.send("basic.ack", delivery_tag=3)
    p.expect(1, within=0.3)
    p.send("basic.ack", delivery_tag=4)
    p.expect(1)
    p.ask("basic.consume", 2, queue="r", consumer_tag="free", answers=6)


def both_limits(p: Player) -> None:
    p.connect()
    p.queue("q")
    p.fill("q", *map(str, range(8)))
    p.ask("basic.qos", prefetch_count=2)
    p.ask("basic.qos", prefetch_count=3, global_=True)
    p.ask("basic.consume", queue="q", consumer_tag="a", answers=3)
    p.ask("basic.consume", queue="q", consumer_tag="b", answers=2)
    p.ask("basic.qos", prefetch_count=0, answers=2, global_=True)


def recovering(p: Player) -> None:
    p.connect("a", 2)
    p.queue("q")
    p.ask("basic.recover", requeue=True)
    p.fill("q", "1", "2", "3")
    p.ask("basic.consume", queue="q", consumer_tag="c", answers=4)
    p.send("basic.ack", delivery_tag=2)
    p.ask("basic.recover", requeue=True, answers=3)
    p.send("basic.recover-async", requeue=True)
    p.expect(2)
    p.ask("basic.cancel", consumer_tag="c")
    p.ask("basic.recover", requeue=True)
    p.count("q", 2)
    p.ask("basic.get", queue="q")
    p.ask("basic.get", 2, queue="q")
    p.ask("basic.recover", requeue=True)
    p.ask("basic.get", queue="q")
    refused(p, "basic.ack", delivery_tag=7)


def single_active(p: Player) -> None:
    p.connect("a", 3)
    p.queue("q", arguments={"x-single-active-consumer": True})
    for channel in (1, 2, 3):
        p.ask("basic.qos", channel, prefetch_count=1)
        p.ask("basic.consume", channel, queue="q", consumer_tag="c")
    p.fill("q", "1", "2", "3")
    p.expect(1)
    p.send("basic.ack", delivery_tag=1)
    p.expect(1)
    p.send("basic.ack", delivery_tag=2)
    p.expect(1)
    p.send("basic.ack", delivery_tag=3)
    p.ask("basic.cancel", consumer_tag="c")
    p.fill("q", "4")
    p.expect(1)


def strange_headers(p: Player) -> None:
    p.connect()
    p.queue("q")
    p.fill("q", "1", properties={"headers": {"nested": {"deep": [{"x": [1, "2", None, True]}]}}})
    p.drain("q")


SCENARIOS: list[Scenario] = [
    consuming,
    refused_consumers,
    own_messages,
    round_robin,
    consumer_priorities,
    cancel_notification,
    getting,
    acknowledging,
    unknown_tags,
    negative,
    positions,
    same_consumer,
    lost,
    prefetching,
    channel_limit,
    both_limits,
    recovering,
    single_active,
    strange_headers,
]
