"""A trace file as a check: one file is one check, its id is its path below ``conformance/traces``."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from plumbline.conformance.check import Check
from plumbline.conformance.trace.parser import parse_trace
from plumbline.conformance.trace.player import play

PACKAGED = Path(__file__).resolve().parents[1] / "traces"


def load_check(path: Path) -> Check:
    """Raises ``TraceSyntaxError`` for a file that is not a trace, ``OSError`` for one that cannot be read."""
    trace = parse_trace(path.read_bytes().decode("utf-8", "surrogateescape"), shown_path(path))
    return Check(
        id=check_id(path),
        title=trace.title,
        requirements=trace.verifies,
        run=partial(play, trace),
        source=trace.source,
        where=f"{trace.path}:1",
        variant=trace.variant,
        since=trace.since,
        until=trace.until,
    )


def check_id(path: Path) -> str:
    """``adr-13/pull-one`` for a packaged trace; the path without suffix, from here, for a user's own."""
    resolved = path.resolve()
    below = resolved.relative_to(PACKAGED) if resolved.is_relative_to(PACKAGED) else _from_here(path)
    return below.with_suffix("").as_posix()


def shown_path(path: Path) -> str:
    """How messages name the file: below the package that users have, else from here."""
    resolved = path.resolve()
    if resolved.is_relative_to(PACKAGED):
        return f"conformance/traces/{resolved.relative_to(PACKAGED).as_posix()}"
    return _from_here(path).as_posix()


def _from_here(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
