"""Two runs side by side: what fails now, what passes now, which waivers changed. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from plumbline.reports.digest import NOT_SELECTED
from plumbline.verdicts import Outcome, RequirementResult, RunResult
from plumbline.visible import one_line

ABSENT = "not in this run"
_PASSING = (Outcome.PASSED.value, Outcome.STALE_WAIVER.value)
_SILENT = (ABSENT, "not scored", "excluded", NOT_SELECTED)


class VerdictChange(Struct, frozen=True):
    """One requirement whose verdict, or whose waiver, is another. ``reason``: the later run's words."""

    requirement: RequirementResult
    before: str
    after: str
    reason: str = ""


class Comparison(Struct, frozen=True):
    """Every difference between two runs, each in one of these lists, in the order of the requirements."""

    newly_failing: tuple[VerdictChange, ...] = ()
    newly_passing: tuple[VerdictChange, ...] = ()
    waivers: tuple[VerdictChange, ...] = ()
    other: tuple[VerdictChange, ...] = ()  # another verdict: undecided, unsupported, only in one of the runs

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.newly_failing or self.newly_passing or self.waivers or self.other)


def compare(before: RunResult, after: RunResult) -> Comparison:
    """What changed from one run to the other."""
    earlier = {requirement.id: requirement for requirement in before.requirements}
    later = {requirement.id: requirement for requirement in after.requirements}
    excuses = _waivers(before), _waivers(after)
    message = {
        requirement: check.message
        for check in reversed(after.checks)
        if check.outcome is not Outcome.PASSED
        for requirement in check.requirements
    }
    found: dict[str, list[VerdictChange]] = {
        "newly_failing": [],
        "newly_passing": [],
        "waivers": [],
        "other": [],
    }
    for name in dict.fromkeys([*later, *earlier]):
        was, is_now = (run[name].verdict if name in run else ABSENT for run in (earlier, later))
        old_excuse, excuse = (reasons.get(name, "") for reasons in excuses)
        kind = _kind(was, is_now, waiver_changed=old_excuse != excuse)
        if kind:
            described = later.get(name) or earlier[name]
            why = excuse if is_now == Outcome.WAIVED.value else message.get(name, "")
            found[kind].append(VerdictChange(described, was, is_now, why))
    return Comparison(**{kind: tuple(changes) for kind, changes in found.items()})


def _kind(before: str, after: str, *, waiver_changed: bool) -> str:
    """The list that a pair of verdicts belongs to; empty: nothing to tell."""
    if before == after:
        return "waivers" if after == Outcome.WAIVED.value and waiver_changed else ""
    if before in _SILENT and after in _SILENT:
        return ""
    if after == Outcome.FAILED.value:
        return "newly_failing"
    if after == Outcome.WAIVED.value or (before == Outcome.WAIVED.value and after not in _PASSING):
        return "waivers"
    if after in _PASSING and before not in _SILENT and before not in _PASSING:
        return "newly_passing"
    return "waivers" if Outcome.STALE_WAIVER.value in (before, after) else "other"


def _waivers(result: RunResult) -> dict[str, str]:
    return {
        requirement: check.waiver
        for check in result.checks
        if check.waiver
        for requirement in check.requirements
    }


def as_lines(found: Comparison) -> Iterator[str]:
    """The differences, list by list, for a terminal."""
    for heading, changes in (
        ("newly failing", found.newly_failing),
        ("newly passing", found.newly_passing),
        ("changed waivers", found.waivers),
        ("otherwise changed", found.other),
    ):
        if changes:
            yield f"{heading}: {len(changes)}"
            yield from (f"  {_line(change)}" for change in changes)
    if found.same:
        yield "no requirement has another verdict"


def _line(change: VerdictChange) -> str:
    why = f": {one_line(change.reason)[:200]}" if change.reason else ""
    return f"{change.requirement.id:<16} {change.requirement.level:<6} {change.before} -> {change.after}{why}"
