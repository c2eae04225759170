"""Sections of captures to record batches of the table ``packets``: only the columns that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pipeline.files import Problem, Section, packets
from pipeline.tables import PACKETS, arrow_schema
from proxy.capture_reader import CaptureError
from proxy.segments import Segment, segment

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS, BATCH_BYTES = 4096, 4 * 1024 * 1024
_NS_OF_DAY = 86_400_000_000_000
PROBLEM = "problem"  # first comment of a row that is no packet; then follow kind, text and bytes


class Where(Struct, frozen=True):
    """What a packet's place says."""

    section: Section
    frame: int


_Value = Callable[[Where, Segment], Any]
VALUES: dict[str, _Value] = {
    "frame": lambda where, _: where.frame,
    "file": lambda where, _: where.section.file.number,
    "time": lambda _, carried: carried.time // 1000,
    "time_ns": lambda _, carried: carried.time,
    "source": lambda _, carried: str(carried.source),
    "target": lambda _, carried: str(carried.target),
    "seq": lambda _, carried: carried.seq,
    "ack": lambda _, carried: carried.ack,
    "flags": lambda _, carried: carried.flags,
    "size": lambda _, carried: len(carried.data),
    "missing": lambda _, carried: carried.missing,
    "comments": lambda _, carried: list(carried.comments) or None,
    "payload": lambda _, carried: carried.data,
    "day": lambda _, carried: carried.time // _NS_OF_DAY,
    "capture": lambda where, _: where.section.file.name,
}


class Condition(Struct, frozen=True):
    """A simple filter: the column's value and ``test``. Its ``column`` is one of ``VALUES``."""

    column: str
    test: Callable[[Any], bool]

    def holds(self, where: Where, carried: Segment) -> bool:
        return self.test(VALUES[self.column](where, carried))


def batches(
    section: Section,
    columns: Sequence[str] = PACKETS.names,
    conditions: Sequence[Condition] = (),
    *,
    tell_problems: bool = False,
    content: bytes | None = None,
) -> Iterator[pa.RecordBatch]:
    """The TCP segments of a section.

    What is wrong with the file raises ``CaptureError``, or becomes a row of its own (see ``problem_of``). A
    file that merely ends in the middle of a block is read to its last whole block. ``content`` is the file's,
    where it is not Python that reads files.
    """
    table = PACKETS.without(*(name for name in PACKETS.names if name not in columns))
    collected = _Batch(sorted(table.names, key=list(columns).index), arrow_schema(table))
    for found in packets(section, content):
        if isinstance(found, Problem):
            if tell_problems:
                collected.add_problem(section, found)
            elif found.kind != "truncated":
                raise CaptureError(found.text)
            continue
        frame, packet = found
        carried = segment(packet)
        where = Where(section, frame)
        if carried is None or not all(condition.holds(where, carried) for condition in conditions):
            continue
        if collected.add(where, carried):
            yield collected.take()
    if collected.rows:
        yield collected.take()


def problem_of(comments: Sequence[str] | None) -> tuple[str, str, int | None] | None:
    """Kind, text and bytes of the problem that a row tells; None for a packet."""
    if not comments or comments[0] != PROBLEM:
        return None
    return comments[1], comments[2], int(comments[3]) if comments[3] else None


class _Batch:
    """Rows of the columns that are asked for, until there are enough."""

    def __init__(self, names: Sequence[str], schema: pa.Schema) -> None:
        import pyarrow as pa

        self._schema = pa.schema([schema.field(name) for name in names])
        self._values = [VALUES[name] for name in names]
        self._names = names
        self._columns: list[list[Any]] = [[] for _ in names]
        self._bytes = 0
        self.rows = 0

    def add(self, where: Where, carried: Segment) -> bool:
        """Whether it is time to take them."""
        for column, value in zip(self._columns, self._values, strict=True):
            column.append(value(where, carried))
        self.rows += 1
        self._bytes += len(carried.data)
        return self.rows >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def add_problem(self, section: Section, problem: Problem) -> None:
        size = "" if problem.bytes is None else str(problem.bytes)
        told: dict[str, Any] = {
            "file": section.file.number,
            "capture": section.file.name,
            "comments": [PROBLEM, problem.kind, problem.text, size],
        }
        for name, column in zip(self._names, self._columns, strict=True):
            column.append(told.get(name))
        self.rows += 1

    def take(self) -> pa.RecordBatch:
        import pyarrow as pa

        arrays = [
            pa.array(column, field.type) for column, field in zip(self._columns, self._schema, strict=True)
        ]
        for column in self._columns:
            column.clear()
        self.rows = self._bytes = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
