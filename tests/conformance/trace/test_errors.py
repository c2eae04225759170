"""Errors of a trace: place, expectation, and all at once."""

# ruff: noqa: E501 (a table has one case a line)

from __future__ import annotations

import pytest

from plumbline.conformance.trace.cases import parse_trace
from plumbline.conformance.trace.text import TraceSyntaxError
from tests.conformance.trace.writing import HEADER, problems


def test_syntax_error_shows_location_and_caret() -> None:
    with pytest.raises(TraceSyntaxError) as raised:
        parse_trace(HEADER + "\t< MGS foo 1\n", "dir/a.trace")
    assert str(raised.value).splitlines() == [
        "dir/a.trace:4:4: expected an operation to expect (MSG, HMSG, +OK, -ERR, PING, PONG, INFO, nothing, closed), "
        'found "MGS"; did you mean MSG?',
        "    \t< MGS foo 1",
        "    \t  ^",
    ]


def test_all_errors_of_a_file_are_reported_at_once() -> None:
    found = problems("titel x\n> PUBB foo\n< nothing\ngiven strem A\n< closed soon\n")
    assert [problem.split(": ")[0] for problem in found] == ["4:1", "5:3", "6:3", "7:7", "8:10"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("wiat 1s", '4:1: expected ">", "<", or a directive, found "wiat"'),
        ("expct consumer A B", '4:1: expected ">", "<", or a directive, found "expct"; did you mean expect?'),
        (">", "4:2: expected an operation, found the end of the line"),
        ("> SUB foo", "4:10: expected SUB subject [queue] sid, found the end of the line"),
        ("> PING now", '4:8: expected PING nothing more, found "now"; what no client would write is sent with > raw "..."'),
        ("> CONNECT", '4:10: expected a JSON object, found the end of the line; what no client would write is sent with > raw "..."'),
        ("> PUB foo 5", "4:12: expected the payload, after | or on the line below, found the end of the line"),
        ("> HPUB foo 5 | A: 1", '4:12: expected two sizes, of the headers and of all, or none, found "5"'),
        ("> raw PING", '4:7: expected bytes in double quotes, such as "PING\\r\\n", found "PING"'),
        ("< nothing 200ms", '4:3: expected "nothing for 200ms", found "nothing 200ms"'),
        ("< nothing for ever", '4:15: expected a duration such as 200ms or 1s, found "ever"'),
        ("< PONG within 5", '4:15: expected a duration such as 200ms or 1s, found "5"'),
        ("< PONG between 2s and 1s", '4:7: expected a window that ends after it begins, found " between 2s and 1s"'),
        ("< closed soon", '4:10: expected within T or the end of the line, found "soon"'),
        ("< MSG foo", "4:10: expected MSG subject sid [reply] [size], found the end of the line"),
        ("< +OK really", '4:7: expected the end of the line, found "really"'),
        ("end", '4:1: expected "in any order" above "end", found "end"'),
        ("in any ordre", '4:1: expected "in any order", found "in any ordre"'),
        ("close worker", '4:7: expected a connection that a line above has used, found "worker"'),
        ("await stream A", '4:14: expected a name this trace has introduced, found "A"; "given", or "names", introduces it'),
        ("given stream A subjects=A.> colour=red", '4:29: expected a field of this object, found "colour"'),
        ("given stream A subjects", '4:16: expected key=value, found "subjects"'),
        ("given stream A max_age=", "4:24: expected a value for max_age, found the end of the line"),
        ("given stream A retention=limits retention=limits", '4:33: expected retention only once, found "retention"'),
        ("given consumer A B", '4:16: expected a name this trace has introduced, found "A"; "given", or "names", introduces it'),
        ("given stream =", '4:14: expected stream LABEL key=value ..., found "="'),
        ("given stream NEXT", '4:14: expected a name that is no word of the protocol\'s own subjects, found "NEXT"'),
        ("given stream a.b", '4:14: expected a name of letters, digits, _ and - that starts with a letter, found "a.b"'),
        ("given message foo | bar", '4:21: expected a header such as "Nats-Msg-Id: 1", or NATS/1.0 with a status as the first one, found "bar"; the payload follows ||'),
    ],
)  # fmt: skip
def test_error_of_wrong_line_shows_what_was_expected(line: str, expected: str) -> None:
    assert problems(f"{line}\n< PONG\n") == [expected]


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("> PUB foo {seq}", 11),
        ("> PUB foo | {seq}", 13),
        ("> UNSUB {seq+1}", 9),
        ("< MSG foo {seq+1}", 11),
        ('< MSG foo 1 {"seq":{seq-1}}', 20),
    ],
)
def test_a_capture_used_before_it_is_taken_is_refused(line: str, column: int) -> None:
    (problem,) = problems(f"{line}\n< PONG\n")
    assert problem.startswith(f"4:{column}: expected a capture that was taken before this line, found ")


def test_a_capture_is_taken_by_an_earlier_expectation() -> None:
    assert problems("< MSG foo {sid}\n> UNSUB {sid}\n< MSG foo {sid+1} | {sid-1}\n") == []


@pytest.mark.parametrize("hole", ["{x:number}", "{x:}", "{:in}", "{a+}", "{a:404|", "{subject a b}"])
def test_invalid_capture_is_rejected(hole: str) -> None:
    assert len(problems(f"< MSG foo 1 | {hole}\n")) == 1


def test_captures_side_by_side_are_refused() -> None:
    assert problems("< MSG foo 1 | {a}{b}\n") == ['4:18: expected text between two captures, found "{b}"']


@pytest.mark.parametrize("escape", [r"\q", r"\x4", r"\xzz", "\\"])
def test_an_unknown_escape_is_refused(escape: str) -> None:
    (problem,) = problems(f"> PUB foo | a{escape}\n< PONG\n")
    assert problem.startswith("4:14: expected an escape")


@pytest.mark.parametrize(
    "line", ["> SUB > 1", "> SUB *.new 1", "> SUB _INBOX.* 1", "> PUB > | x", "given stream A subjects=>"]
)
def test_subject_beyond_run_prefix_is_rejected(line: str) -> None:
    (problem,) = problems(f"{line}\n< PONG\n")
    assert (
        "a wildcard here would receive the messages of other runs' inboxes" in problem
        or "runs never collide" in problem
    )


def test_literal_names_allow_leading_wildcards_and_refuse_objects() -> None:
    assert problems("> SUB > 1\n< PONG\n", "names literal\n") == []
    (problem,) = problems("given stream A\n< PONG\n", "names literal\n")
    assert '"names literal" is for core subjects' in problem


def test_bytes_of_a_stream_need_messages_beside_them() -> None:
    (problem,) = problems("given stream A\nexpect stream A bytes=53\n")
    assert problem.startswith("5:17: expected numbers for both bytes and messages")


@pytest.mark.parametrize(
    ("json", "column", "expected"),
    [
        ('{"a":1,}', 20, 'a field name in double quotes or "}"'),
        ('{"a" 1}', 18, '":"'),
        ('{"a":x}', 18, "a JSON value or a capture such as {seq:int}"),
        ("[1 2]", 16, '","'),
        ('{"a":1} x', 21, "the end of the JSON text"),
        ('{"a":01}', 19, '","'),
        ('{"a":"\\q"}', 19, "a JSON string"),
        ('{"a":"\\ud800"}', 19, "a JSON string"),
    ],
)
def test_wrong_json_is_refused_where_it_goes_wrong(json: str, column: int, expected: str) -> None:
    (problem,) = problems(f"< MSG foo 1 {json}\n")
    assert problem.startswith(f"4:{column}: expected {expected}, found ")


def test_json_of_many_levels_is_refused() -> None:
    (problem,) = problems("< MSG foo 1 " + "[" * 100 + "]" * 100 + "\n")
    assert "expected JSON of at most 50 levels" in problem


def test_a_problem_in_pasted_lines_has_their_line() -> None:
    assert problems('< MSG foo 1\n{\n  "a": 1,\n  "b": nope\n}\n') == [
        '7:8: expected a JSON value or a capture such as {seq:int}, found "nope\\n}"'
    ]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ("in any order\n< PONG\n", "4:1"),
        ("in any order\n< PONG\n< nothing for 1s\nend\n< PONG\n", "6:1"),
        ("in any order\n< PONG\nend\n", "4:1"),
    ],
)
def test_a_wrong_group_is_refused(body: str, place: str) -> None:
    (problem,) = problems(body)
    assert problem.startswith(f"{place}: ")


def test_a_capture_of_a_group_is_no_number_to_calculate_with_inside_it() -> None:
    (problem,) = problems("in any order\n< MSG foo {sid}\n< MSG foo {sid+1}\nend\n")
    assert problem.startswith("6:11: expected a capture that was taken before this line")


@pytest.mark.parametrize("text", ["\0", "\ud800", HEADER + "< MSG foo \udcff\n"])
def test_a_file_that_is_not_utf_8_is_refused(text: str) -> None:
    with pytest.raises(TraceSyntaxError, match="expected text in UTF-8"):
        parse_trace(text, "a.trace")
