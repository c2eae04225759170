"""AMQP: what basic.return looks like in frames."""

from __future__ import annotations

from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.checks.amqp.amqp_answers import FRAME_MAX
from plumbline.wire.amqp import FRAME_OVERHEAD, Method


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
