"""AMQP: what outlives the broker, and what does not. The checks share one broker, and how its lives end."""

from __future__ import annotations

from collections.abc import Iterator

from plumbline.conformance.amqp.connection import AmqpConnection
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.outcomes import Unsupported
from plumbline.conformance.own_server import OwnAmqpServer
from plumbline.conformance.shared_server import judge_part
from plumbline.wire.amqp import Method

CONFIRMS = 'RabbitMQ, "Consumer Acknowledgements and Publisher Confirms"'
GUARANTEED = f'{CONFIRMS}, "Publisher Confirms and Guaranteed Delivery"'
RESTARTS = "amqp-restarts"
PERSISTENT = {"delivery_mode": 2}
PUBLISHED = 400  # before the crash
CONFIRMED = 100  # of them, before it


def _bodies(session: AmqpSession, server: OwnAmqpServer, queue: str) -> Iterator[tuple[bytes, bool]]:
    """Body and redelivered of every message, in the queue's order; each is acknowledged."""
    client = session.connect_to(server, "reader")
    while True:
        client.send(Method.make("basic.get", 1, queue=queue, no_ack=True))
        answer = client.take(within=5.0)
        if not isinstance(answer, Method) or answer.method != "basic.get-ok":
            return
        yield answer.body, answer.arguments["redelivered"]


def _declared(session: AmqpSession, server: OwnAmqpServer) -> Iterator[None]:
    stage = session.stage_on(server)
    queue, exchange = stage.queue("KEPT"), stage.exchange("EVENTS", type="topic")
    stage.bind(queue, exchange, "a.*")
    short_exchange = stage.exchange("SHORT", durable=False)
    short_queue = session.name("SHORT")
    answer = stage.answer("queue.declare", queue=short_queue, durable=False)
    if answer.method != "queue.declare-ok":
        raise Unsupported(f"a transient queue is refused with {answer.arguments['reply_code']}")
    client = session.connect_to(server)
    client.send(Method.make("basic.publish", 1, routing_key=short_queue, properties=PERSISTENT, body=b"lost"))
    client.flush()
    stage.expect_queue(short_queue, within=5.0, message_count=1)
    yield
    stage = session.stage_on(server)
    stage.expect_queue(queue, exists=True, message_count=0)
    stage.expect_queue(short_queue, exists=False)
    client = session.connect_to(server)
    client.call("confirm.select", 1)
    client.send(
        Method.make("basic.publish", 1, exchange=exchange, routing_key="a.b", mandatory=True, body=b"m")
    )
    client.expect("basic.ack", delivery_tag=1)
    client.send(Method.make("basic.get", 1, queue=queue, no_ack=True))
    client.expect("basic.get-ok", exchange=exchange, routing_key="a.b", body=b"m")
    client.send(Method.make("exchange.declare", 2, exchange=short_exchange, type="direct", passive=True))
    client.expect("channel.close", 2, reply_code=404)
    client.send(Method.make("channel.close-ok", 2))


@verifies(
    "AMQP-DURABILITY-001",
    "AMQP-DURABILITY-002",
    "AMQP-DURABILITY-003",
    "AMQP-DURABILITY-010",
    source="AMQP 0-9-1 XML, queue.declare and exchange.declare, parameter durable",
    shares=RESTARTS,
)
def test_what_is_declared_durable_outlives_the_broker(session: AmqpSession) -> None:
    """After a restart what was declared durable is there, bindings too, and what was not is gone."""
    judge_part(session, _declared, PARTS, ENDINGS)


def _persistent(session: AmqpSession, server: OwnAmqpServer) -> Iterator[None]:
    stage = session.stage_on(server)
    queue = stage.queue("MESSAGES")
    published: list[tuple[bytes, dict[str, int]]] = [
        (b"p1", PERSISTENT),
        (b"p2", PERSISTENT),
        (b"p3", PERSISTENT),
        (b"transient", {"delivery_mode": 1}),
        (b"unmarked", {}),
        *((b"p%d" % number, PERSISTENT) for number in range(4, 20)),
    ]
    for body, properties in published:
        stage.publish(queue, body, properties)
    client = session.connect_to(server, "consumer")
    client.call("basic.qos", 1, prefetch_count=2)
    client.send(Method.make("basic.consume", 1, queue=queue, consumer_tag="c"))
    client.expect("basic.consume-ok")
    client.expect("basic.deliver", delivery_tag=1, redelivered=False, body=b"p1")
    client.expect("basic.deliver", delivery_tag=2, redelivered=False, body=b"p2")
    client.call("basic.cancel", 1, consumer_tag="c")
    client.send(Method.make("basic.ack", 1, delivery_tag=2))
    client.flush()
    yield
    kept = [body for body, properties in published if properties is PERSISTENT and body != b"p2"]
    expected = [(body, body == b"p1") for body in kept]
    found = list(_bodies(session, server, queue))
    session.require(
        found == expected,
        "other messages are there after the restart",
        expected=_shown(expected),
        actual=_shown(found),
    )


@verifies(
    "AMQP-DURABILITY-004",
    "AMQP-DURABILITY-006",
    "AMQP-DURABILITY-007",
    "AMQP-DURABILITY-008",
    "AMQP-DURABILITY-009",
    "AMQP-DURABILITY-011",
    source=GUARANTEED,
    shares=RESTARTS,
)
def test_persistent_messages_outlive_the_broker(session: AmqpSession) -> None:
    """After a restart persistent messages that are not settled are there in order, transient ones are not."""
    judge_part(session, _persistent, PARTS, ENDINGS)


def _shown(messages: list[tuple[bytes, bool]]) -> str:
    return " ".join(
        body.decode("utf-8", "replace") + (" (redelivered)" if again else "") for body, again in messages
    )


def _told(session: AmqpSession, server: OwnAmqpServer) -> Iterator[None]:
    client = session.connect_to(server, "witness")
    client.call("basic.qos", 1)
    yield
    client.expect("connection.close", reply_code=320, class_id=0, method_id=0)


@verifies(
    "AMQP-CONN-043",
    "AMQP-ERRORS-002",
    source="AMQP 0-9-1, section 1.2, connection-forced",
    shares=RESTARTS,
)
def test_clients_are_told_of_the_end(session: AmqpSession) -> None:
    """A client is told with connection.close 320 that the broker is stopped in order."""
    judge_part(session, _told, PARTS, ENDINGS)


def _crash(session: AmqpSession, server: OwnAmqpServer) -> Iterator[None]:
    queue = session.stage_on(server).queue("CRASHED")
    # No document promises that a queue of a moment ago outlives a crash: RabbitMQ 3.10.8 may have lost it.
    yield
    client = session.connect_to(server, "publisher")
    client.call("confirm.select", 1)
    messages = [
        Method.make("basic.publish", 1, routing_key=queue, properties=PERSISTENT, body=b"p%d" % number)
        for number in range(1, PUBLISHED + 1)
    ]
    client.send(*messages)
    confirmed = _confirmed(client, CONFIRMED)
    yield
    found = [body for body, _ in _bodies(session, server, queue)]
    lost = sorted(number for number in confirmed if b"p%d" % number not in set(found))
    twice = len(found) - len(set(found))
    session.require(
        not lost and not twice,
        "what was confirmed is not what is there after the crash",
        expected=f"{len(confirmed)} confirmed messages, each once",
        actual=f"{len(lost)} lost ({lost[:10]}), {twice} twice, of {len(found)}",
    )


def _confirmed(client: AmqpConnection, enough: int) -> set[int]:
    """The publishes confirmed so far, once they are enough."""
    confirmed: set[int] = set()
    while len(confirmed) < enough:
        ack = client.expect("basic.ack", within=10.0)
        tag = ack.arguments["delivery_tag"]
        confirmed |= set(range(1, tag + 1)) if ack.arguments["multiple"] else {tag}
    return confirmed


@verifies("AMQP-DURABILITY-005", "AMQP-CONFIRM-028", source=GUARANTEED, shares=RESTARTS)
def test_confirmed_messages_outlive_a_crash(session: AmqpSession) -> None:
    """Persistent messages that were confirmed before kill -9 are there after it, none twice."""
    judge_part(session, _crash, PARTS, ENDINGS)


PARTS = (_declared, _persistent, _told, _crash)  # the crash comes last: the server is to be killed at once
ENDINGS = (OwnAmqpServer.stop, OwnAmqpServer.kill)
