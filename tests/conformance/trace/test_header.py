"""What stands above the first step, and what a whole file must have."""

from __future__ import annotations

import pytest

from plumbline.conformance.trace.cases import parse_trace
from plumbline.conformance.trace.language import ConnectionOptions
from plumbline.conformance.trace.text import TraceSyntaxError
from tests.conformance.trace.writing import problems, trace

DESIGN_PAGE = """\
title     An empty consumer answers a no_wait pull at once
source    ADR-13, "No Wait Pull Requests"
verifies  JS-PULL-021 JS-STATUS-404
given     stream ORDERS subjects=ORDERS.>
given     consumer ORDERS DISPATCH ack=explicit

> SUB $inbox 1
> PUB $JS.API.CONSUMER.MSG.NEXT.ORDERS.DISPATCH $inbox {"batch":1,"no_wait":true}
< HMSG $inbox 1 | NATS/1.0 404 No Messages                     within 1s
< nothing for 200ms
"""


def test_design_example_parses_unchanged() -> None:
    read = parse_trace(DESIGN_PAGE, "design.trace")
    assert read.title == "An empty consumer answers a no_wait pull at once"
    assert read.source == 'ADR-13, "No Wait Pull Requests"'
    assert read.verifies == ("JS-PULL-021", "JS-STATUS-404")
    assert read.labels == {"ORDERS", "DISPATCH"}
    assert [step.line for step in read.steps] == [4, 5, 7, 8, 9, 10]


def test_every_header_word_is_read() -> None:
    read = trace("< PONG", "needs headers jetstream\nvariant auth\nsince 2.10\nuntil 2.11\nprotocol nats\n")
    assert (read.needs, read.variant, read.since, read.until) == (
        ("headers", "jetstream"),
        "auth",
        "2.10",
        "2.11",
    )


def test_several_lines_of_verifies_add_up() -> None:
    assert trace("< PONG", "verifies CORE-010 CORE-011\n").verifies == ("JS-PULL-001", "CORE-010", "CORE-011")


def test_connections_have_options_for_the_handshake_and_of_our_own() -> None:
    read = trace(
        "< PONG\n",
        'given connection client verbose=true user="a b"\n'
        "given connection raw handshake=none pings=unanswered variant=auth\n",
    )
    assert read.connections == {
        "client": ConnectionOptions({"verbose": True, "user": "a b"}),
        "raw": ConnectionOptions({}, variant="auth", handshake=False, answers_pings=False),
    }


@pytest.mark.parametrize(
    "line", ["title again", "since 2.x", "since", "verifies js-1", "variant a b", "protocol amqqp"]
)
def test_a_wrong_header_line_is_refused(line: str) -> None:
    assert len(problems("< PONG", f"{line}\n")) == 1


@pytest.mark.parametrize("line", ["title x", "needs headers", "names A"])
def test_a_header_line_below_the_first_step_is_refused(line: str) -> None:
    word, _, _ = line.partition(" ")
    assert problems(f"> PING\n< PONG\n{line}\n") == [
        f'6:1: expected "{word}" above the first step, found "{word}"'
    ]


def test_missing_header_is_named() -> None:
    with pytest.raises(TraceSyntaxError) as raised:
        parse_trace("< PONG\n", "a.trace")
    assert [problem.message for problem in raised.value.problems] == [
        'expected a line "title ...", found none',
        'expected a line "source ...", found none',
        'expected a line "verifies ID ...", found none',
    ]


@pytest.mark.parametrize(
    "body", ["", "# nothing\n", "> PING\n", "given stream A\nawait stream A messages=0\n"]
)
def test_a_trace_that_cannot_fail_is_refused(body: str) -> None:
    (problem,) = problems(body)
    assert "expected something expected" in problem


def test_a_second_line_for_a_connection_is_refused() -> None:
    assert problems("given connection a verbose=true\ngiven connection a\na< PONG\n") == [
        '5:18: expected one line for a connection, above its first use, found "a"'
    ]


def test_options_of_a_connection_that_is_already_in_use_are_refused() -> None:
    assert problems("> PING\n< PONG\ngiven connection client verbose=true\n") == [
        '6:18: expected one line for a connection, above its first use, found "client"'
    ]
