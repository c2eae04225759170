"""From the results of checks to the result of a run. Pure: no pytest, no socket, no clock of its own."""

from __future__ import annotations

import datetime
import platform
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version

import msgspec
from msgspec import Struct

from plumbline.conformance.check import protocol_of
from plumbline.conformance.claims import contradictions, with_results
from plumbline.conformance.requirements.catalogue import REQUIREMENT_SET, Catalogue, Requirement
from plumbline.conformance.waivers import Waiver, stale_waivers
from plumbline.verdicts import (
    CLAIMED,
    CheckResult,
    ClaimsReport,
    Counts,
    ExitCode,
    Outcome,
    RequirementResult,
    RunResult,
    Suite,
    Summary,
    Target,
    tally,
    with_red,
)

NOT_SELECTED = "not selected"
NOT_SCORED = "not scored"
EXCLUDED = "excluded"

# The verdict of a requirement is the worst of its checks; tested outweighs what could not be.
_WORST_FIRST = (
    Outcome.FAILED,
    Outcome.HARNESS_ERROR,
    Outcome.INCONCLUSIVE,
    Outcome.UNTESTABLE,
    Outcome.STALE_WAIVER,
    Outcome.WAIVED,
    Outcome.PASSED,
    Outcome.UNSUPPORTED,
)


class RunEnd(Struct, frozen=True):
    """What is known at the end of a run beside the results."""

    suite: Suite
    target: Target
    started: datetime.datetime
    duration_s: float
    strict: bool = False
    waivers: tuple[Waiver, ...] = ()
    lost: str = ""  # why the target no longer answers, if so
    notes: tuple[str, ...] = ()  # further reasons why the run is red
    errors: tuple[str, ...] = ()  # what went wrong in Plumbline itself, outside of any check
    interrupted: bool = False
    time_limit: str = ""  # which one was reached, if so
    claims: ClaimsReport | None = None  # claimed and announced


def suite_of() -> Suite:
    """What judges, in versions."""
    try:
        distribution = version("plumbline-mq")
    except PackageNotFoundError:
        distribution = "0+unknown"
    return Suite(
        version=distribution,
        requirement_set=REQUIREMENT_SET,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
    )


def conclude(results: Sequence[CheckResult], catalogue: Catalogue, finish: RunEnd) -> RunResult:
    """The whole result of a run against a server, stale waivers marked."""
    spoken = [row for row in catalogue.requirements if protocol_of(row.id) == finish.target.protocol]
    return conclude_for(results, spoken, catalogue.published().ids, finish)


def conclude_for(
    results: Sequence[CheckResult], rows: Iterable[Requirement], scored: Collection[str], finish: RunEnd
) -> RunResult:
    """The whole result of a run that is about the requirements ``rows``; ``scored`` are the published ids."""
    marked = [with_red(result, strict=finish.strict) for result in _mark_stale_waivers(results, finish)]
    requirements = tuple(requirement_results(marked, rows, scored))
    return RunResult(
        suite=finish.suite,
        target=finish.target,
        summary=_summary(marked, requirements, finish),
        requirements=requirements,
        checks=tuple(marked),
        claims=finish.claims and with_results(finish.claims, requirements),
    )


def _mark_stale_waivers(results: Sequence[CheckResult], finish: RunEnd) -> list[CheckResult]:
    unneeded = stale_waivers(finish.waivers, results, finish.target.version, finish.started.date())
    return [
        msgspec.structs.replace(
            result,
            outcome=Outcome.STALE_WAIVER,
            waiver=str(unneeded[result.id]),
            message="passed although a waiver expects a failure: remove the waiver",
        )
        if result.id in unneeded
        else result
        for result in results
    ]


def requirement_results(
    results: Iterable[CheckResult], requirements: Iterable[Requirement], scored: Collection[str]
) -> Iterable[RequirementResult]:
    """One result for every one of these requirements; ``scored`` are the ids of the published set."""
    by_requirement: dict[str, list[CheckResult]] = {}
    for result in results:
        for name in result.requirements:
            by_requirement.setdefault(name, []).append(result)
    for requirement in requirements:
        yield _requirement_result(requirement, by_requirement.get(requirement.id, []), scored)


def _requirement_result(
    requirement: Requirement, checks: Collection[CheckResult], scored: Collection[str]
) -> RequirementResult:
    outcomes = {check.outcome for check in checks}
    worst = next((outcome for outcome in _WORST_FIRST if outcome in outcomes), None)
    verdict, note = (worst.value, "") if worst else (NOT_SELECTED, "")
    if requirement.excluded:
        verdict, note = EXCLUDED, requirement.excluded
    elif requirement.id not in scored:
        verdict, note = NOT_SCORED, f"added after the requirement set {REQUIREMENT_SET}"
    if worst is Outcome.UNSUPPORTED:
        note = "; ".join(sorted({check.message for check in checks}))
    return RequirementResult(
        id=requirement.id,
        level=requirement.level,
        verdict=verdict,
        checks=tuple(check.id for check in checks),
        group=requirement.group,
        profile=requirement.profile,
        statement=requirement.statement,
        source=requirement.source,
        documented=requirement.documented,
        observed=requirement.observed,
        note=note,
        known_failures=requirement.known_failures,
        claim=_claim(checks),
    )


def _claim(checks: Collection[CheckResult]) -> str:
    """Claimed if one of its checks is about what is claimed."""
    found = {check.claim for check in checks}
    return CLAIMED if CLAIMED in found else next(iter(found), "")


def _summary(
    results: Sequence[CheckResult], requirements: Sequence[RequirementResult], finish: RunEnd
) -> Summary:
    counted = tally(requirements)
    checks = counts(result.outcome.value for result in results)
    reasons = list(_reasons(results, counted.tested, finish))
    code = _exit_code(checks, reasons, finish)
    return Summary(
        verdict=_OUT_OF_TIME if finish.time_limit and not finish.lost else _VERDICTS[code],
        exit_code=code,
        claimed=counted.claimed,
        tested=counted.tested,
        passed=counted.passed,
        checks=checks,
        requirements=counts(requirement.verdict for requirement in requirements),
        started=finish.started.isoformat(timespec="seconds"),
        duration_s=finish.duration_s,
        reasons=tuple(reasons),
        strict=finish.strict,
    )


_VERDICTS = {
    ExitCode.CONFORMANT: "conformant",
    ExitCode.NOT_CONFORMANT: "not conformant",
    ExitCode.TARGET_LOST: "unknown: the target was lost",
    ExitCode.HARNESS_ERROR: "unknown: internal error in Plumbline",
    ExitCode.INTERRUPTED: "unknown: the run was interrupted",
}
_OUT_OF_TIME = "unknown: the time limit was reached"


def _reasons(results: Sequence[CheckResult], tested: int, finish: RunEnd) -> Iterable[str]:
    if finish.lost:
        yield f"the target was lost: {finish.lost}"
    if finish.time_limit:
        yield finish.time_limit
    if finish.interrupted:
        yield "the run was interrupted"
    yield from finish.notes
    yield from finish.errors
    if finish.claims is not None:
        yield from contradictions(finish.claims)
    red = Counter(result.outcome for result in results if result.red)
    known = sum(result.red and result.outcome is Outcome.FAILED and bool(result.known) for result in results)
    for outcome, count in red.items():
        is_cut_off = outcome is Outcome.INCONCLUSIVE and (finish.lost or finish.time_limit)
        sentence = NOT_FINISHED if is_cut_off else _OUTCOME_SENTENCES[outcome]
        also = f", {known} known for this release" if known and outcome is Outcome.FAILED else ""
        yield f"{count} {'check' if count == 1 else 'checks'} {sentence}{also}"
    if tested == 0:
        yield "no requirement was tested"


NOT_FINISHED = "could not be finished"
_OUTCOME_SENTENCES = {
    Outcome.FAILED: "failed",
    Outcome.UNTESTABLE: "could not be tested: a prerequisite was missing",
    Outcome.INCONCLUSIVE: "remained inconclusive after one retry",
    Outcome.HARNESS_ERROR: "ended with an internal error of Plumbline",
    Outcome.STALE_WAIVER: "passed although waived: the waiver is stale",
}


def _exit_code(checks: Counts, reasons: Sequence[str], finish: RunEnd) -> ExitCode:
    if finish.interrupted:
        return ExitCode.INTERRUPTED
    if finish.lost or finish.time_limit:
        return ExitCode.TARGET_LOST
    if checks.harness_error or finish.errors:
        return ExitCode.HARNESS_ERROR
    return ExitCode.NOT_CONFORMANT if reasons else ExitCode.CONFORMANT


def counts(outcomes: Iterable[str]) -> Counts:
    """How many of each outcome; other words (``excluded``) are not counted."""
    found = Counter(outcome.replace(" ", "_") for outcome in outcomes)
    return Counts(**{name: found[name] for name in Counts.__struct_fields__})
