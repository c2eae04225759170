"""The table of cases of a trace: what it means, and every mistake with the place of the line or the cell."""

# ruff: noqa: E501 (a table has one case a line)

from __future__ import annotations

from pathlib import Path

import pytest

from plumbline.conformance.trace.cases import parse_traces
from plumbline.conformance.trace.check import load_checks
from plumbline.conformance.trace.language import Expect, Prepare, Trace
from plumbline.conformance.trace.text import TraceSyntaxError
from tests.conformance.trace.writing import HEADER, operation, problems, scope

TABLED = r"""title     MSG.GET {what}
source    a document
verifies  {requirement}
since     {since}
cases
| name    | requirement           | what              | since | body      | answer                              |
# a comment, as anywhere
| nothing | JS-API-001            | with {} is refused |      | {}        | 1 {"error":{"code":{code:int}}}     |
| missing | JS-API-002 JS-API-003 | beyond the end    | 2.10  | {"seq":9} | 1 \| not { "seq" }                  |

given     stream ORDERS subjects=ORDERS.>

> PUB $JS.API.STREAM.MSG.GET.ORDERS $reply {body}
< MSG $reply {answer}    within 1s
"""


def read(text: str) -> tuple[Trace, ...]:
    return parse_traces(text, "a.trace")


def refused(text: str) -> list[str]:
    """``line:column: message`` of everything wrong with a file."""
    with pytest.raises(TraceSyntaxError) as raised:
        read(text)
    return [f"{problem.line}:{problem.column}: {problem.message}" for problem in raised.value.problems]


def table(rows: str, body: str = "< MSG foo {a}\n") -> str:
    """A file whose table begins on line 4 and has the columns ``name`` and ``a``."""
    return f"{HEADER}cases\n{rows}\n{body}"


def test_each_row_is_a_trace_with_its_cells_in_the_holes() -> None:
    first, second = read(TABLED)
    assert (first.case, first.line, first.title) == ("nothing", 8, "MSG.GET with {} is refused")
    assert (second.case, second.line, second.title) == ("missing", 9, "MSG.GET beyond the end")
    assert (first.verifies, second.verifies) == (("JS-API-001",), ("JS-API-002", "JS-API-003"))


def test_steps_have_the_line_of_the_file() -> None:
    for trace in read(TABLED):
        assert [step.line for step in trace.steps] == [11, 13, 14]
        assert isinstance(trace.steps[0], Prepare)


def test_a_case_reads_as_the_trace_with_its_cells_written_out() -> None:
    written = TABLED.partition("cases\n")[0] + TABLED.split("\n\n", 1)[1]
    for case, cells in zip(
        read(TABLED),
        (
            ("with {} is refused", "JS-API-001", "", "{}", '1 {"error":{"code":{code:int}}}'),
            ("beyond the end", "JS-API-002 JS-API-003", "2.10", '{"seq":9}', '1 | not { "seq" }'),
        ),
        strict=True,
    ):
        text = written
        for column, cell in zip(("what", "requirement", "since", "body", "answer"), cells, strict=True):
            text = text.replace(f"{{{column}}}", cell)
        (alone,) = read(text.replace("since     \n", "\n"))
        assert (case.title, case.verifies, case.since) == (alone.title, alone.verifies, alone.since)
        assert case.labels == alone.labels
        sent, expected = case.steps[-1], alone.steps[-1]
        assert isinstance(sent, Expect)
        assert isinstance(expected, Expect)
        assert sent.pattern == expected.pattern


def test_a_header_line_that_a_case_has_nothing_for_is_left_out() -> None:
    first, second = read(TABLED)
    assert (first.since, second.since) == (None, "2.10")


def test_a_bar_in_a_cell_is_escaped() -> None:
    (plain,) = read(table("| name | a |\n| x | 1 \\| one\\|two |"))
    step = plain.steps[0]
    assert isinstance(step, Expect)
    found = step.pattern.differences(operation(b"MSG PL_foo 1 7\r\none|two\r\n"), scope(plain))
    assert found == []


def test_a_cell_may_be_empty() -> None:
    first, second = read(table("| name | a |\n| x | |\n| y | \\| 1 |", "> PUB foo {a}\n< PONG\n"))
    assert first.steps[0] != second.steps[0]


def test_holes_that_are_no_columns_are_captures() -> None:
    (trace,) = read(
        table("| name | a |\n| x | 1 {reply} |", "< MSG foo {a} {n:int}\n> PUB {reply} | {n+1}\n")
    )
    assert len(trace.steps) == 2


def test_an_escaped_brace_is_no_hole() -> None:
    (trace,) = read(table("| name | a |\n| x | 1 |", "< MSG foo {a} | \\{a\\}\n"))
    step = trace.steps[0]
    assert isinstance(step, Expect)
    assert step.pattern.differences(operation(b"MSG PL_foo 1 3\r\n{a}\r\n"), scope(trace)) == []


def test_the_id_of_a_case_is_the_folder_and_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("deep").mkdir()
    for path in (Path("mine.trace"), Path("deep/mine.trace")):
        path.write_text(TABLED)
    assert [(check.id, check.where) for check in load_checks(Path("mine.trace"))] == [
        ("nothing", "mine.trace:8"),
        ("missing", "mine.trace:9"),
    ]
    assert [check.id for check in load_checks(Path("deep/mine.trace"))] == ["deep/nothing", "deep/missing"]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("", "4:1: expected | name | column | ... |, the names of the columns, on the next line, found \"cases\""),
        ("| name | a |", '5:1: expected a row below the names of the columns, found "| name | a |"'),
        ("| a | name |\n| 1 | x |", '5:3: expected the column "name" first: it names the case, found "a"'),
        ("| name | a | a |\n| x | 1 | 2 |", '5:14: expected a only once, found "a"'),
        ("| name | a b |\n| x | 1 |", '5:10: expected the name of a column: letters, digits and _, found "a b"'),
        ("| name | a |\n| x | 1", '6:8: expected a "|" at the end of the row, found the end of the line'),
        ("| name | a |\n| x | 1 | 2 |", "6:1: expected 2 cells, one for each column, found 3 cells"),
        ("| name | a |\n| x y | 1 |", '6:3: expected the name of a case: letters, digits, -, _ and ., found "x y"'),
        ("| name | a |\n| x | 1 |\n| x | 2 |", '7:3: expected a name of its own, found "x"; line 6 has it'),
        ("| name | a | b |\n| x | 1 | 2 |", '5:14: expected a line with {b}, found "b"; every column is used'),
    ],
)  # fmt: skip
def test_error_of_wrong_table_shows_what_was_expected(rows: str, expected: str) -> None:
    assert expected in refused(table(rows))


def test_nothing_is_behind_the_word_cases() -> None:
    text = table("| name | a |\n| x | 1 |").replace("cases", "cases of refusals")
    assert refused(text) == ['4:7: expected nothing behind "cases", found "of refusals"']


def test_a_table_is_above_the_first_step() -> None:
    text = f"{HEADER}> PING\n< PONG\ncases\n| name |\n| x |\n"
    assert refused(text)[0] == '6:1: expected "cases" above the first step, found "cases"'


def test_a_second_table_is_refused() -> None:
    text = table("| name | a |\n| x | 1 |", "cases\n< MSG foo {a}\n")
    assert refused(text) == ['7:1: expected one trace, with one table of cases at most, found "cases"']


def test_one_trace_has_no_table() -> None:
    (problem, *_) = problems("cases\n| name |\n| x |\n< PONG\n")
    assert problem == '4:1: expected one trace, with one table of cases at most, found "cases"'


def test_a_hole_of_the_title_that_is_no_column_is_refused() -> None:
    text = table("| name | what |\n| x | 1 |", "< MSG foo {what}\n").replace("a title", "get {waht}")
    assert refused(text) == ['1:11: expected a column of the table, found "{waht}"; did you mean what?']


def test_error_of_misspelt_column_names_the_similar_column() -> None:
    found = refused(table("| name | body |\n| x | 1 |", "> PUB foo | {boddy}\n< MSG foo {body}\n"))
    assert found == [
        '7:13: expected a capture that was taken before this line, found "{boddy}"; did you mean body?'
    ]


@pytest.mark.parametrize("hole", ["{a:int}", "{a+1}", "{b+a}"])
def test_no_capture_has_the_name_of_a_column(hole: str) -> None:
    found = refused(table("| name | a |\n| x | 1 |", f"< MSG foo {{a}} {{b}} | {hole}\n"))
    assert found == [
        f'7:21: expected {{a}} alone, or a capture with another name, found "{hole}"; a is a column of the table'
    ]


def test_a_problem_in_a_cell_has_the_place_of_the_cell() -> None:
    text = table("| name | a     |\n| x    | 1     |\n| y    | 1 | {q:in}", "< MSG foo {a}\n")
    text = text.replace("1 | {q:in}", "1 \\| {q:in} |")
    found = refused(text)
    assert found == [
        "7:18: expected a kind of capture (int, ns, text, time, word, any, absent, or alternatives such as "
        '404|408), found "in"; did you mean int?'
    ]


def test_a_problem_behind_a_hole_has_its_place_in_the_line() -> None:
    found = refused(table("| name | a |\n| x | 1 |\n| longer | 1000 |", "< MSG foo {a} within 5\n< PONG\n"))
    assert found == [
        '8:22: expected a duration such as 200ms or 1s, found "5"',
    ]


def test_a_problem_of_some_cases_in_a_line_names_them() -> None:
    found = refused(table("| name | a |\n| x | 1 |\n| y | |\n| z | |", "< MSG foo {a}\n"))
    assert found == [
        "9:10: expected MSG subject sid [reply] [size], found the end of the line; in the case y, z",
    ]


def test_all_problems_of_a_file_with_a_table_have_a_line_and_a_caret() -> None:
    with pytest.raises(TraceSyntaxError) as raised:
        read(table("| name | a |\n| x | 1 |\n| y | 2 |", "< MGS foo {a}\n< nothing\n"))
    assert str(raised.value).splitlines()[1:3] == ["    < MGS foo {a}", "      ^"]
    assert [problem.line for problem in raised.value.problems] == [8, 9]
