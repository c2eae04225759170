"""The search: runs random programs within a budget; shrinks, confirms and keeps those that show a divergence.

A difference counts when the trace shows it every time on the target, and never on the reference behind a
socket of its own. Everything else is a race, and is counted as such; only what a server has lost when it
comes back from a restart counts if it was seen once, since nothing happens then that could race with it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.strategies import SearchStrategy
from msgspec import Struct, field

from plumbline.conformance.explore.commands import Restart
from plumbline.conformance.explore.known import known_divergences
from plumbline.conformance.explore.program_writer import write
from plumbline.conformance.explore.programs import Program, programs
from plumbline.conformance.explore.reference import SimulatedBroker
from plumbline.conformance.explore.script import Script
from plumbline.conformance.explore.shrink import BudgetExhaustedError, shrink
from plumbline.conformance.explore.trial import PATIENCE, TrialDifference, play_script
from plumbline.conformance.outcomes import CheckEnded
from plumbline.conformance.targets.target import TargetAccess

EXAMPLES = 50  # of a round
SLOW_EXAMPLES = 6  # of a round that lets time pass, or restarts servers; each follows one of the others
CONFIRMATIONS = 3


class Divergence(Struct, frozen=True):
    """A difference, and the shortest program that was found to show it.

    Not ``is_reproducible``: it does not show every time, and the program is as it was when it did.
    """

    program: Program
    script: Script
    difference: TrialDifference
    is_reproducible: bool = True


class SearchProgress(Struct):
    """What the search has done so far."""

    examples: int = 0
    commands: int = 0
    restarts: int = 0
    shapes: set[str] = set()  # which commands with which settings, and how each was answered
    unsteady: Counter[str] = field(default_factory=Counter)  # differences that did not show again
    unclear: Counter[str] = field(default_factory=Counter)  # why a program had no verdict
    known: Counter[str] = field(default_factory=Counter)  # of differences found already: how often seen since
    faults: Counter[str] = field(default_factory=Counter)  # of released servers, in ``known.toml``
    elapsed_s: float = 0.0


@contextmanager
def _temporary_hypothesis_home() -> Iterator[None]:
    """Hypothesis keeps notes in a folder of its own, which is to be none of the user's."""
    with TemporaryDirectory() as folder:
        set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            set_hypothesis_home_dir(None)


class Budget(Struct, frozen=True):
    """When to stop: after so many seconds, so many programs, or so many differences."""

    seconds: float
    examples: int | None = None
    differences: int | None = None
    shrinking: float = 30.0  # seconds, for one difference


class _BudgetSpentError(Exception):
    """The budget is spent."""


class Search:
    """``reference`` gives a fresh one at every call; ``witness`` is the same broker behind a socket."""

    def __init__(
        self,
        target: TargetAccess,
        witness: TargetAccess,
        reference: Callable[[], SimulatedBroker],
        budget: Budget,
        *,
        first_seed: int,
        on_progress: Callable[[SearchProgress], None] = lambda progress: None,
        report: Callable[[Divergence], None] = lambda found: None,
    ) -> None:
        self.divergences: dict[str, Divergence] = {}
        self.progress = SearchProgress()
        self.restarts = target.running.restarts  # whether the target can be
        self._faults = known_divergences()
        self.target = target
        self._witness = witness
        self._reference = reference
        self._budget = budget
        self._seed = first_seed
        self._on_progress = on_progress
        self._report = report
        self._started_at = time.monotonic()

    def run(self) -> None:
        """Until the budget is spent. Raises ``Lost`` when the target is."""
        rounds = [
            (programs(timed=False), EXAMPLES),
            (programs(timed=True), SLOW_EXAMPLES),
            (programs(timed=False, pushing=True), EXAMPLES),
            (programs(timed=True, pushing=True), SLOW_EXAMPLES),
        ]
        if self.restarts:
            rounds.insert(2, (programs(timed=False, restarting=True), SLOW_EXAMPLES))
            rounds.append((programs(timed=False, restarting=True, pushing=True), SLOW_EXAMPLES))
        number = 0
        with suppress(_BudgetSpentError), _temporary_hypothesis_home():
            while not self._spent():
                kind, examples = rounds[number % len(rounds)]
                _HypothesisRun(self, self._seed + number, kind, examples).run()
                number += 1

    def _spent(self) -> bool:
        budget, progress = self._budget, self.progress
        progress.elapsed_s = time.monotonic() - self._started_at
        return (
            progress.elapsed_s >= budget.seconds
            or (budget.examples is not None and progress.examples >= budget.examples)
            or (budget.differences is not None and self.distinct() >= budget.differences)
        )

    def distinct(self) -> int:
        """How many differences were found."""
        return len({id(found) for found in self.divergences.values()})

    def difference(self, program: Program) -> TrialDifference | None:
        """What a program shows on the target, soon; None too if that stays unclear.

        After a restart it has all the time it wants: what it shows then is believed even if only once.
        """
        patience = "" if Restart() in program else PATIENCE
        try:
            return play_script(write(program, self._reference()), program, self.target, patience=patience)
        except CheckEnded as ended:  # most likely this machine was busy
            self.progress.unclear[ended.message] += 1
            return None

    def count_program(self, program: Program) -> bool:
        """One more; False if the budget is spent."""
        if self._spent():
            return False
        progress = self.progress
        progress.examples += 1
        progress.commands += len(program)
        progress.restarts += sum(isinstance(command, Restart) for command in program)
        progress.shapes.update(map(shape, program))
        self._on_progress(progress)
        return True

    def new_difference(self, program: Program) -> TrialDifference | None:
        """A difference that was not found yet, and that a program shows again at once."""
        difference = self.difference(program)
        if difference is None or self._is_explained(difference, program):
            return None
        again = self.difference(program)
        if again is None or again.key != difference.key:
            self._check_race(program, difference)
            return None
        return difference

    def _is_explained(self, difference: TrialDifference, program: Program, *, steady: bool = True) -> bool:
        """Count what was found already, or is known of released servers."""
        level = self.target.level
        explaining = (
            one for one in self._faults if one.explains(difference, program, level, is_reproducible=steady)
        )
        fault = next(explaining, None)
        if fault is not None:
            self.progress.faults[fault.reason] += 1
        elif difference.key in self.divergences:
            self.progress.known[difference.key] += 1
        else:
            return False
        return True

    def shrink_and_keep(self, program: Program, seen: TrialDifference | None = None) -> None:
        """Shrink what shows a difference, and keep it if it always shows, and never on the reference."""
        difference = seen or self.difference(program)
        if difference is None:
            return
        budget = self._budget
        end = self._started_at + budget.seconds
        key, until = difference.key, min(time.monotonic() + budget.shrinking, end)

        def differs(candidate: Program) -> bool:
            if time.monotonic() > until:
                raise BudgetExhaustedError
            shown_difference = self.difference(candidate)
            return shown_difference is not None and shown_difference.key == key

        shrunk = shrink(program, differs)
        script = write(shrunk, self._reference())
        confirmed = self._confirm(script, shrunk)
        if confirmed is None:
            self._check_race(program, difference)
        elif confirmed.key not in self.divergences and not self._is_explained(confirmed, shrunk):
            self._add(Divergence(shrunk, script, confirmed), key)

    def _confirm(self, script: Script, program: Program) -> TrialDifference | None:
        last: TrialDifference | None = None
        try:
            for _ in range(CONFIRMATIONS):
                last = play_script(script, program, self.target)
                if last is None or play_script(script, program, self._witness) is not None:
                    return None
        except CheckEnded:
            return None
        return last

    def _check_race(self, program: Program, difference: TrialDifference) -> None:
        """A race; but a server that has come back with something else has lost it, if only once."""
        script = write(program, self._reference())
        if not isinstance(difference.command, Restart) or not self._witness_agrees(script, program):
            self.progress.unsteady[difference.key] += 1
        elif not self._is_explained(difference, program, steady=False):
            self._add(Divergence(program, script, difference, is_reproducible=False), difference.key)

    def _witness_agrees(self, script: Script, program: Program) -> bool:
        try:
            return play_script(script, program, self._witness) is None
        except CheckEnded:
            return False

    def _add(self, found: Divergence, key: str) -> None:
        self.divergences[key] = self.divergences[found.difference.key] = found
        self._report(found)


class _HypothesisRun:
    """One run of Hypothesis: it stops at the first new difference, which is then shrunk."""

    def __init__(self, search: Search, number: int, kind: SearchStrategy[Program], examples: int) -> None:
        self._search = search
        self._seed = number
        self._kind = kind
        self._examples = examples
        self._failing: tuple[Program, TrialDifference] | None = None
        self._ended: BaseException | None = None

    def run(self) -> None:
        @seed(self._seed)
        @settings(
            max_examples=self._examples,
            database=None,
            deadline=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            print_blob=False,
            verbosity=Verbosity.quiet,
        )
        @given(self._kind)
        def trial(program: Program) -> None:
            if self._failing is None and self._ended is None:
                self._trial(program)

        trial()
        if self._ended is not None:
            raise self._ended
        if self._failing is not None:
            self._search.shrink_and_keep(*self._failing)

    def _trial(self, program: Program) -> None:
        """Nothing is raised here: Hypothesis would look at it again, and shrink in its own, slower way."""
        try:
            if not self._search.count_program(program):
                self._ended = _BudgetSpentError()
            elif (difference := self._search.new_difference(program)) is not None:
                self._failing = program, difference
        except BaseException as ended:
            self._ended = ended


def shape(command: Any) -> str:
    """The kind of a command, and which of its settings are given."""
    settings = getattr(command, "settings", None) or getattr(command, "body", None) or {}
    extra = getattr(command, "payload", "") or getattr(command, "argument", "")
    headers = ",".join(name for name, _ in getattr(command, "headers", ()))
    return f"{type(command).__name__} {','.join(sorted(settings))} {extra} {headers}"
