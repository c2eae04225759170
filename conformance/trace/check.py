"""A trace file as checks: one, or one for each case of its table.

The id of a check is the path of its file below ``conformance/traces``; that of a case is the file's folder
and the name of the case.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from plumbline.conformance.check import Check
from plumbline.conformance.packaged import TRACES, resolved
from plumbline.conformance.trace.cases import parse_traces
from plumbline.conformance.trace.language import Trace
from plumbline.conformance.trace.player import play
from plumbline.untrusted import read_file

FILES_IN_MEMORY = 64  # with all their steps: together they take 10 MB


def load_checks(path: Path) -> list[Check]:
    """The checks of a file, in the order of its cases.

    Raises ``TraceSyntaxError`` for a file that is not a trace, ``OSError`` for one that cannot be read.
    """
    text = read_file(path).decode("utf-8", "surrogateescape")
    return [_check(trace, path, partial(play, trace)) for trace in parse_traces(text, shown_path(path))]


def load_headers(path: Path) -> list[Check]:
    """The same checks of a packaged file, which has no errors; each reads its steps when it runs.

    A process runs a few of all checks. Raises as ``load_checks``.
    """
    text = read_file(path).decode("utf-8", "surrogateescape")
    headers = parse_traces(text, shown_path(path), is_header=True)
    return [_check(trace, path, partial(_load_and_run, path, place)) for place, trace in enumerate(headers)]


def _load_and_run(path: Path, place: int, session: Any) -> None:
    _packaged_checks(path)[place].run(session)


@lru_cache(maxsize=FILES_IN_MEMORY)
def _packaged_checks(path: Path) -> list[Check]:
    """One file has many cases, which run one after the other."""
    return load_checks(path)


def _check(trace: Trace, path: Path, run: Callable[[Any], None]) -> Check:
    return Check(
        id=check_id(path, trace.case),
        title=trace.title,
        requirements=trace.verifies,
        run=run,
        source=trace.source,
        where=f"{trace.path}:{trace.line}",
        variant=trace.variant,
        since=trace.since,
        until=trace.until,
    )


def check_id(path: Path, case: str = "") -> str:
    """``adr-13/pull-one`` for a packaged trace; the path without suffix, from here, for a user's own.

    For a case, its name is in the place of the file's.
    """
    below = _packaged_path(path) or _relative_path(path)
    return (below.with_name(case) if case else below.with_suffix("")).as_posix()


def shown_path(path: Path) -> str:
    """How messages name the file: below the package that users have, else from here."""
    packaged = _packaged_path(path)
    return f"conformance/traces/{packaged.as_posix()}" if packaged else _relative_path(path).as_posix()


@cache
def _packaged_path(path: Path) -> Path | None:
    """Below the folder of packaged traces, if it is there."""
    whole = resolved(path)
    return whole.relative_to(TRACES) if whole.is_relative_to(TRACES) else None


def _relative_path(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
