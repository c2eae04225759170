"""The processes of a group that outlive its first one: a shell that only starts a server may end before it.

Such processes are not our children, so nothing can be waited for but the end that /proc and a pidfd show.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from pathlib import Path

_ENDED = frozenset("ZX")  # states of a process that has ended, and that its parent may never fetch


def signal_group(group: int, number: signal.Signals) -> None:
    """Sends a signal to all of a group; nothing happens if none of it is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def await_end_of_group(group: int, within: float) -> bool:
    """Whether all processes of a group have ended within so many seconds. Its first one was waited for."""
    deadline = time.monotonic() + within
    while running := _running(group):
        for pid in running:
            if not _await_end(pid, deadline):
                return False
    return True


def _running(group: int) -> list[int]:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return []
    except PermissionError:
        pass
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat") if _is_of(path, group)]


def _is_of(stat: Path, group: int) -> bool:
    """Whether the process is of this group and has not ended."""
    try:
        # The name of the program, in parentheses, may have any character: state, parent and group follow it.
        state, _, its_group = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
    except (OSError, ValueError):
        return False
    return int(its_group) == group and state not in _ENDED


def _await_end(pid: int, deadline: float) -> bool:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
    finally:
        os.close(process)
