"""A file system that fails: functions of ``os`` are wrapped for one folder, and one call fails.

What writes is not changed. A write may fail as on a full disk, after half of its bytes or before; an
fsync or a rename may fail; and every write may take fewer bytes than it was given, which is no error.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest import mock


class FileFault(StrEnum):
    """How a file system fails."""

    FULL = "full"  # no space from here on
    HALF = "half"  # one write takes half of its bytes, then there is no space
    FAILS = "fails"  # this call fails once, whatever it is: an I/O error
    SHORT = "short"  # no error: every write takes half of what it is given


_WRITES = ("write", "writev", "pwrite")
_OTHERS = ("fsync", "fdatasync", "truncate", "ftruncate", "replace", "rename", "mkdir", "unlink")


class FaultyFiles:
    """Counts the calls that change files below ``folder``, from 1, and fails at number ``at``; 0: never."""

    def __init__(self, folder: Path, fault: FileFault, at: int) -> None:
        self.calls = 0
        self.failed = False  # a call has failed
        self._is_full = False
        self._folder = str(folder)
        self._fault = fault
        self._at = at
        self._ours: set[int] = set()  # descriptors
        self._originals: dict[str, Callable[..., Any]] = {
            name: getattr(os, name) for name in ("open", "close", *_WRITES, *_OTHERS) if hasattr(os, name)
        }

    @contextmanager
    def installed(self) -> Iterator[FaultyFiles]:
        """For the time of the block."""
        with ExitStack() as stack:
            for name in self._originals:
                stack.enter_context(mock.patch.object(os, name, self._wrapped(name)))
            yield self

    def _wrapped(self, name: str) -> Callable[..., Any]:
        original = self._originals[name]

        def opened(path: Any, flags: int, *more: Any, **named: Any) -> int:
            concerns = str(path).startswith(self._folder)
            if concerns and flags & os.O_CREAT and not os.path.lexists(path):
                self._count(needs_space=True)
            descriptor: int = original(path, flags, *more, **named)
            if concerns:
                self._ours.add(descriptor)
            return descriptor

        def closed(descriptor: int) -> None:
            self._ours.discard(descriptor)
            original(descriptor)

        def written(descriptor: int, data: Any, *more: Any) -> int:
            if descriptor not in self._ours:
                return int(original(descriptor, data, *more))
            if self._count(needs_space=True) or self._fault is FileFault.SHORT:
                whole = b"".join(data) if name == "writev" else bytes(data)
                write = self._originals["write"] if name == "writev" else original
                return int(write(descriptor, whole[: max(len(whole) // 2, 1)], *more))
            return int(original(descriptor, data, *more))

        def changed(place: Any, *more: Any, **named: Any) -> Any:
            if place in self._ours if isinstance(place, int) else str(place).startswith(self._folder):
                self._count(needs_space=name == "mkdir")
            return original(place, *more, **named)

        wrappers: dict[str, Callable[..., Any]] = {"open": opened, "close": closed}
        wrappers |= dict.fromkeys(_WRITES, written)
        return wrappers.get(name, changed)

    def _count(self, *, needs_space: bool) -> bool:
        """Raises ``OSError`` if this call fails; true if it is to be done by half."""
        self.calls += 1
        if self._fault is FileFault.SHORT:
            return False
        if self._fault is FileFault.FAILS:
            if self.calls == self._at:
                self._fail(errno.EIO)
            return False
        if not needs_space or not self._at or self.calls < self._at:
            return False
        if self._fault is FileFault.HALF and not self._is_full:
            self._is_full = True
            return True
        self._fail(errno.ENOSPC)
        return False

    def _fail(self, code: int) -> None:
        self.failed = True
        raise OSError(code, os.strerror(code))
