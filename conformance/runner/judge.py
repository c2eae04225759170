"""Judges checks in one process: holds the target, the waivers and the state shared with other processes.

A worker is a process of its own. What it must know, the controller has prepared and hands over, so that
nothing is measured or parsed twice. What all of them tell each other lies in one folder, which belongs to
the run: the locks of the ``RunLock``, and the word that the target is lost: then no check tries further.
"""

from __future__ import annotations

import datetime
import pickle
from pathlib import Path

import pytest
from msgspec.structs import replace

from plumbline.conformance import known_failures
from plumbline.conformance.check import Check
from plumbline.conformance.runner.engine import not_run_result, run_check
from plumbline.conformance.runner.prepare import RunDescription
from plumbline.conformance.runner.run_lock import RunLock
from plumbline.conformance.targets.unanswered import UnansweringServers
from plumbline.conformance.waivers import apply_waivers
from plumbline.verdicts import CheckResult, Outcome, with_red

DESCRIPTION = "run.pickle"  # the file in the shared folder that holds the RunDescription
SHARED = "plumbline"  # the field of an xdist worker's input: the folder that it shares with the controller
LOST = "lost"  # the file in the shared folder that says why the target is lost
FAILURES = "failures"  # the file in the shared folder that has a byte for each failure of the run
MOST_FAILURES = 20  # where more checks fail, the server is wrong, and the machine is not looked at
BUSY_TRIES = 3
BUSY_SLACK_S = 0.2  # a target that needs so much is on a machine on which checks come too late
LOST_AFTER = 3  # probes in a row without an answer: some may be the fault of a busy machine


def write_worker_context(run: RunDescription) -> None:
    """Leave the description in the shared folder, for the workers. It holds the login."""
    shared_folder(run).joinpath(DESCRIPTION).write_bytes(pickle.dumps(run))


def remove_worker_context(run: RunDescription) -> None:
    """Remove what ``write_worker_context`` left, once no worker is still to read it."""
    shared_folder(run).joinpath(DESCRIPTION).unlink(missing_ok=True)


def read_worker_context(folder: Path, worker: str) -> RunDescription:
    """What the controller left, for the worker of that name, which is in the names it uses on the target."""
    run = pickle.loads((folder / DESCRIPTION).read_bytes())
    assert isinstance(run, RunDescription)
    return replace(run, target=replace(run.target, worker=worker))


def shared_folder(run: RunDescription) -> Path:
    """The folder that all processes of the run share."""
    assert run.target.shared is not None, "a run has a folder that its processes share"
    return run.target.shared


class Judge:
    """Runs checks and gives their results. ``run.target.shared`` must be a folder."""

    def __init__(self, run: RunDescription) -> None:
        self._run = run
        self._folder = shared_folder(run)
        self._run_lock = RunLock(self._folder)

    def judge(self, check: Check) -> CheckResult:
        """Run a check, alone if it asks for that, was inconclusive or failed on a busy machine; then apply
        the waivers."""
        return with_red(self._judge(check), strict=self._run.wanted.strict)

    def _judge(self, check: Check) -> CheckResult:
        if lost := lost_reason(self._run):
            return not_run_result(check, self._run.catalogue, f"the target was lost: {lost}")
        with self._run_lock.exclusive() if check.alone else self._run_lock.shared():
            result = run_check(check, self._run.target, self._run.catalogue, is_repeatable=True)
        if result.outcome is Outcome.INCONCLUSIVE:
            if self._is_hopeless(result):
                return self._explained(result)
            result = self._repeat_alone(check)
        may_be_late = self._explained(result).outcome is Outcome.FAILED or (
            result.outcome is Outcome.INCONCLUSIVE and not self._is_hopeless(result)
        )
        return self._explained(self._repeat_where_busy(check, result) if may_be_late else result)

    def _is_hopeless(self, result: CheckResult) -> bool:
        """Whether it was inconclusive for a server that is gone, or does not answer: more tries take long."""
        return self._is_given_up(result) or self._report_target_lost()

    def _explained(self, result: CheckResult) -> CheckResult:
        """A failure with what is known of that release, or with its waiver."""
        today = datetime.datetime.now(datetime.UTC).date()
        version = self._run.target.target.version
        return apply_waivers(self._run.waivers, self._with_known_failure(result), version, today)

    def _repeat_alone(self, check: Check) -> CheckResult:
        """Once more, beside no other check, with the slack that the target needs now."""
        with self._run_lock.exclusive():
            again = run_check(check, self._run.target.recalibrated(), self._run.catalogue)
        return replace(again, retried=True)

    def _repeat_where_busy(self, check: Check, first: CheckResult) -> CheckResult:
        """A failure, or no verdict, on a machine that was too busy may be our own lateness, or that of a
        server beside us: it counts if it shows each time. A check that passes in the end says what failed."""
        result = first
        for _ in range(BUSY_TRIES - 1):
            if result.outcome not in (Outcome.FAILED, Outcome.INCONCLUSIVE) or not self._may_look_again():
                break
            if self._run.target.recalibrated().slack_s < BUSY_SLACK_S:
                break
            result = self._repeat_alone(check)
        if first.outcome is Outcome.FAILED and result.outcome is not Outcome.FAILED:
            return replace(result, first_try=first.message)
        return result

    def _may_look_again(self) -> bool:
        """False once the run had so many failures that the machine is not what they are from."""
        with (self._folder / FAILURES).open("ab") as file:
            file.write(b".")
            return file.tell() <= MOST_FAILURES

    def _is_given_up(self, result: CheckResult) -> bool:
        """Whether it was not run, since the run has given up a server that it needs."""
        reasons = UnansweringServers(self._folder).all_given_up()
        return any(self._run.target.mask.text(reason) in result.message for reason in reasons)

    def _with_known_failure(self, result: CheckResult) -> CheckResult:
        """A failure with what is known of that release: it stays one."""
        if result.outcome is not Outcome.FAILED:
            return result
        found = [
            f"{name} is {known_failures.describe(failure)}"
            for name in result.requirements
            for failure in self._run.catalogue.by_id[name].known_failures
            if known_failures.applies_to(failure, self._run.target.target.version)
        ]
        return replace(result, known=tuple(found))

    def _report_target_lost(self) -> bool:
        """Whether the target is gone; if so, every worker learns it."""
        reason = ""
        for _ in range(LOST_AFTER):
            reason = self._run.target.absence_reason()
            if not reason:
                return False
        (self._folder / LOST).write_text(reason, "utf-8")
        return True


def lost_reason(run: RunDescription) -> str:
    """Why the target is lost, if a process has found it so."""
    try:
        return (shared_folder(run) / LOST).read_text("utf-8")
    except FileNotFoundError:
        return ""


JUDGE = pytest.StashKey[Judge]()
