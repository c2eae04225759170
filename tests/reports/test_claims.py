"""Every report for people and for CI compares what is claimed with what is announced, tested and passed."""

from __future__ import annotations

import io
from collections.abc import Callable
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace
from rich.console import Console

from plumbline.reports import junit, result_json, summary_md
from plumbline.reports.digest import score, unsupported_reasons
from plumbline.reports.html.page import render
from plumbline.reports.terminal.summary import print_result
from plumbline.verdicts import (
    CLAIMED,
    NOT_CLAIMED,
    CheckResult,
    ClaimRow,
    ClaimsReport,
    Level,
    Outcome,
    RunResult,
    Tally,
)
from tests.reports.samples import HOSTILE, requirement, result_of

SENTENCE = "the limit max_payload is claimed to be 9, and INFO announces 1048576"
ROWS = (
    ClaimRow("version", "version", "==2.10", "2.10.22"),
    ClaimRow("profile", "jetstream", "yes", "yes", Tally(7, 6, 5)),
    ClaimRow("profile", "kv", "no", "yes"),
    ClaimRow("option", "headers", "", "yes"),
    ClaimRow("limit", "max_payload", "9", "1048576", contradiction=SENTENCE),
)


def unsupported(identity: str, requirement_id: str, claim: str) -> CheckResult:
    why = f"why {identity}"
    return CheckResult(identity, Outcome.UNSUPPORTED, (requirement_id,), Level.MUST, message=why, claim=claim)


@pytest.fixture
def result() -> RunResult:
    found = result_of(
        [
            requirement("JS-PULL-001", "Passed."),
            requirement("JS-PULL-002", "Claimed.", "unsupported", claim=CLAIMED),
            requirement("JS-KV-001", "Not claimed.", "unsupported", claim=NOT_CLAIMED),
        ],
        [
            CheckResult("a", Outcome.PASSED, ("JS-PULL-001",), Level.MUST, claim=CLAIMED),
            unsupported("kv", "JS-KV-001", NOT_CLAIMED),
            unsupported("pull", "JS-PULL-002", CLAIMED),
        ],
    )
    summary = replace(found.summary, verdict="not conformant", exit_code=1, reasons=(SENTENCE,))
    target = replace(found.target, dimensions={"storage": "file"})
    claims = ClaimsReport("claims.toml", "NATS of ours", ROWS)
    return replace(found, claims=claims, summary=summary, target=target)


def printed(result: RunResult) -> str:
    output = io.StringIO()
    print_result(Console(file=output, width=200), result, [])
    return output.getvalue()


def page(result: RunResult) -> str:
    return render(result).decode()


@pytest.mark.parametrize("text_of", [printed, page, summary_md.render])
def test_a_report_for_people_shows_the_comparison(
    result: RunResult, text_of: Callable[[RunResult], str]
) -> None:
    text = text_of(result)
    lower = text.lower()
    assert SENTENCE in text
    assert "claimed, could not be tested here" in lower
    assert "not claimed" in lower
    for word in ("announced", "limit max_payload", "1048576", "profile jetstream", "storage file"):
        assert word in lower


def test_junit_has_a_failure_for_each_contradiction(result: RunResult) -> None:
    root = ET.fromstring(junit.render(result))
    cases = [(case.get("name"), case.find("failure")) for case in root.iter("testcase")]
    failures = [(name, found.get("message")) for name, found in cases if found is not None]
    assert failures == [("limit max_payload", SENTENCE)]
    assert root.get("failures") == "1"
    assert [found.get("message") for found in root.iter("skipped")] == [
        "unsupported, not claimed: why kv",
        "unsupported, claimed, could not be tested here: why pull",
    ]
    properties = {found.get("name"): found.get("value") for found in root.iter("property")}
    assert properties["target.dimensions"] == "storage file"
    assert properties["claims"] == "NATS of ours, claims.toml"


def test_the_json_result_keeps_the_claims(result: RunResult) -> None:
    assert result_json.decode(result_json.encode(result)) == result


def test_what_is_claimed_and_not_tested_is_undecided(result: RunResult) -> None:
    found = score("all", result.requirements)
    assert (found.counts.claimed, found.counts.tested, found.undecided, found.unsupported) == (2, 1, 1, 1)
    assert [reason.claim for reason in unsupported_reasons(result)] == [CLAIMED, NOT_CLAIMED]


def test_hostile_text_in_claims_is_shown_escaped(result: RunResult) -> None:
    rows = (ClaimRow("limit", HOSTILE, HOSTILE, HOSTILE, contradiction=HOSTILE),)
    hostile = replace(result, claims=ClaimsReport(HOSTILE, HOSTILE, rows))
    assert "<script>alert(1)" not in page(hostile)
    assert "\x1b[31m" not in printed(hostile)
    assert ET.fromstring(junit.render(hostile)).get("failures") == "1"
    assert "|*[red]" not in summary_md.render(hostile)
