"""AMQP: quorum queues, where the server has them."""

from __future__ import annotations

from typing import Any

from plumbline.conformance.amqp.connection import AmqpConnection
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.checks.amqp.amqp_answers import expect_refusal
from plumbline.conformance.outcomes import Unsupported, Untestable
from plumbline.wire.amqp import Method

SOURCE = 'RabbitMQ, "Quorum Queues"'
QUORUM = {"x-queue-type": "quorum"}


def quorum_queue(session: AmqpSession, label: str, **arguments: Any) -> str:
    """The name of a new quorum queue. Raises ``Unsupported`` with the server's refusal."""
    table = {**QUORUM, **{f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}}
    try:
        return session.stage.queue(label, arguments=table)
    except Untestable as refused:
        if ".close reply_code=" not in refused.actual:
            raise
        raise Unsupported(f"queue.declare with x-queue-type quorum is refused: {refused.actual}") from None


def got(session: AmqpSession, client: AmqpConnection, queue: str, **expected: Any) -> Method:
    """The next message of ``queue``, once it is ready."""
    session.stage.await_queue(queue, message_count=1)
    client.send(Method.make("basic.get", 1, queue=queue))
    return client.expect("basic.get-ok", **expected)


@verifies("AMQP-DLX-004", source=SOURCE)
def test_message_that_is_returned_too_often_is_dead_lettered(session: AmqpSession) -> None:
    """With x-delivery-limit N a message is delivered N+1 times, and then dead-lettered as delivery_limit."""
    for limit in (1, 3):
        _require_deliveries(session, limit)


def _require_deliveries(session: AmqpSession, limit: int) -> None:
    """So many and one more."""
    morgue = session.stage.queue(f"MORGUE-{limit}")
    letters = {"dead_letter_exchange": "", "dead_letter_routing_key": morgue}
    orders = quorum_queue(session, f"ORDERS-{limit}", delivery_limit=limit, **letters)
    session.stage.publish(orders, b"m1")
    client = session.connect(f"of limit {limit}")
    for delivery in range(limit + 1):
        message = got(session, client, orders, redelivered=delivery > 0, body=b"m1")
        tag = message.arguments["delivery_tag"]
        client.send(Method.make("basic.reject", 1, delivery_tag=tag, requeue=True))
    dead = got(session, client, morgue, body=b"m1")
    deaths = (dead.properties or {}).get("headers", {}).get("x-death", [])
    session.require(
        [death.get("reason") for death in deaths] == ["delivery_limit"],
        "x-death does not tell why",
        expected="one death, reason delivery_limit",
        actual=str(deaths),
    )


@verifies("AMQP-DLX-005", source=SOURCE)
def test_deliveries_are_counted(session: AmqpSession) -> None:
    """A message that a quorum queue delivers again has redelivered set and its deliveries counted."""
    orders = quorum_queue(session, "ORDERS")
    session.stage.publish(orders, b"m1")
    client = session.connect()
    for before in range(4):
        message = got(session, client, orders, redelivered=before > 0)
        headers = (message.properties or {}).get("headers") or {}
        session.require(
            headers.get("x-delivery-count", 0) == before,
            "the deliveries are not counted",
            expected=f"x-delivery-count {before}" if before else "no x-delivery-count, or 0",
            actual=str(headers),
        )
        tag = message.arguments["delivery_tag"]
        client.send(Method.make("basic.reject", 1, delivery_tag=tag, requeue=True))


@verifies("AMQP-DLX-006", source=SOURCE)
def test_no_global_prefetch(session: AmqpSession) -> None:
    """Consuming a quorum queue on a channel with a global prefetch is connection error 540."""
    orders = quorum_queue(session, "ORDERS")
    client = session.connect()
    client.call("basic.qos", 1, prefetch_count=5, global_=True)
    expect_refusal(session, client, Method.make("basic.consume", 1, queue=orders, consumer_tag="c"), 540)


@verifies("AMQP-DLX-019", source=f'{SOURCE}, "Feature Matrix"')
def test_quorum_queues_are_not_exclusive(session: AmqpSession) -> None:
    """An exclusive quorum queue is refused with 406, and is not there."""
    quorum_queue(session, "ORDERS")
    client = session.connect()
    queue = session.name("MINE")
    client.send(Method.make("queue.declare", 1, queue=queue, durable=True, exclusive=True, arguments=QUORUM))
    client.expect("channel.close", reply_code=406, class_id=50, method_id=10)
    client.send(Method.make("channel.close-ok", 1))
    session.stage.expect_queue(queue, exists=False)


@verifies("AMQP-DLX-007", source=SOURCE)
def test_quorum_queues_are_durable_and_named(session: AmqpSession) -> None:
    """A quorum queue that is not durable, or has no name, is refused with 406."""
    quorum_queue(session, "ORDERS")
    client = session.connect()
    for channel, queue, durable in ((1, session.name("SHORT"), False), (2, "", True)):
        client.send(Method.make("queue.declare", channel, queue=queue, durable=durable, arguments=QUORUM))
        client.expect("channel.close", channel, reply_code=406, class_id=50, method_id=10)
        client.send(Method.make("channel.close-ok", channel))
