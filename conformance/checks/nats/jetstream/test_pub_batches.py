"""Atomic batches, where time passes. ADR-50, "Atomic Batch Publishing"."""

from __future__ import annotations

import json

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.session import NatsSession

LESS_S = 6.0  # of the 10 seconds after which a batch is abandoned; twice as much is more than them
INCOMPLETE = 10176


@verifies("JS-PUB-075", source='ADR-50, "Atomic Batch Publishing"', since="2.12", is_long=True)
def test_an_idle_batch_is_abandoned(session: NatsSession) -> None:
    """A batch without a message for 12 s cannot be committed; one that had a message after 6 s can be."""
    session.needs("headers")
    stage, subject = session.stage, session.name("s")
    stream = stage.stream("S", [subject], allow_atomic=True)

    def sent(batch: str, sequence: int, *, last: bool = False) -> bytes:
        headers = [("Nats-Batch-Id", batch), ("Nats-Batch-Sequence", str(sequence))]
        return stage.request(subject, batch.encode(), headers + [("Nats-Batch-Commit", "1")] * last).payload

    sent("idle", 1)
    sent("busy", 1)
    session.pause(LESS_S)
    sent("busy", 2)
    session.pause(LESS_S)
    idle, busy = json.loads(sent("idle", 2, last=True)), json.loads(sent("busy", 3, last=True))
    err_code = idle.get("error", {}).get("err_code")
    session.require(
        err_code == INCOMPLETE,
        "the idle batch is not abandoned",
        expected=f"err_code {INCOMPLETE}",
        actual=json.dumps(idle),
    )
    session.require(
        busy.get("count") == 3, "the other batch is not stored", expected="count 3", actual=json.dumps(busy)
    )
    stage.expect_stream(stream, messages=3)
