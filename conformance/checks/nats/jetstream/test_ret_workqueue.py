"""Retention of work queues, where a server has a choice. The JetStream deep dive."""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed
from plumbline.wire.nats import Msg, Pub, Sub
from plumbline.wire.nats.jetstream import ApiError, PullRequest, next_subject

REQUIRES_EXPLICIT_ACK = 10098
MESSAGES = 4
EXPIRES_NS = 3_000_000_000


@verifies("JS-RET-030", source='JetStream Model Deep Dive, "Stream Limits, Retention, and Policy"')
def test_ack_all_on_a_work_queue(session: NatsSession) -> None:
    """A work queue refuses ack_policy all and keeps its messages, or removes all up to the acknowledged."""
    stage = session.stage
    subject, consumer = session.name("w"), session.name("all")
    stream = stage.stream("W", [subject], retention="workqueue")
    for number in range(1, MESSAGES + 1):
        stage.publish(subject, b"%d" % number)
    config = {"durable_name": consumer, "ack_policy": "all"}
    body = {"stream_name": stream, "config": config}
    refusal = ApiError.of(stage.answer("CONSUMER.DURABLE.CREATE", stream, consumer, body=body))
    if refusal is not None:
        if refusal.err_code != REQUIRES_EXPLICIT_ACK:
            raise Failed(
                "the consumer is refused for another reason",
                expected=f"err_code {REQUIRES_EXPLICIT_ACK}, or the consumer",
                actual=str(refusal),
            )
        stage.expect_stream(stream, messages=MESSAGES, first_seq=1, last_seq=MESSAGES)
        return
    stage.await_consumer(stream, consumer, num_pending=MESSAGES)
    client, inbox, reply = session.connect(), session.inbox(), session.inbox("reply")
    pull = PullRequest(batch=MESSAGES, expires=EXPIRES_NS).encode()
    client.send(Sub.make(inbox, 1), Sub.make(reply, 2), Pub.make(next_subject(stream, consumer), pull, inbox))
    acks = [client.expect(Msg, subject=subject).reply or "" for _ in range(MESSAGES)]
    client.send(Pub.make(acks[-2], b"+ACK", reply))
    client.expect(Msg, subject=reply, payload=b"")
    stage.expect_stream(stream, messages=1, first_seq=MESSAGES, last_seq=MESSAGES)
