"""What of a store is on disk, so that a power loss can take the rest.

Files are created, renamed, shortened and removed on disk at once. Their bytes are on disk when the file is
fsynced, or always, if it was opened with O_SYNC. The bytes of the last fsync are copied as soon as it is
seen; bytes that were written meanwhile are then taken as on disk, too, as an operating system may have done.
So a power loss here never takes more than a true one may take.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from plumbline.cluster.strace import FileEvent, Opened, Removed, Renamed, Shortened, Synced

REST = 20  # times as long as copying a file took, it is not copied again


class _StoredFile(Struct):
    """One file. ``copy`` has its bytes on disk; None: it has none. ``is_whole``: all of its bytes are on
    disk: it was opened with O_SYNC, or fsynced and not copied yet."""

    copy: Path | None = None
    is_whole: bool = False
    is_synchronous: bool = False
    next_copy: float = 0.0


class StoreDisk:
    """The files below ``store``. ``copies`` is a folder for their bytes on disk."""

    def __init__(self, store: Path, copies: Path) -> None:
        self._store = str(store.resolve())
        self._copies = copies
        copies.mkdir(parents=True, exist_ok=True)
        self._files: dict[str, _StoredFile] = {}
        self._count = 0

    def take(self, event: FileEvent) -> None:
        """In the order in which it happened."""
        match event:
            case Synced(path):
                for one in [path] if path else [str(file) for file in self._stored()]:
                    self._synced(one)
            case Opened(path, is_synchronous, is_emptied) if self._has(path):
                if is_emptied:
                    self._forget(path)
                if is_synchronous:
                    file = self._files.setdefault(path, _StoredFile())
                    file.is_synchronous = file.is_whole = True
            case Renamed(old, new):
                self._renamed(old, new)
            case Shortened(path, size):
                copy = self._files[path].copy if path in self._files else None
                if copy is not None and copy.stat().st_size > size:
                    os.truncate(copy, size)
            case Removed(path):
                self._forget(path)
            case _:
                pass

    def lose_power(self) -> tuple[int, int]:
        """Takes away what is not on disk. The process does not run, and all of its events were taken. How
        many files were changed, and how many bytes shorter they are in total."""
        changed = shorter = 0
        for path in self._stored():
            file = self._files.setdefault(str(path), _StoredFile())
            before = path.stat().st_size
            if not file.is_whole:
                content = file.copy.read_bytes() if file.copy is not None else b""
                if content != path.read_bytes():
                    changed += 1
                    shorter += max(before - len(content), 0)
                    path.write_bytes(content)
            self._copy(str(path), file)
        return changed, shorter

    # -- one file ----------------------------------------------------------------------------

    def _has(self, path: str) -> bool:
        return path.startswith(f"{self._store}{os.sep}")

    def _stored(self) -> Iterator[Path]:
        return (path for path in Path(self._store).rglob("*") if path.is_file() and not path.is_symlink())

    def _synced(self, path: str) -> None:
        if not self._has(path) or Path(path).is_dir():
            return
        file = self._files.setdefault(path, _StoredFile())
        file.is_whole = True
        if not file.is_synchronous and time.monotonic() >= file.next_copy:
            self._copy(path, file)

    def _copy(self, path: str, file: _StoredFile) -> None:
        """A file that has another name meanwhile is copied when that is known."""
        began = time.monotonic()
        if file.copy is None:
            self._count += 1
            file.copy = self._copies / str(self._count)
        try:
            shutil.copyfile(path, file.copy)
        except FileNotFoundError:
            file.copy = None
            return
        now = time.monotonic()
        file.next_copy = now + REST * (now - began)
        file.is_whole = file.is_synchronous

    def _renamed(self, old: str, new: str) -> None:
        self._forget(new)
        for path in [one for one in self._files if one == old or one.startswith(f"{old}{os.sep}")]:
            file = self._files.pop(path)
            self._files[new + path.removeprefix(old)] = file
            if file.copy is None and file.is_whole and not file.is_synchronous:
                self._copy(new + path.removeprefix(old), file)

    def _forget(self, path: str) -> None:
        file = self._files.pop(path, None)
        if file is not None and file.copy is not None:
            with suppress(FileNotFoundError):
                file.copy.unlink()
