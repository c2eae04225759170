"""Gates the small client library with each of its defects, and says which requirements turned red.

Only the scenarios of what a defect breaks are played, or all of them: then nothing else may turn red.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from msgspec import Struct

from conformance.catalogue import Catalogue
from conformance.clients.gate import Wanted, catalogue, gate
from conformance.verdicts import CheckResult, Level, Outcome
from plumbline import Stands
from tests.mutation.clients.nats_defects import DEFECTS, Defect


class Detection(Struct, frozen=True):
    """What the gate saw of one defect: the requirements whose scenarios failed, and one failure in a line."""

    defect: str
    breaks: str
    summary: str
    red: tuple[str, ...]
    evidence: str

    @property
    def is_seen(self) -> bool:
        return self.breaks in self.red

    @property
    def others(self) -> tuple[str, ...]:
        """What else turned red."""
        return tuple(name for name in self.red if name != self.breaks)


def detect(defect: Defect, *, everything: bool = False) -> Detection:
    """Play the scenarios of what it breaks, or all."""
    results = gated(defect.name, () if everything else (defect.breaks,))
    failed = [result for result in results if result.outcome is not Outcome.PASSED]
    red = {name for result in failed if result.outcome is Outcome.FAILED for name in result.requirements}
    passed = {name for result in results if result.outcome is Outcome.PASSED for name in result.requirements}
    if defect.breaks in red and not everything:
        red -= passed - {defect.breaks}
    evidence = f"{failed[0].id}: {failed[0].message}" if failed else "nothing failed"
    return Detection(defect.name, defect.breaks, defect.summary, tuple(sorted(red)), evidence)


def gated(defect: str, select: Sequence[str] = ()) -> tuple[CheckResult, ...]:
    """The checks of a gate of the library with that defect; "" is the whole one."""
    command = (sys.executable, "-m", "tests.mutation.clients", *([defect] if defect else []))
    return gate(Wanted(command, select=tuple(select)), Stands(), ()).result.checks


def musts_without_defect(requirements: Catalogue | None = None) -> list[str]:
    """MUSTs of client libraries for NATS that nothing breaks on purpose."""
    broken = {defect.breaks for defect in DEFECTS.values()}
    return [
        row.id
        for row in (requirements or catalogue()).requirements
        if row.profile == "client-nats" and row.level is Level.MUST and row.id not in broken
    ]
