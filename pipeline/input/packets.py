"""Sections of captures to record batches of the table ``packets``: only the columns that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from plumbline.captures.reader import CaptureError
from plumbline.captures.segments import Segment, segment
from plumbline.pipeline.input.files import NS_OF_DAY, CaptureFile, CaptureProblem, Section, packets
from plumbline.pipeline.tables import PACKETS, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS, BATCH_BYTES = 4096, 4 * 1024 * 1024


_text = lru_cache(maxsize=65536)(str)  # of a place: there are few, each many times
_Segments = Sequence[Segment]
_Column = Callable[[CaptureFile, Sequence[int], _Segments], list[Any]]
# The values of each column, for packets of one file: their frames and what they carry.
COLUMNS: dict[str, _Column] = {
    "frame": lambda _, frames, __: list(frames),
    "file": lambda file, frames, _: [file.number] * len(frames),
    "time": lambda _, __, carried: [one.time // 1000 for one in carried],
    "time_ns": lambda _, __, carried: [one.time for one in carried],
    "source": lambda _, __, carried: [_text(one.source) for one in carried],
    "target": lambda _, __, carried: [_text(one.target) for one in carried],
    "seq": lambda _, __, carried: [one.seq for one in carried],
    "ack": lambda _, __, carried: [one.ack for one in carried],
    "flags": lambda _, __, carried: [one.flags for one in carried],
    "size": lambda _, __, carried: [len(one.data) for one in carried],
    "missing": lambda _, __, carried: [one.missing for one in carried],
    "comments": lambda _, __, carried: [list(one.comments) or None for one in carried],
    "payload": lambda _, __, carried: [one.data for one in carried],
    "day": lambda _, __, carried: [one.time // NS_OF_DAY for one in carried],
    "capture": lambda file, frames, _: [file.name] * len(frames),
}


class PacketFilter(Struct, frozen=True):
    """A simple filter: the column's value and ``test``. Its ``column`` is one of ``COLUMNS``."""

    column: str
    test: Callable[[Any], bool]

    def holds(self, file: CaptureFile, frame: int, carried: Segment) -> bool:
        (value,) = COLUMNS[self.column](file, (frame,), (carried,))
        return self.test(value)


def batches(
    section: Section,
    columns: Sequence[str] = PACKETS.names,
    conditions: Sequence[PacketFilter] = (),
    *,
    passes_over_problems: bool = False,
    content: bytes | None = None,
) -> Iterator[pa.RecordBatch]:
    """The TCP segments of a section.

    What is wrong with the file raises ``CaptureError``, or is passed over: then what can be read of it is
    read. A file that merely ends in the middle of a block is read to its last whole block. ``content`` is the
    file's, where it is not Python that reads files.
    """
    collected = PacketRows(section.file, columns)
    for found in packets(section, content):
        if isinstance(found, CaptureProblem):
            if not passes_over_problems and found.kind != "truncated":
                raise CaptureError(found.text)
            continue
        frame, packet = found
        carried = segment(packet)
        if carried is None or not all(one.holds(section.file, frame, carried) for one in conditions):
            continue
        if collected.add(frame, carried):
            yield from collected.take()
    yield from collected.take()


class PacketRows:
    """Packets of a file, until there are enough: rows of ``PACKETS``, in those columns."""

    def __init__(self, file: CaptureFile, columns: Sequence[str]) -> None:
        import pyarrow as pa

        table = PACKETS.without(*(name for name in PACKETS.names if name not in columns))
        schema = arrow_schema(table)
        self._file = file
        self._names = sorted(table.names, key=list(columns).index)
        self._schema = pa.schema([schema.field(name) for name in self._names])
        self._frames: list[int] = []
        self._carried: list[Segment] = []
        self._bytes = 0

    def add(self, frame: int, carried: Segment) -> bool:
        """Whether it is time to take them."""
        self._frames.append(frame)
        self._carried.append(carried)
        self._bytes += len(carried.data)
        return len(self._frames) >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def take(self) -> Iterator[pa.RecordBatch]:
        """What was collected: one batch, or none."""
        if self._frames:
            yield self._batch(COLUMNS[name](self._file, self._frames, self._carried) for name in self._names)
            self._frames, self._carried, self._bytes = [], [], 0

    def _batch(self, columns: Iterable[list[Any]]) -> pa.RecordBatch:
        import pyarrow as pa

        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
