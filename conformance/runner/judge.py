"""One process's means of judging: the target, the waivers, and what it shares with the run's other processes.

A worker is a process of its own. What it must know, the controller has prepared and hands over, so that
nothing is measured or parsed twice. What all of them tell each other lies in one folder, which belongs to
the run: the locks of the ``Room``, and the word that the target is lost, after which nobody tries further.
"""

from __future__ import annotations

import datetime
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from plumbline.conformance import known_failures
from plumbline.conformance.check import Check
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner.alone import Room
from plumbline.conformance.runner.engine import not_run, run_check
from plumbline.conformance.runner.ledger import LEDGER
from plumbline.conformance.runner.prepare import Prepared
from plumbline.conformance.target import TargetAccess
from plumbline.conformance.urls import AnyUrl
from plumbline.conformance.waivers import Waiver, apply
from plumbline.verdicts import CheckResult, Outcome, Target

HANDOVER = "handover.pickle"
SHARED = "plumbline"  # the field of an xdist worker's input: the folder that it shares with the controller
LOST = "lost"  # the file in the shared folder that says why the target is lost
LOST_AFTER = 2  # probes in a row that nobody answered: one may be the machine's fault


class Handover(Struct, frozen=True):
    """What a worker needs to judge as the controller would. Functions it finds by import."""

    url: AnyUrl
    target: Target
    info: dict[str, Any]
    variants: dict[str, str]
    run: str
    waivers: tuple[Waiver, ...]
    catalogue: Catalogue
    traces: dict[str, Check]
    program: tuple[str, ...] = ()
    fresh: bool = False

    def judge(self, folder: Path, worker: str) -> Judge:
        """The judge of that worker, whose name is in the names it uses on the target."""
        access = TargetAccess(self.url, self.target, self.info, self.variants, self.run, worker)
        access.program = self.program
        access.fresh = self.fresh
        return Judge(access, self.catalogue, self.waivers, folder)


def hand_over(prepared: Prepared, folder: Path) -> None:
    """Leave in ``folder`` what workers need."""
    access = prepared.access
    handover = Handover(
        url=access.url,
        target=access.target,
        info=access.info,
        variants=access.variants,
        run=access.run,
        waivers=prepared.waivers,
        catalogue=prepared.catalogue,
        traces={name: check for name, check in prepared.known.items() if check.is_trace},
        program=access.program,
        fresh=access.fresh,
    )
    (folder / HANDOVER).write_bytes(pickle.dumps(handover))


def take_over(folder: Path) -> Handover:
    """What the controller left."""
    handover = pickle.loads((folder / HANDOVER).read_bytes())
    assert isinstance(handover, Handover)
    return handover


class Judge:
    """Runs checks and says what became of them."""

    def __init__(
        self, access: TargetAccess, catalogue: Catalogue, waivers: tuple[Waiver, ...], folder: Path
    ) -> None:
        self.access = access
        access.ledger = folder / LEDGER
        self._catalogue = catalogue
        self._waivers = waivers
        self._room = Room(folder)
        self._folder = folder

    def judge(self, check: Check) -> CheckResult:
        """Run a check, alone if it asks for that or was inconclusive before; then apply the waivers."""
        if lost := lost_word(self._folder):
            return not_run(check, self._catalogue, f"the target was lost: {lost}")
        with self._room.alone() if check.alone else self._room.together():
            result = run_check(check, self.access, self._catalogue)
        if result.outcome is Outcome.INCONCLUSIVE and not self._lost():
            with self._room.alone():
                again = run_check(check, self.access.calibrated_again(), self._catalogue)
            result = msgspec.structs.replace(again, retried=True)
        today = datetime.datetime.now(datetime.UTC).date()
        return apply(self._waivers, self._with_known(result), self.access.target.version, today)

    def _with_known(self, result: CheckResult) -> CheckResult:
        """A failure with what is known of that release: it stays one."""
        if result.outcome is not Outcome.FAILED:
            return result
        found = [
            f"{name} is {known_failures.said(failure)}"
            for name in result.requirements
            for failure in self._catalogue.by_id[name].known_failures
            if known_failures.holds(failure, self.access.target.version)
        ]
        return msgspec.structs.replace(result, known=tuple(found))

    def _lost(self) -> bool:
        """Whether the target is gone; if so, everyone is told."""
        reason = ""
        for _ in range(LOST_AFTER):
            reason = self.access.absence()
            if not reason:
                return False
        (self._folder / LOST).write_text(reason, "utf-8")
        return True


def lost_word(folder: Path) -> str:
    """Why the target is lost, if a process has found it so."""
    try:
        return (folder / LOST).read_text("utf-8")
    except FileNotFoundError:
        return ""


JUDGE = pytest.StashKey[Judge]()
