"""A session of an AMQP check: names, channels, evidence, and nothing left behind."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from plumbline.conformance.amqp.connection import redacted
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.outcomes import Failed, Inconclusive, Unsupported, Untestable
from plumbline.conformance.runner.created_objects import CreatedObjects
from plumbline.conformance.runner.sweep import sweep
from plumbline.conformance.sessions.session import ForeignObjectError
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.target import TargetAccess, open_target
from plumbline.conformance.targets.urls import parse_url
from plumbline.reference_broker.amqp.connections.blocking import Blocking
from plumbline.reference_broker.amqp.connections.channels import Channels
from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.wire.amqp import PROTOCOL_HEADER, Decoder, Heartbeat, Method, Sender
from tests.conformance.scripted import scripted
from tests.hostile import amqp_servers
from tests.hostile.sockets import serving


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with AmqpBroker.in_thread() as url:
        yield url


@pytest.fixture
def access(broker: str, tmp_path: Path) -> TargetAccess:
    return open_target(parse_url(broker), run="abcde", shared=tmp_path)


@pytest.fixture
def session(access: TargetAccess) -> Iterator[AmqpSession]:
    with AmqpSession(access) as opened:
        yield opened


def test_name_is_prefixed_and_stable_per_label(session: AmqpSession) -> None:
    assert session.name("ORDERS").startswith("PLabcde")
    assert session.name("ORDERS").endswith("_ORDERS")
    assert session.name("ORDERS") == session.name("ORDERS") != session.name("OTHERS")


def test_a_channel_is_opened_when_it_is_first_used_and_not_again(session: AmqpSession) -> None:
    client = session.connect()
    client.call("basic.qos", 2, prefetch_count=1)
    client.send(Method.make("basic.ack", 2, delivery_tag=9))
    client.expect("channel.close", 2, reply_code=406)
    client.send(Method.make("channel.close-ok", 2), Method.make("basic.qos", 2))
    client.expect("connection.close", reply_code=504)
    sent = [line.text for line in session.wire if line.direction == ">"]
    assert sent.count("[2] channel.open") == 1


def test_manual_channels_are_not_opened_automatically(session: AmqpSession) -> None:
    client = session.connect(channels="manual")
    client.send(Method.make("basic.qos", 1))
    client.expect("connection.close", reply_code=504)


def test_expect_on_channel_ignores_other_channels_but_not_channel_0(session: AmqpSession) -> None:
    client = session.connect()
    client.send(Method.make("basic.qos", 1), Method.make("basic.qos", 2))
    client.expect("basic.qos-ok", 2)
    client.expect("basic.qos-ok", 1)
    client.send(Method.make("basic.qos", 1, prefetch_size=1))
    with pytest.raises(Failed) as caught:
        client.expect("basic.qos-ok", 2)
    assert "got connection.close" in caught.value.message


def test_silence_differs_from_lost_server(session: AmqpSession) -> None:
    client = session.connect()
    with pytest.raises(Failed, match="no operation was received") as caught:
        client.expect("basic.ack", within=0.1)
    assert caught.value.actual == "no operation within 0.1 s; the server answers channel.open"


def test_a_wrong_answer_is_evidence_and_marked(session: AmqpSession) -> None:
    client = session.connect()
    client.send(Method.make("basic.qos", 1))
    with pytest.raises(Failed) as caught:
        client.expect("basic.ack", delivery_tag=1)
    assert (caught.value.expected, caught.value.actual) == (
        "[1] basic.ack delivery_tag=1",
        "[1] basic.qos-ok",
    )
    assert [line.text for line in session.wire if line.offending] == ["[1] basic.qos-ok"]


def test_a_flush_gives_what_no_line_expected(session: AmqpSession) -> None:
    client = session.connect()
    queue = session.stage.queue("Q")
    client.send(Method.make("basic.get", 1, queue=queue), Method.make("basic.get", 2, queue=queue))
    assert sorted(operation.channel for operation in client.flush()) == [1, 2]


def test_a_large_message_is_split_as_was_agreed(session: AmqpSession) -> None:
    client = session.connect(frame_max=4096)
    queue = session.stage.queue("Q")
    client.send(Method.make("basic.publish", 1, routing_key=queue, body=b"x" * 10_000))
    client.send(Method.make("basic.get", 1, queue=queue))
    assert client.expect("basic.get-ok").body == b"x" * 10_000


@pytest.mark.parametrize(
    "method",
    [
        Method.make("queue.declare", 1, queue="orders"),
        Method.make("queue.delete", 1, queue="orders"),
        Method.make("queue.purge", 1, queue="orders"),
        Method.make("queue.bind", 1, queue="orders", exchange="amq.fanout"),
        Method.make("basic.consume", 1, queue="orders"),
        Method.make("basic.get", 1, queue="orders"),
        Method.make("exchange.delete", 1, exchange="events"),
        Method.make("exchange.bind", 1, destination="events", source="amq.fanout"),
    ],
    ids=lambda method: method.method,
)
def test_foreign_objects_are_refused(session: AmqpSession, method: Method) -> None:
    with pytest.raises(ForeignObjectError):
        session.connect().send(method)


def test_session_close_deletes_created_objects(access: TargetAccess) -> None:
    with AmqpSession(access) as session:
        queue = session.stage.queue("Q")
        client = session.connect()
        client.call("exchange.declare", exchange=session.name("E"), type="fanout")
        client.call("queue.declare", queue=session.name("X"), exclusive=True)
        assert CreatedObjects(access.shared).remaining()
    assert CreatedObjects(access.shared).remaining() == []
    with AmqpSession(access) as session:
        assert session.stage.queue_state(queue) == {"exists": False}
        answer = session.stage.answer("exchange.declare", exchange=queue.replace("Q", "E"), passive=True)
        assert answer.arguments["reply_code"] == 404


def test_what_was_sent_behind_a_refused_deletion_is_deleted_too(session: AmqpSession) -> None:
    """A refusal closes the channel; the deletions behind it, already sent, are not answered."""
    client, locked = session.connect(), session.name("X")
    client.call("queue.declare", queue=locked, exclusive=True)
    others = [session.stage.queue(name) for name in ("Q", "R")]
    session.stage.delete_all([("queue", name) for name in (others[0], locked, others[1])])
    assert [session.stage.queue_state(name) for name in others] == [{"exists": False}] * 2
    client.call("queue.declare", queue=locked, exclusive=True, passive=True)


def test_deletions_are_sent_before_the_first_is_answered(session: AmqpSession) -> None:
    queues = [session.stage.queue(name) for name in ("Q", "R", "S")]
    before = len(session.wire)
    session.stage.delete_all([("queue", name) for name in queues])
    assert [line.direction for line in session.wire[before:]] == [">", ">", ">", "<", "<", "<"]


def test_the_sweep_deletes_what_a_killed_process_left(access: TargetAccess) -> None:
    session = AmqpSession(access)
    queue = session.stage.queue("Q")
    session._made.clear()  # killed: nothing is cleaned up
    session.close()
    assert sweep(access) == [queue]
    assert sweep(access) == []
    with AmqpSession(access) as again:
        assert again.stage.queue_state(queue) == {"exists": False}


def test_the_sweep_does_not_wait_for_a_silent_server_longer_than_it_may(tmp_path: Path) -> None:
    with serving(amqp_servers.SERVERS["silent"]) as address:
        access = open_target(parse_url(f"amqp://{address}"), run="abcde", shared=tmp_path)
        CreatedObjects(access.shared).record_created("queue", f"{access.prefix}-Q")
        with pytest.raises(Untestable, match="no time left"):  # not: no answer
            sweep(access, time.monotonic() + 1)


def test_stage_failure_gives_reason(session: AmqpSession) -> None:
    session.stage.queue("Q")
    with pytest.raises(Untestable, match="PRECONDITION_FAILED"):
        session.stage.queue("Q", auto_delete=True)
    session.stage.queue("R")  # its channel is another
    with pytest.raises(Untestable, match="not confirmed"):
        session.stage.publish("PLabcde-nowhere")


def test_stage_without_a_channel_is_untestable(session: AmqpSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """What hinders the stage is no verdict."""
    stage = session.stage

    def answers_otherwise(channels: Channels, connection: AmqpClientConnection, number: int) -> None:
        channels.outbox.send(connection, number, "basic.qos-ok")

    monkeypatch.setattr(Channels, "open", answers_otherwise)
    with pytest.raises(Untestable, match="channel 1 was refused"):
        stage.queue("ORDERS")


def test_alarms_come_unasked(access: TargetAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server short of memory may send connection.blocked and unblocked at any time."""

    def comes_and_goes(blocking: Blocking, connection: AmqpClientConnection) -> None:
        blocking.outbox.send(connection, 0, "connection.blocked", "low on memory")
        blocking.outbox.send(connection, 0, "connection.unblocked")

    monkeypatch.setattr(Blocking, "notify", comes_and_goes)
    with AmqpSession(access) as session:
        client = session.connect()
        client.call("basic.qos")
        client.expect_silence(for_s=0.05)
        session.stage.queue("ORDERS")
        texts = [line.text for line in session.wire]
        assert any("connection.blocked" in text for text in texts)
        failed = Failed("nothing came")
        assert session.explained(failed) is failed


def test_a_blocked_publisher_is_no_failure(access: TargetAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    def stays(blocking: Blocking, connection: AmqpClientConnection) -> None:
        blocking.outbox.send(connection, 0, "connection.blocked", "low on memory")

    monkeypatch.setattr(Blocking, "notify", stays)
    with AmqpSession(access) as session:
        session.connect().call("basic.qos")
        explained = session.explained(Failed("nothing came"))
    assert isinstance(explained, Unsupported)
    assert "makes publishers wait (connection.blocked: low on memory)" in explained.message


@pytest.mark.parametrize(
    ("text", "is_missing"),
    {
        "ACCESS_REFUSED - configure access to exchange 'amq.direct' in vhost '/' refused for user 'u'": True,
        "ACCESS_REFUSED - User doesn't have permissions to declare queue 'q'": True,
        "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use": False,
        "ACCESS_REFUSED - exchange name 'amq.q' contains reserved prefix 'amq.*'": False,
    }.items(),
)
def test_a_missing_permission_is_unsupported(session: AmqpSession, text: str, is_missing: bool) -> None:
    client = session.connect()
    client._auto_reply(Method.make("channel.close", 1, reply_code=403, reply_text=text))
    failed = Failed("expected exchange.declare-ok, got channel.close")
    explained = session.explained(failed)
    assert explained.message == (f"no permission: {text}" if is_missing else failed.message)
    assert isinstance(explained, Unsupported) is is_missing


@pytest.mark.parametrize(("arguments", "sent"), [({}, "classic"), ({"x-queue-type": "quorum"}, "quorum")])
def test_queues_are_classic_where_another_type_is_the_default(
    session: AmqpSession, arguments: dict[str, str], sent: str
) -> None:
    client = session.connect()
    client.queue_type = lambda: "classic"
    client.send(Method.make("queue.declare", 1, queue=session.name("Q"), durable=True, arguments=arguments))
    (declared,) = [line.text for line in session.wire if "queue.declare " in line.text]
    assert f"'x-queue-type': '{sent}'" in declared
    client.send(Method.make("queue.declare", 2, queue=session.name("Q"), passive=True))
    assert "x-queue-type" not in session.wire[-1].text


def test_await_queue_polls_and_reports_state(session: AmqpSession) -> None:
    queue = session.stage.queue("Q")
    session.stage.publish(queue, b"m1")
    before = session.observations
    session.stage.expect_queue(queue, message_count=1, consumer_count=0)
    assert session.observations == before + 1
    with pytest.raises(Failed, match="message_count: expected 2, found 1"):
        session.stage.expect_queue(queue, within=0.1, message_count=2)
    with pytest.raises(Untestable):
        session.stage.await_queue(queue, within=0.1, exists=False)


def test_a_feature_is_a_capability_or_the_product(session: AmqpSession) -> None:
    session.needs("publisher_confirms")
    session.needs("basic.nack")
    with pytest.raises(Unsupported, match="does not claim 'teleportation'"):
        session.needs("teleportation")


def test_a_password_reaches_no_journal(session: AmqpSession) -> None:
    session.connect()
    starts = [line for line in session.wire if "connection.start-ok" in line.text]
    assert starts
    assert not any(b"guest\0guest" in line.raw or "guest" in line.text for line in starts)
    secret = Method.make("connection.update-secret", new_secret="s3cret")
    hidden = redacted(secret)
    assert len(hidden.raw) == len(secret.raw)
    assert b"s3cret" not in hidden.raw


def test_a_refused_login_is_a_failed_handshake(session: AmqpSession) -> None:
    with pytest.raises(Failed, match="the login was refused") as caught:
        session.connect(password="wrong")
    assert "reply_code=403" in caught.value.actual


def _mute(link: socket.socket) -> None:
    """Shakes hands and answers nothing after that, but a heartbeat."""
    link.recv(len(PROTOCOL_HEADER))
    start = Method.make("connection.start", server_properties={"version": "3.10.8"}, mechanisms="PLAIN")
    link.sendall(start.raw)
    decoder = Decoder(Sender.SERVER)
    while data := link.recv(65536):
        for operation in decoder.feed(data):
            if operation.method == "connection.start-ok":
                link.sendall(Method.make("connection.tune", frame_max=131072, channel_max=10).raw)
            if operation.method == "connection.open":
                link.sendall(Method.make("connection.open-ok").raw + Heartbeat.make().raw)


def test_a_server_that_answers_nothing_is_inconclusive(access: TargetAccess) -> None:
    with scripted(_mute) as address:
        mute = replace(access, running=RunningTarget(parse_url(f"amqp://{address}")))
        with AmqpSession(mute) as session:
            client = session.connect(channels="manual")
            with pytest.raises(Inconclusive, match=r"channel\.open is not answered"):
                client.expect("basic.ack", within=0.1)


def _busy(link: socket.socket) -> None:
    """Answers queue.declare only when something else is asked on its channel, and other channels at once."""
    decoder = Decoder(Sender.CLIENT)
    while data := link.recv(4096):
        for operation in decoder.feed(data):
            if operation.raw == PROTOCOL_HEADER:
                link.sendall(Method.make("connection.start", mechanisms="PLAIN", locales="en_US").raw)
            elif operation.method == "connection.start-ok":
                link.sendall(Method.make("connection.tune", frame_max=131072, channel_max=10).raw)
            elif operation.method in ("connection.open", "channel.open"):
                link.sendall(Method.make(f"{operation.method}-ok", operation.channel).raw)
            elif operation.method == "channel.flow":
                answer = Method.make("queue.declare-ok", operation.channel, queue="q")
                link.sendall(answer.raw + Method.make("channel.flow-ok", operation.channel, active=True).raw)


def test_a_channel_that_is_busy_is_late_and_not_silent(access: TargetAccess) -> None:
    with scripted(_busy) as address:
        busy = replace(access, running=RunningTarget(parse_url(f"amqp://{address}")))
        with AmqpSession(busy) as session:
            client = session.connect()
            with pytest.raises(Inconclusive, match=r"after its limit"):
                client.call("queue.declare", within=0.1, queue=session.name("ORDERS"))
