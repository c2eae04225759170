"""AMQP: what basic.return looks like in frames, and when it comes."""

from __future__ import annotations

from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.checks.amqp.amqp_answers import FRAME_MAX
from plumbline.wire.amqp import FRAME_OVERHEAD, Method

GUIDE = 'RabbitMQ, "Consumer Acknowledgements and Publisher Confirms"'
CONFIRMED = f'{GUIDE}, "When Will Published Messages Be Confirmed by the Broker?"'
BURST = 20
WITHIN_S = 10.0


@verifies("AMQP-PUB-007", source="AMQP 0-9-1, section 4.2.3")
def test_returned_bodies_keep_to_frame_max(session: AmqpSession) -> None:
    """A returned body of 20000 octets comes in frames of at most the negotiated 8192 octets."""
    connection = session.connect(frame_max=FRAME_MAX)
    body = b"y" * 20_000
    key = session.name("NOWHERE")
    connection.send(Method.make("basic.publish", 1, routing_key=key, mandatory=True, body=body))
    message = connection.expect("basic.return", body=body)
    largest = max(len(payload) for _, payload in message.frames()) + FRAME_OVERHEAD
    session.require(
        largest <= FRAME_MAX, "a frame is too large", expected=f"{FRAME_MAX} at most", actual=str(largest)
    )


@verifies("AMQP-CONFIRM-015", source=CONFIRMED)
def test_each_return_comes_before_its_ack(session: AmqpSession) -> None:
    """Of a burst of mandatory messages each unroutable one is returned before an ack covers it."""
    queue = session.stage.queue("ORDERS")
    keys = [queue, session.name("NOWHERE")]
    client = session.connect()
    client.call("confirm.select")
    client.send(
        *(
            Method.make("basic.publish", 1, routing_key=keys[tag % 2], mandatory=True, body=b"%d" % tag)
            for tag in range(1, BURST + 1)
        )
    )
    waiting = set(range(1, BURST + 1))
    unreturned = {tag for tag in waiting if tag % 2}
    while waiting:
        operation = client.arrival(WITHIN_S, f"confirms of {len(waiting)} publishes", stream=1).operation
        if operation.method == "basic.return":
            unreturned.discard(int(operation.body))
            continue
        tag, multiple = operation.arguments["delivery_tag"], operation.arguments["multiple"]
        covered = {one for one in waiting if one <= tag} if multiple else {tag}
        early = sorted(covered & unreturned)
        session.require(
            not early, "acked before the return", expected="the return first", actual=f"ack of {early}"
        )
        waiting -= covered
    session.count_observation()
