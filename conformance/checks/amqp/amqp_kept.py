"""Messages that stay, and how queues treat them after a restart: parts of the durability checks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from plumbline.conformance.amqp.connection import AmqpConnection
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.checks.amqp.amqp_removed import EMPTIES_WITHIN_S, PERSISTENT
from plumbline.conformance.checks.amqp.amqp_routes import (
    publish,
    publish_confirmed,
    reaches_queue,
    require_queues,
)
from plumbline.conformance.targets.own_server import OwnServer
from plumbline.wire.amqp import Method

PROPERTIES: dict[str, Any] = {
    **PERSISTENT,
    "content_type": "text/plain",
    "headers": {"a": 1},
    "priority": 3,
    "correlation_id": "c",
    "message_id": "i",
}
LIVES_MS = "4000"  # longer than it takes to publish, shorter than anyone waits for
DIES_WITHIN_S = 15.0
LEASE_MS, LONG_LEASE_MS = 3_000, 600_000
POLL_S = 0.2


def _got(client: AmqpConnection, queue: str, **expected: Any) -> Method:
    client.send(Method.make("basic.get", 1, queue=queue))
    return client.expect("basic.get-ok", **expected)


def several_copies(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    """One message in two queues."""
    stage = session.stage_on(server)
    queues = [stage.queue(label) for label in ("FIRST-COPY", "SECOND-COPY")]
    source = stage.exchange("COPIES", type="topic")
    for queue in queues:
        stage.bind(queue, source, "copied.*")
    client = session.connect_to(server, "publisher")
    publish_confirmed(client, publish(source, "copied.once", "m1", properties=PROPERTIES))
    yield
    client = session.connect_to(server, "reader")
    for queue in queues:
        copy = _got(client, queue, exchange=source, routing_key="copied.once", body=b"m1")
        found = dict(copy.properties or {})
        session.require(
            found == PROPERTIES,
            f"the message in {queue} has other properties after the restart",
            expected=str(PROPERTIES),
            actual=str(found),
        )


def committed(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    """What a transaction published and acknowledged, and what was published in one that is open."""
    stage = session.stage_on(server)
    names = {label: stage.queue(label) for label in ("PUBLISHED", "SETTLED", "OPEN")}
    stage.publish(names["SETTLED"], b"left", PERSISTENT)
    stage.publish(names["SETTLED"], b"stays", PERSISTENT)
    client = session.connect_to(server, "publisher")
    client.call("tx.select")
    client.send(publish("", names["PUBLISHED"], "m1", properties=PERSISTENT))
    client.send(publish("", names["PUBLISHED"], "m2", properties=PERSISTENT))
    tag = _got(client, names["SETTLED"], body=b"left").arguments["delivery_tag"]
    client.send(Method.make("basic.ack", 1, delivery_tag=tag))
    client.call("tx.commit")
    client.send(publish("", names["OPEN"], "m3", properties=PERSISTENT))
    client.flush()
    yield
    client = session.connect_to(server, "reader")
    require_queues(session, client, {"PUBLISHED": ["m1", "m2"], "SETTLED": ["stays"], "OPEN": []}, names)


def settled_together(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    """Messages that left their queue in one acknowledgement, or in one nack."""
    stage = session.stage_on(server)
    names = {}
    for label, method in (("ACKED-TOGETHER", "basic.ack"), ("NACKED-TOGETHER", "basic.nack")):
        names[label] = stage.queue(label)
        for body in (b"m1", b"m2", b"m3", b"m4"):
            stage.publish(names[label], body, PERSISTENT)
        client = session.connect_to(server, label)
        _got(client, names[label], body=b"m1")
        _got(client, names[label], body=b"m2")
        tag = _got(client, names[label], body=b"m3").arguments["delivery_tag"]
        client.send(Method.make(method, 1, delivery_tag=tag, multiple=True))
        client.flush()
    yield
    client = session.connect_to(server, "reader")
    require_queues(session, client, {label: ["m4"] for label in names}, names)


def working_arguments(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    """Queues whose arguments have work: dead letters, a time to live, priorities, an active consumer."""
    stage = session.stage_on(server)
    morgue = stage.queue("KEPT-MORGUE")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": morgue}
    dying = stage.queue("DYING", arguments={**letters, "x-message-ttl": 1})
    rejecting = stage.queue("REJECTING", arguments=letters)
    ranked = stage.queue("RANKED", arguments={"x-max-priority": 5})
    single = stage.queue("SINGLE", arguments={"x-single-active-consumer": True})
    for body, priority in ((b"low", 1), (b"high", 5)):
        stage.publish(ranked, body, {**PERSISTENT, "priority": priority})
    stage.publish(rejecting, b"rejected", PERSISTENT)
    yield
    stage = session.stage_on(server)
    client = session.connect_to(server, "reader")
    stage.publish(ranked, b"middle", {"priority": 3})
    for body in (b"high", b"middle", b"low"):
        _got(client, ranked, body=body)
    tag = _got(client, rejecting, body=b"rejected").arguments["delivery_tag"]
    client.send(Method.make("basic.reject", 1, delivery_tag=tag, requeue=False))
    stage.expect_queue(morgue, message_count=1, within=EMPTIES_WITHIN_S)
    stage.publish(dying, b"expired")
    stage.expect_queue(morgue, message_count=2, within=EMPTIES_WITHIN_S)
    for consumer in ("first", "second"):
        client.call("basic.consume", 1, queue=single, consumer_tag=consumer)
    for body in (b"m1", b"m2"):
        stage.publish(single, body)
        client.expect("basic.deliver", consumer_tag="first", body=body)


def mortal_messages(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    """Persistent messages whose time is over some time after they were published."""
    stage = session.stage_on(server)
    queues = [
        stage.queue("MORTAL"),
        stage.queue("MORTALS", arguments={"x-message-ttl": int(LIVES_MS)}),
    ]
    stage.publish(queues[0], b"m1", {**PERSISTENT, "expiration": LIVES_MS})
    stage.publish(queues[1], b"m1", PERSISTENT)
    yield
    stage = session.stage_on(server)
    for queue in queues:
        stage.expect_queue(queue, message_count=0, within=DIES_WITHIN_S)


def leased_queues(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    """Queues that are deleted when they were not used for some time. The one with little time is in use."""
    stage = session.stage_on(server)
    long = stage.queue("LEASED-LONG", arguments={"x-expires": LONG_LEASE_MS})
    short = session.name("LEASED")
    consumer = session.connect_to(server, "consumer")
    consumer.send(
        Method.make("queue.declare", 1, queue=short, durable=True, arguments={"x-expires": LEASE_MS}),
        Method.make("basic.consume", 1, queue=short),
    )
    consumer.expect("queue.declare-ok", 1)
    consumer.expect("basic.consume-ok", 1)
    yield
    client = session.connect_to(server, "publisher")
    client.call("confirm.select")
    session.require(
        reaches_queue(client, long),
        "a queue with x-expires is gone after the restart",
        expected=f"the queue, until {LONG_LEASE_MS / 1000:.0f} s after the restart",
        actual="no queue",
    )
    limit = time.monotonic() + LEASE_MS / 1000 + DIES_WITHIN_S + session.target.slack_s
    while reaches_queue(client, short):
        session.require(
            time.monotonic() < limit,
            "a queue with x-expires that was not used since the restart stays",
            expected=f"gone {LEASE_MS} ms after the restart",
            actual=f"there more than {LEASE_MS / 1000 + DIES_WITHIN_S:.0f} s after it",
        )
        session.pause(POLL_S)


KEPT_PARTS = (several_copies, committed, settled_together, working_arguments, mortal_messages, leased_queues)
