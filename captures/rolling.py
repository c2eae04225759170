"""The files of a recording: appended to by whole blocks, rolled by size and by time, never rewritten."""

from __future__ import annotations

import contextlib
import os
import time
from datetime import UTC, datetime
from pathlib import Path

from plumbline.captures.pcapng import interface, section_header, statistics

SUFFIX = ".pcapng"
APPLICATION = "Plumbline"
_MAX_PARTS = 1024  # IOV_MAX of Linux
_CLOSED = -1  # instead of a descriptor


class CaptureFiles:
    """One file at a time. ``place`` is a folder, or the first file if it ends in ``.pcapng``.

    Files are never overwritten. Raises ``OSError`` where the file system does.
    """

    def __init__(self, path: Path, about: str, *, roll_bytes: int = 0, roll_s: float = 0.0) -> None:
        self._about = about
        self._roll_bytes = roll_bytes
        self._roll_s = roll_s
        self._number = 0
        self._file = _CLOSED
        if path.suffix == SUFFIX:
            self._folder, self._stem, self._is_named = path.parent, path.stem, True
        else:
            stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
            self._folder, self._stem, self._is_named = path, f"plumbline-{stamp}", False
        self._folder.mkdir(parents=True, exist_ok=True)
        self._open()

    def append(self, parts: list[bytes], size: int) -> None:
        """Writes all of ``parts``, together ``size`` bytes, or raises ``OSError``."""
        if len(parts) <= _MAX_PARTS:
            written = os.writev(self._file, parts)
        else:
            written = os.write(self._file, b"".join(parts))
        if written < size:
            self._write_rest(memoryview(b"".join(parts))[written:])
        self._whole += size

    def is_full(self) -> bool:
        """Whether it is time for the next file."""
        return bool(
            (self._roll_bytes and self._whole >= self._roll_bytes)
            or (self._roll_s and time.monotonic() >= self._opened + self._roll_s)
        )

    def roll(self, now: int, packets: int, why: str) -> None:
        """Ends this file and begins the next."""
        self.close(now, packets, why)
        self._open()

    def close(self, now: int, packets: int, why: str) -> None:
        """Ends this file with a statistics block that says so."""
        end = statistics(now, self._opened_ns, packets, 0, why)
        try:
            self.append([end], len(end))
        finally:
            self._close_file()

    def abandon(self, now: int, packets: int, why: str) -> None:
        """After a failed write: takes back the block that is not whole, and says so if there is room."""
        if not self._whole:  # a file whose head could not be written is no capture
            self._close_file()
            with contextlib.suppress(OSError):
                self.path.unlink()
            return
        whole = self._whole
        if self._file != _CLOSED:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, whole)
                os.lseek(self._file, whole, os.SEEK_SET)
            with contextlib.suppress(OSError):
                self.close(now, packets, why)
                return
        with contextlib.suppress(OSError):
            os.truncate(self.path, whole)

    def _close_file(self) -> None:
        if self._file != _CLOSED:
            os.close(self._file)
            self._file = _CLOSED  # its number may be that of a socket at once

    def _open(self) -> None:
        self._number += 1
        number = "" if self._is_named and self._number == 1 else f"-{self._number:04}"
        path = self._folder / f"{self._stem}{number}{SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self.path = path
        self._whole = 0  # bytes up to the end of the last whole block
        self._opened = time.monotonic()
        self._opened_ns = time.time_ns()
        start = section_header(APPLICATION) + interface("plumbline", self._about)
        self.append([start], len(start))

    def _write_rest(self, rest: memoryview) -> None:
        while rest:
            rest = rest[os.write(self._file, rest) :]
