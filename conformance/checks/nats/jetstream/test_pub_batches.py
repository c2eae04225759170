"""Atomic batches, where time passes or many messages come. ADR-50, "Atomic Batch Publishing"."""

from __future__ import annotations

import json
from typing import Any

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.jetstream.api_answers import object_in, shows
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Unsupported
from plumbline.wire.nats import HPub, Msg, Sub
from plumbline.wire.nats.jetstream import ApiError

LESS_S = 6.0  # of the 10 seconds after which a batch is abandoned; twice as much is more than them
QUIET_S, REPORTED_WITHIN_S = 8.0, 6.0  # of the same 10 seconds
ABANDONED = "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED"
INCOMPLETE = 10176
TOO_LARGE = 10199
MOST_MESSAGES, MOST_BATCHES = 1000, 50


@verifies("JS-PUB-075", source='ADR-50, "Atomic Batch Publishing"', since="2.12", is_long=True)
def test_an_idle_batch_is_abandoned(session: NatsSession) -> None:
    """A batch without a message for 12 s cannot be committed; one that had a message after 6 s can be."""
    session.needs("headers")
    stage, subject = session.stage, session.name("s")
    stream = stage.stream("S", [subject], allow_atomic=True)

    _sent(session, subject, "idle", 1)
    _sent(session, subject, "busy", 1)
    session.pause(LESS_S)
    _sent(session, subject, "busy", 2)
    session.pause(LESS_S)
    idle = _sent(session, subject, "idle", 2, last=True)
    busy = _sent(session, subject, "busy", 3, last=True)
    _is_refused(session, idle, INCOMPLETE, "the idle batch is not abandoned")
    session.require(
        busy.get("count") == 3, "the other batch is not stored", expected="count 3", actual=json.dumps(busy)
    )
    stage.expect_stream(stream, messages=3)


@verifies("JS-ADV-020", source='ADR-50, "Abandonment Advisories"', since="2.12", is_long=True)
def test_an_idle_batch_is_reported_when_it_is_abandoned(session: NatsSession) -> None:
    """A batch without a message is reported after 10 s, with the reason timeout, and not in the first 8."""
    session.needs("headers")
    client, subject = session.connect(), session.name("s")
    stream = session.stage.stream("S", [subject], allow_atomic=True)
    client.send(Sub.make(f"{ABANDONED}.{stream}", 1))
    client.flush()
    _is_begun(session, subject, "idle")
    client.expect_silence(QUIET_S)
    event = object_in(client.expect(Msg, within=REPORTED_WITHIN_S), "an advisory")
    shows(session, event, "type", "io.nats.jetstream.advisory.v1.stream_batch_abandoned")
    shows(session, event, "stream", stream)
    shows(session, event, "batch", "idle")
    shows(session, event, "reason", "timeout")


@verifies("JS-PUB-077", source='ADR-50, "Server Behavior Design"')
def test_a_batch_has_1000_messages_at_most(session: NatsSession) -> None:
    """A batch of 1000 messages is stored; message 1001 of another is refused, and nothing of it is stored."""
    session.needs("headers")
    subject = session.name("s")
    stream = session.stage.stream("S", [subject], allow_atomic=True)
    client = session.connect()

    def send(batch: str, most: int) -> None:
        for sequence in range(1, most + 1):
            headers = [("Nats-Batch-Id", batch), ("Nats-Batch-Sequence", str(sequence))]
            client.send(HPub.make(subject, headers))
        client.flush()

    send("whole", MOST_MESSAGES - 1)
    whole = _sent(session, subject, "whole", MOST_MESSAGES, last=True)
    session.require(
        whole.get("count") == MOST_MESSAGES,
        "a batch of 1000 messages is not stored",
        expected=f"count {MOST_MESSAGES}",
        actual=json.dumps(whole),
    )
    send("large", MOST_MESSAGES)
    large = _sent(session, subject, "large", MOST_MESSAGES + 1, last=True)
    if "error" not in large:
        _requires_plain_settings(session, "max_batch_size")
    _is_refused(session, large, TOO_LARGE, "a batch of 1001 messages is not refused")
    session.stage.expect_stream(stream, messages=MOST_MESSAGES)


@verifies("JS-PUB-078", source='ADR-50, "Server Behavior Design"')
def test_a_stream_has_50_open_batches_at_most(session: NatsSession) -> None:
    """With 50 open batches a stream begins no other one until one has ended; another stream does."""
    session.needs("headers")
    first, second = session.name("first"), session.name("second")
    stream = session.stage.stream("S", [first], allow_atomic=True)
    session.stage.stream("OTHER", [second], allow_atomic=True)
    for number in range(1, MOST_BATCHES + 1):
        _is_begun(session, first, f"b{number}")
    if not (answer := _sent(session, first, "more", 1)):
        _requires_plain_settings(session, "max_batch_inflight_per_stream")
    session.require(
        "error" in answer, "batch 51 of a stream is begun", expected="an error", actual=json.dumps(answer)
    )
    _is_begun(session, second, "elsewhere")
    committed = _sent(session, first, "b7", 2, last=True)
    session.require(
        committed.get("count") == 2,
        "a batch that was open is not stored",
        expected="count 2",
        actual=json.dumps(committed),
    )
    _is_begun(session, first, "later")
    session.stage.expect_stream(stream, messages=2)


def _sent(
    session: NatsSession, subject: str, batch: str, sequence: int, *, last: bool = False
) -> dict[str, Any]:
    """The answer to a message of a batch; empty if that is empty."""
    headers = [("Nats-Batch-Id", batch), ("Nats-Batch-Sequence", str(sequence))]
    commit = [("Nats-Batch-Commit", "1")] if last else []
    answer = session.stage.request(subject, batch.encode(), headers + commit)
    return object_in(answer, "nothing, or a PubAck") if answer.payload else {}


def _is_begun(session: NatsSession, subject: str, batch: str) -> None:
    answer = _sent(session, subject, batch, 1)
    session.require(
        not answer,
        f"the batch {batch} is not begun",
        expected="an empty answer to its first message",
        actual=json.dumps(answer),
    )


def _is_refused(session: NatsSession, answer: dict[str, Any], err_code: int, message: str) -> None:
    error = ApiError.of(answer)
    session.require(
        error is not None and error.err_code == err_code,
        message,
        expected=f"err_code {err_code}",
        actual=json.dumps(answer),
    )


def _requires_plain_settings(session: NatsSession, setting: str) -> None:
    """Raises ``Unsupported`` if the server may have another limit by its configuration."""
    if not session.has_plain_settings:
        raise Unsupported(f"whether the server has another limit ({setting}), the wire does not say")
