"""A server that runs under strace, so that it can lose power: its store has then what is on disk only.

strace prints into a pipe with a name; a thread reads it. strace goes on with a thread of the server after
the line of its call is in the pipe, so what was fsynced before an answer is known when the answer is.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from plumbline.cluster.disk import StoreDisk
from plumbline.cluster.strace import StraceReader, command
from plumbline.errors import UsageProblem
from plumbline.servers.process import ServerProcess


class TracedProcess(ServerProcess):
    """Before the class of a server, among its bases. ``store``: the folder below its own that has all of its
    files. Raises ``UsageProblem`` without strace."""

    store: ClassVar[str]

    def __init__(self, binary: Path | str) -> None:
        if shutil.which("strace") is None:
            what = "a power loss needs strace, which shows what a node has fsynced"
            raise UsageProblem(f"{what}: install it (apt-get install strace)")
        super().__init__(binary)
        self._disk: StoreDisk | None = None
        self._reader: threading.Thread | None = None
        self._pipe_end = -1  # of ours, which keeps the pipe open until the process has ended

    def lose_power(self) -> str:
        """After ``kill``: says what was lost."""
        assert self._disk is not None, "it was never started"
        files, size = self._disk.lose_power()
        return f"{files} files lost {size} bytes that were not fsynced"

    def _commands(self) -> Sequence[Sequence[str | Path]]:
        *others, server = super()._commands()
        return [*others, [*self._watch(), *server]]

    def kill(self) -> None:
        super().kill()
        self._end_watch()

    def shut_down(self) -> None:
        super().shut_down()
        self._end_watch()

    def stop(self) -> None:
        super().stop()
        self._end_watch()
        self._disk = None

    def _watch(self) -> list[str]:
        """The words that begin its command."""
        self._end_watch()
        pipe = self.folder / "strace"
        if self._disk is None:
            self._disk = StoreDisk(self.folder / self.store, self.folder / "on-disk")
            os.mkfifo(pipe)
        reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # does not wait for a writer
        self._pipe_end = os.open(pipe, os.O_WRONLY)
        os.set_blocking(reading, True)
        self._reader = threading.Thread(target=_take_events, args=(reading, self._disk), daemon=True)
        self._reader.start()
        return command(pipe)

    def _end_watch(self) -> None:
        """Returns when every event was taken. Idempotent."""
        reader, self._reader = self._reader, None
        if reader is not None:
            os.close(self._pipe_end)
            reader.join()


def _take_events(pipe: int, disk: StoreDisk) -> None:
    """Until nothing has the other end."""
    reader = StraceReader()
    with os.fdopen(pipe, encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            event = reader.read(line)
            if event is not None:
                disk.take(event)
