"""Updates of consumers that take arithmetic. docs.nats.io, "Consumers"."""

from __future__ import annotations

import time

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.session import NatsSession
from plumbline.wire.nats import Msg, Sub

LARGEST, SIZE, MESSAGES = 20_000, 10_000, 6
RATE = 100_000  # bytes a second


@verifies("JS-CONS-154", source='docs.nats.io, "Consumers", "Push-specific", "RateLimit"')
def test_an_update_of_the_rate_holds(session: NatsSession) -> None:
    """A consumer that was made without rate_limit_bps keeps the one that an update gives it."""
    subject, pushed = session.name("p"), session.inbox()
    stream = session.stage.stream("P", [subject], max_msg_size=LARGEST)
    for _ in range(MESSAGES):
        session.stage.publish(subject, b"x" * SIZE)
    session.stage.consumer(stream, "PUSH", deliver_subject=pushed)
    session.stage.consumer(stream, "PUSH", deliver_subject=pushed, rate_limit_bps=8 * RATE)
    client = session.connect()
    began = time.monotonic()
    client.send(Sub.make(pushed, 1))
    for _ in range(MESSAGES):
        client.expect(Msg, subject=subject)
    took = time.monotonic() - began
    least = (MESSAGES * SIZE - LARGEST) / RATE
    session.require(
        took >= 0.9 * least,
        "faster than its new rate",
        expected=f"{MESSAGES} messages of {SIZE} bytes in {least:g} s at least",
        actual=f"{took:.3f} s",
    )
