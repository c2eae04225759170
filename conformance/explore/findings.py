"""Output of ``plumbline explore``: each divergence with its trace file, and a summary at the end."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Protocol, TextIO

from plumbline.conformance.explore.script import Script
from plumbline.conformance.explore.search import Divergence, SearchProgress
from plumbline.conformance.explore.trial import requirement_of, trace_text
from plumbline.conformance.targets.target import TargetAccess
from plumbline.verdicts import WireLine
from plumbline.visible import write_line

WIRE_LINES = 12
LINE = 180  # characters of an operation
SOMETIMES = ", but not every time: the server has lost it in this restart"
EVERY_S = 1.0  # on a terminal; elsewhere a line that stays would only be in the way
ERASE = "\r\x1b[K"
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")


def write_trace(found: Divergence, folder: Path, target: TargetAccess, level: str) -> Path:
    """A new file in ``folder``, which is made if it is not there. Raises ``OSError``."""
    command = type(found.difference.command).__name__
    path = new_file(folder, _WORDS.sub("-", command).lower())
    slug = _WORDS.sub(" ", command).lower()
    text = trace_text(
        _cut_after(found.script, found.difference.line),
        title=f"Explored: {slug} differs on server {target.target.version}",
        source=f"plumbline explore; expected lines are the answers of the reference broker at level {level}",
        verifies=requirement_of(found.difference.command),
    )
    path.write_text(text, "utf-8")
    return path


def _cut_after(script: Script, line: int) -> Script:
    """Without the lines behind the one that differs: they are never reached."""
    end = line + 1
    opened = sum(text == "in any order" for text in script.lines[:end])
    if opened > sum(text == "end" for text in script.lines[:end]):
        end += script.lines[end:].index("end") + 1
    return Script(script.lines[:end], script.commands[:end])


class FindingsPrinter:
    """Prints to ``out`` what is worth keeping, and to the terminal, if ``err`` is one, how far it is."""

    def __init__(
        self, target: TargetAccess, level: str, folder: Path, replay: str, *, out: TextIO, err: TextIO
    ) -> None:
        self._target = target
        self._level = level
        self._folder = folder
        self._replay = replay
        self._out = out
        self._err = err
        self._printed_at = time.monotonic()
        self._line_visible = False

    def progress(self, progress: SearchProgress) -> None:
        """Called often; shows little."""
        now = time.monotonic()
        if now - self._printed_at < EVERY_S or not self._err.isatty():
            return
        self._printed_at, self._line_visible = now, True
        self._err.write(f"{ERASE}{_rate(progress)}")
        self._err.flush()

    def print_divergence(self, found: Divergence) -> None:
        """A difference, and where its trace is."""
        self._erase()
        path = write_trace(found, self._folder, self._target, self._level)
        difference = found.difference
        what = difference.key.split(":")[0]
        lines = difference_lines(
            f"{what}{'' if found.is_reproducible else SOMETIMES}", path, difference, self._replay
        )
        self._print(*lines)

    def print_summary(self, progress: SearchProgress, found: int, seed: int) -> None:
        """The end."""
        self._erase()
        target = self._target.target
        races = sum(progress.unsteady.values())
        again = sum(progress.known.values())
        self._print(
            f"explored  {_rate(progress)}; --seed {seed}",
            f"  target  server {target.version} at {target.url}",
            f"compared  with the reference broker at level {self._level}",
            f"  {self._restarts(progress)}",
            f"   found  {found} divergence{'' if found == 1 else 's'}"
            f" (seen {again} times more), {races} that did not show again: races, not counted",
            *(f"   fault  {times} times, known: {why}" for why, times in progress.faults.most_common()),
            *(f"    race  {times} times  {key}" for key, times in progress.unsteady.most_common()),
            *(f" unclear  {times} times  {why}" for why, times in progress.unclear.most_common()),
        )

    def _print(self, *lines: str) -> None:
        """Lines, which may have text of the server in them."""
        for line in lines:
            write_line(self._out, self._target.mask.text(line))
        self._out.flush()

    def _restarts(self, progress: SearchProgress) -> str:
        if self._target.running.restarts:
            return f"restarts  {progress.restarts}, each of a server like it, with streams in files"
        return "restarts  none: Plumbline did not start this server (--server PROGRAM, or no URL)"

    def _erase(self) -> None:
        if self._line_visible:
            self._err.write(ERASE)
            self._err.flush()
            self._line_visible = False


class SeenDifference(Protocol):
    """What is shown of a difference."""

    @property
    def message(self) -> str: ...
    @property
    def expected(self) -> str: ...
    @property
    def actual(self) -> str: ...
    @property
    def wire(self) -> tuple[WireLine, ...]: ...


def difference_lines(what: str, path: Path, difference: SeenDifference, replay: str) -> list[str]:
    """A difference, the last operations before it, and the command that shows it again."""
    return [
        f"DIVERGED  {what}",
        f"{path}",
        f"  {difference.message}",
        "",
        f"  Expected: {difference.expected}",
        f"    Actual: {difference.actual}",
        "",
        "  last operations (seconds, connection, > sent, < received)",
        *(
            f"    {line.at:10.4f}  {line.connection} {line.direction} {_short(line.text)}"
            for line in difference.wire[-WIRE_LINES:]
        ),
        "",
        f"  again: plumbline verify {replay} --trace {path}",
        "",
    ]


def new_file(folder: Path, stem: str) -> Path:
    """``stem-1.trace``, or the first number that is free. The folder is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while (path := folder / f"{stem}-{number}.trace").exists():
        number += 1
    return path


def _short(text: str) -> str:
    return text if len(text) <= LINE else f"{text[:LINE]}..."


def _rate(progress: SearchProgress) -> str:
    rate = progress.commands / max(progress.elapsed_s, 0.001)
    return (
        f"{progress.examples} programs, {progress.commands} commands in {progress.elapsed_s:.1f} s"
        f" ({rate:.0f} a second), {len(progress.shapes)} shapes"
    )
