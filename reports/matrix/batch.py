"""Runs ``plumbline verify`` for one target after another: a matrix is made by one command."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from plumbline.interpreter import python_command
from plumbline.reports.matrix.runs import TargetRunResult, target_name
from plumbline.reports.result_json import read
from plumbline.verdicts import ExitCode

VERIFY = python_command("-m", "plumbline", "verify")
ProgressCallback = Callable[[str], None]


class TargetRun(Struct, frozen=True):
    """A target to be run: its name, and the arguments of ``plumbline verify`` that reach it."""

    name: str
    arguments: tuple[str, ...]


class FailedTarget(Struct, frozen=True):
    """A target that could not be run, and why."""

    name: str
    exit_code: int
    reason: str


def run_all(
    target_runs: Iterable[TargetRun], on_progress: ProgressCallback, verify: Sequence[str] = VERIFY
) -> Iterator[TargetRunResult | FailedTarget]:
    """Each target in turn; ``on_progress`` is called when one begins and when it has ended."""
    with tempfile.TemporaryDirectory(prefix="plumbline-matrix-") as folder:
        for number, target in enumerate(target_runs):
            on_progress(f"{target.name} ...")
            found = _run(target, [*verify, *target.arguments], Path(folder) / f"{number}.json")
            on_progress(f"{target.name}: {_describe_failure(found)}")
            yield found


def verify_all(wanted: Iterable[TargetRun], tell: ProgressCallback) -> tuple[list[TargetRunResult], int]:
    """Verify each target in turn: the runs, and the exit code of the batch.

    The code is the highest of the targets that gave no result. ``KeyboardInterrupt`` ends the batch, which
    may take an hour: the code is 130, and the runs are those that had ended.
    """
    runs: list[TargetRunResult] = []
    code: int = ExitCode.CONFORMANT
    try:
        for one in run_all(wanted, tell):
            if isinstance(one, TargetRunResult):
                runs.append(one)
            else:
                code = max(code, one.exit_code)
    except KeyboardInterrupt:
        tell(f"interrupted; {len(runs)} targets were verified")
        code = ExitCode.INTERRUPTED
    return runs, code


def _run(target: TargetRun, command: Sequence[str], path: Path) -> TargetRunResult | FailedTarget:
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
            _, output = process.communicate()
        except BaseException:  # it cleans up what it made on the target, then ends
            process.terminate()
            process.wait()
            raise
    if path.exists() and process.returncode in (ExitCode.CONFORMANT, ExitCode.NOT_CONFORMANT):
        result = read(path)
        return TargetRunResult(target_name(result.target), result)
    why = (output.strip().splitlines() or ["it printed no reason"])[-1].removeprefix("plumbline: ")
    return FailedTarget(target.name, process.returncode, why)


def _describe_failure(found: TargetRunResult | FailedTarget) -> str:
    if isinstance(found, FailedTarget):
        return f"not run: {found.reason} (exit {found.exit_code})"
    summary = found.result.summary
    return f"{summary.verdict}, {summary.passed} of {summary.claimed} passed, {summary.duration_s:.0f} s"
