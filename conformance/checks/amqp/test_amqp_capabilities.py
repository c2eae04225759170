"""AMQP: what a broker can do is what it claims in connection.start.

RabbitMQ, "Protocol Extensions". The check of a capability first sees whether the broker does what it stands
for. If not, there is nothing to claim, and the check is unsupported.
"""

from __future__ import annotations

from plumbline.conformance.amqp.connection import AmqpConnection
from plumbline.conformance.amqp.handshake import start_ok
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.checks.amqp.amqp_opening import ENDS_WITHIN_S, greeted
from plumbline.conformance.checks.amqp.test_amqp_opening import needs_password
from plumbline.conformance.outcomes import Unsupported
from plumbline.conformance.sessions.connection import ConnectionClosed
from plumbline.wire.amqp import Method, Operation

CANCELLED = 'RabbitMQ, "Consumer Cancel Notification"'
EXTENSIONS = 'RabbitMQ, "Protocol Extensions"'
WITHIN_S = 5.0
SILENT_S = 0.3
REPLY_TO = "amq.rabbitmq.reply-to"


def expect_claimed(session: AmqpSession, capability: str) -> None:
    """connection.start claims it."""
    start = greeted(session, "witness")[1]
    capabilities = start.arguments["server_properties"].get("capabilities") or {}
    session.require(
        capabilities.get(capability) is True,
        f"the server has {capability} and does not claim it",
        expected=f"{capability} true in the capabilities of connection.start",
        actual=f"{capability} {capabilities.get(capability, 'is not there')}",
    )


def answer_to(client: AmqpConnection, request: Method, *methods: str) -> Operation:
    """One of ``methods``. Raises ``Unsupported`` if the server answers in another way, or ends."""
    client.send(request)
    try:
        answer = client.take(WITHIN_S)
    except ConnectionClosed:
        raise Unsupported(f"the server ends the connection at {request.method}") from None
    if not isinstance(answer, Method) or answer.method not in methods:
        raise Unsupported(f"the server does not carry out {request.method}: {answer or 'no answer'}")
    return answer


@verifies("AMQP-CONN-054", source=EXTENSIONS)
def test_confirms_are_claimed(session: AmqpSession) -> None:
    """A server that answers confirm.select claims publisher_confirms."""
    answer_to(session.connect(), Method.make("confirm.select", 1), "confirm.select-ok")
    expect_claimed(session, "publisher_confirms")


@verifies("AMQP-CONN-054", source=EXTENSIONS)
def test_exchange_bindings_are_claimed(session: AmqpSession) -> None:
    """A server that answers exchange.bind claims exchange_exchange_bindings."""
    source, destination = (session.stage.exchange(label, type="fanout") for label in ("FROM", "TO"))
    bind = Method.make("exchange.bind", 1, source=source, destination=destination)
    answer_to(session.connect(), bind, "exchange.bind-ok")
    expect_claimed(session, "exchange_exchange_bindings")


@verifies("AMQP-CONN-054", source=EXTENSIONS)
def test_nack_is_claimed(session: AmqpSession) -> None:
    """A server that takes a message back by basic.nack claims basic.nack."""
    queue = session.stage.queue("ORDERS")
    session.stage.publish(queue, b"m1")
    client = session.connect()
    got = client.call("basic.get", queue=queue)
    client.send(Method.make("basic.nack", 1, delivery_tag=got.arguments["delivery_tag"], requeue=True))
    answer_to(client, Method.make("basic.get", 1, queue=queue), "basic.get-ok")
    expect_claimed(session, "basic.nack")


@verifies("AMQP-CONN-054", source=CANCELLED)
def test_cancel_notifications_are_claimed(session: AmqpSession) -> None:
    """A server that sends basic.cancel when a queue is deleted claims consumer_cancel_notify."""
    queue = session.stage.queue("ORDERS")
    client = session.connect()
    client.call("basic.consume", queue=queue, consumer_tag="c")
    session.stage.delete("queue", queue)
    if (cancel := client.take(WITHIN_S)) is None or cancel.method != "basic.cancel":
        raise Unsupported(f"the server does not send basic.cancel: {cancel or 'nothing'}")
    expect_claimed(session, "consumer_cancel_notify")


@verifies("AMQP-CONN-054", source='RabbitMQ, "Consumer Priorities"')
def test_consumer_priorities_are_claimed(session: AmqpSession) -> None:
    """A server that prefers the consumer with the higher x-priority, on each channel and whether it came
    first or last, claims consumer_priorities."""
    client = session.connect()
    for label, priorities in (("LAST", {1: 0, 2: 10}), ("OTHER", {2: 0, 1: 10}), ("FIRST", {1: 10, 2: 0})):
        queue = session.stage.queue(label)
        for channel, priority in priorities.items():
            client.call("basic.consume", channel, queue=queue, arguments={"x-priority": priority})
        preferred = max(priorities, key=priorities.__getitem__)
        for number in (1, 2, 3):
            session.stage.publish(queue, b"m%d" % number)
            delivery = client.take(WITHIN_S)
            if delivery is None or delivery.method != "basic.deliver" or delivery.channel != preferred:
                raise Unsupported(f"the consumer with the higher priority is not preferred: {delivery}")
    expect_claimed(session, "consumer_priorities")


@verifies("AMQP-CONN-054", source='RabbitMQ, "Authentication Failure Notifications"')
def test_authentication_failures_are_claimed(session: AmqpSession) -> None:
    """A server that reports wrong credentials by connection.close claims authentication_failure_close."""
    needs_password(session)
    client, _ = greeted(session)
    wrong = {"password": "wrong", "capabilities": {"authentication_failure_close": True}}
    client.send(start_ok(session.url(None), wrong))
    try:
        answer = client.take(ENDS_WITHIN_S)
    except ConnectionClosed:
        answer = None
    if answer is None or answer.method != "connection.close":
        raise Unsupported(f"the server does not tell of wrong credentials: {answer or 'no answer'}")
    expect_claimed(session, "authentication_failure_close")


@verifies("AMQP-CONN-054", source='RabbitMQ, "Consumer Prefetch"')
def test_prefetch_of_consumers_is_claimed(session: AmqpSession) -> None:
    """A server whose prefetch without global is each consumer's own claims per_consumer_qos."""
    queue = session.stage.queue("ORDERS")
    for body in (b"m1", b"m2"):
        session.stage.publish(queue, body)
    client = session.connect()
    client.call("basic.qos", prefetch_count=1)
    for tag in ("a", "b"):
        client.send(Method.make("basic.consume", 1, queue=queue, consumer_tag=tag))
        client.expect("basic.consume-ok", consumer_tag=tag)
        if (delivery := client.take(SILENT_S)) is None or delivery.method != "basic.deliver":
            raise Unsupported("the prefetch is one of the channel: its second consumer gets nothing")
    expect_claimed(session, "per_consumer_qos")


@verifies("AMQP-CONN-054", source='RabbitMQ, "Direct Reply-to"')
def test_direct_replies_are_claimed(session: AmqpSession) -> None:
    """A server that delivers a reply to a client that has no queue for it claims direct_reply_to."""
    queue = session.stage.queue("REQUESTS")
    client = session.connect()
    consume = Method.make("basic.consume", 1, queue=REPLY_TO, no_ack=True)
    answer_to(client, consume, "basic.consume-ok")
    client.send(
        Method.make("basic.publish", 1, routing_key=queue, properties={"reply_to": REPLY_TO}, body=b"request")
    )
    request = answer_to(client, Method.make("basic.get", 1, queue=queue, no_ack=True), "basic.get-ok")
    assert isinstance(request, Method)
    address = (request.properties or {}).get("reply_to", "")
    reply = Method.make("basic.publish", 1, routing_key=address, body=b"reply")
    answer_to(client, reply, "basic.deliver")
    expect_claimed(session, "direct_reply_to")
