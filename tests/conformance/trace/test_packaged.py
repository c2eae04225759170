"""The packaged traces: each can be read, and its checks have the ids that its place gives them."""

from __future__ import annotations

from pathlib import Path

import pytest

from plumbline.conformance.packaged import TRACES
from plumbline.conformance.trace.cases import parse_trace, parse_traces
from plumbline.conformance.trace.check import load_checks
from plumbline.conformance.trace.text import TraceSyntaxError
from tests.conformance.trace.writing import HEADER

FILES = sorted(TRACES.rglob("*.trace"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(TRACES).as_posix())
def test_a_packaged_trace_is_a_check_or_one_for_each_case(path: Path) -> None:
    below = path.relative_to(TRACES)
    checks = load_checks(path)
    if len(checks) == 1:
        assert checks[0].id == below.as_posix().removesuffix(".trace")
        assert checks[0].where == f"conformance/traces/{below.as_posix()}:1"
    for check in checks:
        place, _, line = check.where.rpartition(":")
        assert place == f"conformance/traces/{below.as_posix()}"
        assert (
            len(checks) == 1 or path.read_text().splitlines()[int(line) - 1].split()[1] == Path(check.id).name
        )
        assert Path(check.id).parent == below.parent
        assert check.source


def test_there_are_packaged_traces_and_no_two_have_one_id_or_title() -> None:
    checks = [check for path in FILES for check in load_checks(path)]
    assert len(checks) > 700
    assert len({check.id for check in checks}) == len(checks)
    assert len({check.title for check in checks}) == len(checks)


def test_a_trace_that_makes_its_own_stream_needs_jetstream() -> None:
    """Another trace needs it for its stage; without either, it would fail on a server that has none."""
    makes = [text for path in FILES if "> PUB $JS.API.STREAM.CREATE." in (text := path.read_text("utf-8"))]
    assert len(makes) >= 5
    assert not [text for text in makes if "\ngiven " not in text and "\nneeds     jetstream\n" not in text]


def test_user_trace_keeps_given_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.trace").write_text(HEADER + "since 2.10\nvariant auth\n< PONG\n")
    (check,) = load_checks(Path("mine.trace"))
    assert (check.id, check.where, check.since, check.variant) == ("mine", "mine.trace:1", "2.10", "auth")
    assert check.requirements == ("JS-PULL-001",)


def test_a_file_in_another_encoding_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "latin.trace"
    path.write_bytes(HEADER.encode() + b"< MSG foo 1 | \xe9\n")
    with pytest.raises(TraceSyntaxError, match=r"latin.trace:4:15: expected text in UTF-8, found U\+DCE9"):
        load_checks(path)


def test_the_examples_of_the_language_page_are_traces() -> None:
    page = (TRACES.parent / "trace" / "README.md").read_text()
    first, tabled, restarted, second, third = page.split("```\n")[1::2]
    parse_trace(first, "first.trace")
    assert [trace.case for trace in parse_traces(tabled, "tabled.trace")] == [
        "empty-body",
        "empty-object",
        "expires-but-no-batch",
    ]
    parse_trace(HEADER + restarted, "restarted.trace")
    stage = "given stream ORDERS subjects=ORDERS.>\ngiven consumer ORDERS DISPATCH\n"
    parse_trace(HEADER + stage + second, "second.trace")
    parse_trace(third, "third.trace")
