"""Where consumers start, if it takes the time of a message. docs.nats.io, "Consumers", "DeliverPolicy"."""

from __future__ import annotations

from typing import Any

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Untestable
from plumbline.wire.nats import Msg, Pub, Sub
from plumbline.wire.nats.jetstream import AckSubject, PullRequest, next_subject
from plumbline.wire.nats.jetstream.times import format_time, parse_time

SOURCE = 'docs.nats.io, "Consumers", "DeliverPolicy"'
EXPIRES_NS = 3_000_000_000
MESSAGES = 4


@verifies("JS-CONS-057", source=SOURCE)
def test_a_start_time_between_two_messages(session: NatsSession) -> None:
    """by_start_time just after a message starts with the next one, for a pull and for a push consumer."""
    stream, subject, times = _stored(session)
    after = format_time(times[1] + 1)
    _starts_with(session, stream, subject, 3, opt_start_time=after)


@verifies("JS-CONS-057", source=SOURCE)
def test_a_start_time_before_every_message(session: NatsSession) -> None:
    """by_start_time before the first message starts with it."""
    stream, subject, times = _stored(session)
    _starts_with(session, stream, subject, 1, opt_start_time=format_time(times[0] - 1_000_000_000))


def _stored(session: NatsSession) -> tuple[str, str, list[int]]:
    """A stream with some messages; when each of them was stored."""
    subject = session.name("s")
    stream = session.stage.stream("S", [subject])
    times: list[int] = []
    for seq in range(1, MESSAGES + 1):
        session.stage.publish(subject, b"%d" % seq)
        stored = session.stage.api("STREAM.MSG.GET", stream, body={"seq": seq})["message"]["time"]
        moment = parse_time(stored)
        if moment is None or (times and moment <= times[-1] + 1):
            raise Untestable("two messages have the same time", actual=stored)
        times.append(moment)
    return stream, subject, times


def _starts_with(session: NatsSession, stream: str, subject: str, first: int, **config: Any) -> None:
    """A pull and a push consumer by start time deliver the messages from ``first`` on, and show so many."""
    config["deliver_policy"] = "by_start_time"
    inbox, pushed = session.inbox(), session.inbox("pushed")
    pull = session.stage.consumer(stream, "PULL", **config)
    push = session.stage.consumer(stream, "PUSH", deliver_subject=pushed, **config)
    for consumer in (pull, push):
        session.stage.expect_consumer(stream, consumer, num_pending=MESSAGES + 1 - first)
    client = session.connect()
    body = PullRequest(batch=MESSAGES + 1 - first, expires=EXPIRES_NS).encode()
    client.send(Sub.make(inbox, 1), Pub.make(next_subject(stream, pull), body, inbox))
    for number in range(first, MESSAGES + 1):
        _is_message(session, client.expect(Msg, sid="1", subject=subject), number)
    client.send(Sub.make(pushed, 2))
    for number in range(first, MESSAGES + 1):
        _is_message(session, client.expect(Msg, sid="2", subject=subject), number)


def _is_message(session: NatsSession, message: Msg, number: int) -> None:
    session.require(
        AckSubject.parse(message.reply or "").stream_seq == number and message.payload == b"%d" % number,
        "another message",
        expected=f"message {number}",
        actual=str(message),
    )
