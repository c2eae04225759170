"""What clients removed or declared before the broker ended: parts of the restart of the durability checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plumbline.conformance.amqp.connection import AmqpConnection
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.amqp.stage import AmqpStage
from plumbline.conformance.targets.own_server import OwnServer
from plumbline.wire.amqp import Method

PERSISTENT = {"delivery_mode": 2}
EMPTIES_WITHIN_S = 5.0


def _routed(client: AmqpConnection, exchange: str, routing_key: str = "", **properties: Any) -> bool:
    """Whether a message reaches a queue. ``client`` confirms."""
    message = Method.make(
        "basic.publish",
        1,
        exchange=exchange,
        routing_key=routing_key,
        mandatory=True,
        properties=properties,
        body=b"after",
    )
    client.send(message)
    first = client.arrival(EMPTIES_WITHIN_S, "basic.ack or basic.return", stream=1).operation
    if first.method == "basic.return":
        client.expect("basic.ack")
        return False
    return True


def _publisher(session: AmqpSession, server: OwnServer) -> AmqpConnection:
    client = session.connect_to(server, "publisher")
    client.call("confirm.select")
    return client


def deleted_things(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    """Queues, exchanges and bindings: deleted, and some declared anew."""
    stage = session.stage_on(server)
    gone, anew, kept = (stage.queue(label) for label in ("GONE", "ANEW", "UNBOUND"))
    lost, again, source = (stage.exchange(label, type="direct") for label in ("LOST", "AGAIN", "SOURCE"))
    target = stage.exchange("TARGET", type="fanout")
    for queue in (anew, kept):
        for exchange in (again, source):
            stage.bind(queue, exchange, "kept")
            stage.bind(queue, exchange, "unbound")
    stage.bind(kept, target)
    stage.request("exchange.bind", source=source, destination=target, routing_key="to-exchange")
    for queue in (gone, anew):
        stage.publish(queue, b"before", PERSISTENT)
        stage.delete("queue", queue)
    for exchange in (lost, again):
        stage.delete("exchange", exchange)
    stage.queue("ANEW")
    stage.exchange("AGAIN", type="direct")
    stage.request("queue.unbind", queue=kept, exchange=source, routing_key="unbound")
    stage.request("exchange.unbind", source=source, destination=target, routing_key="to-exchange")
    yield
    stage = session.stage_on(server)
    stage.expect_queue(gone, exists=False)
    stage.expect_queue(anew, exists=True, message_count=0)
    client = _publisher(session, server)
    client.send(Method.make("exchange.declare", 2, exchange=lost, type="direct", passive=True))
    client.expect("channel.close", 2, reply_code=404)
    client.send(Method.make("channel.close-ok", 2))
    keys = ("kept", "unbound", "to-exchange")
    found = {(name, key): _routed(client, name, key) for name in (again, source) for key in keys}
    expected = dict.fromkeys(found, False) | {(source, "kept"): True}
    session.require(
        found == expected,
        "bindings that were removed are there after the restart, or others are not",
        expected=f"{source} routes 'kept' to {kept}, and nothing else is routed",
        actual=_shown(found),
    )
    stage.expect_queue(anew, message_count=0)
    stage.expect_queue(kept, message_count=1)


def _shown(found: dict[tuple[str, str], bool]) -> str:
    return ", ".join(f"{name} routes {key!r}" for (name, key), is_so in found.items() if is_so) or "no route"


def _consumed(client: AmqpConnection, queue: str) -> None:
    client.call("basic.consume", queue=queue, consumer_tag="c", no_ack=True)
    client.expect("basic.deliver")
    client.call("basic.cancel", consumer_tag="c")


def _got(client: AmqpConnection, queue: str) -> None:
    client.send(Method.make("basic.get", 1, queue=queue, no_ack=True))
    client.expect("basic.get-ok")


def _acknowledged(client: AmqpConnection, queue: str) -> None:
    _settled(client, queue, "basic.ack")


def _rejected(client: AmqpConnection, queue: str) -> None:
    _settled(client, queue, "basic.reject", requeue=False)


def _refused(client: AmqpConnection, queue: str) -> None:
    _settled(client, queue, "basic.nack", requeue=False)


def _settled(client: AmqpConnection, queue: str, method: str, **arguments: Any) -> None:
    client.send(Method.make("basic.get", 1, queue=queue))
    tag = client.expect("basic.get-ok").arguments["delivery_tag"]
    client.send(Method.make(method, 1, delivery_tag=tag, **arguments))
    client.flush()


def _purged(client: AmqpConnection, queue: str) -> None:
    client.call("queue.purge", queue=queue)


WAYS_OUT = {
    "CONSUMED": _consumed,
    "GOT": _got,
    "ACKNOWLEDGED": _acknowledged,
    "REJECTED": _rejected,
    "REFUSED": _refused,
    "PURGED": _purged,
}


def messages_that_left(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    """Persistent messages, each of which left its queue in another way. One in each stays."""
    stage = session.stage_on(server)
    client = session.connect_to(server)
    queues = {label: stage.queue(label) for label in WAYS_OUT}
    for label, leave in WAYS_OUT.items():
        stage.publish(queues[label], b"left", PERSISTENT)
        leave(client, queues[label])
        stage.publish(queues[label], b"stays", PERSISTENT)
    yield
    client = session.connect_to(server, "reader")
    found = {label: _bodies(client, queue) for label, queue in queues.items()}
    session.require(
        all(bodies == [b"stays"] for bodies in found.values()),
        "the queues have other messages after the restart",
        expected="in each queue the message that stayed",
        actual=", ".join(f"{label}: {bodies}" for label, bodies in found.items()),
    )


def _bodies(client: AmqpConnection, queue: str) -> list[bytes]:
    bodies: list[bytes] = []
    while True:
        client.send(Method.make("basic.get", 1, queue=queue, no_ack=True))
        answer = client.arrival(EMPTIES_WITHIN_S, "an answer to basic.get", stream=1).operation
        if answer.method != "basic.get-ok":
            return bodies
        bodies.append(answer.body)


def dead_letters(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    """Persistent messages that expired, or that a full queue dropped: each died once."""
    stage = session.stage_on(server)
    morgues = {}
    for label, arguments, properties in (
        ("EXPIRED", {}, {"expiration": "1"}),
        ("DROPPED", {"x-max-length": 1}, {}),
    ):
        morgue = stage.queue(f"{label}-MORGUE")
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": morgue}
        queue = stage.queue(label, arguments={**arguments, **letters})
        stage.publish(queue, b"dead", {**PERSISTENT, **properties})
        if arguments:
            stage.publish(queue, b"pushes", PERSISTENT)
        stage.await_queue(morgue, within=EMPTIES_WITHIN_S, message_count=1)
        morgues[morgue] = queue
    yield
    stage = session.stage_on(server)
    for morgue, queue in morgues.items():
        stage.expect_queue(queue, message_count=int("DROPPED" in queue))
        stage.expect_queue(morgue, message_count=1)


def _headers_source(session: AmqpSession, stage: AmqpStage, queue: str) -> str:
    """A headers exchange with an alternate exchange, which leads to ``queue``."""
    rest = stage.exchange("REST", type="fanout")
    stage.bind(queue, rest)
    source = stage.exchange("HEADERS", type="headers", arguments={"alternate-exchange": rest})
    bound = stage.queue("BY-HEADER")
    stage.bind(bound, source, arguments={"x-match": "all", "kind": "new"})
    return source


def declared_things(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    """What queues, exchanges and bindings were declared with."""
    stage = session.stage_on(server)
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    short = stage.queue("SHORT-QUEUE", arguments=arguments)
    leaving = stage.queue("LEAVING", auto_delete=True)
    source = _headers_source(session, stage, leaving)
    short_lived = stage.exchange("SHORT-LIVED", type="fanout", auto_delete=True)
    stage.bind(short, short_lived)
    yield
    stage = session.stage_on(server)
    # It has its arguments: as declared it can be declared again, and it takes one message.
    client = _publisher(session, server)
    client.send(Method.make("queue.declare", 3, queue=short, durable=True, arguments=arguments))
    client.expect("queue.declare-ok", 3)
    for outcome in ("basic.ack", "basic.nack"):
        client.send(Method.make("basic.publish", 1, routing_key=short, body=b"m"))
        client.expect(outcome)
    # The binding has its arguments, and the exchange its alternate exchange.
    routes = [_routed(client, source, headers={"kind": kind}) for kind in ("new", "old")]
    session.require(all(routes), "a message is returned", expected="no return", actual=f"new, old: {routes}")
    stage.expect_queue(session.name("BY-HEADER"), message_count=1)
    stage.expect_queue(leaving, message_count=1)
    # What is deleted by itself still is.
    _consumed(client, leaving)
    stage.expect_queue(leaving, exists=False)
    stage.request("queue.unbind", queue=short, exchange=short_lived)
    client.send(Method.make("exchange.declare", 2, exchange=short_lived, type="fanout", passive=True))
    client.expect("channel.close", 2, reply_code=404)
    client.send(Method.make("channel.close-ok", 2))


def exclusive_queue(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    """Exclusive queues, whose connections live as long as the broker: it is stopped, and then killed."""
    for name in ("MINE", "MINE-AGAIN"):
        client = session.connect_to(server, f"owner of {name}")
        queue = session.name(name)
        client.call("queue.declare", queue=queue, durable=True, exclusive=True)
        session.stage_on(server).publish(queue, b"lost", PERSISTENT)
        yield
        session.stage_on(server).expect_queue(queue, exists=False)
