"""How a command ends: with an exit code, and with one sentence on stderr if something was wrong."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from plumbline.errors import ExitCode, PlumblineError
from plumbline.interrupts import terminated_as_interrupted


class CommandGroup(TyperGroup):
    """Commands that may raise ``PlumblineError``. This is the one place that catches it."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command. Raises ``typer.Exit``."""
        try:
            return super().invoke(ctx)
        except PlumblineError as error:
            raise typer.Exit(exit_with(error.exit_code, str(error))) from None


def exit_on_error(command: Callable[[], ExitCode]) -> ExitCode:
    """Runs a command; interrupts and errors of Plumbline become exit codes. Raises ``PlumblineError``."""
    try:
        with terminated_as_interrupted():
            return command()
    except PlumblineError:
        raise
    except KeyboardInterrupt:
        return exit_with(ExitCode.INTERRUPTED, "interrupted")
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = f"internal error in Plumbline: {type(error).__name__}: {error}"
        return exit_with(ExitCode.HARNESS_ERROR, f"{what} ({place.filename}:{place.lineno})")


def exit_with(code: ExitCode, sentence: str) -> ExitCode:
    """Prints one sentence on stderr; gives the exit code back."""
    typer.echo(f"plumbline: {sentence}", err=True)
    return code
