"""What a long run is doing, on a terminal: the step, and how many of Spark's tasks are done."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_INTERVAL_S = 0.5


class Progress:
    """A line for each step as it begins; on a terminal it also counts tasks while the step lasts."""

    def __init__(self, spark: SparkSession, out: TextIO) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._out = out
        self._step = ""
        self._started_at = time.monotonic()
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
        self._step = text
        if not self._out.isatty():
            self._out.write(f"plumbline: {text}\n")
            self._out.flush()

    def _run(self) -> None:
        while not self._ended.wait(_POLL_INTERVAL_S):
            done, every = self._tasks()
            seconds = int(time.monotonic() - self._started_at)
            tasks = f", task {done} of {every}" if every else ""
            self._out.write(f"\r\x1b[K{self._step}{tasks} ({seconds} s)")
            self._out.flush()

    def _tasks(self) -> tuple[int, int]:
        done = every = 0
        for stage in self._tracker.getActiveStageIds():
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                done += info.numCompletedTasks
                every += info.numTasks
        return done, every
