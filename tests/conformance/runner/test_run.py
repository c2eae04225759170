"""From results of checks to the verdict of a run."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest

from plumbline.conformance.requirements.catalogue import Catalogue, Group, Requirement
from plumbline.conformance.runner.run import RunEnd, conclude, suite_of
from plumbline.conformance.waivers import Waiver
from plumbline.verdicts import CheckResult, ExitCode, Level, Outcome, RunResult, Target, with_red

STARTED = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)


def catalogue(*requirements: Requirement) -> Catalogue:
    rows = requirements or tuple(requirement(name) for name in ("CORE-001", "CORE-002", "CORE-003"))
    return Catalogue((Group("CORE", "Core", rows),), {row.id: row for row in rows})


def requirement(name: str, level: Level = Level.MUST, **more: Any) -> Requirement:
    return Requirement(
        id=name, group="CORE", level=level, statement="It does.", source="doc", profile="nats-core", **more
    )


def result(
    outcome: Outcome, *names: str, level: Level = Level.MUST, check: str = "", message: str = ""
) -> CheckResult:
    return CheckResult(check or f"check-of-{names[0]}", outcome, names, level, message=message)


def concluded(results: list[CheckResult], rows: Catalogue | None = None, **finish: Any) -> RunResult:
    target = Target("nats://h", version="2.15.2")
    given = RunEnd(suite_of(), target, STARTED, 1.5, **finish)
    return conclude(results, rows or catalogue(), given)


@pytest.fixture(autouse=True)
def _published(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sets that real files publish are not what these tests are about."""

    class All(frozenset[str]):
        def __contains__(self, name: object) -> bool:
            return name != "CORE-999"

    class Published(msgspec.Struct):
        ids: frozenset[str] = All()

    monkeypatch.setattr(Catalogue, "published", lambda self: Published())


def verdicts(run: RunResult) -> dict[str, str]:
    return {row.id: row.verdict for row in run.requirements}


def test_a_requirement_is_the_worst_of_its_checks() -> None:
    run = concluded(
        [
            result(Outcome.PASSED, "CORE-001", check="a"),
            result(Outcome.FAILED, "CORE-001", "CORE-002", check="b"),
            result(Outcome.UNSUPPORTED, "CORE-002", check="c"),
        ]
    )
    assert verdicts(run) == {"CORE-001": "failed", "CORE-002": "failed", "CORE-003": "not selected"}
    assert (run.summary.claimed, run.summary.tested, run.summary.passed) == (2, 2, 0)
    assert run.summary.exit_code == ExitCode.NOT_CONFORMANT


def test_requirement_with_one_tested_check_is_not_unsupported() -> None:
    run = concluded(
        [
            result(Outcome.UNSUPPORTED, "CORE-001", check="since-2.11"),
            result(Outcome.PASSED, "CORE-001", check="before-2.11"),
            result(Outcome.UNSUPPORTED, "CORE-002", message="INFO does not claim it"),
        ]
    )
    assert verdicts(run)["CORE-001"] == "passed"
    assert verdicts(run)["CORE-002"] == "unsupported"
    assert run.requirements[1].note == "INFO does not claim it"
    assert (run.summary.claimed, run.summary.tested, run.summary.passed) == (1, 1, 1)
    assert run.summary.exit_code == ExitCode.CONFORMANT


def test_a_run_that_tested_nothing_is_not_conformant() -> None:
    assert concluded([]).summary.exit_code == ExitCode.NOT_CONFORMANT
    only_unsupported = concluded([result(Outcome.UNSUPPORTED, "CORE-001")])
    assert only_unsupported.summary.exit_code == ExitCode.NOT_CONFORMANT
    assert "no requirement was tested" in only_unsupported.summary.reasons


@pytest.mark.parametrize(
    ("outcome", "level", "strict", "red"),
    [
        (Outcome.FAILED, Level.MUST, False, True),
        (Outcome.FAILED, Level.SHOULD, False, False),
        (Outcome.FAILED, Level.SHOULD, True, True),
        (Outcome.FAILED, Level.MAY, True, False),
        (Outcome.UNSUPPORTED, Level.MUST, True, False),
        (Outcome.UNTESTABLE, Level.MAY, False, True),
        (Outcome.INCONCLUSIVE, Level.MAY, False, True),
        (Outcome.HARNESS_ERROR, Level.MAY, False, True),
        (Outcome.WAIVED, Level.MUST, True, False),
        (Outcome.STALE_WAIVER, Level.MAY, False, True),
        (Outcome.PASSED, Level.MUST, True, False),
    ],
)
def test_outcomes_that_make_run_red(outcome: Outcome, level: Level, strict: bool, red: bool) -> None:
    assert with_red(result(outcome, "CORE-001", level=level), strict=strict).red is red
    run = concluded(
        [result(outcome, "CORE-001", level=level), result(Outcome.PASSED, "CORE-002")], strict=strict
    )
    assert (run.summary.exit_code != ExitCode.CONFORMANT) is red


def test_exit_code_distinguishes_failure_lost_target_and_harness_error() -> None:
    failed = result(Outcome.FAILED, "CORE-001")
    broken = result(Outcome.HARNESS_ERROR, "CORE-002")
    assert concluded([failed, broken]).summary.exit_code == ExitCode.HARNESS_ERROR
    assert concluded([failed], errors=("a worker died",)).summary.exit_code == ExitCode.HARNESS_ERROR
    lost = concluded([failed, broken], lost="nothing listens")
    assert lost.summary.exit_code == ExitCode.TARGET_LOST
    assert "nothing listens" in lost.summary.reasons[0]


def test_streams_left_on_the_target_turn_the_run_red() -> None:
    run = concluded([result(Outcome.PASSED, "CORE-001")], notes=("streams may be left",))
    assert run.summary.exit_code == ExitCode.NOT_CONFORMANT


def test_a_stale_waiver_is_red_and_shown() -> None:
    run = concluded(
        [result(Outcome.PASSED, "CORE-001")], waivers=(Waiver("old news", requirement="CORE-001"),)
    )
    assert run.checks[0].outcome is Outcome.STALE_WAIVER
    assert run.checks[0].waiver == "old news"
    assert run.summary.exit_code == ExitCode.NOT_CONFORMANT
    assert run.summary.passed == 1


def test_excluded_and_later_requirements_are_not_claimed() -> None:
    rows = catalogue(
        requirement("CORE-001"), requirement("CORE-002", excluded="a client's duty"), requirement("CORE-999")
    )
    run = concluded([result(Outcome.PASSED, "CORE-001"), result(Outcome.FAILED, "CORE-999")], rows)
    assert verdicts(run) == {"CORE-001": "passed", "CORE-002": "excluded", "CORE-999": "not scored"}
    assert run.requirements[1].note == "a client's duty"
    assert (run.summary.claimed, run.summary.tested, run.summary.passed) == (1, 1, 1)
