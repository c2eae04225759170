"""What outlives the server, and what does not. Each check has a server of its own, since it restarts it."""

from __future__ import annotations

import json
from typing import Any

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.jetstream.exactly_once import EndToEnd
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.nats.stage import JetStreamStage
from plumbline.conformance.outcomes import Failed
from plumbline.conformance.targets.own_server import OwnServer
from plumbline.wire.nats import HMsg, Msg, Pub, Sub
from plumbline.wire.nats.jetstream import AckSubject, PullRequest, next_subject

ACK_WAIT_NS = 300_000_000
PULL_NS = 3_000_000_000
STORAGE_TYPE = 'docs.nats.io, "Streams", "StorageType"'
DURABLE = 'docs.nats.io, "Consumers", "Durable"'
EXACTLY_ONCE = 'JetStream Model Deep Dive, "Exactly Once Semantics"'
OBSERVED = "observed, nats-server 2.9.10 and 2.15"


def _started(session: NatsSession) -> tuple[OwnServer, JetStreamStage]:
    server = session.own_server()
    server.start()
    return server, session.stage_on(server)


def _restarted(session: NatsSession, server: OwnServer) -> JetStreamStage:
    server.stop()
    server.start()
    return session.stage_on(server)


@verifies("JS-STORE-016", source='docs.nats.io, "JetStream wire API Reference", Account Information')
def test_account_sums_the_bytes_of_its_streams(session: NatsSession) -> None:
    """Account info shows as memory and storage what the streams report together."""
    _, stage = _started(session)
    shown = {"memory": 0, "storage": 0}
    for label, storage in (("A", "file"), ("B", "file"), ("C", "memory")):
        subject = session.name(label)
        stream = stage.stream(label, [subject], storage=storage)
        stage.publish(subject, b"hello")
        state = stage.await_stream(stream, messages=1)["state"]
        shown["storage" if storage == "file" else "memory"] += state["bytes"]
    info = stage.api("INFO")
    found = {name: info.get(name) for name in shown}
    session.require(found == shown, "the sums differ", expected=json.dumps(shown), actual=json.dumps(found))


@verifies("JS-API-189", source='docs.nats.io, "Streams", "Subjects"')
def test_a_stream_may_begin_with_a_wildcard(session: NatsSession) -> None:
    """A stream on *.x, which every other stream could overlap with, stores a.x and b.x, and not a.y."""
    server, stage = _started(session)
    a, b, x = (session.name(label) for label in "abx")
    stream = stage.stream("S", [f"*.{x}"], no_ack=True)
    client = session.connect_to(server)
    stored = [f"{a}.{x}", f"{b}.{x}"]
    client.send(Pub.make(stored[0]), Pub.make(f"{a}.{session.name('y')}"), Pub.make(stored[1]))
    stage.expect_stream(stream, messages=2, last_seq=2)
    answers = [stage.answer("STREAM.MSG.GET", stream, body={"seq": seq}) for seq in (1, 2)]
    found = [answer.get("message", {}).get("subject") for answer in answers]
    session.require(
        found == stored, "other messages are stored", expected=str(stored), actual=json.dumps(answers)
    )


@verifies("JS-STORE-017", source=STORAGE_TYPE)
def test_a_stream_in_files_is_there_after_a_restart(session: NatsSession) -> None:
    """Configuration, messages, sequences, headers and times of a stream in files are those of before."""
    server, stage = _started(session)
    stream = stage.stream("F", [session.name("f.*")], storage="file", max_age=3600 * 10**9)
    for number in range(5):
        headers = [("Number", str(number))] if number % 2 else []
        stage.publish(session.name("f.*").replace("*", str(number % 2)), b"message %d" % number, headers)
    stage.api("STREAM.MSG.DELETE", stream, body={"seq": 3})
    before = _content(stage, stream)
    after = _content(_restarted(session, server), stream)
    session.require(before == after, "the stream differs", expected=str(before), actual=str(after))


def _content(stage: JetStreamStage, stream: str) -> dict[str, Any]:
    info = stage.answer("STREAM.INFO", stream)
    if "state" not in info:
        raise Failed("the stream is gone", expected=f"stream {stream}", actual=json.dumps(info))
    counted = ("messages", "bytes", "first_seq", "first_ts", "last_seq", "last_ts")
    config = ("subjects", "retention", "max_age", "storage", "duplicate_window")
    messages = {seq: stage.answer("STREAM.MSG.GET", stream, body={"seq": seq}) for seq in range(1, 6)}
    return {
        "state": {name: info["state"].get(name) for name in counted},
        "config": {name: info["config"].get(name) for name in config},
        "messages": {seq: answer.get("message") for seq, answer in messages.items()},
    }


@verifies("JS-STORE-018", source=STORAGE_TYPE)
def test_a_stream_in_memory_is_gone_after_a_restart(session: NatsSession) -> None:
    """Of a stream in memory nothing is left after a restart, beside a stream in files that is."""
    server, stage = _started(session)
    kept = stage.stream("F", [session.name("f")], storage="file")
    stage.stream("M", [session.name("m")], storage="memory")
    stage.publish(session.name("m"), b"x")
    names = _restarted(session, server).api("STREAM.NAMES")["streams"]
    session.require(names == [kept], "other streams", expected=str([kept]), actual=str(names))


@verifies("JS-STORE-019", source=DURABLE)
def test_a_durable_consumer_goes_on_after_a_restart(session: NatsSession) -> None:
    """Acknowledged is done, delivered comes again with its count, new comes after it."""
    server, stage = _started(session)
    subject = session.name("f")
    stream = stage.stream("F", [subject], storage="file")
    consumer = stage.consumer(stream, "D", ack_wait=ACK_WAIT_NS)
    for number in range(1, 4):
        stage.publish(subject, b"%d" % number)
    client = session.connect_to(server)
    first, _ = _pulled(session, client, stream, consumer, 2)
    client.send(Pub.make(first.reply or "", b"+ACK", session.inbox("acked")))
    client.expect(Msg, subject=session.inbox("acked"), payload=b"")
    stage = _restarted(session, server)
    stage.expect_consumer(stream, consumer, delivered="2/2", ack_floor="1/1", num_ack_pending=1)
    client = session.connect_to(server, "later")
    session.pause(ACK_WAIT_NS / 1e9 + 0.2)  # what is redelivered comes before what is new
    messages = _pulled(session, client, stream, consumer, 2)
    found = [(message.payload, _ack_of(message).stream_seq) for message in messages]
    again = _ack_of(messages[0]).delivered > 1
    session.require(
        found == [(b"2", 2), (b"3", 3)] and again,
        "another order, or a count of a first delivery",
        expected="2 again, then 3",
        actual=" ".join(map(str, messages)),
    )


def _pulled(session: NatsSession, client: Any, stream: str, consumer: str, batch: int) -> list[Msg | HMsg]:
    inbox = session.inbox("pull")
    body = PullRequest(batch=batch, expires=PULL_NS).encode()
    client.send(Sub.make(inbox, 1), Sub.make(session.inbox("acked"), 2))
    client.send(Pub.make(next_subject(stream, consumer), body, inbox))
    return [client.expect(Msg, within=PULL_NS / 1e9) for _ in range(batch)]


def _ack_of(message: Msg | HMsg) -> AckSubject:
    if message.reply is None:
        raise Failed("a status", expected="a message", actual=str(message))
    return AckSubject.parse(message.reply)


@verifies("JS-STORE-020", source=OBSERVED)
def test_message_ids_are_known_after_a_restart(session: NatsSession) -> None:
    """A message id of before the restart is a duplicate, one that is new is none."""
    server, stage = _started(session)
    subject = session.name("f")
    stage.stream("F", [subject], storage="file")
    stage.publish(subject, b"x", [("Nats-Msg-Id", "k1")])
    stage = _restarted(session, server)
    answers = [stage.publish(subject, b"y", [("Nats-Msg-Id", name)]) for name in ("k1", "k2")]
    found = [(answer["seq"], answer.get("duplicate", False)) for answer in answers]
    session.require(
        found == [(1, True), (2, False)],
        "other answers",
        expected="k1 is a duplicate of sequence 1, k2 gets sequence 2",
        actual=json.dumps(answers),
    )


@verifies("JS-STORE-021", source=OBSERVED)
def test_an_ephemeral_consumer_is_there_after_a_restart(session: NatsSession) -> None:
    """An ephemeral consumer whose inactive_threshold is a minute keeps its name over a restart."""
    server, stage = _started(session)
    stream = stage.stream("F", [session.name("f")], storage="file")
    config = {"ack_policy": "explicit", "inactive_threshold": 60 * 10**9}
    made = stage.api("CONSUMER.CREATE", stream, body={"stream_name": stream, "config": config})
    names = _restarted(session, server).api("CONSUMER.NAMES", stream)["consumers"]
    session.require(
        names == [made["name"]], "other consumers", expected=str([made["name"]]), actual=str(names)
    )


@verifies("JS-STORE-022", source='docs.nats.io, "JetStream", "Persistent distributed storage"')
def test_what_was_acknowledged_is_there_after_a_kill(session: NatsSession) -> None:
    """After kill -9 every acknowledged message is in the stream, under the sequence of its PubAck."""
    server, stage = _started(session)
    subject = session.name("f")
    stream = stage.stream("F", [subject], storage="file")
    acknowledged = {stage.publish(subject, b"m%d" % number)["seq"]: b"m%d" % number for number in range(20)}
    server.kill()
    server.start()
    stage = session.stage_on(server)
    stage.expect_stream(stream, messages=len(acknowledged), last_seq=len(acknowledged))
    client, consumer = session.connect_to(server), stage.consumer(stream, "D")
    found = {
        _ack_of(message).stream_seq: message.payload
        for message in _pulled(session, client, stream, consumer, len(acknowledged))
    }
    session.require(found == acknowledged, "other messages", expected=str(acknowledged), actual=str(found))


@verifies("JS-STORE-024", source=EXACTLY_ONCE)
def test_exactly_once_over_a_restart(session: NatsSession) -> None:
    """Lost acknowledgements, crashes and a restart between: every message once."""
    server, stage = _started(session)
    run = EndToEnd(session, stage, lambda name: session.connect_to(server, name), storage="file")
    run.publish(12)
    run.consume(6)
    stage = _restarted(session, server)
    run.retry()
    run.publish(6)
    run.retry()
    run.drain(stage)
    run.judge()


@verifies("JS-STORE-025", source=EXACTLY_ONCE)
def test_what_was_not_acknowledged_comes_after_a_kill(session: NatsSession) -> None:
    """After kill -9 a consumer gets everything that it had not acknowledged, and no second copy."""
    server, stage = _started(session)
    run = EndToEnd(session, stage, lambda name: session.connect_to(server, name), storage="file")
    run.publish(9)
    run.consume(6)
    server.kill()
    server.start()
    stage = session.stage_on(server)
    run.retry()
    run.drain(stage)
    run.judge_with_redeliveries()
