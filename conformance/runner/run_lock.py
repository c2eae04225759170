"""The run lock: one check runs exclusively while checks in other processes wait, as for a retry.

Two file locks. A check holds the room shared; the retry holds it exclusively. Everyone passes the
door first, so a waiting retry is not overtaken for ever.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # no file locks on this platform: the retry then runs beside the others
    fcntl = None  # type: ignore[assignment]


class RunLock:
    """Locks in ``folder``, which all processes of a run share."""

    def __init__(self, folder: Path) -> None:
        self._door = folder / "door.lock"
        self._lock_file = folder / "room.lock"

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Beside other checks."""
        with contextlib.ExitStack() as stack:
            with file_lock(self._door, exclusive=True):
                stack.enter_context(file_lock(self._lock_file, exclusive=False))
            yield

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Beside no other check of this run."""
        with file_lock(self._door, exclusive=True), file_lock(self._lock_file, exclusive=True):
            yield


@contextlib.contextmanager
def file_lock(path: Path, *, exclusive: bool) -> Iterator[None]:
    """The file's lock, which other processes of the run may hold meanwhile."""
    with path.open("ab") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
