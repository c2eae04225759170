"""AMQP: what outlives the broker, and what does not. The checks share one broker, and how its lives end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from plumbline.conformance.amqp.connection import AmqpConnection
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.checks.amqp.amqp_kept import KEPT_PARTS
from plumbline.conformance.checks.amqp.amqp_removed import (
    PERSISTENT,
    dead_letters,
    declared_things,
    deleted_things,
    exclusive_queue,
    messages_that_left,
)
from plumbline.conformance.outcomes import Unsupported, Untestable
from plumbline.conformance.sessions.connection import ConnectionClosed
from plumbline.conformance.targets.own_server import OwnServer
from plumbline.conformance.targets.shared_server import judge_part
from plumbline.wire.amqp import Method

CONFIRMS = 'RabbitMQ, "Consumer Acknowledgements and Publisher Confirms"'
GUARANTEED = f'{CONFIRMS}, "Publisher Confirms and Guaranteed Delivery"'
RESTARTS = "amqp-restarts"
ACKNOWLEDGED = f'{CONFIRMS}, "Positively Acknowledging Deliveries"'
REQUEUED = f'{CONFIRMS}, "When Consumers Fail or Lose Connection: Automatic Requeueing"'
DELIVERY_MODE = "AMQP 0-9-1 XML, class basic, field delivery-mode"
MESSAGES = (b"m1", b"m2", b"m3")
ORDERED = 20  # messages whose order is judged
PUBLISHED = 400  # before the crash
CONFIRMED = 100  # of them, before it


def _bodies(session: AmqpSession, server: OwnServer, queue: str) -> Iterator[tuple[bytes, bool]]:
    """Body and redelivered of every message, in the queue's order; each is acknowledged."""
    client = session.connect_to(server, "reader")
    while True:
        client.send(Method.make("basic.get", 1, queue=queue, no_ack=True))
        answer = client.take(within=5.0)
        if not isinstance(answer, Method) or answer.method != "basic.get-ok":
            return
        yield answer.body, answer.arguments["redelivered"]


def _durable_queue(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    queue = session.stage_on(server).queue("KEPT")
    yield
    session.stage_on(server).expect_queue(queue, exists=True, message_count=0)


@verifies("AMQP-DURABILITY-001", source="AMQP 0-9-1 XML, queue.declare, parameter durable", shares=RESTARTS)
def test_durable_queue_outlives_the_broker(session: AmqpSession) -> None:
    """After a restart a durable queue is there."""
    judge_part(session, _durable_queue, PARTS, ENDINGS)


def _transient_queue(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    queue = session.name("SHORT")
    client = session.connect_to(server)
    client.send(Method.make("queue.declare", 1, queue=queue, durable=False))
    answer = client.take(within=5.0)
    if isinstance(answer, Method) and answer.method in ("channel.close", "connection.close"):
        # RabbitMQ 4.3 answers with connection.close, other releases with channel.close.
        raise Unsupported(f"a transient queue is refused: {answer.arguments['reply_text']}")
    if answer is None or answer.method != "queue.declare-ok":
        raise Untestable("a transient queue is not declared", expected="queue.declare-ok", actual=str(answer))
    client.send(Method.make("basic.publish", 1, routing_key=queue, properties=PERSISTENT, body=b"lost"))
    client.flush()
    session.stage_on(server).await_queue(queue, within=5.0, message_count=1)
    yield
    session.stage_on(server).expect_queue(queue, exists=False)


@verifies(
    "AMQP-DURABILITY-010",
    "AMQP-DURABILITY-013",
    source="AMQP 0-9-1 XML, queue.declare, parameter durable",
    shares=RESTARTS,
)
def test_transient_queue_goes_with_the_broker(session: AmqpSession) -> None:
    """After a restart a transient queue is gone, with its persistent messages."""
    judge_part(session, _transient_queue, PARTS, ENDINGS)


def _durable_exchange(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    stage = session.stage_on(server)
    queue, exchange = stage.queue("BOUND"), stage.exchange("EVENTS", type="topic")
    stage.bind(queue, exchange, "a.*")
    yield
    client = session.connect_to(server)
    client.call("confirm.select", 1)
    client.send(
        Method.make("basic.publish", 1, exchange=exchange, routing_key="a.b", mandatory=True, body=b"m")
    )
    client.expect("basic.ack", delivery_tag=1)
    client.send(Method.make("basic.get", 1, queue=queue, no_ack=True))
    client.expect("basic.get-ok", exchange=exchange, routing_key="a.b", body=b"m")


@verifies(
    "AMQP-DURABILITY-002", source='AMQP 0-9-1 XML, queue.bind, rule "durable-exchange"', shares=RESTARTS
)
def test_durable_exchange_and_bindings_outlive_the_broker(session: AmqpSession) -> None:
    """After a restart a durable exchange is there, and its binding to a durable queue."""
    judge_part(session, _durable_exchange, PARTS, ENDINGS)


def _transient_exchange(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    exchange = session.stage_on(server).exchange("SHORT", durable=False)
    yield
    client = session.connect_to(server)
    client.send(Method.make("exchange.declare", 1, exchange=exchange, type="direct", passive=True))
    client.expect("channel.close", 1, reply_code=404)
    client.send(Method.make("channel.close-ok", 1))


@verifies(
    "AMQP-DURABILITY-003", source="AMQP 0-9-1 XML, exchange.declare, parameter durable", shares=RESTARTS
)
def test_transient_exchange_goes_with_the_broker(session: AmqpSession) -> None:
    """After a restart an exchange that is not durable is gone."""
    judge_part(session, _transient_exchange, PARTS, ENDINGS)


def _published(session: AmqpSession, server: OwnServer, label: str, **properties: int) -> str:
    """The name of a durable queue with three messages m1, m2 and m3, each confirmed."""
    stage = session.stage_on(server)
    queue = stage.queue(label)
    for body in MESSAGES:
        stage.publish(queue, body, properties)
    return queue


def _persistent(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    queue = _published(session, server, "PERSISTENT", **PERSISTENT)
    yield
    found = {body for body, _ in _bodies(session, server, queue)}
    session.require(
        found == set(MESSAGES),
        "the messages after the restart are not those that were confirmed",
        expected=_shown(MESSAGES),
        actual=_shown(sorted(found)),
    )


@verifies("AMQP-DURABILITY-004", source=GUARANTEED, shares=RESTARTS)
def test_persistent_messages_outlive_the_broker(session: AmqpSession) -> None:
    """After a restart persistent messages of a durable queue that were confirmed are there."""
    judge_part(session, _persistent, PARTS, ENDINGS)


def _order(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    stage = session.stage_on(server)
    queue = stage.queue("ORDER")
    bodies = [b"m%02d" % number for number in range(1, ORDERED + 1)]
    for body in bodies:
        stage.publish(queue, body, PERSISTENT)
    yield
    found = [body for body, _ in _bodies(session, server, queue)]
    if len(found) < 2:
        raise Untestable("no two messages are left whose order could be judged", actual=_shown(found))
    session.require(
        found == sorted(found),
        "the messages are in another order after the restart",
        expected=_shown(sorted(found)),
        actual=_shown(found),
    )


@verifies("AMQP-DURABILITY-011", source="AMQP 0-9-1, section 4.7", shares=RESTARTS)
def test_messages_are_in_order_after_a_restart(session: AmqpSession) -> None:
    """After a restart the messages of a queue are in their order."""
    judge_part(session, _order, PARTS, ENDINGS)


def _transient(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    yield from _gone(session, server, "TRANSIENT", delivery_mode=1)


def _unmarked(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    yield from _gone(session, server, "UNMARKED")


def _gone(session: AmqpSession, server: OwnServer, label: str, **properties: int) -> Iterator[None]:
    queue = _published(session, server, label, **properties)
    yield
    found = [body for body, _ in _bodies(session, server, queue)]
    session.require(
        not found, "transient messages are there after the restart", expected="none", actual=_shown(found)
    )


@verifies("AMQP-DURABILITY-006", source=DELIVERY_MODE, shares=RESTARTS)
def test_transient_messages_go_with_the_broker(session: AmqpSession) -> None:
    """After a restart messages with delivery_mode 1 are gone."""
    judge_part(session, _transient, PARTS, ENDINGS)


@verifies("AMQP-DURABILITY-007", source=DELIVERY_MODE, shares=RESTARTS)
def test_messages_without_delivery_mode_go_with_the_broker(session: AmqpSession) -> None:
    """After a restart messages without delivery_mode are gone."""
    judge_part(session, _unmarked, PARTS, ENDINGS)


def _delivered(session: AmqpSession, server: OwnServer, queue: str) -> AmqpConnection:
    """A client to which the first two messages of ``queue`` are delivered; it acknowledges the second."""
    client = session.connect_to(server, "consumer")
    client.call("basic.qos", 1, prefetch_count=2)
    client.send(Method.make("basic.consume", 1, queue=queue, consumer_tag="c"))
    client.expect("basic.consume-ok")
    client.expect("basic.deliver", redelivered=False, body=MESSAGES[0])
    second = client.expect("basic.deliver", redelivered=False, body=MESSAGES[1])
    client.call("basic.cancel", 1, consumer_tag="c")
    client.send(Method.make("basic.ack", 1, delivery_tag=second.arguments["delivery_tag"]))
    client.flush()
    return client


def _acknowledged(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    queue = _published(session, server, "ACKED", **PERSISTENT)
    _delivered(session, server, queue)
    yield
    found = [body for body, _ in _bodies(session, server, queue)]
    session.require(
        MESSAGES[1] not in found,
        "an acknowledged message is there after the restart",
        expected=f"no {_shown(MESSAGES[1:2])}",
        actual=_shown(found),
    )


@verifies("AMQP-DURABILITY-008", source=ACKNOWLEDGED, shares=RESTARTS)
def test_acknowledged_messages_do_not_come_back(session: AmqpSession) -> None:
    """After a restart a message that was acknowledged is gone."""
    judge_part(session, _acknowledged, PARTS, ENDINGS)


def _redelivered(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    queue = _published(session, server, "AGAIN", **PERSISTENT)
    _delivered(session, server, queue)
    yield
    found = {body: again for body, again in _bodies(session, server, queue) if body != MESSAGES[1]}
    if not found:
        raise Untestable("no message is left that could be redelivered", actual="none")
    expected = {body: body == MESSAGES[0] for body in found}
    session.require(
        found == expected,
        "redelivered is set otherwise after the restart",
        expected=str(expected),
        actual=str(found),
    )


@verifies("AMQP-DURABILITY-009", source=REQUEUED, shares=RESTARTS)
def test_redelivered_after_a_restart(session: AmqpSession) -> None:
    """After a restart redelivered is set of messages that were delivered before, and of no others."""
    judge_part(session, _redelivered, PARTS, ENDINGS)


def _shown(bodies: Sequence[bytes]) -> str:
    return " ".join(body.decode("utf-8", "replace") for body in bodies) or "none"


def _told(session: AmqpSession, server: OwnServer) -> Iterator[None]:
    client = session.connect_to(server, "witness")
    client.call("basic.qos", 1)
    yield
    close = None  # A server that was stopped on purpose need not answer: an end without a word is evidence.
    with suppress(ConnectionClosed):
        close = client.take(within=5.0)
    arguments = close.arguments if isinstance(close, Method) else {}
    named = tuple(arguments.get(name) for name in ("reply_code", "class_id", "method_id"))
    session.require(
        close is not None and close.method == "connection.close" and named == (320, 0, 0),
        "a client is not notified of the end",
        expected="[0] connection.close reply_code=320 class_id=0 method_id=0",
        actual=str(close or "the connection ended"),
    )


@verifies(
    "AMQP-CONN-043",
    "AMQP-ERRORS-002",
    source="AMQP 0-9-1, section 1.2, connection-forced",
    shares=RESTARTS,
)
def test_clients_are_told_of_the_end(session: AmqpSession) -> None:
    """A broker that is stopped in order sends connection.close 320 to its clients."""
    judge_part(session, _told, PARTS, ENDINGS)


def _crash(session: AmqpSession, server: OwnServer) -> Iterator[None]:
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


@verifies(
    "AMQP-DURABILITY-014",
    source="AMQP 0-9-1 XML, queue.delete, exchange.delete, queue.unbind",
    shares=RESTARTS,
)
def test_what_was_deleted_stays_deleted(session: AmqpSession) -> None:
    """After a restart deleted queues, exchanges and bindings are gone, also of what was declared anew."""
    judge_part(session, deleted_things, PARTS, ENDINGS)


@verifies("AMQP-DURABILITY-015", source=ACKNOWLEDGED, shares=RESTARTS)
def test_messages_that_left_do_not_come_back(session: AmqpSession) -> None:
    """After a restart messages that were consumed, got, settled for good or purged are gone."""
    judge_part(session, messages_that_left, PARTS, ENDINGS)


@verifies(
    "AMQP-DURABILITY-015",
    source='RabbitMQ, "Dead Letter Exchanges"; RabbitMQ, "Queue Length Limit"',
    shares=RESTARTS,
)
def test_messages_die_once(session: AmqpSession) -> None:
    """After a restart messages that expired or were dropped are not in their queue, and died once."""
    judge_part(session, dead_letters, PARTS, ENDINGS)


@verifies(
    "AMQP-DURABILITY-016",
    source='AMQP 0-9-1 XML, queue.declare, parameter durable; RabbitMQ, "Queues"',
    shares=RESTARTS,
)
def test_durable_things_are_as_they_were_declared(session: AmqpSession) -> None:
    """After a restart durable queues, exchanges and bindings have the arguments and flags they had."""
    judge_part(session, declared_things, PARTS, ENDINGS)


@verifies("AMQP-DURABILITY-017", source="AMQP 0-9-1 XML, queue.declare, parameter exclusive", shares=RESTARTS)
def test_exclusive_queue_goes_with_the_broker(session: AmqpSession) -> None:
    """After a restart, and after a crash, an exclusive queue is gone, though it was declared durable."""
    judge_part(session, exclusive_queue, PARTS, ENDINGS)


PARTS = (
    _durable_queue,
    _transient_queue,
    _durable_exchange,
    _transient_exchange,
    _persistent,
    _order,
    _transient,
    _unmarked,
    _acknowledged,
    _redelivered,
    _told,
    deleted_things,
    messages_that_left,
    dead_letters,
    declared_things,
    exclusive_queue,
    *KEPT_PARTS,
    _crash,  # comes last: the server is to be killed at once
)
ENDINGS = (OwnServer.stop, OwnServer.kill)
