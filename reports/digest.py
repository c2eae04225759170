"""The data that all reports share: red checks, scores by group, and commands to run checks again.

Pure functions over ``verdicts``. Nothing here knows how a report looks.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from msgspec import Struct

from plumbline.verdicts import (
    CLAIMED,
    NOT_CLAIMED,
    CheckResult,
    ClaimRow,
    ClaimsReport,
    ExitCode,
    Level,
    Outcome,
    RequirementResult,
    RunResult,
    Tally,
    Target,
    WireLine,
    is_claimed_unsupported,
    tally,
)

Tone = Literal["good", "bad", "unclear"]

MAX_NAME_LENGTH = 24
NO_GROUP = "other"
NOT_SELECTED = "not selected"


class Score(Struct, frozen=True):
    """One row of a table: a group or a level of requirements, and their outcomes."""

    name: str
    counts: Tally
    failed: int
    waived: int
    unsupported: int
    undecided: int  # claimed, yet no evidence either way


class UnsupportedReason(Struct, frozen=True):
    """Checks that share why they were not run. ``claim``: whether the claims file claims them, if there is
    one."""

    message: str
    checks: tuple[CheckResult, ...]
    claim: str = ""


class WireExcerpt(Struct, frozen=True):
    """The part of an exchange that is worth showing, and how much was left out around it."""

    before: int
    lines: tuple[WireLine, ...]
    after: int


def red_checks(result: RunResult) -> list[CheckResult]:
    """The checks that turned the run red, MUST before SHOULD, otherwise in the order they ran."""
    red = [check for check in result.checks if check.red]
    return sorted(red, key=lambda check: list(Level).index(check.level))


def other_failures(result: RunResult) -> list[CheckResult]:
    """Failed checks that do not count against the target: SHOULD and MAY."""
    return [check for check in result.checks if check.outcome is Outcome.FAILED and not check.red]


def failed_at_first(result: RunResult) -> list[CheckResult]:
    """Checks that failed on a busy machine, and not when they were repeated alone."""
    return [check for check in result.checks if check.first_try]


def with_outcome(result: RunResult, outcome: Outcome) -> list[CheckResult]:
    """The checks that ended so, in the order they ran."""
    return [check for check in result.checks if check.outcome is outcome]


def unsupported_reasons(result: RunResult) -> list[UnsupportedReason]:
    """Unsupported checks by what showed it: those that are claimed first, then the commonest reason."""
    reasons: dict[tuple[str, str], list[CheckResult]] = {}
    for check in with_outcome(result, Outcome.UNSUPPORTED):
        reasons.setdefault((check.claim, check.message or "no reason given"), []).append(check)
    found = [UnsupportedReason(message, tuple(checks), claim) for (claim, message), checks in reasons.items()]
    return sorted(found, key=lambda reason: (reason.claim != CLAIMED, -len(reason.checks)))


def unsupported_heading(claim: str, kind: str) -> str:
    """What is common to unsupported checks: ``claim`` as their results have it, ``kind`` of the target."""
    return {
        CLAIMED: "claimed, could not be tested here",
        NOT_CLAIMED: "not claimed",
    }.get(claim, f"not supported by this {kind}")


CLAIMS_HEAD = ("", "claimed", "announced", "requirements", "tested", "passed")


def claims_table(report: ClaimsReport) -> list[tuple[str, ...]]:
    """The rows below ``CLAIMS_HEAD``, in words; ``-`` where nothing is claimed or announced."""
    return [
        (
            f"{row.kind} {row.name}" if row.kind != "version" else row.name,
            row.claimed or "-",
            row.announced or "-",
            *_tally_cells(row),
        )
        for row in report.rows
    ]


def claims_source(result: RunResult) -> str:
    """The product and the file of the claims; empty without them."""
    claims = result.claims
    return "" if claims is None else ", ".join(filter(None, (claims.product, claims.file)))


def _tally_cells(row: ClaimRow) -> tuple[str, str, str]:
    counts = row.requirements
    if row.kind != "profile":
        return "", "", ""
    return str(counts.claimed), str(counts.tested), str(counts.passed)


def selected(result: RunResult) -> list[RequirementResult]:
    """The requirements that the run was asked about."""
    return [found for found in result.requirements if found.verdict != NOT_SELECTED]


def group_of(requirement: RequirementResult) -> str:
    """Its group; without one, its id up to the number."""
    return requirement.group or requirement.id.rpartition("-")[0] or NO_GROUP


def scores_by_group(result: RunResult) -> list[Score]:
    """One row per group that the target claims or disclaims, in the order of the requirements."""
    return _scores(selected(result), group_of)


def scores_by_level(result: RunResult) -> list[Score]:
    """One row per level, MUST first."""
    found = _scores(selected(result), lambda requirement: requirement.level.value)
    return sorted(found, key=lambda score: [level.value for level in Level].index(score.name))


def score(name: str, requirements: Sequence[RequirementResult]) -> Score:
    """The outcome of these requirements."""
    verdicts = [requirement.verdict for requirement in requirements]
    counts = tally(requirements)
    return Score(
        name=name,
        counts=counts,
        failed=verdicts.count(Outcome.FAILED),
        waived=verdicts.count(Outcome.WAIVED),
        unsupported=sum(
            row.verdict == Outcome.UNSUPPORTED and not is_claimed_unsupported(row) for row in requirements
        ),
        undecided=counts.claimed - counts.tested,
    )


def _scores(
    requirements: Iterable[RequirementResult], key: Callable[[RequirementResult], str]
) -> list[Score]:
    rows: dict[str, list[RequirementResult]] = {}
    for requirement in requirements:
        rows.setdefault(key(requirement), []).append(requirement)
    found = [score(name, members) for name, members in rows.items()]
    return [row for row in found if row.counts.claimed or row.unsupported]


def requirements_of(check: CheckResult, result: RunResult) -> list[RequirementResult]:
    """The requirements that ``check`` verifies, as far as the result lists them."""
    ids = set(check.requirements)
    return [requirement for requirement in result.requirements if requirement.id in ids]


def headline(result: RunResult) -> str:
    """The verdict, as a title."""
    verdict = result.summary.verdict
    return verdict[:1].upper() + verdict[1:]


def verdict_detail(result: RunResult) -> str:
    """What the verdict rests on, with the exit code."""
    summary = result.summary
    passed = f"{summary.passed} of {summary.tested} tested requirements passed"
    untested = summary.claimed - summary.tested
    if untested > 0:
        passed += f", {untested} claimed but not tested"
    return f"{passed}. Exit code {summary.exit_code}."


def verdict_line(result: RunResult) -> str:
    """The verdict in words, with what it rests on and the exit code."""
    return f"{headline(result)}. {verdict_detail(result)}"


_TONES: dict[int, Tone] = {ExitCode.CONFORMANT: "good", ExitCode.NOT_CONFORMANT: "bad"}


def tone(exit_code: int) -> Tone:
    """Whether a run is conformant, is not, or has no verdict: in a colour or a mark."""
    return _TONES.get(exit_code, "unclear")


def meaning(exit_code: int) -> str:
    """The meaning of an exit code."""
    try:
        return ExitCode(exit_code).name.replace("_", " ").lower()
    except ValueError:
        return "unknown"


def counted_outcomes(result: RunResult) -> list[tuple[Outcome, int]]:
    """How many checks ended how; outcomes that did not occur are left out."""
    counts = result.summary.checks
    named = [(outcome, getattr(counts, outcome.name.lower())) for outcome in Outcome]
    return [(outcome, number) for outcome, number in named if number]


def server(target: Target) -> str:
    """``server 2.10.22 (NDVJ7OLLQ) at nats://127.0.0.1:4222``: what it says of itself, and where it is."""
    name = target.server_name
    if target.kind == "client":
        return f"client {name} {target.version} by {shlex.join(_command(target))}"
    if len(name) > MAX_NAME_LENGTH:  # an unnamed nats-server takes its 56-character id
        name = name[: MAX_NAME_LENGTH // 2] + "…"
    name = f" ({name})" if name else ""
    version = f" {target.version}" if target.version else ""
    return f"server{version}{name} at {target.url}"


def dimensions(target: Target) -> str:
    """``storage file, replicas 3``: how the run made streams or queues, as far as it was asked for."""
    return ", ".join(f"{name} {value}" for name, value in target.dimensions.items())


def replay_command(result: RunResult, check_id: str) -> str:
    """The shell command that runs one check alone against the same target, and judges it as strictly."""
    target = result.target
    arguments = (target.url,) if target.arguments is None else target.arguments
    options = ["--select", check_id, *(["--strict"] if result.summary.strict else [])]
    if target.kind == "client":
        return shlex.join(["plumbline", "gate", *options, *arguments])
    return shlex.join(["plumbline", "verify", *arguments, *options])


def _command(target: Target) -> tuple[str, ...]:
    """The adapter's command line."""
    arguments = target.arguments or ()
    return arguments[arguments.index("--") + 1 :] if "--" in arguments else arguments


def wire_excerpt(wire: Sequence[WireLine], size: int) -> WireExcerpt:
    """The last ``size`` lines, or those from shortly before the first offending one."""
    offending = next((i for i, line in enumerate(wire) if line.offending), len(wire))
    start = max(0, min(len(wire) - size, offending - size // 2))
    lines = tuple(wire[start : start + size])
    return WireExcerpt(before=start, lines=lines, after=len(wire) - start - len(lines))


def duration(seconds: float) -> str:
    """``0.42 s``, ``12.3 s``, ``2 min 05 s``."""
    if seconds >= 60:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"


def milliseconds(seconds: float) -> str:
    """``0.21 ms``, ``12.5 ms``."""
    return f"{seconds * 1000:.3g} ms"
