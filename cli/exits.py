"""How a command ends: every way it can, as one sentence and an exit code (design page, "Verdicts")."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import typer

from plumbline.conformance.runner.prepare import UsageProblem
from plumbline.conformance.target import TargetUnreachable
from plumbline.interrupts import terminated_as_interrupted
from plumbline.verdicts import ExitCode


def ending(command: Callable[[], ExitCode]) -> ExitCode:
    """Runs it. What it raises is told on stderr and becomes an exit code; nothing is raised."""
    try:
        with terminated_as_interrupted():
            return command()
    except UsageProblem as problem:
        return ended(ExitCode.USAGE, str(problem))
    except TargetUnreachable as problem:
        return ended(ExitCode.TARGET_LOST, str(problem))
    except KeyboardInterrupt:
        return ended(ExitCode.INTERRUPTED, "interrupted")
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = f"an error of Plumbline itself: {type(error).__name__}: {error}"
        return ended(ExitCode.HARNESS_ERROR, f"{said} ({place.filename}:{place.lineno})")


def ended(code: ExitCode, sentence: str) -> ExitCode:
    """One sentence on stderr."""
    typer.echo(f"plumbline: {sentence}", err=True)
    return code
