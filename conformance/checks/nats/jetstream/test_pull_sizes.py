"""Pull requests bounded by bytes, and those that cannot be served. ADR-37; ADR-13."""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.connection import NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.nats.statuses import status_code
from plumbline.conformance.outcomes import Failed
from plumbline.wire.nats import HMsg, Msg, Pub, Sub
from plumbline.wire.nats.headers import Status
from plumbline.wire.nats.jetstream import (
    BATCH_COMPLETED,
    MESSAGE_SIZE_EXCEEDS_MAX_BYTES,
    PENDING_BYTES,
    PENDING_MESSAGES,
    REQUEST_TIMEOUT,
    PullRequest,
    next_subject,
)

PAYLOAD = b"0123456789" * 5


@verifies("JS-PULL-046", source='ADR-37, "Status handling" and "Buffering messages"')
def test_max_bytes_ends_a_batch_at_the_first_message_that_does_not_fit(session: NatsSession) -> None:
    """A batch ends with 409 at the first message that does not fit into what is left of max_bytes."""
    subject = session.name("bar")
    stream = session.stage.stream("bar", [subject])
    consumer = session.stage.consumer(stream, "dur")
    for _ in range(5):
        session.stage.publish(subject, PAYLOAD)
    session.stage.await_consumer(stream, consumer, num_pending=5)
    client = session.connect()
    client.send(Sub.make(session.inbox(), 1))
    # Enough for two and a half messages, however long this run's names and the server's count make them.
    size = _size_of_first_message(session, client, stream, consumer)
    body = PullRequest(batch=4, max_bytes=size * 5 // 2, expires=2_000_000_000).encode()
    client.send(Pub.make(next_subject(stream, consumer), body, session.inbox()))
    for _ in range(2):
        client.expect(Msg, subject=subject, payload=PAYLOAD)
    status = client.expect(HMsg, status=str(MESSAGE_SIZE_EXCEEDS_MAX_BYTES))
    pending = (
        (status.headers.get(PENDING_MESSAGES), status.headers.get(PENDING_BYTES)) if status.headers else None
    )
    left = size * 5 // 2 - 2 * size
    session.require(
        pending == ("2", str(left)),
        "the 409 does not tell what is pending",
        expected=f"{PENDING_MESSAGES}: 2 and {PENDING_BYTES}: {left}",
        actual=str(status),
    )
    session.stage.expect_consumer(stream, consumer, delivered="3/3", num_pending=2)


@verifies("JS-PULL-048", source='ADR-37, "Message Size Calculation"')
def test_a_message_counts_with_subject_ack_subject_headers_and_payload(session: NatsSession) -> None:
    """A message counts against max_bytes with its subject, its acknowledgement subject and its payload."""
    subject = session.name("bar")
    stream = session.stage.stream("bar", [subject])
    consumer = session.stage.consumer(stream, "dur")
    for _ in range(2):
        session.stage.publish(subject, PAYLOAD)
    session.stage.await_consumer(stream, consumer, num_pending=2)
    client = session.connect()
    client.send(Sub.make(session.inbox(), 1))
    size = _size_of_first_message(session, client, stream, consumer)
    for max_bytes in (size - 1, size):
        body = PullRequest(batch=1, max_bytes=max_bytes, expires=2_000_000_000).encode()
        client.send(Pub.make(next_subject(stream, consumer), body, session.inbox()))
        if max_bytes < size:
            client.expect(HMsg, status=str(MESSAGE_SIZE_EXCEEDS_MAX_BYTES))
        else:
            client.expect(Msg, subject=subject, payload=PAYLOAD)


@verifies("JS-PULL-048", source='ADR-37, "Message Size Calculation"')
def test_headers_count_against_max_bytes(session: NatsSession) -> None:
    """A message with headers counts with the bytes of its header block, too."""
    session.needs("headers")
    subject = session.name("bar")
    stream = session.stage.stream("bar", [subject])
    consumer = session.stage.consumer(stream, "dur")
    for _ in range(2):
        session.stage.publish(subject, PAYLOAD, [("A", "1"), ("Long", "x" * 100)])
    session.stage.await_consumer(stream, consumer, num_pending=2)
    client = session.connect()
    inbox = session.inbox()
    client.send(Sub.make(inbox, 1), Pub.make(next_subject(stream, consumer), b"", inbox))
    first = client.expect(HMsg, subject=subject, payload=PAYLOAD)
    size = len(first.subject) + len(first.reply or "") + len(first.header_block) + len(first.payload)
    for max_bytes in (size - 1, size):
        body = PullRequest(batch=1, max_bytes=max_bytes, expires=2_000_000_000).encode()
        client.send(Pub.make(next_subject(stream, consumer), body, inbox))
        if max_bytes < size:
            client.expect(HMsg, status=str(MESSAGE_SIZE_EXCEEDS_MAX_BYTES))
        else:
            client.expect(HMsg, subject=subject, payload=PAYLOAD)


@verifies("JS-PULL-026", source='ADR-37, "Buffering messages"')
def test_a_timeout_tells_the_bytes_that_are_left(session: NatsSession) -> None:
    """Nats-Pending-Bytes of a 408 is max_bytes less the size of each message that was delivered."""
    _bytes_left(session, batch=9, ends_with=REQUEST_TIMEOUT)


@verifies("JS-PULL-062", source="observed, nats-server 2.10.14 and 2.15.3", since="2.10")
def test_a_batch_that_is_done_tells_the_bytes_that_are_left(session: NatsSession) -> None:
    """Nats-Pending-Bytes of 409 Batch Completed is max_bytes less the size of what was delivered."""
    _bytes_left(session, batch=2, ends_with=BATCH_COMPLETED)


def _bytes_left(session: NatsSession, *, batch: int, ends_with: Status) -> None:
    """Two messages are delivered; the status tells what is left of the batch and of max_bytes."""
    subject, spare = session.name("bar"), 1000
    stream = session.stage.stream("bar", [subject])
    consumer = session.stage.consumer(stream, "dur")
    for _ in range(3):
        session.stage.publish(subject, PAYLOAD)
    session.stage.await_consumer(stream, consumer, num_pending=3)
    client = session.connect()
    client.send(Sub.make(session.inbox(), 1))
    size = _size_of_first_message(session, client, stream, consumer)
    body = PullRequest(batch=batch, max_bytes=2 * size + spare, expires=500_000_000).encode()
    client.send(Pub.make(next_subject(stream, consumer), body, session.inbox()))
    for _ in range(2):
        client.expect(Msg, subject=subject, payload=PAYLOAD)
    status = client.expect(HMsg, status=str(ends_with))
    found = [status.headers and status.headers.get(name) for name in (PENDING_MESSAGES, PENDING_BYTES)]
    session.require(
        found == [str(batch - 2), str(spare)],
        "the status does not tell what is left",
        expected=f"{PENDING_MESSAGES}: {batch - 2} and {PENDING_BYTES}: {spare}",
        actual=str(status),
    )


def _size_of_first_message(session: NatsSession, client: NatsConnection, stream: str, consumer: str) -> int:
    """Bytes of the first message, delivered without a limit: subject, acknowledgement subject and payload.

    The next ones have the same size, as their numbers have one digit each. The length of the acknowledgement
    subject depends on its layout and on the server's domain (ADR-15).
    """
    body = PullRequest(batch=1, expires=2_000_000_000).encode()
    client.send(Pub.make(next_subject(stream, consumer), body, session.inbox()))
    message = client.expect(Msg, payload=PAYLOAD)
    return len(message.subject) + len(message.payload) + len(message.reply or "")


@verifies("JS-PULL-041", source='ADR-13, "No Wait Pull Requests"')
def test_pull_on_a_missing_consumer_gets_503_or_nothing(session: NatsSession) -> None:
    """A pull request to a consumer that does not exist is answered with 503 or with nothing."""
    stream = session.stage.stream("bar", [session.name("bar")])
    _expect_503_or_nothing(session, stream)


@verifies("JS-PULL-042", source='ADR-13, "No Wait Pull Requests"')
def test_pull_on_a_missing_stream_gets_503_or_nothing(session: NatsSession) -> None:
    """A pull request to a stream that does not exist is answered with 503 or with nothing."""
    session.needs("jetstream")
    _expect_503_or_nothing(session, session.name("NOSTREAM"))


def _expect_503_or_nothing(session: NatsSession, stream: str) -> None:
    client = session.connect()
    client.send(Sub.make(session.inbox(), 1))
    client.send(Pub.make(next_subject(stream, session.name("NOPE")), b"", session.inbox()))
    answer = client.take(0.2)
    if answer is None:
        client.flush()
    elif status_code(answer) != 503:
        raise Failed("another answer", expected="503, or nothing for 0.2 s", actual=str(answer))
    session.count_observation()
