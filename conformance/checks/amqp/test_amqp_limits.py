"""AMQP: how large, how many."""

from __future__ import annotations

from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.checks.amqp.amqp_answers import FRAME_MAX, expect_refusal
from plumbline.wire.amqp import Method

LARGE = bytes(range(250)) * 1200  # 300000 bytes
CONSUMERS = 20
QUEUES, EXCHANGES = 256, 16
UNACKNOWLEDGED = 2500
PUBLISHED_WITHIN_S = 60.0  # on a busy machine; they are mostly there within one


@verifies("AMQP-LIMITS-003", source="AMQP 0-9-1, section 4.2.5.3")
def test_consumer_tag_of_255_octets(session: AmqpSession) -> None:
    """A consumer tag of 255 octets comes back whole in basic.consume-ok and basic.deliver."""
    queue, tag = session.stage.queue("ORDERS"), "t" * 255
    client = session.connect()
    client.send(Method.make("basic.consume", 1, queue=queue, consumer_tag=tag, no_ack=True))
    client.expect("basic.consume-ok", consumer_tag=tag)
    client.send(Method.make("basic.publish", 1, routing_key=queue, body=b"m1"))
    client.expect("basic.deliver", consumer_tag=tag, body=b"m1")


@verifies("AMQP-LIMITS-004", source="AMQP 0-9-1, section 4.2.6")
def test_message_in_several_frames(session: AmqpSession) -> None:
    """300000 bytes pass through frames of 8192 octets, unchanged, and no frame is larger."""
    queue = session.stage.queue("ORDERS")
    client = session.connect(frame_max=FRAME_MAX)
    client.call("confirm.select", 1)
    client.send(Method.make("basic.publish", 1, routing_key=queue, body=LARGE))
    client.expect("basic.ack", delivery_tag=1, within=5)
    client.send(Method.make("basic.get", 1, queue=queue, no_ack=True))
    message = client.expect("basic.get-ok", body=LARGE, within=5)
    largest = max(len(payload) + 8 for _, payload in message.frames())
    session.require(
        largest <= FRAME_MAX,
        "a frame is larger than frame_max",
        expected=f"{FRAME_MAX} at most",
        actual=str(largest),
    )


@verifies("AMQP-LIMITS-005", source='AMQP 0-9-1 XML, basic.consume, rule "01"')
def test_consumers_of_one_queue(session: AmqpSession) -> None:
    """Twenty consumers of one channel share a queue."""
    queue = session.stage.queue("ORDERS")
    client = session.connect()
    for number in range(CONSUMERS):
        client.send(Method.make("basic.consume", 1, queue=queue, consumer_tag=f"c{number}"))
        client.expect("basic.consume-ok", consumer_tag=f"c{number}")
    session.stage.expect_queue(queue, consumer_count=CONSUMERS)


@verifies(
    "AMQP-LIMITS-006",
    source='AMQP 0-9-1 XML, queue.declare, rule "01"; exchange.declare, rule "minimum"',
    is_long=True,
)
def test_queues_and_exchanges_of_one_virtual_host(session: AmqpSession) -> None:
    """256 queues and 16 exchanges exist beside each other."""
    client = session.connect()
    queues = [session.name(f"Q{number}") for number in range(QUEUES)]
    exchanges = [session.name(f"E{number}") for number in range(EXCHANGES)]
    client.send(*[Method.make("queue.declare", 1, queue=name, exclusive=True) for name in queues])
    client.send(*[Method.make("exchange.declare", 1, exchange=name, type="fanout") for name in exchanges])
    for name in queues:
        client.expect("queue.declare-ok", queue=name, within=5)
    for _ in exchanges:
        client.expect("exchange.declare-ok", within=5)
    client.send(*[Method.make("queue.declare", 1, queue=name, passive=True) for name in queues])
    for name in queues:
        client.expect("queue.declare-ok", queue=name, within=5)


@verifies("AMQP-LIMITS-007", source="AMQP 0-9-1 XML, connection.tune, parameter channel-max")
def test_as_many_channels_as_channel_max(session: AmqpSession) -> None:
    """With channel_max 200, two hundred channels open and work, and one more does not."""
    client = session.connect(channels="manual", channel_max=200)
    numbers = range(1, 201)
    client.send(*[Method.make("channel.open", number) for number in numbers])
    for number in numbers:
        client.expect("channel.open-ok", number, within=5)
    client.send(*[Method.make("basic.qos", number, prefetch_count=1) for number in numbers])
    for number in numbers:
        client.expect("basic.qos-ok", number, within=5)
    expect_refusal(session, client, Method.make("channel.open", 201), 530, 504)


@verifies("AMQP-LIMITS-008", source='RabbitMQ, "Consumer Acknowledgements and Publisher Confirms"')
def test_many_unacknowledged_messages(session: AmqpSession) -> None:
    """Without a prefetch limit 2500 messages are delivered, none of them acknowledged."""
    queue = session.stage.queue("ORDERS")
    client = session.connect()
    client.call("confirm.select", 1)
    client.send(
        *[Method.make("basic.publish", 1, routing_key=queue, body=b"m") for _ in range(UNACKNOWLEDGED)]
    )
    session.stage.await_queue(queue, message_count=UNACKNOWLEDGED, within=PUBLISHED_WITHIN_S)
    client.send(Method.make("basic.consume", 2, queue=queue, consumer_tag="c"))
    client.expect("basic.consume-ok", 2)
    for _ in range(UNACKNOWLEDGED):
        client.expect("basic.deliver", 2, within=5)
