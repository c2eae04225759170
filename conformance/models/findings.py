"""Output of ``plumbline explore --model``: each difference with its trace file, and a summary."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from plumbline.conformance.explore.findings import difference_lines, new_file
from plumbline.conformance.models.model import Model
from plumbline.conformance.models.search import ModelDifference, ModelProgress
from plumbline.conformance.targets.target import TargetAccess
from plumbline.visible import write_line

EVERY = 50  # traces, in a line of progress


class ModelPrinter:
    """Prints to ``out`` what was found, and to ``err`` how far it is."""

    def __init__(
        self, model: Model, target: TargetAccess, folder: Path, replay: str, *, out: TextIO, err: TextIO
    ) -> None:
        self._model, self._target, self._folder, self._replay = model, target, folder, replay
        self._out, self._err = out, err

    def progress(self, progress: ModelProgress) -> None:
        """Called after each trace: a line now and then."""
        if progress.traces % EVERY == 0:
            write_line(self._err, f"{_rate(progress)} ...")
            self._err.flush()

    def print_difference(self, found: ModelDifference) -> None:
        """A difference, and where its trace is. Raises ``OSError``."""
        path = new_file(
            self._folder, f"{self._model.name}-{found.command.strip('+-').lower().replace('_', '-')}"
        )
        path.write_text(found.text, "utf-8")
        self._print(
            *difference_lines(f"{found.command} (trace {found.number})", path, found.result, self._replay)
        )

    def print_summary(self, progress: ModelProgress, found: int, seed: int) -> None:
        """The end."""
        target = self._target.target
        races = sum(progress.races.values())
        commands = ", ".join(f"{name} {times}" for name, times in sorted(progress.commands.items()))
        self._print(
            f"  played  {_rate(progress)}; --seed {seed}",
            f"  target  server {target.version} at {target.url}",
            f"   model  {self._model.name}: {commands}",
            f"   found  {found} difference{'' if found == 1 else 's'}, {races} that did not show again: "
            "races, not counted",
            *(f"    race  {times} times  {why}" for why, times in progress.races.most_common()),
            *(f" unclear  {times} times  {why}" for why, times in progress.unclear.most_common()),
        )

    def _print(self, *lines: str) -> None:
        """Lines, which may have text of the server in them."""
        for line in lines:
            write_line(self._out, self._target.mask.text(line))
        self._out.flush()


def _rate(progress: ModelProgress) -> str:
    return f"{progress.traces} traces, {progress.steps} steps in {progress.elapsed_s:.1f} s"
