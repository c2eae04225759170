"""Tables of the local engine: Parquet in the folders that Spark makes, ``day=.../capture=.../part-*``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from plumbline.pipeline.local.frame import ArrowFrame
from plumbline.pipeline.tables import Table, arrow_schema

GROUP_ROWS, GROUP_BYTES = 128 * 1024, 64 * 1024 * 1024  # of a row group: whichever comes first
SMALL_BYTES = 4 * 1024 * 1024  # of a table's files, which are read with all columns
MAX_OPEN = 16  # files that are written at once
_COMPRESSION = "zstd"
_DONE = "_SUCCESS"  # as Spark marks a table that is whole
_NULL = "__HIVE_DEFAULT_PARTITION__"
_SPECIAL = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(number) for number in range(32)}
_Partition = tuple[str, ...]


class _OpenPart(Struct):
    """One file, and the rows that wait for its next row group."""

    writer: pq.ParquetWriter
    waiting: list[pa.Table] = []
    rows: int = 0
    bytes: int = 0

    def add(self, rows: pa.Table) -> None:
        self.waiting.append(rows)
        self.rows += rows.num_rows
        self.bytes += rows.nbytes
        if self.rows >= GROUP_ROWS or self.bytes >= GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if self.rows:
            self.writer.write_table(pa.concat_tables(self.waiting), row_group_size=self.rows)
        self.waiting, self.rows, self.bytes = [], 0, 0

    def close(self) -> None:
        self.flush()
        self.writer.close()


class TableWriter:
    """Replaces the table in the folder ``place``. A context manager: at its end the table is whole."""

    def __init__(self, place: str, table: Table) -> None:
        self._place, self._table = Path(place), table
        self._schema = arrow_schema(table)
        self._own_columns = table.without(*table.partitions)
        self._open: dict[_Partition, _OpenPart] = {}
        self._parts = count()
        self.rows = 0
        self._place.mkdir(parents=True)

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if not self.rows and not self._table.partitions:
            self._part(()).add(self._schema.empty_table())
        for part in self._open.values():
            part.close()
        if kind is None:
            (self._place / _DONE).touch()

    def add(self, rows: pa.Table) -> None:
        """Rows with the columns of the table; ``day`` is made of ``time`` where it is not there."""
        if not rows.num_rows:
            return
        self.rows += rows.num_rows
        if "day" in self._table.partitions and "day" not in rows.column_names:
            rows = rows.append_column("day", pc.cast(rows["time"], pa.date32()))
        for partition, own_rows in self._partitioned(rows):
            self._part(partition).add(own_rows.select(self._own_columns.names))

    def _partitioned(self, rows: pa.Table) -> Iterator[tuple[_Partition, pa.Table]]:
        names = list(self._table.partitions)
        if not names:
            yield (), rows
            return
        groups = rows.select(names).group_by(names, use_threads=False).aggregate([])
        for values in zip(*(groups[name].to_pylist() for name in names), strict=True):
            own_rows = rows
            for name, value in zip(names, values, strict=True):
                if groups.num_rows > 1:
                    own_rows = own_rows.filter(pc.equal(own_rows[name], value))
            yield (
                tuple(f"{name}={_escaped(value)}" for name, value in zip(names, values, strict=True)),
                own_rows,
            )

    def _part(self, partition: _Partition) -> _OpenPart:
        part = self._open.pop(partition, None)
        if part is None:
            if len(self._open) >= MAX_OPEN:
                self._open.pop(next(iter(self._open))).close()
            folder = self._place.joinpath(*partition)
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"part-{next(self._parts):05}.{_COMPRESSION}.parquet"
            schema = arrow_schema(self._own_columns)
            part = _OpenPart(pq.ParquetWriter(path, schema, compression=_COMPRESSION))
        self._open[partition] = part  # the last that was used is the last to be closed
        return part


def write_frame(frame: ArrowFrame, place: str, table: Table) -> int:
    """Writes a table; how many rows it has."""
    with TableWriter(place, table) as writer:
        writer.add(frame.select(*table.names).table().cast(arrow_schema(table)))
    return writer.rows


def read_frame(place: str, table: Table) -> ArrowFrame:
    """A table as it was written, here or by Spark. Columns are read when they are asked for."""
    parts = _Parts(sorted(Path(place).rglob("part-*.parquet")), table)

    def reader(name: str) -> Callable[[], Any]:
        return lambda: parts.column(name)

    return ArrowFrame({name: reader(name) for name in table.names}, sum(parts.counts))


class _Parts:
    """The files of a table. Small ones are read with all columns at once, which takes less time."""

    def __init__(self, files: Sequence[Path], table: Table) -> None:
        self._files, self._table = files, table
        self._schema = arrow_schema(table)
        self._whole: list[pa.Table] | None = None
        self._is_small = sum(path.stat().st_size for path in files) <= SMALL_BYTES
        self.counts = [pq.read_metadata(path).num_rows for path in files]

    def column(self, name: str) -> Any:
        """The array of a column."""
        kind = self._schema.field(name).type
        if name in self._table.partitions:
            found = zip(self._files, self.counts, strict=True)
            chunks = [_repeated(path, name, rows, kind) for path, rows in found]
        else:
            chunks = [chunk for part in self._columns(name) for chunk in part.cast(kind).chunks]
        return pa.concat_arrays(chunks) if chunks else pa.array([], kind)

    def _columns(self, name: str) -> list[pa.ChunkedArray]:
        if not self._is_small:
            return [_read(path, [name])[name] for path in self._files]
        if self._whole is None:
            self._whole = [_read(path) for path in self._files]
        return [part[name] for part in self._whole]


def _read(path: Path, names: list[str] | None = None) -> pa.Table:
    with pq.ParquetFile(path) as file:
        return file.read(names, use_threads=False)


def _repeated(path: Path, name: str, rows: int, kind: Any) -> Any:
    """The value of a partition, which its folder's name has."""
    text = next(part.partition("=")[2] for part in path.parts[::-1] if part.startswith(f"{name}="))
    value: Any = None if text == _NULL else unquote(text)
    if value is not None and kind == pa.date32():
        value = date.fromisoformat(value)
    return pa.repeat(pa.scalar(value, kind), rows)


def _escaped(value: Any) -> str:
    """A value as Spark writes it in the name of a folder."""
    if value is None or value == "":
        return _NULL
    return "".join(f"%{ord(one):02X}" if one in _SPECIAL else one for one in str(value))
