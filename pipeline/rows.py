"""Rows as dictionaries, collected to record batches of a table's schema; and what a row can be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from plumbline.pipeline.tables import BYTES, TEXT, Column, Table, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS, BATCH_BYTES = 4096, 8 * 1024 * 1024


class RowKind(StrEnum):
    """What a row of an inner table is: its column ``row_kind``. Every kind fills columns of its own."""

    PACKETS = "packets"  # of one flow, in their order
    OPERATION = "operation"  # or a remark of a connection
    FACTS = "facts"  # of one stream or queue, from one connection
    VIOLATION = "violation"
    STATE = "state"  # what a flow or a key remembers between two batches of a run that follows
    PROBLEM = "problem"  # what is wrong with a file


ROW_KIND = Column("row_kind", TEXT, "what the row is: see rows.RowKind")
STATE = Column("state", BYTES, "of a row of that kind: see states.dumped")


class Collector:
    """What a row does not have is null."""

    def __init__(self, table: Table) -> None:
        self._schema = arrow_schema(table)
        self._names = table.names
        self._large = [column.name for column in table.columns if column.type == BYTES]
        self._rows: list[Mapping[str, Any]] = []
        self._bytes = 0

    def add(self, row: Mapping[str, Any]) -> bool:
        """Whether it is time to take them."""
        self._rows.append(row)
        for name in self._large:
            if value := row.get(name):
                self._bytes += len(value)
        return len(self._rows) >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def all(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
        """Adds them; the batches that are full by then."""
        for row in rows:
            if self.add(row):
                yield from self.take()

    def take(self) -> Iterator[pa.RecordBatch]:
        """What was collected: one batch, or none."""
        import pyarrow as pa

        if not self._rows:
            return
        arrays = [
            _array([row.get(name) for row in self._rows], field.type)
            for name, field in zip(self._names, self._schema, strict=True)
        ]
        self._rows, self._bytes = [], 0
        yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _array(values: list[Any], kind: Any) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:  # bytes of the wire that are no UTF-8 survive decoding as lone surrogates
        return pa.array([without_surrogates(value) for value in values], kind)


def without_surrogates(value: Any) -> Any:
    """Text without lone surrogates; what else there is, as it is, in lists and dictionaries too."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, list):
        return [without_surrogates(one) for one in value]
    if isinstance(value, dict):
        return {name: without_surrogates(one) for name, one in value.items()}
    return value


def rows_of(batches: Iterable[pa.RecordBatch], names: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of those columns, as tuples."""
    columns = list(names)
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
