"""Waivers: what they cover, when they hold, and that none is silent."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from plumbline.conformance.check import Check
from plumbline.conformance.waivers import (
    Waiver,
    WaiverError,
    apply_waivers,
    draft_waivers,
    load_waivers,
    stale_waivers,
)
from plumbline.verdicts import CheckResult, Level, Outcome

TODAY = datetime.date(2026, 11, 21)


def check(identifier: str = "adr-13/no-wait", requirement: str = "JS-PULL-015") -> Check:
    return Check(identifier, "title", (requirement,), lambda session: None)


def result(outcome: Outcome = Outcome.FAILED, message: str = "status: expected 404, got 408") -> CheckResult:
    return CheckResult("adr-13/no-wait", outcome, ("JS-PULL-015",), Level.MUST, message=message)


def test_a_failure_that_shows_the_text_is_waived_with_its_reason() -> None:
    waiver = Waiver("server issue", requirement="JS-PULL-*", link="https://example.org/1", contains="got 408")
    waived = apply_waivers([waiver], result(), "2.10.14", TODAY)
    assert waived.outcome is Outcome.WAIVED
    assert waived.waiver == "server issue (https://example.org/1)"


def test_waiver_does_not_cover_other_failure() -> None:
    waiver = Waiver("server issue", requirement="JS-PULL-015", contains="got 408")
    assert apply_waivers([waiver], result(message="got 503"), "2.10.14", TODAY).outcome is Outcome.FAILED


@pytest.mark.parametrize("outcome", [Outcome.INCONCLUSIVE, Outcome.HARNESS_ERROR])
def test_only_a_failure_can_be_waived(outcome: Outcome) -> None:
    assert apply_waivers([Waiver("r", check="adr-13/*")], result(outcome), "2.9.10", TODAY).outcome is outcome


def test_an_untestable_check_is_waived_for_the_text_that_says_why() -> None:
    untestable = result(Outcome.UNTESTABLE, "stage: basic.get is not answered")
    named = Waiver("it has no basic.get", check="adr-13/*", contains="basic.get is not answered")
    assert apply_waivers([named], untestable, "2.9.10", TODAY).outcome is Outcome.WAIVED
    unnamed = Waiver("it has no basic.get", check="adr-13/*")
    assert apply_waivers([unnamed], untestable, "2.9.10", TODAY).outcome is Outcome.UNTESTABLE


def test_expired_waiver_is_reported_and_ignored() -> None:
    waiver = Waiver("r", check="adr-13/*", expires=datetime.date(2026, 11, 20))
    ended = apply_waivers([waiver], result(), "2.9.10", TODAY)
    assert ended.outcome is Outcome.FAILED
    assert "expired on 2026-11-20" in ended.message
    last_day = Waiver("r", check="adr-13/*", expires=TODAY)
    assert apply_waivers([last_day], result(), "2.9.10", TODAY).outcome is Outcome.WAIVED


def test_a_waiver_for_what_passes_is_stale() -> None:
    waiver = Waiver("r", requirement="JS-PULL-015")
    assert stale_waivers([waiver], [result(Outcome.PASSED)], "2.9.10", TODAY) == {"adr-13/no-wait": waiver}


def test_waiver_is_stale_only_if_all_checks_ran_and_passed() -> None:
    waiver = Waiver("r", requirement="JS-PULL-*")
    other = CheckResult("other", Outcome.WAIVED, ("JS-PULL-016",), Level.MUST)
    assert stale_waivers([waiver], [result(Outcome.PASSED), other], "2.9.10", TODAY) == {}
    assert stale_waivers([waiver], [result(Outcome.UNSUPPORTED)], "2.9.10", TODAY) == {}
    assert (
        stale_waivers([Waiver("r", check="*", versions=">=2.11")], [result(Outcome.PASSED)], "2.9.10", TODAY)
        == {}
    )


def test_all_waiver_errors_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(
        '[[waiver]]\nrequirement = "JS-PULL-999"\nreason = "r"\n'
        '[[waiver]]\nreason = " "\n'
        '[[waiver]]\ncheck = "adr-13/*"\nreason = "r"\nversions = "2.9 or so"\n'
    )
    with pytest.raises(WaiverError) as raised:
        load_waivers(path, [check()])
    text = str(raised.value)
    assert "waiver 1: 'JS-PULL-999' names no check" in text
    assert "waiver 2: the reason is empty" in text
    assert "waiver 2: give either" in text
    assert "waiver 3: versions" in text


@pytest.mark.parametrize(
    "text",
    ["not toml", '[[waiver]]\nreason = 3\ncheck = "*"', '[[waiver]]\nreson = "r"\ncheck="*"', "waiver = 1"],
)
def test_invalid_waiver_file_error_shows_example(tmp_path: Path, text: str) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(text)
    with pytest.raises(WaiverError, match="a table is"):
        load_waivers(path, [check()])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"waiver = " + b"[" * 100_000, "nested too deeply"),
        (b"waiver = " + b"9" * 5000, "digits"),
        (b"\xff", "not UTF-8"),
    ],
    ids=["nested", "number", "bytes"],
)
def test_a_file_that_no_parser_takes_is_an_error_of_the_user(data: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "waivers.toml"
    path.write_bytes(data)
    with pytest.raises(WaiverError, match=why):
        load_waivers(path, [check()])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WaiverError, match="No such file"):
        load_waivers(tmp_path / "none.toml", [])


def test_a_draft_shows_what_the_server_hides(tmp_path: Path) -> None:
    hostile = "2.15.2\x1b[31m\n::error::x \u202e\x85\u2028\U000e0001\U0001f600"
    path = tmp_path / "waivers.toml"
    path.write_text(draft_waivers([result(message=hostile)], "2.15.2"), "utf-8")
    text = path.read_text("utf-8")
    assert all(line.isprintable() for line in text.split("\n"))
    assert "::error::" not in text
    (waiver,) = load_waivers(path, [check()])
    assert waiver.reason == f"to be explained: {hostile}"


@pytest.mark.parametrize(
    ("version", "versions"),
    [("v2.10.14-beta\x1b[31m", "==2.10.14"), ("2.15.2'; DROP", "==2.15.2"), ("newest", ""), ("", "")],
)
def test_a_draft_names_the_release_whatever_follows_it(version: str, versions: str, tmp_path: Path) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(draft_waivers([result(message="got 408")], version), "utf-8")
    (waiver,) = load_waivers(path, [check()])
    assert waiver.versions == versions


def test_a_draft_covers_exactly_the_failures_of_its_run(tmp_path: Path) -> None:
    hostile = "got \"\x7f\x00\udcff\" \\ and '''"
    failures = [result(message=hostile), result(Outcome.PASSED), result(Outcome.INCONCLUSIVE)]
    path = tmp_path / "waivers.toml"
    path.write_text(draft_waivers(failures, "2.10.14"), "utf-8")
    waivers = load_waivers(path, [check()])
    assert len(waivers) == 1
    assert waivers[0].versions == "==2.10.14"
    plain = result(message="status: expected 404, got 408")
    path.write_text(draft_waivers([plain], "2.10.14"), "utf-8")
    assert apply_waivers(load_waivers(path, [check()]), plain, "2.10.14", TODAY).outcome is Outcome.WAIVED
