"""What the reference does is written down as a trace that anyone can read, and that can be played."""

from __future__ import annotations

from hypothesis import given, settings

from plumbline.conformance.explore.commands import (
    Acknowledge,
    Command,
    CreateConsumer,
    CreateStream,
    DeleteStream,
    Leave,
    Listen,
    Publish,
    Pull,
    Wait,
)
from plumbline.conformance.explore.program_writer import write
from plumbline.conformance.explore.programs import Program, programs
from plumbline.conformance.explore.trial import trace_text
from plumbline.conformance.trace.cases import parse_trace
from plumbline.reference_broker.nats.virtual import VirtualBroker
from tests.conformance.explore.worlds import reference

MS = 1_000_000
STREAM = CreateStream("ORDERS")
CONSUMER = CreateConsumer("ORDERS", "DISPATCH", {"ack_policy": "explicit"})


def lines(*commands: Command, level: str = "newest") -> list[str]:
    return list(write(commands, VirtualBroker(jetstream=True, level=level)).lines)


@settings(max_examples=50)
@given(programs())
def test_every_program_is_written_as_a_trace_that_can_be_read(program: Program) -> None:
    script = write(program, reference())
    trace = parse_trace(trace_text(script, title="t", source="s", verifies="JS-API-009"), "t.trace")
    assert trace.steps


@settings(max_examples=20)
@given(programs())
def test_writing_a_program_is_deterministic(program: Program) -> None:
    assert write(program, reference()) == write(program, reference())


def test_a_publish_is_written_with_its_answer_and_the_state_it_leaves() -> None:
    assert lines(STREAM, Publish("ORDERS", "a"))[-3:] == [
        "> PUB ORDERS.a $inbox | m1",
        '< MSG $inbox 1 {"error":{:absent},"stream":"ORDERS","seq":1,"duplicate":{:absent}}',
        "expect stream ORDERS messages=1 first_seq=1 last_seq=1",
    ]


def test_ack_subject_uses_captured_delivery_time() -> None:
    written = lines(
        STREAM, CONSUMER, Publish("ORDERS", "a"), Pull("ORDERS", "DISPATCH"), Acknowledge(0, "+ACK")
    )
    assert "w1< MSG ORDERS.a 1 $JS.ACK.ORDERS.DISPATCH.1.1.1.{t1:ns}.0 | m1" in written
    assert "> PUB $JS.ACK.ORDERS.DISPATCH.1.1.1.{t1}.0 $inbox | +ACK" in written
    assert written[-1] == (
        "expect consumer ORDERS DISPATCH"
        " delivered=1/1 ack_floor=1/1 num_ack_pending=0 num_redelivered=0 num_pending=0"
    )


def test_a_refusal_is_written_with_its_numbers_alone() -> None:
    assert lines(DeleteStream("ORDERS"))[-1] == '< MSG $inbox 1 {"error":{"code":404,"err_code":10059}}'


def test_timer_output_is_written_with_delay() -> None:
    pull = Pull("ORDERS", "DISPATCH", {"batch": 1, "expires": 600 * MS})
    written = lines(STREAM, CONSUMER, pull, Wait(0.9))
    assert (
        "w1< HMSG $w1a 1 | NATS/1.0 408 Request Timeout"
        " | Nats-Pending-Messages: 1 | Nats-Pending-Bytes: 0 between 400ms and 1600ms" in written
    )
    assert [line for line in written if line.startswith("< nothing for 30")]


def test_no_request_just_before_a_timer() -> None:
    """0.5 s into a request of 0.6 s: whoever comes next would race with its end, which is awaited instead."""
    pull = Pull("ORDERS", "DISPATCH", {"batch": 1, "expires": 600 * MS})
    written = lines(STREAM, CONSUMER, pull, Wait(0.5), Publish("ORDERS", "a"))
    ends = next(number for number, line in enumerate(written) if "408 Request Timeout" in line)
    assert ends < written.index("> PUB ORDERS.a $inbox | m1")


def test_a_command_upon_what_is_not_there_is_none() -> None:
    assert lines(STREAM, Acknowledge(3, "+ACK")) == lines(STREAM)


def test_push_deliveries_have_own_connection() -> None:
    push = CreateConsumer("ORDERS", "DISPATCH", {"ack_policy": "explicit"}, "a")
    written = lines(STREAM, push, Listen("ORDERS", "DISPATCH"), Publish("ORDERS", "a"))
    assert any('"deliver_subject":"$w1a"' in line for line in written)
    assert "w1> SUB $w1a 1" in written
    assert "w1< MSG ORDERS.a 1 $JS.ACK.ORDERS.DISPATCH.1.1.1.{t1:ns}.0 | m1" in written
    assert written[-1].endswith("push_bound=true")


def test_commands_wait_for_unsubscribe() -> None:
    push = CreateConsumer("ORDERS", "DISPATCH", {"ack_policy": "explicit"}, "a")
    leave = Leave("ORDERS", "DISPATCH")
    written = lines(STREAM, push, Listen("ORDERS", "DISPATCH"), leave, Listen("ORDERS", "DISPATCH"))
    end = written.index("w1> UNSUB 1")
    assert written[end + 1 : end + 3] == ["w1> PING", "w1< PONG"]
    assert "w1> SUB $w1a 2" in written[end:]


def test_no_unsubscribe_while_pull_request_may_wait() -> None:
    waiting = Pull("ORDERS", "DISPATCH", {"batch": 2})
    assert not any("UNSUB" in line for line in lines(STREAM, CONSUMER, waiting, Leave("ORDERS", "DISPATCH")))
