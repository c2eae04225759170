"""Where the packaged checks are, and what belongs to them: traces are files, functions are modules."""

from __future__ import annotations

from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent  # one name in a checkout, where two paths lead here
TRACES = HERE / "traces"
CHECKS = HERE / "checks"


@cache
def resolved(path: Path) -> Path:
    """``path.resolve()``, without a look at the disk for what is packaged: there are no links in it."""
    return path if path.is_relative_to(HERE) and ".." not in path.parts else path.resolve()


def is_packaged(path: Path) -> bool:
    """Whether a file or folder belongs to the packaged suite."""
    return resolved(path).is_relative_to(HERE)
