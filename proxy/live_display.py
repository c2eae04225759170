"""The terminal output of a recording: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import TextIO

import rich.live
from rich.console import Console
from rich.table import Table
from rich.text import Text

from plumbline.monitors import Violation
from plumbline.proxy.counters import Counters
from plumbline.proxy.record import RecordingProxy
from plumbline.visible import indented_line, one_line

REDRAW_S = 0.5
_UNITS = ("B", "kB", "MB", "GB", "TB")


class LiveDisplay:
    """The terminal of one recording."""

    def __init__(self, out: TextIO) -> None:
        self._console = Console(file=out, highlight=False)
        self._errors = Console(stderr=True, highlight=False)
        self._display: rich.live.Live | None = None
        self._shown = (time.monotonic(), 0, 0)

    def start(self, proxy: RecordingProxy, more: str = "") -> None:
        """Says where to connect; on a terminal, draws from now on."""
        self._proxy = proxy
        where = f"recorded in {proxy.files.path}{more}"
        self._print(f"{proxy.url} forwards to {proxy.relay.server}, {where}; stop with Ctrl-C")
        if self._console.is_terminal:
            self._display = rich.live.Live(console=self._console, auto_refresh=False, transient=True)
            self._display.start()
            self._redraw()

    def on_recording_stopped(self, why: str) -> None:
        """Nothing more is recorded."""
        self._errors.print(Text(f"plumbline: the recording stopped: {one_line(why)}"), soft_wrap=True)

    def on_violation(self, found: Violation) -> None:
        """A rule was broken; called from another thread."""
        console = self._console if self._display is None else self._display.console
        console.print(Text(str(found)), soft_wrap=True)

    def end(self, violations: int | None = None) -> None:
        """The sum; ``violations`` None: they were not looked for."""
        if self._display is not None:
            self._display.stop()
        counted = self._proxy.counters
        files = "1 file" if len(counted.files) == 1 else f"{len(counted.files)} files"
        connections = "1 connection" if counted.accepted == 1 else f"{counted.accepted} connections"
        self._print(
            f"{connections}, {size(counted.to_server)} to the server, "
            f"{size(counted.to_client)} to clients; {size(counted.recorded)} in {files}"
        )
        for text, number in _problem_counts(counted):
            self._print(f"{text}: {number}")
        if violations is not None:
            self._print("1 violation" if violations == 1 else f"{violations or 'no'} violations")

    def _print(self, line: str) -> None:
        self._console.print(Text(indented_line(line)), soft_wrap=True)
        self._console.file.flush()

    def _redraw(self) -> None:
        if self._display is None:
            return
        counted = self._proxy.counters
        now = time.monotonic()
        then, to_server, to_client = self._shown
        elapsed = max(now - then, 1e-3)
        self._shown = (now, counted.to_server, counted.to_client)
        table = Table.grid(padding=(0, 2))
        table.add_row("connections", f"{counted.open} open", f"{counted.accepted} in all")
        table.add_row(
            "to server", size(counted.to_server), f"{size((counted.to_server - to_server) / elapsed)}/s"
        )
        table.add_row(
            "to clients", size(counted.to_client), f"{size((counted.to_client - to_client) / elapsed)}/s"
        )
        table.add_row("recorded", size(counted.recorded), counted.files[-1])
        for text, number in _problem_counts(counted):
            table.add_row(text, str(number), "")
        self._display.update(table, refresh=True)
        self._proxy.relay.loop.after(REDRAW_S, self._redraw)


def _problem_counts(counted: Counters) -> list[tuple[str, str]]:
    problems = [
        ("server not reached", str(counted.refused), counted.refused),
        ("connections reset", str(counted.reset), counted.reset),
        ("connections closed after an internal error", str(counted.failed), counted.failed),
        ("bytes masked", str(counted.redacted), counted.redacted),
        ("forwarded, not recorded", size(counted.unrecorded), counted.unrecorded),
        ("received, neither recorded nor forwarded", size(counted.withheld), counted.withheld),
    ]
    return [(text, figure) for text, figure, number in problems if number]


def size(number: float) -> str:
    """Bytes, for people."""
    for unit in _UNITS:
        if number < 1000 or unit == _UNITS[-1]:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError
