"""A failure that is known of that release is marked in every report, and stays a failure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from plumbline.reports import junit, result_json, summary_md
from plumbline.reports.html import page as html
from plumbline.verdicts import KnownFailure, Outcome, RunResult
from tests.reports.samples import events_of, sample_result
from tests.reports.test_terminal import on_pipe

TEXT = "a batch that is partly filled ends with <408>"
LINK = "https://example.org/issues/5373"
FAILURE = KnownFailure("nats-server", ("2.9.10 to 2.11.10",), TEXT, LINK)
REMARK = f"JS-PULL-021 is known of nats-server 2.9.10 to 2.11.10: {TEXT} ({LINK})"


@pytest.fixture
def result() -> RunResult:
    """The failed check of JS-PULL-021, and its requirement, with a known failure."""
    whole = sample_result()
    return replace(
        whole,
        checks=tuple(
            replace(check, known=(REMARK,))
            if check.outcome is Outcome.FAILED and "JS-PULL-021" in check.requirements
            else check
            for check in whole.checks
        ),
        requirements=tuple(
            replace(row, known_failures=(FAILURE,)) if row.id == "JS-PULL-021" else row
            for row in whole.requirements
        ),
    )


def test_the_sample_has_such_a_check(result: RunResult) -> None:
    assert any(check.known for check in result.checks)


def test_terminal_shows_known_failure_below_the_failure(result: RunResult) -> None:
    shown = on_pipe(events_of(result))
    assert REMARK in shown
    assert shown.index("FAILED") < shown.index(REMARK)


def test_json_result_round_trips_known_failures(result: RunResult) -> None:
    read = result_json.decode(result_json.encode(result))
    assert [check.known for check in read.checks] == [check.known for check in result.checks]
    assert [row.known_failures for row in read.requirements] == [
        row.known_failures for row in result.requirements
    ]


def test_junit_has_known_failure_as_property_and_in_evidence(result: RunResult) -> None:
    document = junit.render(result).decode()
    shown = REMARK.replace("<", "&lt;").replace(">", "&gt;")
    assert f'name="known" value="{shown}"' in document
    assert document.count(shown) == 2


def test_markdown_shows_known_failure(result: RunResult) -> None:
    assert "JS-PULL-021 is known of nats-server 2.9.10 to 2.11.10" in summary_md.render(result)


def test_html_shows_known_failure_everywhere(
    result: RunResult,
) -> None:
    shown = html.render(result).decode()
    assert f"<b>Known:</b> {REMARK}".replace("<408>", "&lt;408&gt;") in shown
    known = r"<p><b>Known failure</b> of nats-server 2\.9\.10 to 2\.11\.10: a batch [^<]*&lt;408&gt;"
    assert len(re.findall(known, shown)) == 2
    table = shown[shown.index('<h2 id="differences">') :]
    assert re.search(known, table[: table.index("</table>")])


def test_the_count_of_differences_includes_it(result: RunResult, tmp_path: Path) -> None:
    before = html.render(sample_result()).decode()
    count = re.compile(r'id="differences">Documented and observed <span class="count">(\d+)')
    found = [count.search(page) for page in (before, html.render(result).decode())]
    assert [int(match[1]) for match in found if match] == [1, 2]
