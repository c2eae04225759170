"""What goes across connections, grouped by key: facts of one stream or queue, in order, to violations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec.msgpack import Decoder

from plumbline.monitors import MONITORS, Monitor, Place, Violation
from plumbline.pipeline.judging.cells import Cells
from plumbline.pipeline.judging.cross_connection import FactMerge, OperationFacts, unpacked
from plumbline.pipeline.judging.flows import Ending
from plumbline.pipeline.judging.states import dumped, restored
from plumbline.pipeline.rows import ROW_KIND, STATE, Collector, RowKind, rows_of
from plumbline.pipeline.tables import INT, LONG, TEXT, VIOLATIONS, Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

BROKEN = Decoder(list[Violation])
_ORDER = {kind.rule: number for number, kind in enumerate(MONITORS)}

# Columns of an operation that its violations have too.
SHARED = (
    "connection", "number", "frame", "time_ns", "protocol", "client", "server", "library", "capture",
    "file",
)  # fmt: skip
FACT_COLUMNS = (*SHARED, "row_kind", "key", "facts", "broken", "state")
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
    "found",
    "Violations before connections have their numbers; or the state of the monitors of a key.",
    (ROW_KIND, *FOUND.columns, Column("key", TEXT, "of a state: a stream's or a queue's"), STATE),
    FOUND.partitions,
)


def judge_streams(
    batches: Iterable[pa.RecordBatch], ending: Ending = Ending.FINAL, state_key: bytes = b""
) -> Iterator[pa.RecordBatch]:
    """Facts, grouped by key and in order inside, to rows of ``FOUND_OR_STATE``. Holds the monitors of one
    key. What an operation has ``broken`` on its connection is passed on.

    With ``Ending.TO_BE_CONTINUED`` the monitors leave as a row of kind ``STATE``, signed with ``state_key``,
    which comes back before all others of its key.
    """
    collected = Collector(FOUND_OR_STATE)
    yield from collected.all(judged_rows(rows_of(batches, FACT_COLUMNS), ending, state_key))
    yield from collected.take()


def judged_rows(
    rows: Iterable[tuple[Any, ...]], ending: Ending = Ending.FINAL, state_key: bytes = b""
) -> Iterator[Cells]:
    """``judge_streams`` of rows of ``FACT_COLUMNS``, as they would be in batches."""
    current: str | None = None
    monitors, merge = _monitors(""), FactMerge()

    def judged(merged: Iterator[tuple[Cells, OperationFacts]]) -> Iterator[Cells]:
        for row, operation_facts in merged:
            for violation in [
                one
                for fact in operation_facts.facts
                for kind in monitors
                if kind.wants(type(fact))
                for one in kind.observe(fact)
            ]:
                at = {
                    "frame": operation_facts.frame,
                    "number": operation_facts.number,
                    "time_ns": operation_facts.time_ns,
                }
                yield cells_of_violation(violation, row | at)

    def end() -> Iterator[Cells]:
        yield from judged(merge.until())
        if ending is Ending.TO_BE_CONTINUED and current is not None:
            yield {"row_kind": RowKind.STATE, "key": current, "state": dumped(monitors, state_key)}

    for *shared, kind, key, facts, broken, state in rows:
        row = dict(zip(SHARED, shared, strict=True))
        if broken:
            yield from (cells_of_violation(violation, row) for violation in unpacked(broken, BROKEN))
            continue
        if key != current:
            yield from end()
            current, monitors = key, _monitors(key)
        if kind == RowKind.STATE:
            monitors = restored(state, state_key)
        else:
            yield from judged(merge.add(row, facts))
    yield from end()


def _monitors(key: str) -> list[Monitor]:
    scope = key.partition("|")[0]
    return [kind() for kind in MONITORS if kind.scope == scope]


def cells_of_violation(violation: Violation, cells: dict[str, Any]) -> dict[str, Any]:
    """A row of ``FOUND_OR_STATE``; ``cells`` is what its operation has."""
    return cells | {
        "row_kind": RowKind.VIOLATION,
        "time": cells["time_ns"] // 1000,
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
