"""How every command ends: with an exit code, and with one sentence on stderr if something was wrong.

``CommandGroup`` is the only place that catches what a command raises. Exit code 1 always means a finding:
whatever else is wrong has another code.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import tempfile
import traceback
from collections.abc import Mapping
from textwrap import fill
from typing import Any, TextIO

import typer
from typer.core import TyperGroup

from plumbline.cli.output import conceal, concealed, discard_output, own_secrets, warn
from plumbline.errors import ExitCode, PlumblineError
from plumbline.interrupts import terminated_as_interrupted
from plumbline.masking import mask_of_arguments, masked_url
from plumbline.visible import one_line

_SECRETS = "plumbline.secrets"  # of the arguments, in what click keeps of a command
MAX_SHOWN = 300  # characters of the text of an unexpected error
# Of a file that the command line names: there is none, or the user may not, or there is no room.
_PLACES = frozenset({
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EACCES, errno.EPERM, errno.EROFS,
    errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTEMPTY,
})  # fmt: skip


_OF_EVERY_COMMAND = {
    ExitCode.USAGE: "usage or configuration",
    ExitCode.HARNESS_ERROR: "error of Plumbline itself",
    ExitCode.INTERRUPTED: "interrupted",
}
_HELP_WIDTH = 106


class CommandGroup(TyperGroup):
    """Commands that may raise anything."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keeps the arguments, of which some may be secret."""
        ctx.meta[_SECRETS] = mask_of_arguments(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command. Raises ``typer.Exit``, and errors of the command line, which typer prints."""
        with own_secrets():
            conceal(ctx.meta[_SECRETS])
            try:
                with terminated_as_interrupted():
                    result = super().invoke(ctx)
                    sys.stdout.flush()  # so that a closed pipe is noticed here
            except _UsageError as error:  # it may name an argument, which may be a URL
                error.message = one_line(concealed(" ".join(map(masked_url, error.message.split(" ")))))
                raise
            except (typer.Exit, typer.Abort, _UsageError.__base__):
                raise
            except (Exception, KeyboardInterrupt) as error:
                raise typer.Exit(_ending(error)) from None
            return result


_UsageError: Any = typer.BadParameter.__base__  # click's, of which typer has a copy of its own


def _ending(error: BaseException) -> ExitCode:
    """Prints the sentence, if there is one; the exit code."""
    match error:
        case PlumblineError():
            return exit_with(error.exit_code, str(error))
        case KeyboardInterrupt():
            return exit_with(ExitCode.INTERRUPTED, "interrupted")
        case BrokenPipeError() if _is_output_closed():
            return ExitCode.INTERRUPTED
        case OSError(errno=number, filename=str() | bytes() as name) if number in _PLACES:
            return exit_with(ExitCode.USAGE, f"{os.fsdecode(name)}: {error.strerror}")
    return unexpected(error)


def exit_codes(meanings: Mapping[ExitCode, str], remark: str = "") -> str:
    """How the help of a command ends: its exit codes, those of every command among them, and a remark.

    An empty meaning leaves out a code that this command does not end with.
    """
    listed = sorted({**_OF_EVERY_COMMAND, **meanings}.items())
    words = [f"{code:d} {meaning}" for code, meaning in listed if meaning]
    text = f"Exit codes: {', '.join(words)}. {remark}"
    return "\n\b\n" + fill(text.strip(), _HELP_WIDTH, break_on_hyphens=False) + "\n"


def unexpected(error: BaseException, what_failed: str = "internal error in Plumbline") -> ExitCode:
    """An error of Plumbline itself: prints one sentence that names the file with the traceback."""
    what = one_line(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    short = what if len(what) <= MAX_SHOWN else f"{what[:MAX_SHOWN]}..."
    return exit_with(ExitCode.HARNESS_ERROR, f"{what_failed}: {short} ({_kept_traceback(error)})")


def _kept_traceback(error: BaseException) -> str:
    """Writes the traceback to a new file that only this user can read; says where it is."""
    text = concealed("".join(traceback.format_exception(error)))
    try:
        number, name = tempfile.mkstemp(prefix="plumbline-error-", suffix=".txt")
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as problem:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"at {place.filename}:{place.lineno}; the traceback cannot be written: {problem.strerror}"
    return f"traceback: {name}"


def _is_output_closed() -> bool:
    """Whether a reader of stdout or stderr is gone, such as ``head``. Then nothing more is written there."""
    closed = [stream for stream in (sys.stdout, sys.stderr) if _is_reader_gone(stream)]
    for stream in closed:
        discard_output(stream)
    return bool(closed)


def _is_reader_gone(stream: TextIO) -> bool:
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return False
    asked = select.poll()
    asked.register(number, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in asked.poll(0))


def exit_with(code: ExitCode, sentence: str) -> ExitCode:
    """Prints one sentence on stderr; gives the exit code back."""
    warn(sentence)
    return code
