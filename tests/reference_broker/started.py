"""A drop-in server as a process, for tests: its log and its ports."""

from __future__ import annotations

import subprocess
import threading
from typing import IO

STARTS_S = 60.0


class StartedServer:
    """``log`` is where it writes its log; ``lines`` are those up to now."""

    def __init__(self, process: subprocess.Popen[str], log: IO[str] | None) -> None:
        assert log is not None
        self.process = process
        self.lines: list[str] = []
        self._log = log

    def wait_for(self, words: str) -> str:
        """The next line of the log with these words."""
        timer = threading.Timer(STARTS_S, self.process.kill)
        timer.start()
        try:
            for line in self._log:
                self.lines.append(line.rstrip("\n"))
                if words in line:
                    return self.lines[-1]
        finally:
            timer.cancel()
        raise AssertionError(f"no line with {words!r} in {self.lines}")

    def port_of(self, words: str) -> int:
        """The port at the end of the first line with these words."""
        line = next(line for line in self.lines if words in line)
        return int(line.rpartition(":")[2])
