"""What goes across connections, grouped by key: facts of one stream or queue, in order, to violations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec.msgpack import Decoder

from plumbline.monitors import MONITORS, Monitor, Place, Violation
from plumbline.pipeline.input.bundles import STATE
from plumbline.pipeline.judging.cells import Cells
from plumbline.pipeline.judging.crossing import Merge, Noted, unpacked
from plumbline.pipeline.judging.flows import Ending
from plumbline.pipeline.judging.states import dumped, restored
from plumbline.pipeline.rows import Collector, rows_of
from plumbline.pipeline.tables import BYTES, INT, LONG, VIOLATIONS, Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

BROKEN = Decoder(list[Violation])
_ORDER = {kind.rule: number for number, kind in enumerate(MONITORS)}

# Columns of an operation that its violations have too.
SHARED = (
    "connection", "number", "frame", "time_ns", "protocol", "client", "server", "library", "capture",
    "file",
)  # fmt: skip
FACT_COLUMNS = (*SHARED, "key", "facts", "broken")
FOUND = Table(
    "found",
    "Violations before connections have their numbers.",
    (
        *VIOLATIONS.without("day").columns,
        Column("file", INT, "place of the file"),
        Column("rank", LONG, "place among the violations of one operation"),
    ),
    ("capture",),
)
FOUND_OR_STATE = Table(
    "found", FOUND.meaning, (*FOUND.columns, Column("state", BYTES, "monitors")), FOUND.partitions
)


def judge_streams(
    batches: Iterable[pa.RecordBatch], ending: Ending = Ending.FINAL
) -> Iterator[pa.RecordBatch]:
    """Facts, grouped by key and in order inside, to rows of ``FOUND``. Holds the monitors of one key. What an
    operation has ``broken`` on its connection is passed on.

    With ``Ending.TO_BE_CONTINUED`` the monitors leave as a row whose ``rule`` is ``bundles.STATE`` and whose
    ``text`` is the key; with that as ``protocol``, before all others of its key, it comes back.
    """
    collected = Collector(FOUND_OR_STATE)
    current: str | None = None
    monitors, merge = _monitors(""), Merge()

    def judged(given: Iterator[tuple[Cells, Noted]]) -> Iterator[Cells]:
        for row, noted in given:
            for violation in [one for fact in noted.facts for kind in monitors for one in kind.observe(fact)]:
                at = {"frame": noted.frame, "number": noted.number, "time_ns": noted.time_ns}
                yield cells_of_violation(violation, row | at)

    def end() -> Iterator[Cells]:
        yield from judged(merge.until())
        if ending is Ending.TO_BE_CONTINUED and current is not None:
            yield {"rule": STATE, "text": current, "state": dumped(monitors)}

    for *shared, key, facts, broken in rows_of(batches, FACT_COLUMNS):
        row = dict(zip(SHARED, shared, strict=True))
        if broken:
            found = (cells_of_violation(violation, row) for violation in unpacked(broken, BROKEN))
            yield from collected.all(found)
            continue
        if key != current:
            yield from collected.all(end())
            current, monitors = key, _monitors(key)
        if row["protocol"] == STATE:
            monitors = restored(facts)
        else:
            yield from collected.all(judged(merge.add(row, facts)))
    yield from collected.all(end())
    yield from collected.take()


def _monitors(key: str) -> list[Monitor]:
    scope = key.partition("|")[0]
    return [kind() for kind in MONITORS if kind.scope == scope]


def cells_of_violation(violation: Violation, told: dict[str, Any]) -> dict[str, Any]:
    """A row of ``FOUND``; ``told`` is what its operation has."""
    return told | {
        "time": told["time_ns"] // 1000,
        "rule": violation.rule,
        "requirements": list(violation.requirements),
        "side": str(violation.side),
        "certain": violation.certain,
        "expected": violation.expected,
        "actual": violation.actual,
        "text": violation.place.text,
        "earlier": [_place(place) for place in violation.earlier],
        "rank": _ORDER[violation.rule],
    }


def _place(place: Place) -> dict[str, Any]:
    return {
        "connection": int(place.connection),
        "number": place.index,
        "time_ns": place.at,
        "text": place.text,
    }
