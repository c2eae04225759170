"""What a long run is doing, on a terminal: the step, how much of it is done, about how long it will take."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol, Self, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_INTERVAL_S = 0.5
_MIN_SHARE = 0.02  # of a step, before its time is estimated
_MIN_S = 1.0


class Work(Protocol):
    """What a step has done."""

    def done(self) -> tuple[int, int]:
        """How much is done, of how much; 0 of 0 if that is not known."""

    def text(self, done: int, every: int) -> str:
        """The same in words."""


class SparkTasks:
    """Tasks of the stages that run now."""

    def __init__(self, spark: SparkSession) -> None:
        self._tracker = spark.sparkContext.statusTracker()

    def done(self) -> tuple[int, int]:
        """Tasks."""
        done = every = 0
        for stage in self._tracker.getActiveStageIds():
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                done += info.numCompletedTasks
                every += info.numTasks
        return done, every

    def text(self, done: int, every: int) -> str:
        """``task 3 of 8``."""
        return f"task {done} of {every}"


class BytesRead:
    """Bytes of captures, ``every`` in all, that one process reads."""

    def __init__(self, every: int) -> None:
        self._every, self._read = every, 0

    def add(self, read: int) -> None:
        """So many more."""
        self._read += read

    def done(self) -> tuple[int, int]:
        """Bytes; once all are read, nothing is known of what follows."""
        return (self._read, self._every) if self._read < self._every else (0, 0)

    def text(self, done: int, every: int) -> str:
        """``45 %``."""
        return f"{100 * done // every} %"


class Progress:
    """A line for each step as it begins; on a terminal it also shows how far the step is."""

    def __init__(self, work: Work, out: TextIO) -> None:
        self._work = work
        self._out = out
        self._step = ""
        self._started_at = self._step_started_at = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="plumbline-progress", daemon=True)

    def __enter__(self) -> Self:
        if self._out.isatty():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
            self._out.write("\r\x1b[K")
            self._out.flush()

    def step(self, text: str) -> None:
        """The next step begins."""
        self._step, self._step_started_at = text, time.monotonic()
        if not self._out.isatty():
            self._out.write(f"plumbline: {text}\n")
            self._out.flush()

    def _run(self) -> None:
        while not self._ended.wait(_POLL_INTERVAL_S):
            now = time.monotonic()
            line = self.line(now - self._started_at, now - self._step_started_at)
            self._out.write(f"\r\x1b[K{line}")
            self._out.flush()

    def line(self, seconds: float, of_step: float) -> str:
        """What a terminal shows after so many seconds of the run and of its step."""
        done, every = self._work.done()
        how_far = f", {self._work.text(done, every)}" if every else ""
        left = ""
        if every and done / every >= _MIN_SHARE and of_step >= _MIN_S:
            left = f", about {max(round(of_step * (every - done) / done), 1)} s left in this step"
        return f"{self._step}{how_far} ({int(seconds)} s{left})"
