"""What a connection takes for evidence, for a failure, and for neither."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from msgspec.structs import replace

from plumbline.conformance.nats.connection import NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed, Flooded, Inconclusive, NothingCame, Unanswered
from plumbline.conformance.sessions import received
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.target import NatsUrl, open_target
from plumbline.wire.nats import Err, Msg, Ping, Pong, Pub
from tests.conformance.scripted import INFO, lines, nats, scripted
from tests.patience import HANGS_AFTER_S

Answer = Callable[[socket.socket, bytes], None]

PATIENCE_S = 30.0


@contextmanager
def connected(answer: Answer, **options: Any) -> Iterator[tuple[NatsSession, NatsConnection]]:
    with scripted(nats(answer)) as address, NatsSession(open_target(NatsUrl.parse(address))) as session:
        yield session, session.connect(**options)


def answering(reply: bytes) -> Answer:
    return lambda link, line: link.sendall(reply) if line.startswith(b"PUB") else None


def test_an_expected_operation_is_one_observation() -> None:
    with connected(answering(b"MSG a 1 2\r\nhi\r\n")) as (session, client):
        client.send(Pub.make("a"))
        assert client.expect(Msg, subject="a", payload=b"hi").sid == "1"
        assert session.observations == 1


def test_all_differences_are_reported_and_line_is_marked() -> None:
    with connected(answering(b"MSG a 1 2\r\nhi\r\n")) as (session, client):
        client.send(Pub.make("a"))
        with pytest.raises(Failed) as raised:
            client.expect(Msg, subject="b", payload=b"ho")
        assert "subject: expected 'b', got 'a'" in raised.value.message
        assert "payload: expected b'ho', got b'hi'" in raised.value.message
        assert raised.value.actual == "MSG a 1 2 | hi"
        assert [line.text for line in session.wire if line.offending] == ["MSG a 1 2 | hi"]


def test_a_control_line_counts_twice_because_its_fields_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "ARRIVED_BYTES_OF_CHECK", 1000)
    for size, is_flood in ((300, False), (600, True)):
        with connected(answering(b'INFO {"pad":"%s"}\r\nMSG a 1 2\r\nhi\r\n' % (b"z" * size))) as (_, client):
            client.send(Pub.make("a"))
            with pytest.raises(Flooded) if is_flood else nullcontext():
                client.expect(Msg, subject="a")


def test_silence_of_a_server_that_answers_ping_is_a_failure() -> None:
    with connected(lambda link, line: None) as (_, client), pytest.raises(Failed) as raised:
        client.expect(Msg, within=0.05)
    assert raised.value.actual == "no operation within 0.05 s; the server answers PING"


@contextmanager
def connected_to_a_late_server() -> Iterator[NatsConnection]:
    """The answer comes with the PONG to the PING that separates silence from a late answer."""

    def late(link: socket.socket) -> None:
        link.sendall(INFO)
        pings = 0
        for line in lines(link):
            if line == b"PING\r\n":
                pings += 1
                link.sendall(b"MSG a 1 0\r\n\r\nPONG\r\n" if pings == 2 else b"PONG\r\n")

    with scripted(nats(lambda link, line: None)) as healthy:
        access = open_target(NatsUrl.parse(healthy))
    with scripted(late) as address:
        moved = replace(access, running=RunningTarget(NatsUrl.parse(address)))
        with NatsSession(moved) as session:
            yield session.connect()


def test_late_operation_is_inconclusive() -> None:
    with (
        connected_to_a_late_server() as client,
        pytest.raises(Inconclusive, match=r"came \d.* after its limit"),
    ):
        client.expect(Msg, within=0.05)


@contextmanager
def connected_to_a_server_that_owes_a_pong(pongs: bytes) -> Iterator[NatsConnection]:
    """``pongs`` are its answer to the second PING after the handshake; the first has none."""

    def owing(link: socket.socket) -> None:
        link.sendall(INFO)
        answers = iter((b"PONG\r\n", b"", pongs))
        for line in lines(link):
            if line == b"PING\r\n":
                link.sendall(next(answers))

    with scripted(nats(lambda link, line: None)) as healthy:
        access = open_target(NatsUrl.parse(healthy))
    with scripted(owing) as address:
        moved = replace(access, running=RunningTarget(NatsUrl.parse(address)))
        with NatsSession(moved) as session:
            client = session.connect()
            client.send(Ping.make())
            yield client


def test_a_pong_that_comes_with_the_next_one_was_late() -> None:
    with (
        connected_to_a_server_that_owes_a_pong(b"PONG\r\nPONG\r\n") as client,
        pytest.raises(Inconclusive, match=r"came \d.* after its limit"),
    ):
        client.expect(Pong, within=0.05)


def test_a_pong_that_never_comes_is_a_failure() -> None:
    with (
        connected_to_a_server_that_owes_a_pong(b"PONG\r\n") as client,
        pytest.raises(NothingCame),
    ):
        client.expect(Pong, within=0.05)


def test_a_server_that_is_slow_to_answer_at_all_is_given_time_for_the_rest() -> None:
    """What decides how long a missing answer is waited for is how long the question took."""

    def slow(link: socket.socket) -> None:
        link.sendall(INFO)
        pings = 0
        for line in lines(link):
            if line == b"PING\r\n":
                pings += 1
                time.sleep(0.6 if pings > 1 else 0.0)  # a peer that is slow on purpose
                link.sendall(b"PONG\r\n")
                if pings > 1:
                    time.sleep(0.6)
                    link.sendall(b"MSG a 1 0\r\n\r\n")

    with scripted(nats(lambda link, line: None)) as healthy:
        access = open_target(NatsUrl.parse(healthy))
    with scripted(slow) as address:
        moved = replace(access, running=RunningTarget(NatsUrl.parse(address)))
        with NatsSession(moved) as session, pytest.raises(Inconclusive, match=r"came \d.* after its limit"):
            session.connect().expect(Msg, within=0.05)


def test_lateness_does_not_excuse_the_wrong_operation() -> None:
    with (
        connected_to_a_late_server() as client,
        pytest.raises(Failed, match="subject: expected 'b', got 'a'"),
    ):
        client.expect(Msg, within=0.05, subject="b")


def test_a_server_that_no_longer_answers_is_inconclusive() -> None:
    def deaf(link: socket.socket) -> None:
        link.sendall(INFO)
        answered = False
        for line in lines(link):
            if line == b"PING\r\n" and not answered:
                answered = True
                link.sendall(b"PONG\r\n")

    with scripted(nats(lambda link, line: None)) as healthy:
        access = open_target(NatsUrl.parse(healthy))
    with scripted(deaf) as address:
        moved = replace(access, running=RunningTarget(NatsUrl.parse(address)))
        with NatsSession(moved) as session, pytest.raises(Inconclusive, match="PING is not answered"):
            session.connect().expect(Msg, within=0.05)


def test_an_open_connection_is_no_failure_where_new_ones_get_no_answer() -> None:
    numbers = itertools.count(1)

    def answers_the_first(link: socket.socket) -> None:
        link.sendall(INFO)
        is_first = next(numbers) == 1
        for line in lines(link):
            if line == b"PING\r\n" and is_first:
                link.sendall(b"PONG\r\n")

    with scripted(nats(lambda link, line: None)) as healthy:
        access = open_target(NatsUrl.parse(healthy))
    with scripted(answers_the_first) as address:
        moved = replace(access, running=RunningTarget(NatsUrl.parse(address)))
        with NatsSession(moved) as session, pytest.raises(Unanswered, match="did not close") as raised:
            session.connect().expect_closed(within=0.0)
    assert raised.value.request == "a new connection"
    assert raised.value.address == address.rpartition("/")[2]


def test_unexpected_close_fails_if_target_is_alive() -> None:
    with connected(lambda link, line: link.shutdown(socket.SHUT_RDWR)) as (_, client):
        client.send(Pub.make("a"))
        with pytest.raises(Failed, match="closed the connection"):
            client.expect(Msg)


def test_expected_close_must_not_follow_other_operations() -> None:
    def refuse(link: socket.socket, line: bytes) -> None:
        link.sendall(b"-ERR 'Parser Error'\r\n")
        link.shutdown(socket.SHUT_RDWR)

    with connected(refuse) as (session, client):
        client.send(Pub.make("a"))
        client.expect(Err, message="Parser Error")
        client.expect_closed()
        assert session.observations == 2
    with connected(refuse) as (_, client):
        client.send(Pub.make("a"))
        with pytest.raises(Failed, match="did not close"):
            client.expect_closed()


def test_a_close_that_comes_late_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer closes once the limit has passed, however long that takes on this machine."""
    is_late = threading.Event()

    def close_late(link: socket.socket, line: bytes) -> None:
        if line.startswith(b"PUB"):
            is_late.wait()
            link.shutdown(socket.SHUT_RDWR)

    with connected(close_late) as (_, client):
        poll = client.poll

        def poll_then_let_close(deadline: float) -> object:
            arrival = poll(deadline)
            is_late.set()
            return arrival

        monkeypatch.setattr(client, "poll", poll_then_let_close)
        # The grace is not the limit of this test.
        monkeypatch.setattr("plumbline.conformance.sessions.connection.GRACE_S", 60.0)
        client.send(Pub.make("a"))
        with pytest.raises(Inconclusive, match="after its limit"):
            client.expect_closed(within=0.0)


def test_bytes_that_are_not_the_protocol_are_a_failure_that_shows_them() -> None:
    with connected(answering(b"MSG a 1 x\r\n")) as (session, client):
        client.send(Pub.make("a"))
        with pytest.raises(Failed) as raised:
            client.expect(Msg)
    assert "MSG a 1 x" in raised.value.actual
    assert any(b"MSG a 1 x" in line.raw for line in session.wire if line.direction == "!")


def test_nothing_fails_on_anything_but_ping_and_info() -> None:
    with connected(answering(b"PING\r\n" + INFO)) as (session, client):
        client.send(Pub.make("a"))
        until = time.monotonic() + PATIENCE_S
        while [line.text for line in session.wire if line.direction == ">"][-1] != "PONG":
            assert time.monotonic() < until
            client.expect_silence(0.05)
    with connected(answering(b"+OK\r\n")) as (_, client):
        client.send(Pub.make("a"))
        with pytest.raises(Failed, match="an unexpected operation was received"):
            client.expect_silence(PATIENCE_S)  # which what comes ends


def test_operation_read_late_makes_silence_inconclusive() -> None:
    has_sent = threading.Event()

    def answer(link: socket.socket, line: bytes) -> None:
        link.sendall(b"+OK\r\n")
        has_sent.set()

    with connected(answer) as (_, client):
        client.send(Pub.make("a"))
        assert has_sent.wait(HANGS_AFTER_S)
        with pytest.raises(Inconclusive, match="after the silence"):
            client.expect_silence(0.0)


def test_a_password_does_not_reach_the_journal() -> None:
    with connected(lambda link, line: None, user="u", **{"pass": "s3cret", "auth_token": "t0ken"}) as (
        session,
        _,
    ):
        shown = b"".join(line.raw for line in session.wire)
        assert b'"pass":"******"' in shown
        assert b"s3cret" not in shown
        assert b"t0ken" not in shown


def test_two_connections_are_read_while_either_waits() -> None:
    with connected(answering(b"+OK\r\n")) as (session, first):
        second = session.connect("second")
        second.send(Pub.make("a"))
        first.send(Ping.make())
        until = time.monotonic() + PATIENCE_S
        while not any(line.connection == "second" and line.text == "+OK" for line in session.wire):
            assert time.monotonic() < until
            session.pause(0.05)


def test_name_is_stable_per_label_and_unique_per_session() -> None:
    with scripted(nats(lambda link, line: None)) as address:
        access = open_target(NatsUrl.parse(address), run="abcde")
        with NatsSession(access) as one, NatsSession(access) as other:
            assert one.name("ORDERS") == one.name("ORDERS")
            assert one.name("ORDERS") != other.name("ORDERS")
            assert one.name("ORDERS").startswith("PLabcde")
            assert one.name("ORDERS").endswith("_ORDERS")
