"""Traces played against real servers: what passes, and what a mismatch reports."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import CheckEnded, Failed, Inconclusive, Unsupported, Untestable
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.target import NatsUrl, open_target
from plumbline.conformance.trace.cases import parse_trace
from plumbline.conformance.trace.player import play
from plumbline.servers.nats.nats_server import NatsServer
from tests.conformance.scripted import INFO, lines, nats, scripted
from tests.conformance.trace.test_header import DESIGN_PAGE
from tests.conformance.trace.writing import trace

PULL = """\
given stream ORDERS subjects=ORDERS.>
given consumer ORDERS DISPATCH ack=explicit
> SUB $inbox 1
> PUB $JS.API.CONSUMER.MSG.NEXT.ORDERS.DISPATCH $inbox {"batch":1,"no_wait":true}
"""


@pytest.fixture
def session(nats_server: NatsServer) -> Iterator[NatsSession]:
    with NatsSession(open_target(NatsUrl.parse(nats_server.url))) as opened:
        yield opened


def ended(session: NatsSession, body: str, header: str = "") -> CheckEnded:
    """How a trace ends that does not pass."""
    with pytest.raises(CheckEnded) as raised:
        play(trace(body, header), session)
    return raised.value


def offending(session: NatsSession) -> list[str]:
    return [line.text for line in session.wire if line.offending]


def test_the_example_of_the_design_page_passes(session: NatsSession) -> None:
    play(parse_trace(DESIGN_PAGE, "design.trace"), session)
    assert session.observations == 2


def test_wrong_status_reports_expected_actual_and_location(session: NatsSession) -> None:
    error = ended(
        session, PULL + "< HMSG $inbox 1 | NATS/1.0 408 Request Timeout | Nats-Pending-Messages: 1\n"
    )
    inbox = session.inbox("inbox")
    assert isinstance(error, Failed)
    assert error.where == "a.trace:8"
    assert error.message == (
        "client: status: expected 408 Request Timeout, got 404 No Messages; "
        "header Nats-Pending-Messages: expected 1, got no such header"
    )
    assert error.expected == f"HMSG {inbox} 1 | NATS/1.0 408 Request Timeout | Nats-Pending-Messages: 1"
    assert "404 No Messages" in error.actual
    assert offending(session) == [error.actual]


def test_silence_reports_expected_line(session: NatsSession) -> None:
    error = ended(session, "> SUB foo 1\n< MSG foo 1 | hi   within 50ms\n")
    assert isinstance(error, Failed)
    assert error.where == "a.trace:5"
    assert error.expected == f"MSG {session.name('foo')} 1 | hi"
    assert error.actual == "no operation within 0.05 s; the server answers PING"


AGED = "given stream ORDERS subjects=ORDERS.> max_age={age}\ngiven message ORDERS.new || m\n"


def test_a_state_that_comes_before_its_time_is_a_failure(session: NatsSession) -> None:
    error = ended(session, AGED.format(age="100ms") + "expect stream ORDERS messages=0 after 1h\n")
    assert isinstance(error, Failed)
    assert error.message.endswith("s after the last line sent, too early")
    assert error.expected == "messages=0 not before 3600 s"


def test_a_state_that_comes_in_its_time_passes(session: NatsSession) -> None:
    play(trace(AGED.format(age="100ms") + "expect stream ORDERS messages=0 between 80ms and 3s\n"), session)
    assert session.observations == 1


def test_a_state_that_does_not_stay_is_a_failure(session: NatsSession) -> None:
    error = ended(session, AGED.format(age="300ms") + "expect stream ORDERS messages=1 for 5s\n")
    assert isinstance(error, Failed)
    assert error.message == "messages: expected 1, found 0"
    assert error.expected == "messages=1 for 5 s"


def test_a_state_that_stays_passes(session: NatsSession) -> None:
    play(trace(AGED.format(age="1h") + "expect stream ORDERS messages=1 within 1s for 50ms\n"), session)
    assert session.observations == 1


def test_something_instead_of_nothing_is_a_failure(session: NatsSession) -> None:
    error = ended(session, PULL + "< nothing for 100ms\n")
    assert isinstance(error, Failed)
    assert (error.where, error.expected) == ("a.trace:8", "nothing for 0.1 s")
    assert offending(session) == [error.actual]


def test_an_operation_that_no_line_expects_is_a_failure_at_the_end(session: NatsSession) -> None:
    error = ended(session, "> SUB foo 1\n> PUB foo | a\n> PUB foo | b\n< MSG foo 1 | a\n")
    assert isinstance(error, Failed)
    assert error.where == "a.trace:7"
    assert error.message == "client: an operation was received that no line expects"
    assert error.actual == f"MSG {session.name('foo')} 1 1 | b"
    assert offending(session) == [error.actual]


def test_captures_carry_from_what_came_to_what_is_sent(session: NatsSession) -> None:
    play(
        trace(
            """\
given stream ORDERS subjects=ORDERS.>
given consumer ORDERS DISPATCH
given message ORDERS.new | Nats-Msg-Id: 1 || order 1
given message ORDERS.new || order 2
await consumer ORDERS DISPATCH num_pending=2
> SUB $inbox 1
> SUB $reply 2
> PUB $JS.API.CONSUMER.MSG.NEXT.ORDERS.DISPATCH $inbox {"batch":2}
< HMSG ORDERS.new 1 $JS.ACK.ORDERS.DISPATCH.1.{seq}.1.{ts:ns}.1 | Nats-Msg-Id: {n:int} || order {n}
< MSG ORDERS.new 1 {ack} | order {n+1}
> PUB {ack} $reply | +ACK
< MSG $reply 2 |
> PUB $JS.ACK.ORDERS.DISPATCH.1.{seq}.1.{ts}.1 $reply
< MSG $reply 2 0
expect consumer ORDERS DISPATCH delivered=2/{seq+1} ack_floor=2/2 num_ack_pending=0
expect stream ORDERS messages=2 last_seq=2
"""
        ),
        session,
    )
    assert session.observations == 6


def test_bytes_are_those_of_the_subjects_as_written(session: NatsSession) -> None:
    body = "given stream ORDERS subjects=ORDERS.> storage=file\ngiven message ORDERS.processed || order 4\n"
    play(trace(body + "expect stream ORDERS messages=1 bytes=53\n"), session)


def test_missing_state_fails_expect_and_is_untestable_for_await(session: NatsSession) -> None:
    stream = "given stream A\n"
    error = ended(session, stream + "expect stream A messages=1 within 50ms\n")
    assert isinstance(error, Failed)
    assert (error.where, error.message) == ("a.trace:5", "messages: expected 1, found 0")
    error = ended(session, stream + "await stream A messages=1 within 50ms\n< PONG\n")
    assert isinstance(error, Untestable)
    assert error.where == "a.trace:5"


def test_connections_are_matched_by_name(session: NatsSession) -> None:
    body = """\
worker> SUB jobs workers 7
worker> PING
worker< PONG
> PUB jobs | one
worker< MSG jobs 7 | one
worker< nothing for 50ms
close worker
> PUB jobs | two
"""
    play(trace(body), session)


def test_any_order_takes_operations_as_they_come(session: NatsSession) -> None:
    body = (
        "> SUB foo 1\n> SUB foo 2\n> PUB foo | a\nin any order\n< MSG foo 2 | {x}\n< MSG foo 1 | {x}\nend\n"
    )
    play(trace(body), session)
    assert session.observations == 2


def test_any_order_names_the_nearest_line(session: NatsSession) -> None:
    error = ended(
        session, "> SUB foo 1\n> PUB foo | c\nin any order\n< MSG foo 2 | a\n< MSG foo 1 | b\nend\n"
    )
    assert error.where == "a.trace:6"
    assert error.message == "client: fits no line of the group; nearest is line 8: payload: expected b, got c"
    assert offending(session) == [error.actual]


def test_any_order_wants_every_line_filled(session: NatsSession) -> None:
    error = ended(
        session,
        "> SUB foo 1\n> PUB foo | a\n> PUB foo | a\nin any order\n< MSG foo 1 | a\n< MSG foo 1 | b\nend\n",
    )
    assert error.message == "the received operations do not match every line of the group"


def test_early_operation_fails(session: NatsSession) -> None:
    error = ended(session, "> SUB foo 1\n> PUB foo | a\n< MSG foo 1 | a     after 10s\n")
    assert isinstance(error, Failed)
    assert "too early" in error.message
    assert offending(session) == [f"MSG {session.name('foo')} 1 1 | a"]


def test_a_close_is_expected_and_ends_the_connection(session: NatsSession) -> None:
    body = """\
given connection raw handshake=none
raw< INFO {"max_payload":{:int}}
raw> raw "GARBAGE\\r\\n"
raw< -ERR 'unknown protocol operation'
raw< closed within 1s
"""
    play(trace(body), session)
    assert session.observations == 3


def test_a_close_that_no_line_expects_is_a_failure(session: NatsSession) -> None:
    error = ended(session, "> raw \"GARBAGE\\r\\n\"\n< -ERR 'Unknown Protocol Operation'\n")
    assert isinstance(error, Failed)
    assert error.message == "client: the target closed the connection"


def test_a_close_without_handshake_that_no_line_expects_is_a_failure() -> None:
    def hanging_up(link: socket.socket, line: bytes) -> None:
        if line == b"x\r\n":
            link.shutdown(socket.SHUT_RDWR)

    with scripted(nats(hanging_up)) as address, NatsSession(open_target(NatsUrl.parse(address))) as opened:
        body = 'given connection bare handshake=none\nbare> raw "x\\r\\n"\n< nothing for 100ms\n'
        error = ended(opened, body)
    assert isinstance(error, Failed)
    assert (error.where, error.expected) == ("a.trace:6", "an open connection: no line expects it closed")


def test_ping_is_answered_and_skipped_unless_asked_for() -> None:
    def pinging(link: socket.socket, line: bytes) -> None:
        if line.startswith(b"PUB"):
            link.sendall(b"PING\r\nMSG foo 1 0\r\n\r\n")

    with scripted(nats(pinging)) as address, NatsSession(open_target(NatsUrl.parse(address))) as opened:
        body = "> PUB foo\n< MSG foo 1\n> PUB foo\n< PING\n< MSG foo 1\n"
        play(trace(body, "names literal\n"), opened)
        assert [line.text for line in opened.wire if line.direction == ">"].count("PONG") == 2


def test_options_reach_the_handshake(session: NatsSession) -> None:
    options = "given connection client verbose=true echo=false\n"
    play(trace(options + "> SUB foo 1\n< +OK\n> PUB foo | a\n< +OK\n< nothing for 50ms\n"), session)


def test_a_capture_that_is_no_number_fails_where_it_is_calculated_with(session: NatsSession) -> None:
    error = ended(session, "> SUB foo 1\n> PUB foo | a\n< MSG foo 1 | {n}\n> PUB foo | {n+1}\n")
    assert isinstance(error, Failed)
    assert error.where == "a.trace:7"
    assert error.message == "the capture {n} is 'a', which is no number to calculate with"


def test_a_feature_or_variant_that_is_not_there_is_unsupported(session: NatsSession) -> None:
    for header in ("needs auth_required\n", "variant auth\n"):
        assert isinstance(ended(session, "> PING\n< PONG\n", header), Unsupported)


def test_late_operation_is_inconclusive_with_location() -> None:
    def late(link: socket.socket) -> None:
        link.sendall(INFO)
        pings = (line for line in lines(link) if line == b"PING\r\n")
        for number, _ in enumerate(pings):
            # The first is of the handshake; the second, after the limit, separates silence from lateness.
            link.sendall(b"PONG\r\n" if number != 1 else b"MSG a 1 0\r\n\r\nPONG\r\n")

    with scripted(nats(lambda link, line: None)) as healthy:
        access = open_target(NatsUrl.parse(healthy))
    with scripted(late) as address:
        moved = replace(access, running=RunningTarget(NatsUrl.parse(address)))
        with NatsSession(moved) as opened:
            error = ended(opened, "> PUB foo\n< MSG * 1   within 10ms\n")
    assert isinstance(error, Inconclusive)
    assert error.where == "a.trace:5"
