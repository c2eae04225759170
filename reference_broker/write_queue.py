"""The write queue: durable changes in order, until the shell takes and writes them.

The core enters changes here and does no I/O. Paths are relative to the folder of the store. What is appended
to one file between two other changes is one change, so that many messages are one write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from msgspec import Struct


class Append(Struct, frozen=True):
    """Bytes at the end of a file, which is made if it is not there."""

    path: str
    chunks: list[bytes]


class Replace(Struct, frozen=True):
    """A whole file; at every moment either the old one or the new one is there."""

    path: str
    data: bytes


class Truncate(Struct, frozen=True):
    """A file without what follows ``size`` bytes."""

    path: str
    size: int


class Remove(Struct, frozen=True):
    """A file or a folder is gone, whole and at once; no error if it was not there."""

    path: str


class Move(Struct, frozen=True):
    """A file or a folder gets another name, which nothing has."""

    path: str
    to: str


Change = Append | Replace | Truncate | Remove | Move

Files = dict[str, bytes]


def apply(files: Files, changes: Iterable[Change]) -> Files:
    """``files``, a folder that is none, after ``changes``; altered in place."""
    for change in changes:
        match change:
            case Append(path, chunks):
                files[path] = files.get(path, b"") + b"".join(chunks)
            case Replace(path, data):
                files[path] = data
            case Truncate(path, size):
                files[path] = files[path][:size]
            case Remove(path):
                for each in _below(files, path):
                    del files[each]
            case Move(path, to):
                for each in _below(files, path):
                    files[to + each.removeprefix(path)] = files.pop(each)
    return files


def _below(files: Files, path: str) -> list[str]:
    return [each for each in files if each == path or each.startswith(f"{path}/")]


class DeferredWrite(Protocol):
    """Something that is written once per commit, as it is then."""

    def enter_changes(self) -> None:
        """Enter the changes since the last time."""
        ...


class WriteQueue:
    """The changes that were not taken yet. True if there are any."""

    def __init__(self) -> None:
        self._changes: list[Change] = []
        self._appended: dict[str, list[bytes]] = {}
        self._late: dict[DeferredWrite, None] = {}
        self._silent = False

    def __bool__(self) -> bool:
        return bool(self._changes or self._late)

    def append(self, path: str, data: bytes) -> None:
        chunks = self._appended.get(path)
        if chunks is not None:
            chunks.append(data)
        elif not self._silent:
            chunks = self._appended[path] = [data]
            self._changes.append(Append(path, chunks))

    def enter(self, change: Replace | Truncate | Remove | Move) -> None:
        if not self._silent:
            self._appended.clear()
            self._changes.append(change)

    def defer(self, deferred: DeferredWrite) -> None:
        """``deferred`` has changed; it enters how at the next ``take``."""
        if not self._silent:
            self._late[deferred] = None

    def cancel_deferred(self, deferred: DeferredWrite) -> None:
        self._late.pop(deferred, None)

    def take(self) -> list[Change]:
        """Everything since the last time, in the order in which it is to be written."""
        late, self._late = self._late, {}
        for one in late:
            one.enter_changes()
        changes, self._changes = self._changes, []
        self._appended = {}
        return changes

    @contextmanager
    def suppressed(self) -> Iterator[None]:
        """What happens inside is in the files already."""
        self._silent = True
        try:
            yield
        finally:
            self._silent = False
