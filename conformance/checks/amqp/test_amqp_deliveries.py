"""AMQP: how delivery tags grow, and what comes to who reads late. That tags grow by one is a trace."""

from __future__ import annotations

from itertools import pairwise

from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.wire.amqp import Method

LARGE = 1024 * 1024  # bytes of a message
LARGE_MESSAGES = 6  # more than a broker and two sockets keep for who does not read
SMALL_MESSAGES = 20


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


@verifies("AMQP-CONSUME-039", source="AMQP 0-9-1, section 4.7")
def test_late_reader_gets_everything_in_order(session: AmqpSession) -> None:
    """A consumer that reads nothing while megabytes come for it gets every message afterwards, in order."""
    queue = session.stage.queue("ORDERS")
    client = session.connect()
    client.call("basic.consume", queue=queue, consumer_tag="c", no_ack=True)
    client.stop_reading()
    for number in range(LARGE_MESSAGES):
        session.stage.publish(queue, b"%03d" % number + bytes(LARGE))
    for number in range(LARGE_MESSAGES, LARGE_MESSAGES + SMALL_MESSAGES):
        session.stage.publish(queue, b"%03d" % number)
    client.resume_reading()
    for number in range(LARGE_MESSAGES + SMALL_MESSAGES):
        delivery = client.expect("basic.deliver", within=10)
        session.require(
            delivery.body[:3] == b"%03d" % number,
            "another message came",
            expected=f"message {number}",
            actual=repr(delivery.body[:3]),
        )
    session.stage.expect_queue(queue, message_count=0)


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
