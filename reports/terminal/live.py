"""The terminal's view of a run: progress while it goes on, the evidence and the verdict at its end.

On a terminal the progress moves; on a pipe and in CI only plain lines appear, without control characters.
NO_COLOR and FORCE_COLOR are respected. ``terminal_summary`` says what the end looks like.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from rich.console import Console

from plumbline.reports.terminal.progress import Clock, run_progress
from plumbline.reports.terminal.summary import print_result
from plumbline.verdicts import CheckFinished, CheckStarted, Event, RunFinished, RunStarted

PLAIN_WIDTH = 120  # where there is no terminal to ask: wide enough for a CI log


class TerminalReport:
    """Shows a run. ``reports`` are the files that the other consumers write, named at the end.

    ``close`` leaves the terminal as it was, also when the run was interrupted.
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        reports: Sequence[Path] = (),
        environ: Mapping[str, str] = os.environ,
        clock: Clock = time.monotonic,
    ) -> None:
        self._console = console or terminal_console(sys.stdout, environ)
        self._reports = reports
        live = is_live(self._console.file, environ) and self._console.is_terminal
        self._progress = run_progress(self._console, live=live, clock=clock)

    def on_event(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._progress.started(event)
            case CheckStarted():
                self._progress.check_started(event)
            case CheckFinished(result=result):
                self._progress.check_finished(result)
            case RunFinished(result=finished):
                self.close()
                print_result(self._console, finished, self._reports)

    def close(self) -> None:
        self._progress.stop()


def is_live(stream: object, environ: Mapping[str, str]) -> bool:
    """Whether lines may be drawn over: a real terminal that is not a CI log."""
    isatty = getattr(stream, "isatty", None)
    on_terminal = isatty is not None and bool(isatty())
    return on_terminal and not environ.get("CI") and environ.get("TERM") not in {"dumb", "unknown"}


def terminal_console(stream: TextIO, environ: Mapping[str, str] = os.environ) -> Console:
    """A console for ``stream`` that never fails on a character and never moves the cursor off a terminal."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    live = is_live(stream, environ)
    width = (
        None if live else int(columns) if (columns := environ.get("COLUMNS", "")).isdigit() else PLAIN_WIDTH
    )
    coloured = live or bool(environ.get("FORCE_COLOR"))
    return Console(
        file=stream,
        force_terminal=coloured,
        no_color=bool(environ.get("NO_COLOR")),
        width=width,
        highlight=False,
        emoji=False,
        markup=False,
        _environ=dict(environ),
    )
