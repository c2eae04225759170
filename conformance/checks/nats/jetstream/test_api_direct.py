"""Direct gets: where a server may answer or not, and those of many messages. ADR-31."""

from __future__ import annotations

from collections.abc import Sequence

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.connection import NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.nats.statuses import status_code
from plumbline.conformance.outcomes import Failed, Inconclusive
from plumbline.wire.nats import HMsg, Pub, Sub, Unsub
from plumbline.wire.nats.jetstream.times import format_time, parse_time

SOURCE = 'ADR-31, "JetStream direct get"'
SILENCE_S = 0.05
ANSWERS_WITHIN_S = 10.0  # a thousand of them
MOST_TRIES = 100  # a fair choice of one of two fails so often once in 2**100 runs
MOST_SUBJECTS = 1024  # of one request: ADR-31, "Multi-subject requests"


@verifies("JS-API-120", source=SOURCE)
def test_a_stream_that_does_not_allow_it_answers_with_503_or_nothing(session: NatsSession) -> None:
    """DIRECT.GET of a stream without allow_direct is answered with 503, or with nothing."""
    subject = session.name("s")
    stream = session.stage.stream("S", [subject])
    session.stage.publish(subject, b"m1")
    client, inbox = session.connect(), session.inbox()
    client.send(Sub.make(inbox, 1), Pub.make(f"$JS.API.DIRECT.GET.{stream}", b'{"seq":1}', inbox))
    answer = client.take(SILENCE_S)
    if answer is None:
        client.flush()
    elif status_code(answer) != 503:
        raise Failed("another answer", expected="503, or nothing", actual=str(answer))
    session.count_observation()


@verifies("JS-API-192", source=SOURCE)
def test_max_bytes_ends_a_batch(session: NatsSession) -> None:
    """DIRECT.GET with max_bytes sends no more once max_bytes are sent, and shows what is left."""
    subject = session.name("s")
    stream = session.stage.stream("S", [subject], allow_direct=True)
    for _ in range(6):
        session.stage.publish(subject, b"x" * 1000)
    client = session.connect()
    body = b'{"seq":1,"batch":6,"max_bytes":2500}'
    *messages, end = _answers(session, client, stream, body, most=7)
    _require_cut(session, messages)
    _shows_end(session, end, {"Nats-Num-Pending": 6 - len(messages), "Nats-Last-Sequence": len(messages)})


@verifies("JS-API-192", source=SOURCE)
def test_max_bytes_ends_the_last_messages(session: NatsSession) -> None:
    """DIRECT.GET with multi_last and max_bytes sends no more than max_bytes need, and shows what is left."""
    pattern = session.name("s.*")
    stream = session.stage.stream("S", [pattern], allow_direct=True)
    for number in range(6):
        session.stage.publish(session.name(f"s.{number}"), b"x" * 1000)
    client = session.connect()
    body = f'{{"multi_last":["{pattern}"],"max_bytes":2500}}'.encode()
    *messages, end = _answers(session, client, stream, body, most=7)
    _require_cut(session, messages)
    _shows_end(session, end, {"Nats-Num-Pending": 6 - len(messages), "Nats-Last-Sequence": len(messages)})


@verifies("JS-API-232", source='ADR-31, "Extended feature: MIRROR Direct Get responders"')
def test_a_mirror_answers_direct_gets_of_its_origin(session: NatsSession) -> None:
    """DIRECT.GET of a stream is also answered by its mirror with mirror_direct."""
    subject = session.name("s")
    origin = session.stage.stream("S", [subject], allow_direct=True)
    session.stage.publish(subject, b"m1")
    mirror = session.stage.stream("M", [], mirror={"name": origin}, mirror_direct=True)
    session.stage.await_stream(mirror, within=5.0, messages=1)
    session.stage.api("STREAM.PURGE", origin)
    session.stage.await_stream(origin, messages=0)
    # Now only the mirror has it; which of the two answers is chance.
    client = session.connect()
    for _ in range(MOST_TRIES):
        (answer,) = _answers(session, client, origin, b'{"seq":1}', most=1)
        if status_code(answer) is None:
            break
    session.require(
        status_code(answer) is None and answer.payload == b"m1",
        f"the mirror answered none of {MOST_TRIES} requests",
        expected="m1, which only the mirror has",
        actual=str(answer),
    )


@verifies("JS-API-195", source=SOURCE)
def test_up_to_time_gives_what_was_the_last_message_then(session: NatsSession) -> None:
    """DIRECT.GET with multi_last and up_to_time gives the last message of each subject before that time."""
    first, second, third = (f"{session.name('s')}.{token}" for token in "abc")
    stream = session.stage.stream("S", [f"{session.name('s')}.*"], allow_direct=True)
    for subject in (first, second, first, second, third):
        session.stage.publish(subject, b"m")
    stored = []
    for seq in (3, 4):
        message = session.stage.api("STREAM.MSG.GET", stream, body={"seq": seq})["message"]
        stored.append(parse_time(str(message.get("time"))) or 0)
    between = stored[1] - 1
    if between <= stored[0]:
        raise Inconclusive("the server stored two messages at the same time", actual=f"{stored}")
    client = session.connect()
    pattern = f"{session.name('s')}.*"
    body = f'{{"multi_last":["{pattern}"],"up_to_time":"{format_time(between)}"}}'.encode()
    *messages, end = _answers(session, client, stream, body, most=4)
    found = [
        (message.headers.get("Nats-Subject"), message.headers.get("Nats-Sequence"))
        for message in messages
        if message.headers is not None
    ]
    session.require(
        found == [(second, "2"), (first, "3")],
        "other messages",
        expected=f"sequence 2 on {second}, sequence 3 on {first}",
        actual=str(found),
    )
    _shows_end(session, end, {"Nats-Last-Sequence": 3, "Nats-UpTo-Sequence": 3})


@verifies("JS-API-196", source=SOURCE)
def test_multi_last_matches_1024_subjects_at_most(session: NatsSession) -> None:
    """DIRECT.GET with multi_last sends the last messages of 1024 subjects, and refuses 1025 with 413."""
    pattern = f"{session.name('s')}.*"
    stream = session.stage.stream("S", [pattern], allow_direct=True)
    client = session.connect()
    client.send(*(Pub.make(f"{session.name('s')}.{number}") for number in range(MOST_SUBJECTS)))
    session.stage.await_stream(stream, within=ANSWERS_WITHIN_S, messages=MOST_SUBJECTS)
    body = f'{{"multi_last":["{pattern}"]}}'.encode()
    *messages, end = _answers(session, client, stream, body, most=MOST_SUBJECTS + 1)
    session.require(
        len(messages) == MOST_SUBJECTS,
        "another number of messages",
        expected=f"{MOST_SUBJECTS} messages",
        actual=f"{len(messages)} messages, then {end}",
    )
    _shows_end(session, end, {"Nats-Num-Pending": 0, "Nats-Last-Sequence": MOST_SUBJECTS})
    session.stage.publish(f"{session.name('s')}.more")
    *messages, end = _answers(session, client, stream, body, most=MOST_SUBJECTS + 2)
    session.require(
        not messages and status_code(end) == 413,
        "a request that matches 1025 subjects is not refused",
        expected="status 413 alone",
        actual=f"{len(messages)} messages, then {end}",
    )


def _answers(
    session: NatsSession, client: NatsConnection, stream: str, body: bytes, *, most: int
) -> list[HMsg]:
    """The answers to a DIRECT.GET, to the first one that has a status; ``most`` at most."""
    inbox = session.inbox()
    client.send(Sub.make(inbox, 1), Pub.make(f"$JS.API.DIRECT.GET.{stream}", body, inbox))
    answers: list[HMsg] = []
    while len(answers) < most and (not answers or status_code(answers[-1]) is None):
        answers.append(client.expect(HMsg, within=ANSWERS_WITHIN_S))
    client.send(Unsub.make(1))
    return answers


def _require_cut(session: NatsSession, messages: Sequence[HMsg]) -> None:
    # Three if the message that reaches max_bytes is sent, as nats-server does, two if it is not.
    session.require(
        len(messages) in (2, 3),
        "another number of messages",
        expected="2 or 3 messages of 1000 bytes for max_bytes 2500",
        actual=f"{len(messages)} messages",
    )


def _shows_end(session: NatsSession, end: HMsg, numbers: dict[str, int]) -> None:
    """``end`` is the status 204 EOB, with these numbers."""
    headers = end.headers
    found = {name: headers.get(name) for name in numbers} if headers is not None else {}
    session.require(
        status_code(end) == 204 and found == {name: str(number) for name, number in numbers.items()},
        "the batch ends otherwise",
        expected=f"204 EOB with {numbers}",
        actual=str(end),
    )
