"""Exactly once, from a publisher that fails to a consumer that fails. The JetStream deep dive."""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.jetstream.exactly_once import EndToEnd
from plumbline.conformance.nats.session import NatsSession


@verifies("JS-STORE-023", source='JetStream Model Deep Dive, "Exactly Once Semantics"', is_long=True)
def test_exactly_once_through_lost_acknowledgements_and_crashes(session: NatsSession) -> None:
    """Lost PubAcks, crashes before an ack and before its reply: every message once."""
    run = EndToEnd(session, session.stage, session.connect, storage="memory")
    run.publish(12)
    run.consume(6)
    run.retry()
    run.drain(session.stage)
    run.judge()
