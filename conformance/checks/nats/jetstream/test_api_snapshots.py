"""Snapshots of streams, sent in pieces, and streams that are restored from them.

docs.nats.io, "Disaster Recovery": a snapshot has the stream, its durable consumers and all messages.
"""

from __future__ import annotations

import json
from typing import Any

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.jetstream.api_answers import (
    Answer,
    accepted,
    field,
    object_in,
    refused,
    shows,
)
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed, Unsupported
from plumbline.wire.nats import HMsg, Msg, Pub, Sub
from plumbline.wire.nats.jetstream import ApiError, PullRequest, next_subject

SOURCE = 'docs.nats.io, "Disaster Recovery", "Manual Recovery"'
MOST_PIECES = 1000
PIECE_WITHIN_S = 2.0
REFUSED = (500, 10064)  # of a server that cannot do it for this storage


@verifies("JS-API-172", source='docs.nats.io, "JetStream wire API Reference"')
def test_a_snapshot_begins_with_configuration_and_state(session: NatsSession) -> None:
    """STREAM.SNAPSHOT is answered with config and state, or refused for this storage."""
    subject = session.name("s")
    stream = session.stage.stream("S", [subject])
    session.stage.publish(subject, b"m1")
    answer, _ = _snapshot(session, stream)
    if ApiError.of(answer) is not None:
        refused(session, answer, *REFUSED, what="a snapshot")
        return
    shows(session, answer, "type", "io.nats.jetstream.api.v1.stream_snapshot_response")
    shows(session, answer, "config.name", stream)
    shows(session, answer, "state.messages", 1)


@verifies("JS-API-199", source=SOURCE)
def test_a_restored_stream_has_its_messages(session: NatsSession) -> None:
    """What STREAM.RESTORE makes of a snapshot has the messages that were there, and goes on behind them."""
    first, second = session.name("s") + ".a", session.name("s") + ".b"
    stream = session.stage.stream("S", [session.name("s") + ".*"], storage="file")
    session.stage.publish(first, b"before")
    session.stage.publish(first, b"one", [("Kind", "new")])
    session.stage.publish(second, b"two")
    session.stage.publish(first, b"")
    session.stage.api("STREAM.PURGE", stream, body={"seq": 2})
    stored = [_message(session, stream, seq) for seq in (2, 3, 4)]
    answer = _restored(session, stream)
    shows(session, answer, "config.name", stream)
    for name, value in (("messages", 3), ("first_seq", 2), ("last_seq", 4)):
        shows(session, answer, f"state.{name}", value)
    for message in stored:
        shows(
            session,
            session.stage.answer("STREAM.MSG.GET", stream, body={"seq": message["seq"]}),
            "message",
            message,
        )
    pub_ack = session.stage.publish(second, b"after")
    session.require(
        pub_ack.get("seq") == 5, "the next sequence is another", expected="seq: 5", actual=json.dumps(pub_ack)
    )


@verifies("JS-API-200", source=SOURCE)
def test_a_restored_stream_has_its_durable_consumers(session: NatsSession) -> None:
    """A durable consumer of a stream that is restored goes on behind what it had acknowledged."""
    subject = session.name("s")
    stream = session.stage.stream("S", [subject], storage="file")
    consumer = session.stage.consumer(stream, "C")
    for payload in (b"one", b"two", b"three"):
        session.stage.publish(subject, payload)
    session.stage.await_consumer(stream, consumer, num_pending=3)
    client = session.connect()
    client.send(Sub.make(session.inbox(), 1), Pub.make(next_subject(stream, consumer), b"1", session.inbox()))
    delivered = client.expect(Msg, subject=subject, payload=b"one")
    client.send(Pub.make(delivered.reply or "", b"+ACK"))
    session.stage.await_consumer(stream, consumer, ack_floor="1/1", num_ack_pending=0)
    _restored(session, stream)
    shows(session, session.stage.answer("CONSUMER.INFO", stream, consumer), "name", consumer)
    session.stage.expect_consumer(stream, consumer, ack_floor="1/1", num_ack_pending=0, num_pending=2)
    body = PullRequest(batch=2, expires=2_000_000_000).encode()
    client.send(Pub.make(next_subject(stream, consumer), body, session.inbox()))
    for payload in (b"two", b"three"):
        client.expect(Msg, subject=subject, payload=payload)


def _snapshot(session: NatsSession, stream: str) -> tuple[Answer, list[bytes]]:
    """The answer of STREAM.SNAPSHOT, and the pieces that follow it if it is no error."""
    pieces = session.inbox("pieces")
    client = session.connect("snapshot")
    client.send(Sub.make(pieces, 1))
    client.flush()
    answer = session.stage.answer("STREAM.SNAPSHOT", stream, body={"deliver_subject": pieces})
    found: list[bytes] = []
    while ApiError.of(answer) is None and len(found) < MOST_PIECES:
        piece = client.arrival(PIECE_WITHIN_S, "a piece of the snapshot, or its end").operation
        if not isinstance(piece, Msg | HMsg) or not piece.payload:
            break
        found.append(piece.payload)
        if piece.reply is not None:
            client.send(Pub.make(piece.reply, b""))
    return answer, found


def _restored(session: NatsSession, stream: str) -> Answer:
    """The last answer of STREAM.RESTORE: a snapshot is made, the stream deleted, and the snapshot restored.

    Raises ``Unsupported`` if the server makes no snapshot.
    """
    snapshot, pieces = _snapshot(session, stream)
    error = ApiError.of(snapshot)
    if error is not None and (error.code, error.err_code) == REFUSED:
        raise Unsupported(f"the server makes no snapshot of this stream: {error}")
    body = {"config": field(snapshot, "config"), "state": field(snapshot, "state")}
    session.stage.api("STREAM.DELETE", stream)
    answer = session.stage.answer("STREAM.RESTORE", stream, body=body)
    receiver = field(answer, "deliver_subject")
    if not isinstance(receiver, str):
        raise Failed("no deliver_subject", expected="deliver_subject: a subject", actual=json.dumps(answer))
    client, answers = session.connect("restore"), session.inbox("restore")
    client.send(Sub.make(answers, 1))
    for piece in pieces:
        client.send(Pub.make(receiver, piece, answers))
        reply = client.expect(Msg)
        if reply.payload:
            raise Failed("a piece is refused", expected="an empty answer", actual=str(reply))
    client.send(Pub.make(receiver, b"", answers))
    last = object_in(client.expect(Msg), "the stream")
    accepted(last, "the snapshot")
    return last


def _message(session: NatsSession, stream: str, seq: int) -> dict[str, Any]:
    message = field(session.stage.answer("STREAM.MSG.GET", stream, body={"seq": seq}), "message")
    assert isinstance(message, dict)
    return message
