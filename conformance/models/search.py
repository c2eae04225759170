"""Plays traces of a model to a target: each line that a server answers otherwise is a difference.

A difference counts if it shows every time at the same line; otherwise it is a race, and is counted as such.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from msgspec import Struct, field

from plumbline.conformance.check import Check
from plumbline.conformance.models.model import Model, ModelScript
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner.engine import run_check
from plumbline.conformance.targets.target import TargetAccess
from plumbline.conformance.trace.cases import parse_trace
from plumbline.conformance.trace.player import play
from plumbline.verdicts import CheckResult, Outcome

_PATH = "model"  # how messages name the trace
CONFIRMATIONS = 2  # after the first time
_DIFFERENT = (Outcome.FAILED, Outcome.UNTESTABLE)


class ModelDifference(Struct, frozen=True):
    """A trace that a target does not follow: its text up to the line that differs."""

    model: Model
    number: int  # of the trace, from 1
    command: str
    text: str
    result: CheckResult


class ModelProgress(Struct):
    """What was played so far."""

    traces: int = 0
    steps: int = 0
    commands: Counter[str] = field(default_factory=Counter)
    races: Counter[str] = field(default_factory=Counter)  # by message
    unclear: Counter[str] = field(default_factory=Counter)  # by message
    elapsed_s: float = 0.0


class ModelSearch:
    """Plays traces until ``seconds`` are over or ``most`` differences are found."""

    def __init__(
        self,
        model: Model,
        target: TargetAccess,
        catalogue: Catalogue,
        *,
        seconds: float,
        most: int | None = None,
        on_progress: Callable[[ModelProgress], None] = lambda progress: None,
        report: Callable[[ModelDifference], None] = lambda found: None,
    ) -> None:
        self.progress = ModelProgress()
        self.differences: list[ModelDifference] = []
        self._model, self._target, self._catalogue = model, target, catalogue
        self._seconds, self._most = seconds, most
        self._on_progress, self._report = on_progress, report

    def run(self, traces: Iterable[bytes]) -> None:
        """``traces`` are in the Informal Trace Format. Raises ``ModelTraceError``."""
        began = time.monotonic()
        for number, itf in enumerate(traces, 1):
            self._trial(number, self._model.steps(itf))
            self.progress.elapsed_s = time.monotonic() - began
            self._on_progress(self.progress)
            if self.progress.elapsed_s >= self._seconds or len(self.differences) == self._most:
                return

    def _trial(self, number: int, steps: list[Any]) -> None:
        self.progress.traces += 1
        self.progress.steps += len(steps)
        self.progress.commands.update(step.command.name for step in steps)
        script = self._model.script_of(steps)
        result = self._played(script)
        if result.outcome is Outcome.PASSED:
            return
        line = self._line(result)
        if result.outcome not in _DIFFERENT:
            self.progress.unclear[result.message] += 1
        elif all(self._differs(self._played(script), line) for _ in range(CONFIRMATIONS)):
            step = steps[script.steps[line]]
            found = ModelDifference(
                model=self._model,
                number=number,
                command=step.command.name,
                text=self._model.text(
                    script.until(line),
                    title=f"The model {self._model.name} differs after {step.command.name}",
                    verifies=self._model.requirement_of(step.command.name),
                ),
                result=result,
            )
            self.differences.append(found)
            self._report(found)
        else:
            self.progress.races[result.message] += 1

    def _differs(self, result: CheckResult, line: int) -> bool:
        return result.outcome in _DIFFERENT and self._line(result) == line

    def _played(self, script: ModelScript) -> CheckResult:
        model = self._model
        trace = parse_trace(model.text(script, title="-", verifies=model.requirement), _PATH)
        check = Check(model.name, "-", (model.requirement,), partial(play, trace), source=model.file)
        return run_check(check, self._target, self._catalogue)

    def _line(self, result: CheckResult) -> int:
        """Where in the script a trial ended, from 0."""
        place = result.where.removeprefix(f"{_PATH}:")
        return max(int(place) - 1 - len(self._model.header()), 0) if place.isdigit() else 0
