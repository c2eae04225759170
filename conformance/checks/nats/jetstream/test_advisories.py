"""Advisories that everybody gets, or whose numbers are to be measured.

Others use the server as well: a check looks only at events that name what it made itself.
Source: docs.nats.io, "JetStream wire API Reference".
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.jetstream.api_answers import Answer, fits, shows
from plumbline.conformance.nats.connection import NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed, Unsupported
from plumbline.wire.nats import HMsg, Msg, Pub, Sub
from plumbline.wire.nats.jetstream import ApiError, api_subject, next_subject
from plumbline.wire.nats.jetstream.times import format_time, parse_time
from plumbline.wire.units import SECOND

SOURCE = 'docs.nats.io, "JetStream wire API Reference"'
ADVISORY = "$JS.EVENT.ADVISORY"
AUDIT = f"{ADVISORY}.API"
WITHIN_S = 2.0
SNAPSHOT_WITHIN_S = 5.0
DELETIONS = 8  # nats-server 2.9.10 publishes 352 of 400: all eight are lost in 1 run of 10 million
DELETION_WITHIN_S = 0.5
STREAM_ACTION = "io.nats.jetstream.advisory.v1.stream_action"
CONSUMER_ACTION = "io.nats.jetstream.advisory.v1.consumer_action"
HELD_S = 0.05  # how long a message waits for its acknowledgement
ACKS = 150  # of which 10% are sampled by chance: none, or half, in 1 run of 10 million at most
SAMPLES_WITHIN_S = 0.3
NS = 1_000_000_000
CLOCKS_DIFFER = SECOND  # those of two nodes
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]00:00)")


@verifies("JS-ADV-013", source=SOURCE)
def test_every_event_has_a_type_an_id_and_a_time(session: NatsSession) -> None:
    """Advisories and metrics bear type, an id of their own, and a time in UTC."""
    subject = session.name("V")
    stream, consumer = session.name("V"), session.name("C")
    client = session.connect()
    kinds = {
        f"{ADVISORY}.STREAM.CREATED.{stream}": "advisory.v1.stream_action",
        f"{ADVISORY}.CONSUMER.CREATED.{stream}.{consumer}": "advisory.v1.consumer_action",
        f"$JS.EVENT.METRIC.CONSUMER.ACK.{stream}.{consumer}": "metric.v1.consumer_ack",
    }
    client.send(*(Sub.make(event, sid) for sid, event in enumerate(kinds, 1)))
    client.flush()
    session.stage.stream("V", [subject])
    session.stage.consumer(stream, "C", sample_freq="100")
    _acknowledge_one(session, client, stream, consumer, subject)
    seen = set()
    for _ in kinds:
        event = client.expect(Msg, within=WITHIN_S)
        body = _object(event.payload)
        shows(session, body, "type", f"io.nats.jetstream.{kinds.get(event.subject)}")
        fits(session, body, "id", _is_text, "id: a text")
        fits(session, body, "timestamp", lambda found: _matches(_TIME, found), "timestamp: a time in UTC")
        seen.add(body["id"])
    session.require(
        len(seen) == len(kinds), "an id came twice", expected="an id for each event", actual=str(sorted(seen))
    )


@verifies("JS-ADV-021", source=SOURCE)
def test_timestamp_is_that_of_the_event(session: NatsSession) -> None:
    """The time of the advisory of a new stream is between those at which it and a later stream were made."""
    client = session.connect()
    client.send(Sub.make(f"{ADVISORY}.STREAM.CREATED.{session.name('V')}", 1))
    client.flush()
    streams = [session.stage.stream(label, [session.name(label)]) for label in ("V", "LATER")]
    at = parse_time(_object(client.expect(Msg, within=WITHIN_S).payload).get("timestamp", ""))
    made = [parse_time(session.stage.api("STREAM.INFO", stream)["created"]) for stream in streams]
    first, last = (one or 0 for one in made)
    session.require(
        at is not None and first - CLOCKS_DIFFER <= at <= last + CLOCKS_DIFFER,
        "the timestamp is another time",
        expected=f"between {format_time(first)} and {format_time(last)}, or up to 1 s beside",
        actual=format_time(at) if at is not None else "no time",
    )


@verifies("JS-ADV-002", source=SOURCE)
def test_requests_to_the_api_are_told(session: NatsSession) -> None:
    """An API request causes an advisory on $JS.EVENT.ADVISORY.API: who asked, what for, and the answer."""
    subject, stream = session.name("V"), session.name("V")
    client = session.connect()
    client.send(Sub.make(AUDIT, 1))
    client.flush()
    session.stage.stream("V", [subject])
    body = _audit(client, api_subject("STREAM.CREATE", stream))
    shows(session, body, "type", "io.nats.jetstream.advisory.v1.api_audit")
    fits(session, body, "server", _is_text, "server: its name")
    fits(session, body, "client.acc", _is_text, "client.acc: an account")
    if body.get("request") or not session.target.is_cluster:
        sent = _object(_text(body, "request"))
        fits(session, sent, "name", stream.__eq__, f"request.name: {stream}")
    shows(session, _object(_text(body, "response")), "config.name", stream)
    session.stage.answer("STREAM.INFO", session.name("NOPE"))
    body = _audit(client, api_subject("STREAM.INFO", session.name("NOPE")))
    fits(session, body, "request", lambda found: found in (None, ""), "request: nothing, as was sent")
    error = ApiError.of(_object(_text(body, "response")))
    session.require(
        error is not None,
        "the advisory has no error",
        expected="an error in response",
        actual=json.dumps(body),
    )


@verifies("JS-ADV-012", source=SOURCE)
def test_deletion_of_a_stream_and_its_consumer_is_published(session: NatsSession) -> None:
    """The deletion of a stream is published, and that of its consumer, for at least one stream of several."""
    client = session.connect()
    wanted: dict[str, Answer] = {}
    for number in range(1, DELETIONS + 1):
        stream = session.stage.stream(f"V{number}", [session.name(f"V{number}")])
        consumer = session.stage.consumer(stream, "C")
        deleted = {"stream": stream, "action": "delete"}
        wanted[f"{ADVISORY}.STREAM.DELETED.{stream}"] = deleted | {"type": STREAM_ACTION}
        wanted[f"{ADVISORY}.CONSUMER.DELETED.{stream}.{consumer}"] = deleted | {
            "consumer": consumer,
            "type": CONSUMER_ACTION,
        }
        subjects = (subject for subject in wanted if stream in subject)
        client.send(*(Sub.make(subject, sid) for sid, subject in enumerate(subjects, 2 * number)))
        client.flush()
        session.stage.api("STREAM.DELETE", stream)
        if _both_deletions_come(session, client, wanted, stream):
            return
    raise Failed(
        f"of {DELETIONS} deletions of a stream none was published with that of its consumer",
        expected=f"{ADVISORY}.STREAM.DELETED.<stream> and {ADVISORY}.CONSUMER.DELETED.<stream>.<consumer>",
        actual=f"nothing on {', '.join(wanted)}",
    )


def _both_deletions_come(
    session: NatsSession, client: NatsConnection, wanted: dict[str, Answer], stream: str
) -> bool:
    """Whether the events of this stream come, in either order.

    What comes is taken from ``wanted`` and judged, late events of other streams, too.
    """
    while any(stream in subject for subject in wanted):
        event = client.take(DELETION_WITHIN_S)
        if event is None:
            return False
        if not isinstance(event, Msg) or event.subject not in wanted:
            client.mark_offending(event)
            raise Failed("no event of a deletion", expected=f"MSG {' or '.join(wanted)}", actual=str(event))
        body = _object(event.payload)
        for name, value in wanted.pop(event.subject).items():
            shows(session, body, name, value)
    return True


@verifies("JS-ADV-008", source='JetStream Model Deep Dive, "Ack Sampling"')
def test_ack_time_is_how_long_a_message_was_held(session: NatsSession) -> None:
    """ack_time of a sample is the nanoseconds from the delivery to its acknowledgement."""
    subject = session.name("V")
    stream = session.stage.stream("V", [subject])
    consumer = session.stage.consumer(stream, "C", sample_freq="100")
    client = session.connect()
    client.send(Sub.make(f"$JS.EVENT.METRIC.CONSUMER.ACK.{stream}.{consumer}", 1))
    began = time.monotonic()
    _acknowledge_one(session, client, stream, consumer, subject)
    body = _object(client.expect(Msg, within=WITHIN_S).payload)
    # A busy server may note the delivery a little after the message went out.
    at_least, at_most = round(HELD_S * NS / 2), round((time.monotonic() - began) * NS)
    fits(
        session,
        body,
        "ack_time",
        lambda found: isinstance(found, int) and at_least <= found <= at_most,
        f"ack_time: {at_least} to {at_most}",
    )


@verifies("JS-ADV-009", source='JetStream Model Deep Dive, "Ack Sampling"')
def test_a_sample_is_a_part(session: NatsSession) -> None:
    """With sample_freq 10% some of 150 acknowledgements are sampled, and fewer than half of them."""
    subject = session.name("V")
    stream = session.stage.stream("V", [subject])
    consumer = session.stage.consumer(stream, "C", sample_freq="10%")
    for _ in range(ACKS):
        session.stage.publish(subject)
    session.stage.await_consumer(stream, consumer, num_pending=ACKS)
    client, worker, inbox = session.connect(), session.connect("worker"), session.inbox("pull")
    client.send(Sub.make(f"$JS.EVENT.METRIC.CONSUMER.ACK.{stream}.{consumer}", 1))
    client.flush()
    worker.send(Sub.make(inbox, 1), Pub.make(next_subject(stream, consumer), b"%d" % ACKS, inbox))
    for _ in range(ACKS):
        worker.send(Pub.make(worker.expect(Msg, subject=subject).reply or "", b"+ACK"))
    session.stage.expect_consumer(stream, consumer, num_ack_pending=0)
    samples = 0
    while client.take(SAMPLES_WITHIN_S) is not None:
        samples += 1
    session.require(
        0 < samples < ACKS // 2,
        "another part of the acknowledgements is sampled",
        expected=f"about {ACKS // 10} samples of {ACKS} acknowledgements",
        actual=f"{samples} samples",
    )


@verifies("JS-ADV-015", source="observed, nats-server 2.9.10 and 2.15.2")
def test_begin_and_end_of_a_snapshot_are_told(session: NatsSession) -> None:
    """STREAM.SNAPSHOT causes an advisory when it begins and when all of it is sent."""
    stream = session.stage.stream("V", [session.name("V")], storage="file")
    pieces = session.inbox("pieces")
    kinds = {f"{ADVISORY}.STREAM.SNAPSHOT_{step.upper()}.{stream}": step for step in ("create", "complete")}
    client = session.connect()
    client.send(*(Sub.make(subject, sid) for sid, subject in enumerate((pieces, *kinds), 1)))
    client.flush()
    answer = session.stage.answer("STREAM.SNAPSHOT", stream, body={"deliver_subject": pieces})
    if (error := ApiError.of(answer)) is not None:
        raise Unsupported(f"STREAM.SNAPSHOT is refused: {error}")
    advisories: dict[str, Answer] = {}
    while len(advisories) < len(kinds):
        piece = client.arrival(SNAPSHOT_WITHIN_S, "an advisory of the snapshot, or a piece of it").operation
        if not isinstance(piece, Msg | HMsg):
            raise Failed("no message", expected="a piece of the snapshot, or an event", actual=str(piece))
        if piece.subject in kinds:
            advisories[piece.subject] = _object(piece.payload)
        elif piece.reply:
            client.send(Pub.make(piece.reply))
    for subject, step in kinds.items():
        shows(session, advisories[subject], "type", f"io.nats.jetstream.advisory.v1.snapshot_{step}")
        shows(session, advisories[subject], "stream", stream)


@verifies("JS-ADV-016", source="observed, nats-server 2.11.17 and 2.15.2", since="2.11")
def test_a_pause_and_its_end_are_told(session: NatsSession) -> None:
    """Advisories of a pause, with its time, and of its end; in a cluster each may come twice."""
    stream = session.stage.stream("V", [session.name("V")])
    consumer = session.stage.consumer(stream, "C")
    client = session.connect()
    client.send(Sub.make(f"{ADVISORY}.CONSUMER.PAUSE.{stream}.{consumer}", 1))
    client.flush()
    session.stage.api("CONSUMER.PAUSE", stream, consumer, body={"pause_until": "2099-01-01T00:00:00Z"})
    body = _pause_event(client, paused=True)
    shows(session, body, "type", "io.nats.jetstream.advisory.v1.consumer_pause")
    shows(session, body, "stream", stream)
    shows(session, body, "consumer", consumer)
    until = parse_time("2099-01-01T00:00:00Z")
    fits(session, body, "pause_until", lambda found: parse_time(str(found)) == until, "pause_until: 2099")
    session.stage.api("CONSUMER.PAUSE", stream, consumer)
    body = _pause_event(client, paused=False)
    shows(session, body, "stream", stream)
    shows(session, body, "consumer", consumer)


def _pause_event(client: NatsConnection, *, paused: bool) -> Answer:
    """The next event that shows ``paused``; repetitions of one before are passed over."""
    until = time.monotonic() + WITHIN_S
    while True:
        left = max(until - time.monotonic(), 0.0)
        event = client.arrival(left, f"an event with paused {paused}").operation
        body = _object(event.payload) if isinstance(event, Msg) else {}
        if body.get("paused", False) is paused:
            return body


def _acknowledge_one(
    session: NatsSession, client: NatsConnection, stream: str, consumer: str, subject: str
) -> None:
    """Pull a message and acknowledge it after ``HELD_S``; other connections and sids stay as they are."""
    session.stage.publish(subject, b"m1")
    session.stage.await_consumer(stream, consumer, num_pending=1)
    worker = session.connect("worker")
    worker.send(Sub.make(session.inbox("pull"), 1))
    worker.send(Pub.make(next_subject(stream, consumer), b"", session.inbox("pull")))
    message = worker.expect(Msg, subject=subject)
    session.pause(HELD_S)
    worker.send(Pub.make(message.reply or "", b"+ACK"))


def _audit(client: NatsConnection, subject: str) -> Answer:
    """The event of a request to ``subject``; those of other clients are passed over."""
    until = time.monotonic() + WITHIN_S
    while True:
        left = max(until - time.monotonic(), 0.0)
        event = client.arrival(left, f"an audit of {subject}").operation
        body = _object(event.payload) if isinstance(event, Msg) else {}
        if body.get("subject") == subject:
            return body


def _object(text: bytes | str) -> Answer:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Failed("no JSON object", expected="a JSON object", actual=repr(text))
    return found


def _text(body: Answer, name: str) -> str:
    found = body.get(name)
    if not isinstance(found, str):
        raise Failed(f"{name} is no text", expected=f"{name}: JSON as text", actual=json.dumps(body))
    return found


def _is_text(found: Any) -> bool:
    return isinstance(found, str) and found != ""


def _matches(pattern: re.Pattern[str], found: Any) -> bool:
    return isinstance(found, str) and pattern.fullmatch(found) is not None
