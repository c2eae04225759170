"""Acknowledgements that need counting, or whose answer may be one of two. ADR-15; the JetStream deep dive."""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.connection import NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.nats.statuses import status_code
from plumbline.conformance.outcomes import Failed
from plumbline.wire.nats import Msg, Pub, Sub
from plumbline.wire.nats.jetstream import AckSubject, PullRequest, next_subject
from plumbline.wire.nats.jetstream.times import parse_time

NS = 1_000_000_000


@verifies("JS-ACK-003", source='ADR-15, "JS Ack"')
def test_the_timestamp_is_the_time_of_storing(session: NatsSession) -> None:
    """The timestamp of the acknowledgement subject is the time the stream stored the message."""
    _, stream, ack = _delivered(session)
    stored = session.stage.api("STREAM.MSG.GET", stream, body={"seq": 1})["message"]["time"]
    timestamp = AckSubject.parse(ack).timestamp
    session.require(
        timestamp == parse_time(stored),
        "the timestamp is not the time of storing",
        expected=f"{parse_time(stored)} (STREAM.MSG.GET: {stored})",
        actual=f"{timestamp} in {ack}",
    )


@verifies("JS-ACK-030", source='ADR-15, "JS Ack" (Token Version 2)')
def test_twelve_tokens_are_accepted_or_refused_with_503(session: NatsSession) -> None:
    """An acknowledgement to 12 tokens is accepted, or leaves the message and is answered 503."""
    client, stream, ack = _delivered(session)
    reply = session.inbox("reply")
    nine = AckSubject.parse(ack)
    consumer = nine.consumer
    twelve = ack.replace("$JS.ACK.", "$JS.ACK._.ACCHASH.") + ".random"
    client.send(Sub.make(reply, 2), Pub.make(twelve, b"+ACK", reply))
    answer = client.arrival(1.0, "an empty message, or 503").operation
    if status_code(answer) == 503:
        session.stage.expect_consumer(stream, consumer, ack_floor="0/0", num_ack_pending=1)
    elif isinstance(answer, Msg) and not answer.payload:
        session.stage.expect_consumer(stream, consumer, ack_floor="1/1", num_ack_pending=0)
    else:
        raise Failed("another answer", expected="an empty message, or 503", actual=str(answer))


@verifies("JS-ACK-034", source="observed, nats-server 2.9.10 and 2.15")
def test_ack_of_a_consumer_without_acks_changes_nothing(session: NatsSession) -> None:
    """An acknowledgement to a consumer with ack_policy none changes nothing."""
    client, stream, ack = _delivered(session, ack_policy="none")
    reply = session.inbox("reply")
    client.send(Sub.make(reply, 2), Pub.make(ack, b"+ACK", reply))
    answer = client.arrival(1.0, "an empty message, or 503").operation
    if not (status_code(answer) == 503 or (isinstance(answer, Msg) and not answer.payload)):
        raise Failed("another answer", expected="an empty message, or 503", actual=str(answer))
    consumer = AckSubject.parse(ack).consumer
    session.stage.expect_consumer(stream, consumer, delivered="1/1", ack_floor="1/1", num_ack_pending=0)


@verifies("JS-SEQ-014", source="observed, nats-server 2.9.10 and 2.15")
def test_floor_of_a_filtered_consumer_lies_before_the_next_unacknowledged_message(
    session: NatsSession,
) -> None:
    """A filtered consumer's floor lies between the acknowledged message and the next delivered one."""
    subject, other = session.name("bar"), session.name("other")
    stream = session.stage.stream("bar", [subject, other])
    consumer = session.stage.consumer(stream, "dur", filter_subject=subject)
    for name in (other, other, subject, other, other, subject):  # 3 and 6 match
        session.stage.publish(name)
    session.stage.await_consumer(stream, consumer, num_pending=2)
    client = session.connect()
    first = _pull(session, client, stream, consumer, batch=2)
    client.expect(Msg, subject=subject)
    reply = session.inbox("reply")
    client.send(Sub.make(reply, 2), Pub.make(first, b"+ACK", reply))
    client.expect(Msg, subject=reply, payload=b"")
    info = session.stage.expect_consumer(stream, consumer, delivered="2/6", num_ack_pending=1)
    floor = info["ack_floor"]
    session.require(
        floor.get("consumer_seq") == 1 and 3 <= floor.get("stream_seq", 0) <= 5,
        "ack_floor is not between the two messages",
        expected="ack_floor 1/3, 1/4 or 1/5",
        actual=f"ack_floor {floor.get('consumer_seq')}/{floor.get('stream_seq')}",
    )


def _delivered(session: NatsSession, **config: object) -> tuple[NatsConnection, str, str]:
    """One message of a fresh stream, delivered: the connection, the stream, the acknowledgement subject."""
    subject = session.name("bar")
    stream = session.stage.stream("bar", [subject])
    consumer = session.stage.consumer(stream, "dur", **config)
    session.stage.publish(subject, b"m1")
    session.stage.await_consumer(stream, consumer, num_pending=1)
    client = session.connect()
    return client, stream, _pull(session, client, stream, consumer, batch=1)


def _pull(session: NatsSession, client: NatsConnection, stream: str, consumer: str, *, batch: int) -> str:
    """Ask for a batch; the acknowledgement subject of its first message."""
    inbox = session.inbox()
    body = PullRequest(batch=batch, expires=3 * NS).encode()
    client.send(Sub.make(inbox, 1), Pub.make(next_subject(stream, consumer), body, inbox))
    return client.expect(Msg, sid="1").reply or ""
