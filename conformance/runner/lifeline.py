"""The workers of a run end with it: each waits for the end of a pipe that only the controller holds open.

The kernel closes the pipe when the controller dies, however it dies, so no worker outlives its run.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

LIFELINE = "lifeline"  # the pipe, in the folder that the processes of a run share
CUT = 1  # the exit code of a worker whose controller ended first


class Lifeline:
    """The controller's end of the pipe in ``folder``."""

    def __init__(self, folder: Path) -> None:
        path = folder / LIFELINE
        os.mkfifo(path)
        self._end = os.open(path, os.O_RDWR)  # not for writing alone, which would wait for a reader

    def cut(self) -> None:
        """End all workers at once, whatever they are doing. Idempotent."""
        if self._end >= 0:
            os.close(self._end)
            self._end = -1


def end_with_controller(folder: Path) -> None:
    """This process, a worker, ends as soon as the pipe in ``folder`` is closed, at once if it already is."""
    end = os.open(folder / LIFELINE, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(end, True)  # to open it so would wait for ever where the controller has ended already
    threading.Thread(target=_await_cut, args=(end,), name="plumbline-lifeline", daemon=True).start()


def _await_cut(end: int) -> None:
    os.read(end, 1)  # nothing is ever written
    os._exit(CUT)
