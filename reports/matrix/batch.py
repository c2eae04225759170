"""Runs ``plumbline verify`` for one target after another: a matrix is made by one command."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from plumbline.reports.matrix.runs import Run, target_name
from plumbline.reports.result_json import read
from plumbline.verdicts import ExitCode

VERIFY = (sys.executable, "-m", "plumbline", "verify")
Tell = Callable[[str], None]


class Wanted(Struct, frozen=True):
    """A target to be run: its name, and the arguments of ``plumbline verify`` that reach it."""

    name: str
    arguments: tuple[str, ...]


class Missed(Struct, frozen=True):
    """A target that could not be run, and why."""

    name: str
    exit_code: int
    why: str


def run_all(wanted: Iterable[Wanted], tell: Tell, verify: Sequence[str] = VERIFY) -> Iterator[Run | Missed]:
    """Each target in turn; ``tell`` is told when one begins and how it ended."""
    with tempfile.TemporaryDirectory(prefix="plumbline-matrix-") as folder:
        for number, target in enumerate(wanted):
            tell(f"{target.name} ...")
            found = _run(target, [*verify, *target.arguments], Path(folder) / f"{number}.json")
            tell(f"{target.name}: {_said(found)}")
            yield found


def verify_all(wanted: Iterable[Wanted], tell: Tell) -> tuple[list[Run], int]:
    """Verify each target in turn: the runs, and the exit code of the batch.

    The code is the highest of the targets that gave no result. ``KeyboardInterrupt`` ends the batch, which
    may take an hour: the code is 130, and the runs are those that had ended.
    """
    runs: list[Run] = []
    code: int = ExitCode.CONFORMANT
    try:
        for one in run_all(wanted, tell):
            if isinstance(one, Run):
                runs.append(one)
            else:
                code = max(code, one.exit_code)
    except KeyboardInterrupt:
        tell(f"interrupted; {len(runs)} targets were verified")
        code = ExitCode.INTERRUPTED
    return runs, code


def _run(target: Wanted, command: Sequence[str], path: Path) -> Run | Missed:
    """A run that is red is a result; one that left none is missed."""
    with subprocess.Popen(
        [*command, "--json", str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        try:
            _, words = process.communicate()
        except BaseException:  # it cleans up what it made on the target, then ends
            process.terminate()
            process.wait()
            raise
    if path.exists() and process.returncode in (ExitCode.CONFORMANT, ExitCode.NOT_CONFORMANT):
        result = read(path)
        return Run(target_name(result.target), result)
    why = (words.strip().splitlines() or ["it printed no reason"])[-1].removeprefix("plumbline: ")
    return Missed(target.name, process.returncode, why)


def _said(found: Run | Missed) -> str:
    if isinstance(found, Missed):
        return f"not run: {found.why} (exit {found.exit_code})"
    summary = found.result.summary
    return f"{summary.verdict}, {summary.passed} of {summary.claimed} passed, {summary.duration_s:.0f} s"
