"""Traces for tests: a header around a body, and names as a test can foretell them."""

from __future__ import annotations

from typing import Any

from plumbline.conformance.trace.cases import parse_trace
from plumbline.conformance.trace.language import Expect, Mismatch, Send, Step, Trace
from plumbline.conformance.trace.names import Names
from plumbline.conformance.trace.template import TraceScope
from plumbline.conformance.trace.text import TraceSyntaxError
from plumbline.wire.nats import Decoder, Operation, Sender

HEADER = "title a title\nsource a document\nverifies JS-PULL-001\n"


def trace(body: str, header: str = "") -> Trace:
    """A trace whose body begins on line 4, if ``header`` is empty."""
    return parse_trace(f"{HEADER}{header}{body}", "a.trace")


def problems(body: str, header: str = "") -> list[str]:
    """``line:column: message`` of everything wrong with a trace."""
    try:
        trace(body, header)
    except TraceSyntaxError as error:
        return [f"{problem.line}:{problem.column}: {problem.message}" for problem in error.problems]
    return []


def scope(read: Trace, **captures: str) -> TraceScope:
    """ORDERS is PL_ORDERS on the wire, $inbox is _INBOX.PL.inbox."""
    return TraceScope(Names(read.labels, "PL_{}".format, "_INBOX.PL.{}".format), captures)


def only_step(body: str, header: str = "") -> tuple[Step, Trace]:
    """The last step of a body, and its trace."""
    read = trace(body, header)
    return read.steps[-1], read


def sent(line: str, header: str = "") -> bytes:
    """The bytes that a line with ``>`` sends."""
    read = trace(f"{line}\n< PONG\n", header)
    step = read.steps[-2]
    assert isinstance(step, Send)
    raw: bytes = step.outgoing.operation(scope(read)).raw
    return raw


def operation(data: bytes) -> Operation:
    """What a server sent."""
    (decoded,) = Decoder(Sender.SERVER).feed(data)
    return decoded


def compare(
    line: str, data: bytes, header: str = "", **captures: str
) -> tuple[list[Mismatch], dict[str, Any]]:
    """In what an operation differs from a line with ``<``, and what was captured."""
    step, read = only_step(f"{line}\n", header)
    assert isinstance(step, Expect)
    played = scope(read, **captures)
    return step.pattern.differences(operation(data), played), played.captures


def differences(line: str, data: bytes, header: str = "") -> list[str]:
    return [str(difference) for difference in compare(line, data, header)[0]]


def captures(line: str, data: bytes, header: str = "") -> dict[str, Any]:
    """What a matching operation leaves behind."""
    found, taken = compare(line, data, header)
    assert found == []
    return taken
