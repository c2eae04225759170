"""AMQP: how delivery tags grow. That they grow by one is another requirement, and a trace."""

from __future__ import annotations

from itertools import pairwise

from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.wire.amqp import Method


def _require_growing(session: AmqpSession, *deliveries: Method) -> None:
    """Every delivery tag is above 0 and above the one before it."""
    tags = [delivery.arguments["delivery_tag"] for delivery in deliveries]
    session.require(
        all(earlier < later for earlier, later in pairwise((0, *tags))),
        "the delivery tags do not grow",
        expected="tags above 0, each above the one before it",
        actual=", ".join(map(str, tags)),
    )


@verifies(
    "AMQP-CONSUME-004",
    source='RabbitMQ, "Consumer Acknowledgements and Publisher Confirms", "Delivery Tags"',
)
def test_delivery_tags_grow(session: AmqpSession) -> None:
    """Delivery tags grow, for two consumers and a get of one channel together."""
    orders, others = session.stage.queue("ORDERS"), session.stage.queue("OTHERS")
    for queue, body in ((orders, b"a1"), (orders, b"a2"), (others, b"b1"), (others, b"b2")):
        session.stage.publish(queue, body)
    client = session.connect()
    client.call("basic.consume", queue=orders, consumer_tag="a")
    first = client.expect("basic.deliver", consumer_tag="a", body=b"a1")
    second = client.expect("basic.deliver", consumer_tag="a", body=b"a2")
    client.send(Method.make("basic.get", 1, queue=others))
    third = client.expect("basic.get-ok", body=b"b1")
    client.call("basic.consume", queue=others, consumer_tag="b")
    fourth = client.expect("basic.deliver", consumer_tag="b", body=b"b2")
    _require_growing(session, first, second, third, fourth)


@verifies("AMQP-GET-006", source='AMQP 0-9-1 XML, domain "delivery-tag"')
def test_every_get_takes_a_delivery_tag(session: AmqpSession) -> None:
    """Every get takes a delivery tag of its own, also without acknowledgement."""
    queue = session.stage.queue("ORDERS")
    for body in (b"m1", b"m2"):
        session.stage.publish(queue, body)
    client = session.connect()
    client.send(Method.make("basic.get", 1, queue=queue, no_ack=True))
    first = client.expect("basic.get-ok", body=b"m1")
    client.send(Method.make("basic.get", 1, queue=queue))
    second = client.expect("basic.get-ok", body=b"m2")
    _require_growing(session, first, second)
