"""A result as people read it: each violation with its time and place, problems, and one line at the end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TextIO

from plumbline.monitors import MONITORS, Place, Side, Violation
from plumbline.pipeline.frames import Frame
from plumbline.pipeline.results import LocalResults, Manifest, Results
from plumbline.visible import write_line

_ORDER = {kind.rule: number for number, kind in enumerate(MONITORS)}


def print_result(results: Results | LocalResults, place: str, out: TextIO, most: int) -> None:
    """The result in the folder ``place``; at most ``most`` violations and as many problems."""
    print_violations(results.table("violations"), out, most, results.manifest.violations)
    print_problems(results.table("problems"), out, most, results.manifest.problems)
    write_line(out, f"{summary(results.manifest)}; tables in {place.rstrip('/')}/{results.manifest.run}")


def print_violations(violations: Frame, out: TextIO, most: int, every: int) -> None:
    """In the order of time."""
    rows = violations.orderBy("time_ns", "connection", "number").limit(most).collect()
    for row in sorted(rows, key=_order):
        for line in (*violation_text(row).split("\n"), ""):
            write_line(out, line)
    if every > len(rows):
        out.write(f"... and {every - len(rows)} more violations\n\n")


def print_problems(problems: Frame, out: TextIO, most: int, every: int) -> None:
    """One line each."""
    rows = problems.orderBy("capture", "frame", "text").limit(most).collect()
    for row in rows:
        write_line(out, f"problem: {row['kind']}: {row['text']}")
    if every > len(rows):
        out.write(f"... and {every - len(rows)} more problems\n")


def violation_text(row: Any) -> str:
    """A row of the table ``violations``, on several lines."""
    head = f"{utc(row['time_ns'])}  {row['capture']}, packet {row['frame']}"
    return f"{head}\n{violation_of(row)}"


def violation_of(row: Any) -> Violation:
    """A row of the table ``violations`` as the monitor found it."""
    return Violation(
        row["rule"],
        tuple(row["requirements"]),
        Side(row["side"]),
        row["expected"],
        row["actual"],
        Place(str(row["connection"]), row["number"], row["time_ns"], row["text"]),
        tuple(
            Place(str(one["connection"]), one["number"], one["time_ns"], one["text"])
            for one in row["earlier"]
        ),
        row["certain"],
    )


def utc(time_ns: int) -> str:
    """A time to the microsecond."""
    whole = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    return f"{whole:%Y-%m-%d %H:%M:%S}.{time_ns // 1000 % 1_000_000:06}"


def summary(manifest: Manifest) -> str:
    """One line."""
    possible = f" ({manifest.possible} of them possible only)" if manifest.possible else ""
    counts = [
        _many(len(manifest.captures), "capture"),
        _many(manifest.operations, "operation"),
        _many(manifest.violations, "violation") + possible,
        _many(manifest.problems, "problem"),
    ]
    return ", ".join(counts)


def _many(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _order(row: Any) -> tuple[int, int, int, int]:
    return row["time_ns"], row["connection"], row["number"], _ORDER.get(row["rule"], 0)
