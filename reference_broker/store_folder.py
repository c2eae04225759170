"""The folder of a broker's state: locked, stamped with its layout version, changed by the write queue.

What ``write`` was given is with the operating system when it returns, so that it outlives the process however
that ends; ``sync`` brings it to the disk, so that it outlives the machine as well. Only this module and the
shell above it touch files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from plumbline.errors import UNDECODABLE, PlumblineError

try:
    import fcntl
except ImportError:  # no file locks on this platform: two brokers on one folder are then not noticed
    fcntl = None  # type: ignore[assignment]

from plumbline.reference_broker.write_queue import Append, Change, Move, Remove, Replace, Truncate

STAMP = "layout.json"
LOCK = "lock"
TRASH = "trash"
TEMPORARY = ".tmp"
MAX_OPEN_FILES = 128
NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # a symbolic link would have us write into another file
PRIVATE = 0o600  # of files: messages are not for every user of the machine


class StoreError(PlumblineError):
    """The folder cannot be used; the text says why, and what to do instead."""


class Stamp(Struct, frozen=True):
    """What ``layout.json`` holds: whose files these are, and in which version of its layout."""

    layout: str
    version: int


class StoreFolder:
    """The folder at ``path``, for files of the layout ``stamp``.

    With ``synced`` every write is on the disk when it returns.
    """

    def __init__(self, path: Path, stamp: Stamp, *, synced: bool) -> None:
        self.path = path
        self.stamp = stamp
        self.synced = synced
        self._lock: int | None = None
        self._open: OrderedDict[str, int] = OrderedDict()
        self._dirty: set[str] = set()
        self._dirty_folders: set[str] = set()
        self._thrown_away = 0

    # Beginning and end

    def open(self) -> dict[str, bytes]:
        """Take the folder, make it if need be, and read all of its files. Raises ``StoreError``."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self._check_stamp()
            shutil.rmtree(self.path / TRASH, ignore_errors=True)
            return dict(self._read())
        except OSError as error:
            self.close()
            raise StoreError(f"the store {self.path} cannot be used: {error}") from None
        except StoreError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the folder. Idempotent."""
        while self._open:
            os.close(self._open.popitem()[1])
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take_lock(self) -> None:
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | NO_LINK, PRIVATE)
        try:
            if fcntl is not None:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip()
            raise StoreError(
                f"the store {self.path} is in use by another broker (process {holder or 'unknown'}): "
                "stop that one, or choose another folder"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _check_stamp(self) -> None:
        stamp = self.path / STAMP
        others = sorted(entry.name for entry in self.path.iterdir() if entry.name not in (LOCK, STAMP))
        if not stamp.exists():
            others = [name for name in others if name != STAMP + TEMPORARY]
            if others:
                raise StoreError(
                    f"the store {self.path} contains {others[0]!r} but no {STAMP}: another program wrote it, "
                    "such as a real server; choose another folder"
                )
            self._replace(STAMP, msgspec.json.encode(self.stamp) + b"\n")
            return
        try:
            found = msgspec.json.decode(stamp.read_bytes(), type=Stamp)
        except UNDECODABLE:
            raise StoreError(
                f"{stamp} is damaged, so the store cannot be read: restore a file that contains "
                f"{msgspec.json.encode(self.stamp).decode()}, or choose another folder"
            ) from None
        if found != self.stamp:
            raise StoreError(
                f"the store {self.path} has layout {found.layout!r}, version {found.version}; this broker "
                f"reads and writes {self.stamp.layout!r}, version {self.stamp.version}, and cannot convert "
                "it: use the program that wrote it, or choose another folder"
            )

    def _read(self) -> Iterable[tuple[str, bytes]]:
        for folder, _, names in os.walk(self.path):
            for name in names:
                path = Path(folder, name)
                if name.endswith(TEMPORARY):
                    path.unlink()  # a replacement that was not finished
                elif path.parent != self.path:
                    yield path.relative_to(self.path).as_posix(), path.read_bytes()

    # Changes

    def write(self, changes: Iterable[Change]) -> None:
        """Carry them out, in order. Raises ``OSError``, after which the folder must not be written to."""
        for change in changes:
            match change:
                case Append(path, chunks):
                    _write_all(self._descriptor(path), b"".join(chunks))
                    self._dirty.add(path)
                case Replace(path, data):
                    self._replace(path, data)
                case Truncate(path, size):
                    os.truncate(self.path / path, size)
                    self._descriptor(path)
                    self._dirty.add(path)
                case Remove(path):
                    self._remove(path)
                case Move(path, to):
                    self._sync_dependencies()
                    self._close_descriptors(path)
                    (self.path / to).parent.mkdir(parents=True, exist_ok=True)
                    (self.path / path).rename(self.path / to)
                    self._dirty_folders.update((_parent(path), _parent(to)))
        if self.synced:
            self.sync()

    def sync(self) -> None:
        """Bring everything written so far to the disk. Raises ``OSError``."""
        for path in self._dirty:
            descriptor = self._open.get(path)
            if descriptor is not None:
                _fsync(descriptor)
            else:
                self._sync_path(path, os.O_RDONLY)
        self._dirty.clear()
        for folder in self._dirty_folders:
            self._sync_path(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._dirty_folders.clear()

    @property
    def is_dirty(self) -> bool:
        """Whether there is anything to sync."""
        return bool(self._dirty or self._dirty_folders)

    def _sync_dependencies(self) -> None:
        """What was written before must be on the disk before what replaces it is gone."""
        if self.synced:
            self.sync()

    def _replace(self, path: str, data: bytes) -> None:
        self._sync_dependencies()
        self._close_descriptors(path)
        target = self.path / path
        temporary = target.with_name(target.name + TEMPORARY)
        self._make_folder(target.parent)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NO_LINK, PRIVATE)
        try:
            _write_all(descriptor, data)
            if self.synced:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(target)
        if not self.synced:
            self._dirty.add(path)
        self._dirty_folders.add(_parent(path))

    def _remove(self, path: str) -> None:
        self._sync_dependencies()
        self._close_descriptors(path)
        target = self.path / path
        if target.is_dir():  # first out of the way at once, then away piece by piece
            self._thrown_away += 1
            trash = self.path / TRASH / f"{os.getpid()}-{self._thrown_away}"
            trash.parent.mkdir(exist_ok=True)
            target.rename(trash)
            shutil.rmtree(trash, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)
        self._dirty_folders.add(_parent(path))

    # Files that are open

    def _descriptor(self, path: str) -> int:
        descriptor = self._open.get(path)
        if descriptor is not None:
            self._open.move_to_end(path)
            return descriptor
        target = self.path / path
        self._make_folder(target.parent)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_LINK, PRIVATE)
        self._open[path] = descriptor
        self._dirty_folders.add(_parent(path))
        if len(self._open) > MAX_OPEN_FILES:
            oldest, other = self._open.popitem(last=False)
            if oldest in self._dirty:
                self._dirty.discard(oldest)
                _fsync(other)
            os.close(other)
        return descriptor

    def _make_folder(self, folder: Path) -> None:
        missing = []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for each in reversed(missing):
            each.mkdir()
            self._dirty_folders.add(_parent(each.relative_to(self.path).as_posix()))

    def _close_descriptors(self, path: str) -> None:
        """Close the file, or what is below the folder."""
        for each in [each for each in self._open if each == path or each.startswith(f"{path}/")]:
            os.close(self._open.pop(each))
            self._dirty.discard(each)

    def _sync_path(self, path: str, flags: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(self.path / path, flags)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _fsync(descriptor: int) -> None:
    getattr(os, "fdatasync", os.fsync)(descriptor)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "."


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
