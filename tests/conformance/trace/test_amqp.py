"""AMQP in traces: what a line sends, what it expects, and the error of a line that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from plumbline.conformance.trace.cases import parse_trace
from plumbline.conformance.trace.language import Expect, Send, Trace
from plumbline.conformance.trace.names import Names
from plumbline.conformance.trace.template import TraceScope
from plumbline.conformance.trace.text import TraceSyntaxError
from plumbline.wire.amqp import Heartbeat, Method, Operation, ProtocolHeader

HEADER = "title a title\nsource a document\nverifies AMQP-ACK-001\nprotocol amqp\n"


def trace(body: str) -> Trace:
    """A trace whose body begins on line 5."""
    return parse_trace(HEADER + body, "a.trace")


def scope(read: Trace, **captures: str) -> TraceScope:
    """ORDERS is PL_ORDERS on the wire, and so is $orders PL_orders."""
    return TraceScope(Names(read.labels, "PL_{}".format, "PL_{}".format), captures)


def sent(line: str) -> Operation:
    """What the first line of a trace sends."""
    read = trace(f"{line}\n< nothing for 1ms\n")
    step = read.steps[0]
    assert isinstance(step, Send)
    operation = step.outgoing.operation(scope(read))
    assert isinstance(operation, Operation)
    return operation


def differences(pattern: str, operation: Operation, **captures: str) -> tuple[list[str], dict[str, str]]:
    """What the last line of a trace has against an operation, and what is captured then."""
    read = trace(pattern)
    step = read.steps[-1]
    assert isinstance(step, Expect)
    known = scope(read, **captures)
    found = [str(difference) for difference in step.pattern.differences(operation, known)]
    return found, known.captures


def problem(body: str) -> str:
    """The first thing wrong with a trace."""
    with pytest.raises(TraceSyntaxError) as caught:
        trace(body)
    first = caught.value.problems[0]
    return f"{first.line}:{first.column}: {first.message}"


PUBLISH = Method.make("basic.publish", 1, routing_key="PL_ORDERS", mandatory=True, body=b"m1")

SENT: dict[str, Operation] = {
    '> basic.publish exchange="" routing_key=ORDERS mandatory=true body="m1"': Method.make(
        "basic.publish", 1, routing_key="ORDERS", mandatory=True, body=b"m1"
    ),
    "> basic.get queue=ORDERS": Method.make("basic.get", 1, queue="PL_ORDERS"),
    "> [3] basic.get queue=$orders no_ack=true": Method.make("basic.get", 3, queue="PL_orders", no_ack=True),
    "> queue.declare queue=amq.x": Method.make("queue.declare", 1, queue="amq.x"),
    '> queue.declare queue=A arguments={"x-dead-letter-routing-key":"A","x-max-length":2}': Method.make(
        "queue.declare", 1, queue="PL_A", arguments={"x-dead-letter-routing-key": "PL_A", "x-max-length": 2}
    ),
    "> basic.qos prefetch_count=3 global=true": Method.make("basic.qos", 1, prefetch_count=3, global_=True),
    "> connection.close reply_code=200": Method.make("connection.close", 0, reply_code=200),
    "> [0] channel.open": Method.make("channel.open", 0),
    r'> basic.publish body="\x00\xff {x\}" type=t': Method.make(
        "basic.publish", 1, body=b"\x00\xff {x}", properties={"type": "t"}
    ),
    "> basic.publish body_size=5 delivery_mode=2": Method.make(
        "basic.publish", 1, body=b"xxxxx", properties={"delivery_mode": 2}
    ),
    "> heartbeat": Heartbeat.make(),
    "> protocol-header": ProtocolHeader.make(),
}


@pytest.mark.parametrize("line", SENT)
def test_a_line_sends_what_is_written_and_nothing_else(line: str) -> None:
    assert sent(line.replace(r"{x\}", "\\{x\\}")).raw == SENT[line].raw


def test_a_routing_key_is_rewritten_once_it_names_a_queue() -> None:
    read = trace("given queue ORDERS\n> basic.publish routing_key=ORDERS mandatory=true body=m1\n< closed\n")
    step = read.steps[1]
    assert isinstance(step, Send)
    assert step.outgoing.operation(scope(read)) == PUBLISH


def deliver(**more: Any) -> Method:
    arguments = {"consumer_tag": "c", "delivery_tag": 7, "redelivered": True, "routing_key": "PL_ORDERS"}
    return Method.make(
        "basic.deliver",
        1,
        body=b"m1",
        properties={"delivery_mode": 2, "headers": {"a": [1, {"b": "c"}]}},
        **{**arguments, **more},
    )


FITS = [
    "< basic.deliver",
    "< basic.deliver delivery_tag=7 redelivered=true body=m1",
    "< basic.deliver delivery_tag=* consumer_tag=* body=*",
    '< basic.deliver exchange="" body="m1" delivery_mode=2 body_size=2',
    '< basic.deliver headers={"a":[1,{"b":"c"}]}',
    '< basic.deliver headers={"a":[1,...],"z":{:absent}} message_id={:absent}',
    "< basic.deliver body={:text} consumer_tag={:c|d}",
    "given queue ORDERS\n< basic.deliver routing_key=ORDERS",
    "names ORDERS\n< basic.deliver routing_key={subject ORDERS}",
]


@pytest.mark.parametrize("pattern", FITS)
def test_unwritten_arguments_match_anything(pattern: str) -> None:
    assert differences(pattern, deliver())[0] == []


WRONG = {
    "< basic.ack": "operation: expected basic.ack, got basic.deliver",
    "< [2] basic.deliver": "channel: expected 2, got 1",
    "< basic.deliver delivery_tag=8": "delivery_tag: expected 8, got 7",
    "< basic.deliver redelivered=false": "redelivered: expected false, got true",
    "< basic.deliver body=m2": "body: expected m2, got m1",
    "< basic.deliver body_size=3": "body_size: expected 3, got 2",
    "< basic.deliver consumer_tag=d": "consumer_tag: expected d, got c",
    "< basic.deliver delivery_mode={:absent}": "delivery_mode: expected {:absent}, got 2",
    "< basic.deliver message_id=x": 'message_id: expected "x", got no such property',
    '< basic.deliver headers={"a":[1,{"b":"d"}]}': 'headers.a[1].b: expected "d", got "c"',
    "< heartbeat": "operation: expected heartbeat, got basic.deliver",
}


@pytest.mark.parametrize("pattern", WRONG)
def test_difference_shows_expected_and_actual(pattern: str) -> None:
    assert differences(pattern, deliver())[0] == [WRONG[pattern]]


def test_all_differences_are_reported_together() -> None:
    found, _ = differences("< basic.deliver delivery_tag=8 redelivered=false body=m2", deliver())
    assert len(found) == 3


def test_a_capture_is_taken_and_calculated_with() -> None:
    _, captures = differences("< basic.deliver delivery_tag={tag} consumer_tag={who}", deliver())
    assert captures == {"tag": "7", "who": "c"}
    both = "< basic.deliver delivery_tag={tag}\n< basic.deliver delivery_tag={tag+1}"
    assert differences(both, deliver(delivery_tag=8), tag="7")[0] == []
    assert differences(both, deliver(delivery_tag=9), tag="7")[0] == ["delivery_tag: expected 8, got 9"]


PROBLEMS = {
    "> basic.pubish body=x\n": "5:3: expected a method such as basic.publish",
    "< basic.dliver\n": "did you mean basic.deliver?",
    "> [x] basic.get\n": "5:3: expected a channel such as [2]",
    "> [70000] basic.get\n": "a channel such as [2]",
    "> basic.ack tag=1\n": "expected an argument of basic.ack (delivery_tag, multiple)",
    "> basic.ack delivery_tag=one\n": "expected",
    '> basic.ack delivery_tag="1"\n': "expected a number",
    "> basic.ack multiple=1\n": "expected true or false",
    "> queue.declare arguments=1\n": "expected a JSON object",
    "> basic.ack body=x\n": "an argument of basic.ack",
    "> basic.ack delivery_tag=1 delivery_tag=2\n": "delivery_tag only once",
    "> basic.ack delivery_tag={tag}\n": "a capture that was taken before this line",
    "> heartbeat now\n": "the end of the line",
    "> queue.declare queue=9x\n": "a name of letters, digits, _ and -",
    "given stream S\n": "expected queue, exchange, binding, message, messages or connection",
    "given message NOSUCH body=x\n": "a name this trace has introduced",
    "given queue Q queue=R\n": "no queue: it is the name before the fields",
    "given queue Q\ngiven messages Q\n": "the body of a message",
    "given queue Q\nexpect queue Q messages=1\n": "one of message_count, consumer_count, exists",
    "given queue Q\nexpect queue Q\n": "a field and its value, such as message_count=1",
    "expect consumer Q x=1\n": "expected queue",
}


@pytest.mark.parametrize("body", PROBLEMS)
def test_a_line_that_is_wrong_is_shown_with_its_place(body: str) -> None:
    assert PROBLEMS[body] in problem(body)


def test_group_may_use_several_channels() -> None:
    body = "in any order\n< basic.ack delivery_tag=1\n< [2] basic.ack delivery_tag=1\nend\n"
    (group,) = trace(body).steps
    assert [expect.pattern.stream for expect in group.expects] == [1, 2]  # type: ignore[union-attr]
