"""What a process does to files, read from the lines that strace prints. Pure.

Only calls that decide what is on disk are traced. ``write`` is not among them: bytes are on disk when their
file is fsynced, or if it was opened with O_SYNC. Source: strace(1), ``-f``, ``-y``, ``--seccomp-bpf``.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

CALLS = (
    "fsync", "fdatasync", "sync", "syncfs", "open", "openat", "creat", "rename", "renameat", "renameat2",
    "truncate", "ftruncate", "unlink", "unlinkat",
)  # fmt: skip
WRITES = ("O_WRONLY", "O_RDWR")
SYNCHRONOUS = ("O_SYNC", "O_DSYNC")


class Synced(Struct, frozen=True):
    """The bytes of a file are on disk; of every file, if ``path`` is empty."""

    path: str = ""


class Opened(Struct, frozen=True):
    """A file was opened for writing. ``is_emptied``: it has no bytes now."""

    path: str
    is_synchronous: bool
    is_emptied: bool


class Renamed(Struct, frozen=True):
    """A file or folder has another name. What had the new name is gone."""

    old: str
    new: str


class Shortened(Struct, frozen=True):
    """A file has this size now."""

    path: str
    size: int


class Removed(Struct, frozen=True):
    """A file is gone."""

    path: str


FileEvent = Synced | Opened | Renamed | Shortened | Removed


def command(output: Path) -> list[str]:
    """Words before the command of a process: strace runs it and prints to ``output``."""
    return [
        "strace", "-f", "--seccomp-bpf", "-qq", "-y", "-e", "signal=none", "-e", f"trace={','.join(CALLS)}",
        "-o", str(output),
    ]  # fmt: skip


class StraceReader:
    """Reads line by line. A call that another thread interrupted is on two lines."""

    def __init__(self) -> None:
        self._unfinished: dict[str, str] = {}  # thread -> the first part of its call

    def read(self, line: str) -> FileEvent | None:
        """What has happened; None if nothing that concerns files did."""
        thread, _, call = line.strip().partition(" ")
        call = call.strip()
        if call.endswith("<unfinished ...>"):
            self._unfinished[thread] = call.removesuffix("<unfinished ...>").rstrip()
            return None
        if resumed := _RESUMED.match(call):
            call = self._unfinished.pop(thread, "") + call[resumed.end() :]
        found = _CALL.match(call)
        if found is None or found["name"] not in _READERS:
            return None
        return _READERS[found["name"]](found["arguments"], found["result"])


_RESUMED = re.compile(r"<\.\.\. \w+ resumed>")
_CALL = re.compile(r"(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>\d.*)$")  # -1 is an error
_FILE = re.compile(r"\d+<(?P<path>.*?)>(?:\(deleted\))?$")
# A folder, which says where a name begins that is not absolute; and the name.
_NAME = re.compile(r'(?:(?:AT_FDCWD|\d+)<(?P<folder>[^>]*)>, )?"(?P<name>(?:[^"\\]|\\.)*)"')


def _synced(arguments: str, result: str) -> FileEvent | None:
    found = _FILE.match(arguments)
    return Synced(found["path"]) if found else None


def _opened(arguments: str, result: str) -> FileEvent | None:
    found = _FILE.match(result)
    if found is None or not any(flag in arguments for flag in WRITES):
        return None
    is_synchronous = any(flag in arguments for flag in SYNCHRONOUS)
    return Opened(found["path"], is_synchronous, "O_TRUNC" in arguments)


def _created(arguments: str, result: str) -> FileEvent | None:
    found = _FILE.match(result)
    return Opened(found["path"], is_synchronous=False, is_emptied=True) if found else None


def _renamed(arguments: str, result: str) -> FileEvent | None:
    names = _names(arguments)
    return Renamed(names[0], names[1]) if len(names) == 2 else None


def _shortened(arguments: str, result: str) -> FileEvent | None:
    place, _, size = arguments.rpartition(", ")
    found = _FILE.match(place)
    names = [found["path"]] if found else _names(place)
    return Shortened(names[0], int(size)) if names and size.isdigit() else None


def _removed(arguments: str, result: str) -> FileEvent | None:
    names = _names(arguments)
    return Removed(names[0]) if names else None


def _names(arguments: str) -> list[str]:
    """Paths, each from the folder that is named before it."""
    return [
        os.path.normpath(Path(found["folder"] or "", found["name"])) for found in _NAME.finditer(arguments)
    ]


_READERS: dict[str, Callable[[str, str], FileEvent | None]] = {
    "fsync": _synced,
    "fdatasync": _synced,
    "sync": lambda arguments, result: Synced(),
    "syncfs": lambda arguments, result: Synced(),
    "open": _opened,
    "openat": _opened,
    "creat": _created,
    "rename": _renamed,
    "renameat": _renamed,
    "renameat2": _renamed,
    "truncate": _shortened,
    "ftruncate": _shortened,
    "unlink": _removed,
    "unlinkat": _removed,
}
