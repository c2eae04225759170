"""The created objects of a run, for targets that cannot list them: one line per created or deleted object.

Several processes append to one file; a line is shorter than what a write keeps whole.
"""

from __future__ import annotations

from pathlib import Path

FILE = "created_objects"  # the file in the folder that all processes of a run share


class CreatedObjects:
    """Of one run, in the folder ``shared`` of its processes. Without one nothing is noted."""

    def __init__(self, shared: Path | None) -> None:
        self._path = None if shared is None else shared / FILE

    def record_created(self, kind: str, name: str) -> None:
        """Note it before it is made, so that nothing is lost with a process."""
        self._append_line("+", kind, name)

    def record_deleted(self, kind: str, name: str) -> None:
        """It is deleted."""
        self._append_line("-", kind, name)

    def remaining(self) -> list[tuple[str, str]]:
        """Kind and name of all that was made and not deleted, in the order it was made."""
        if self._path is None or not self._path.exists():
            return []
        left: dict[tuple[str, str], None] = {}
        for line in self._path.read_text("utf-8", "surrogateescape").splitlines():
            sign, kind, name = line.split(" ", 2)
            if sign == "+":
                left[kind, name] = None
            else:
                left.pop((kind, name), None)
        return list(left)

    def _append_line(self, sign: str, kind: str, name: str) -> None:
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(f"{sign} {kind} {name}\n".encode("utf-8", "surrogateescape"))
