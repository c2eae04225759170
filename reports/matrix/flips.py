"""How often a result changed from one run of a target to the next: of a requirement, and of a check. Pure.

Two runs in a row of one target are a pair. A target is a release, so nothing in it changed between them: what
changed is the suite, or the result depends on chance. The rate is the part of the pairs that differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from plumbline.reports.matrix.runs import TargetRunResult
from plumbline.reports.matrix.table import TargetRow
from plumbline.verdicts import Outcome, RunResult

_QUIET = (Outcome.PASSED, Outcome.UNSUPPORTED)  # a site keeps no check of an earlier run that ended so


class FlipRate(Struct, frozen=True):
    """``flips`` of ``pairs`` differ."""

    flips: int
    pairs: int

    @property
    def rate(self) -> float:
        """From 0 to 1; 0 if there is nothing to compare."""
        return self.flips / self.pairs if self.pairs else 0.0

    @property
    def text(self) -> str:
        """In words."""
        if not self.pairs:
            return "one run"
        return f"{self.flips} of {self.pairs} ({self.rate:.0%})" if self.flips else f"0 of {self.pairs}"


class UnstableCheck(Struct, frozen=True):
    """A check whose outcome changed: on which target, how often, and its outcomes, the oldest run first."""

    check: str
    target: TargetRunResult
    flips: FlipRate
    outcomes: tuple[str, ...]


def requirement_flips(history: Sequence[TargetRunResult]) -> dict[str, FlipRate]:
    """By requirement. Only pairs in which both runs judged it count."""
    return _flips([{one.id: one.verdict for one in run.result.requirements} for run in history])


def unstable_checks(rows: Iterable[TargetRow]) -> list[UnstableCheck]:
    """The checks that did not always end in the same way, those with the highest rate first."""
    found = []
    for row in rows:
        outcomes = _outcomes([run.result for run in row.history])
        found += [
            UnstableCheck(check, row.run, rate, tuple(run[check] for run in outcomes if check in run))
            for check, rate in _flips(outcomes).items()
            if rate.flips
        ]
    return sorted(found, key=lambda one: (-one.flips.rate, one.check, one.target.target))


def _outcomes(runs: Sequence[RunResult]) -> list[dict[str, str]]:
    """Of each run: by check, its outcome, ``passed`` for those that were passed or unsupported.

    Where a run has no such check, it is there if the run judged one of its requirements: it was quiet.
    """
    loud = [{check.id: check for check in run.checks if check.outcome not in _QUIET} for run in runs]
    verifies = {name: check.requirements for run in loud for name, check in run.items()}
    judged = [{one.id for one in run.requirements} for run in runs]
    return [
        {
            name: run[name].outcome.value if name in run else Outcome.PASSED.value
            for name, requirements in verifies.items()
            if name in run or known.intersection(requirements)
        }
        for run, known in zip(loud, judged, strict=True)
    ]


def _flips(history: Sequence[Mapping[str, str]]) -> dict[str, FlipRate]:
    pairs: dict[str, list[bool]] = {}
    for before, after in pairwise(history):
        for name in before.keys() & after.keys():
            pairs.setdefault(name, []).append(before[name] != after[name])
    return {name: FlipRate(sum(found), len(found)) for name, found in pairs.items()}
