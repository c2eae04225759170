"""The packaged traces: each can be read, and stands under the id that its place gives it."""

from __future__ import annotations

from pathlib import Path

import pytest

from plumbline.conformance.trace.check import PACKAGED, load_check
from plumbline.conformance.trace.parser import parse_trace
from plumbline.conformance.trace.text import TraceSyntaxError
from tests.conformance.trace.writing import HEADER

FILES = sorted(PACKAGED.rglob("*.trace"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGED).as_posix())
def test_a_packaged_trace_is_a_check(path: Path) -> None:
    check = load_check(path)
    assert check.id == path.relative_to(PACKAGED).as_posix().removesuffix(".trace")
    assert check.where == f"conformance/traces/{check.id}.trace:1"
    assert check.source


def test_there_are_packaged_traces_and_no_two_have_one_title() -> None:
    titles = [load_check(path).title for path in FILES]
    assert titles
    assert len(set(titles)) == len(titles)


def test_a_trace_of_a_users_own_keeps_the_path_it_was_named_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.trace").write_text(HEADER + "since 2.10\nvariant auth\n< PONG\n")
    check = load_check(Path("mine.trace"))
    assert (check.id, check.where, check.since, check.variant) == ("mine", "mine.trace:1", "2.10", "auth")
    assert check.requirements == ("JS-PULL-001",)


def test_a_file_in_another_encoding_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "latin.trace"
    path.write_bytes(HEADER.encode() + b"< MSG foo 1 | \xe9\n")
    with pytest.raises(TraceSyntaxError, match=r"latin.trace:4:15: expected text in UTF-8, found U\+DCE9"):
        load_check(path)


def test_the_examples_of_the_language_page_are_traces() -> None:
    page = (PACKAGED.parent / "trace" / "README.md").read_text()
    first, restarted, second, third = page.split("```\n")[1::2]
    parse_trace(first, "first.trace")
    parse_trace(HEADER + restarted, "restarted.trace")
    stage = "given stream ORDERS subjects=ORDERS.>\ngiven consumer ORDERS DISPATCH\n"
    parse_trace(HEADER + stage + second, "second.trace")
    parse_trace(third, "third.trace")
