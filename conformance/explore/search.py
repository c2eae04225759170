"""The search: random programs within a budget; one that makes a difference is shrunk, confirmed and kept.

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
from plumbline.conformance.explore.known import known_faults
from plumbline.conformance.explore.programs import Program, programs
from plumbline.conformance.explore.reference import Reference
from plumbline.conformance.explore.scribe import write
from plumbline.conformance.explore.script import Script
from plumbline.conformance.explore.shrink import Enough, shrink
from plumbline.conformance.explore.trial import PATIENCE, Difference, attempt
from plumbline.conformance.outcomes import CheckEnded
from plumbline.conformance.target import TargetAccess

EXAMPLES = 50  # of a round
SLOW_EXAMPLES = 6  # of a round that lets time pass, or restarts servers; each follows one of the others
CONFIRMATIONS = 3


class Found(Struct, frozen=True):
    """A difference, and the shortest program that was found to show it.

    Not ``steady``: it does not show every time, and the program is as it was when it did.
    """

    program: Program
    script: Script
    difference: Difference
    steady: bool = True


class Progress(Struct):
    """What the search has done so far."""

    examples: int = 0
    commands: int = 0
    restarts: int = 0
    shapes: set[str] = set()  # which commands with which settings, and how each was answered
    unsteady: Counter[str] = field(default_factory=Counter)  # differences that did not show again
    unclear: Counter[str] = field(default_factory=Counter)  # why nothing could be said of a program
    known: Counter[str] = field(default_factory=Counter)  # of differences found already: how often seen since
    faults: Counter[str] = field(default_factory=Counter)  # of released servers, in ``known.toml``
    elapsed_s: float = 0.0


@contextmanager
def _nothing_left_behind() -> Iterator[None]:
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


class _Stop(Exception):
    """The budget is spent."""


class Search:
    """``reference`` gives a fresh one at every call; ``witness`` is the same broker behind a socket."""

    def __init__(
        self,
        target: TargetAccess,
        witness: TargetAccess,
        reference: Callable[[], Reference],
        budget: Budget,
        *,
        first_seed: int,
        tell: Callable[[Progress], None] = lambda progress: None,
        report: Callable[[Found], None] = lambda found: None,
    ) -> None:
        self.found: dict[str, Found] = {}
        self.progress = Progress()
        self.restarts = bool(target.running.program)  # whether the target can be
        self._faults = known_faults()
        self.target = target
        self._witness = witness
        self._reference = reference
        self._budget = budget
        self._seed = first_seed
        self._tell = tell
        self._report = report
        self._began = time.monotonic()

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
        with suppress(_Stop), _nothing_left_behind():
            while not self._spent():
                kind, examples = rounds[number % len(rounds)]
                _Round(self, self._seed + number, kind, examples).run()
                number += 1

    def _spent(self) -> bool:
        budget, progress = self._budget, self.progress
        progress.elapsed_s = time.monotonic() - self._began
        return (
            progress.elapsed_s >= budget.seconds
            or (budget.examples is not None and progress.examples >= budget.examples)
            or (budget.differences is not None and self.distinct() >= budget.differences)
        )

    def distinct(self) -> int:
        """How many differences were found."""
        return len({id(found) for found in self.found.values()})

    def difference(self, program: Program) -> Difference | None:
        """What a program shows on the target, soon; None too if nothing can be said.

        After a restart it has all the time it wants: what it shows then is believed even if only once.
        """
        patience = "" if Restart() in program else PATIENCE
        try:
            return attempt(write(program, self._reference()), program, self.target, patience=patience)
        except CheckEnded as ended:  # most likely this machine was busy
            self.progress.unclear[ended.message] += 1
            return None

    def count(self, program: Program) -> bool:
        """One more; False if the budget is spent."""
        if self._spent():
            return False
        progress = self.progress
        progress.examples += 1
        progress.commands += len(program)
        progress.restarts += sum(isinstance(command, Restart) for command in program)
        progress.shapes.update(map(shape, program))
        self._tell(progress)
        return True

    def new_difference(self, program: Program) -> Difference | None:
        """A difference that was not found yet, and that a program shows again at once."""
        difference = self.difference(program)
        if difference is None or self._is_explained(difference, program):
            return None
        again = self.difference(program)
        if again is None or again.key != difference.key:
            self._not_again(program, difference)
            return None
        return difference

    def _is_explained(self, difference: Difference, program: Program, *, steady: bool = True) -> bool:
        """Count what was found already, or is known of released servers."""
        level = self.target.level
        explaining = (one for one in self._faults if one.explains(difference, program, level, steady=steady))
        fault = next(explaining, None)
        if fault is not None:
            self.progress.faults[fault.reason] += 1
        elif difference.key in self.found:
            self.progress.known[difference.key] += 1
        else:
            return False
        return True

    def keep(self, program: Program, seen: Difference | None = None) -> None:
        """Shrink what shows a difference, and keep it if it always shows, and never on the reference."""
        difference = seen or self.difference(program)
        if difference is None:
            return
        key, until = difference.key, time.monotonic() + self._budget.shrinking

        def differs(candidate: Program) -> bool:
            if time.monotonic() > until:
                raise Enough
            shown = self.difference(candidate)
            return shown is not None and shown.key == key

        shrunk = shrink(program, differs)
        script = write(shrunk, self._reference())
        confirmed = self._confirmed(script, shrunk)
        if confirmed is None:
            self._not_again(program, difference)
        elif confirmed.key not in self.found and not self._is_explained(confirmed, shrunk):
            self._add(Found(shrunk, script, confirmed), key)

    def _confirmed(self, script: Script, program: Program) -> Difference | None:
        last: Difference | None = None
        try:
            for _ in range(CONFIRMATIONS):
                last = attempt(script, program, self.target)
                if last is None or attempt(script, program, self._witness) is not None:
                    return None
        except CheckEnded:
            return None
        return last

    def _not_again(self, program: Program, difference: Difference) -> None:
        """A race; but a server that has come back with something else has lost it, if only once."""
        script = write(program, self._reference())
        if not isinstance(difference.command, Restart) or not self._is_no_fault_of_ours(script, program):
            self.progress.unsteady[difference.key] += 1
        elif not self._is_explained(difference, program, steady=False):
            self._add(Found(program, script, difference, steady=False), difference.key)

    def _is_no_fault_of_ours(self, script: Script, program: Program) -> bool:
        try:
            return attempt(script, program, self._witness) is None
        except CheckEnded:
            return False

    def _add(self, found: Found, key: str) -> None:
        self.found[key] = self.found[found.difference.key] = found
        self._report(found)


class _Round:
    """One run of Hypothesis: it stops at the first new difference, which is then shrunk."""

    def __init__(self, search: Search, number: int, kind: SearchStrategy[Program], examples: int) -> None:
        self._search = search
        self._seed = number
        self._kind = kind
        self._examples = examples
        self._failing: tuple[Program, Difference] | None = None
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
            self._search.keep(*self._failing)

    def _trial(self, program: Program) -> None:
        """Nothing is raised here: Hypothesis would look at it again, and shrink in its own, slower way."""
        try:
            if not self._search.count(program):
                self._ended = _Stop()
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
