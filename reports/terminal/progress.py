"""What the terminal shows while a run goes on: a live bar, or plain lines where nothing may move.

Both keep one contract: ``started``, then ``check_started`` and ``check_finished`` in any order,
then ``stop`` at least once. They print nothing about the end of the run.
"""

from __future__ import annotations

import atexit
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TimeElapsedColumn
from rich.text import Text

from plumbline.reports.digest import duration, server
from plumbline.reports.text import elide
from plumbline.verdicts import CheckResult, CheckStarted, Outcome, RunStarted
from plumbline.visible import one_line

Clock = Callable[[], float]

HEARTBEATS = 4  # plain lines per run that only say how far it is
MESSAGE_LIMIT = 200
STYLES = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "bold red",
    Outcome.UNSUPPORTED: "dim",
    Outcome.UNTESTABLE: "magenta",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.HARNESS_ERROR: "bold magenta",
    Outcome.WAIVED: "cyan",
    Outcome.STALE_WAIVER: "bold yellow",
}


class RunProgress(Protocol):
    """One way to show that the run goes on."""

    def started(self, event: RunStarted) -> None:
        """The target answered."""

    def check_started(self, event: CheckStarted) -> None:
        """One more check is under way."""

    def check_finished(self, result: CheckResult) -> None:
        """One is done."""

    def stop(self) -> None:
        """Leaves the terminal as it was; harmless when repeated."""


def run_progress(console: Console, *, live: bool, clock: Clock = time.monotonic) -> RunProgress:
    """The live bar or the plain lines."""
    return LiveProgress(console) if live else PlainProgress(console, clock)


def red_line(result: CheckResult) -> Text:
    """One line that says which check is red and why."""
    text = Text(f"{result.outcome.upper()}  ", style=STYLES[result.outcome])
    text.append(one_line(result.id), style="bold")
    if result.message:
        text.append(f"  {elide(one_line(result.message), MESSAGE_LIMIT)}", style="default")
    return text


class PlainProgress:
    """For pipes and CI: a line per red check, and a few that say how far it is."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._started_at = clock()
        self._total = 0
        self._counts: Counter[Outcome] = Counter()

    def started(self, event: RunStarted) -> None:
        self._total = event.checks
        workers = f" with {event.workers} workers" if event.workers > 1 else ""
        checks = f"{event.checks} {'check' if event.checks == 1 else 'checks'}"
        self._print(Text(f"Verifying {one_line(server(event.target))}: {checks}{workers}"))

    def check_started(self, event: CheckStarted) -> None:
        pass

    def check_finished(self, result: CheckResult) -> None:
        self._counts[result.outcome] += 1
        if result.red:
            self._print(red_line(result))
        done = self._counts.total()
        if done < self._total and _quarter(done, self._total) > _quarter(done - 1, self._total):
            self._print(Text(f"{done * 100 // self._total:3d} %  {self._so_far()}"))

    def stop(self) -> None:
        pass

    def _so_far(self) -> str:
        done = self._counts.total()
        counts = ", ".join(f"{self._counts[o]} {o}" for o in Outcome if self._counts[o])
        return f"{done}/{self._total} checks, {duration(self._clock() - self._started_at)}: {counts}"

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)


def _quarter(done: int, total: int) -> int:
    return done * HEARTBEATS // total


class LiveProgress:
    """For a terminal: a bar, counts by outcome and the current check, in the same two lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(BarColumn(None), MofNCompleteColumn(), TimeElapsedColumn(), console=console)
        self._bar.expand = True
        self._task: TaskID | None = None
        self._counts: Counter[Outcome] = Counter()
        self._running: dict[str, None] = {}  # in the order they began
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=8, transient=True)

    def started(self, event: RunStarted) -> None:
        self._console.print(Text(f"Verifying {one_line(server(event.target))}"), soft_wrap=True)
        self._task = self._bar.add_task("", total=event.checks)
        atexit.register(self.stop)  # a run that breaks off must not leave the cursor hidden
        self._live.start()

    def check_started(self, event: CheckStarted) -> None:
        self._running[event.id] = None

    def check_finished(self, result: CheckResult) -> None:
        self._counts[result.outcome] += 1
        self._running.pop(result.id, None)
        if self._task is not None:
            self._bar.advance(self._task)
        if result.red:
            self._console.print(red_line(result), no_wrap=True, overflow="ellipsis", crop=True)

    def stop(self) -> None:
        self._live.stop()
        atexit.unregister(self.stop)

    def _render(self) -> RenderableType:
        counts = Text("  ").join(
            Text(f"{self._counts[outcome]} {outcome}", style=STYLES[outcome])
            for outcome in Outcome
            if self._counts[outcome]
        )
        current = next(reversed(self._running), "")
        status = Text("  ").join(part for part in (counts, Text(one_line(current), style="dim")) if part)
        status.no_wrap, status.overflow = True, "ellipsis"
        return Group(self._bar, status)
