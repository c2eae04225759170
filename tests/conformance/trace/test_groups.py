"""Lines in any order: which operation belongs to which line."""

from __future__ import annotations

import itertools

from plumbline.conformance.trace.language import AnyOrder
from plumbline.conformance.trace.matching import assign, closest
from plumbline.conformance.trace.template import TraceScope
from plumbline.wire.nats import Operation
from tests.conformance.trace.writing import operation, scope, trace


def group(*lines: str) -> tuple[AnyOrder, TraceScope]:
    read = trace("\n".join(["in any order", *lines, "end", ""]))
    (step,) = read.steps
    assert isinstance(step, AnyOrder)
    return step, scope(read)


def messages(*payloads: str) -> list[tuple[str, Operation]]:
    return [("client", operation(f"MSG PL_foo 1 {len(text)}\r\n{text}\r\n".encode())) for text in payloads]


def test_every_order_is_accepted() -> None:
    step, names = group("< MSG foo 1 | a", "# a remark", "", "< MSG foo 1 | b", "< MSG foo 1 | {x}")
    for payloads in itertools.permutations(["a", "b", "c"]):
        assert assign(step.expects, messages(*payloads), names) == {"x": "c"}


def test_operation_matches_at_most_one_line() -> None:
    step, names = group("< MSG foo 1 | a", "< MSG foo 1 | b")
    assert assign(step.expects, messages("a", "a"), names) is None


def test_lines_that_share_a_capture_must_agree() -> None:
    step, names = group("< MSG foo 1 | first {x}", "< MSG foo 1 | {x}")
    assert assign(step.expects, messages("7", "first 7"), names) == {"x": "7"}
    assert assign(step.expects, messages("8", "first 7"), names) is None


def test_an_operation_belongs_to_its_connection() -> None:
    step, names = group("a< PONG", "b< +OK")
    pong, ok = operation(b"PONG\r\n"), operation(b"+OK\r\n")
    assert assign(step.expects, [("a", pong), ("b", ok)], names) == {}
    assert assign(step.expects, [("b", pong), ("a", ok)], names) is None


def test_the_nearest_line_is_the_one_with_the_fewest_differences() -> None:
    step, names = group("< PING", "< MSG bar 2 | x", "< MSG foo 1 | b")
    ((_, stray),) = messages("a")
    nearest = closest(step.expects, stray, names)
    assert nearest is not None
    assert (nearest.line, [str(difference) for difference in nearest.differences]) == (
        5,
        ["operation: expected PING, got MSG"],
    )
    assert closest(step.expects, messages("b")[0][1], names) is None
