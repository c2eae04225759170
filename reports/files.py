"""Report files: checked before the run starts, and written atomically.

``ReportFile`` is opened early and filled once; a reader never sees half a report, and a failed
write leaves the report of the run before in place.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from plumbline.errors import PlumblineError, UsageProblem

PRIVATE = 0o600  # of reports that hold everything that was exchanged, payloads and all


class ReportError(PlumblineError, OSError):
    """A report cannot be written where it was asked for; the message says what to do."""


def usage_problem(error: OSError) -> UsageProblem:
    """The file and the reason, without the error number of the operating system."""
    place = f"{error.filename}: " if error.filename else ""
    return UsageProblem(f"{place}{error.strerror or error}")


class ReportFile:
    """A place for one report. Raises ``ReportError`` at once if nothing can be written there.

    ``new_mode``: the permissions of a file that is not there yet; None: those of any new file. The mode of a
    file that is replaced stays.
    """

    def __init__(self, path: Path, kind: str, new_mode: int | None = None) -> None:
        self.path = path
        self._kind = kind
        self._new_mode = new_mode
        self._check()

    def _check(self) -> None:
        if self.path.is_dir():
            raise ReportError(
                f"cannot write the {self._kind} report: {self.path} is a folder; name a file in it,"
                f" such as {self.path / f'plumbline.{self._kind}'}"
            )
        if self._is_device():
            return
        try:
            folder = self._resolved.parent
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise self._error(error) from error

    @property
    def _resolved(self) -> Path:
        """Behind symbolic links: a link stays one."""
        return self.path.resolve()

    def _is_device(self) -> bool:
        """``/dev/stdout``, a pipe: written to, never replaced."""
        return self.path.exists() and not self.path.is_file()

    def _error(self, error: OSError) -> ReportError:
        reason = error.strerror or str(error)
        return ReportError(
            f"cannot write the {self._kind} report to {self.path}: {reason.lower()};"
            " name a file in a folder that you may write to"
        )

    def write(self, content: bytes) -> None:
        """Puts ``content`` there, in one step. Raises ``ReportError``."""
        try:
            if self._is_device():
                self.path.write_bytes(content)
            else:
                _replace(self._resolved, content, _mode(self._resolved, self._new_mode))
        except OSError as error:
            raise self._error(error) from error


def write_private(path: Path, content: bytes) -> None:
    """A file that only its owner may read. The mode of a file that is there already stays."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _replace(path: Path, content: bytes, mode: int) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _mode(path: Path, new: int | None) -> int:
    """The mode of the file that is replaced, else what a new file gets; mkstemp alone gives 0600."""
    if path.exists():
        return path.stat().st_mode & 0o777
    if new is not None:
        return new
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
