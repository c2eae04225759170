"""The Spark data source ``plumbline``: captures as the table ``packets``.

    spark.dataSource.register(PlumblineSource)
    spark.read.format("plumbline").load("captures/")

Options: ``places`` (a JSON list, instead of the path), ``section_bytes`` (plain files are read in parts of
that size), ``problems`` (of packets: ``fail``, or ``skip`` to read what can be read), ``until`` (of a stream:
the name of a file; once it exists, the stream has no more than what is written by then), ``rows``
(``packets``, or ``bundles`` of them with the problems among them, which ``flows.decode`` reads).

A schema that names fewer columns is all the pruning there is: Spark tells no Python source which columns a
query needs. With ``filters`` = ``push`` and ``spark.sql.python.filterPushdown.enabled`` filters on simple
columns are taken over. That is not the default: Spark 4.3 keeps the filters of the first query of a DataFrame
for its later ones, which then miss rows. Who wants it loads again for each query.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from plumbline.captures.reader import CaptureError
from plumbline.pipeline.input.bundles import BUNDLES, bundles
from plumbline.pipeline.input.files import (
    SECTION_BYTES,
    BlockScanner,
    CaptureFile,
    Section,
    capture_files,
    sections,
)
from plumbline.pipeline.input.packets import PacketFilter, batches
from plumbline.pipeline.tables import PACKETS, Table, spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME = "plumbline"
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "In": lambda value, wanted: value in wanted,
}
# Columns whose value is one number or text, as Spark has it.
_FILTERED = frozenset(
    ("frame", "file", "time_ns", "source", "target", "seq", "ack", "flags", "size", "missing", "capture")
)


class PlumblineSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return spark_schema(_table(self.options))

    def reader(self, schema: StructType) -> CaptureReader:
        kind = FilteringReader if self.options.get("filters") == "push" else CaptureReader
        return kind(self.options, schema.fieldNames())

    def streamReader(self, schema: StructType) -> CaptureStreamReader:  # noqa: N802  # Spark's name
        return CaptureStreamReader(self.options, schema.fieldNames())


class SectionPartition(InputPartition):
    """One section: one task."""

    def __init__(self, section: Section) -> None:
        super().__init__(section)
        self.section = section


class CaptureReader(DataSourceReader):
    """Reads captures to their ends."""

    def __init__(self, options: Any, columns: Sequence[str]) -> None:
        self._table = _table(options)
        unknown = [name for name in columns if name not in self._table.names]
        if unknown:
            raise ValueError(
                f"{self._table.name} have no column {', '.join(unknown)}; "
                f"they have {', '.join(self._table.names)}"
            )
        self._paths = places_of(options)
        self._section_bytes = int(options.get("section_bytes", SECTION_BYTES))
        self._passes_over = self._table == BUNDLES or options.get("problems", "fail") == "skip"
        self._columns = tuple(columns)
        self._filters: list[tuple[str, str, Any]] = []

    def partitions(self) -> list[InputPartition]:
        files, problems = capture_files(self._paths)
        if not files and not self._passes_over:
            raise CaptureError("; ".join(problem.text for problem in problems))
        return [
            SectionPartition(section)
            for file in files
            if self._is_selected(file)
            for section in sections(file, self._section_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SectionPartition):
            return
        if self._table == BUNDLES:
            yield from bundles(partition.section)
            return
        conditions = [_condition(*filter_) for filter_ in self._filters]
        yield from batches(
            partition.section, self._columns, conditions, passes_over_problems=self._passes_over
        )

    def _is_selected(self, file: CaptureFile) -> bool:
        known = {"capture": file.name, "file": file.number}
        return all(
            _TESTS[kind](known[column], value) for column, kind, value in self._filters if column in known
        )


class FilteringReader(CaptureReader):
    """Takes over what it can of a query's filters. Spark refuses such a reader where they are not offered."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802  # Spark's name
        for filter_ in filters:
            kind, column = (
                type(filter_).__name__,
                ".".join(filter_.attribute) if hasattr(filter_, "attribute") else "",
            )
            if kind in _TESTS and column in _FILTERED:
                self._filters.append((column, kind, filter_.value))
            else:
                yield filter_


class CaptureStreamReader(DataSourceStreamReader):
    """Follows captures that are being written. An offset: bytes of each file that are whole blocks.

    Traffic that never pauses would keep a stream from ever having read all there is: hence ``until``.
    """

    def __init__(self, options: Any, columns: Sequence[str]) -> None:
        self._paths = places_of(options)
        self._table = _table(options)
        self._columns = tuple(columns)
        self._until = Path(options["until"]) if "until" in options else None
        self._last: dict[str, int] | None = None
        self._files: dict[str, CaptureFile] = {}
        self._walks: dict[str, BlockScanner] = {}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name
        return {}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # noqa: N802  # Spark's name
        if self._last is not None:
            return self._last
        is_over = self._until is not None and self._until.exists()
        found, _ = capture_files(self._paths)
        for file in found:  # a file keeps its place whichever come later
            if file.path not in self._files:
                self._files[file.path] = CaptureFile(file.path, file.name, len(self._files))
                self._walks[file.path] = BlockScanner(file.path)
        written = {path: walk.forward() for path, walk in self._walks.items()}
        if is_over:
            self._last = written
        return written

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        parts = []
        for path, until in end.items():
            if until > start.get(path, 0):
                known, frame = self._walks[path].at(start.get(path, 0))
                parts.append(SectionPartition(Section(self._files[path], known, until, frame)))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, SectionPartition):
            return
        if self._table == BUNDLES:
            yield from bundles(partition.section)
        else:
            yield from batches(partition.section, self._columns, passes_over_problems=True)


def places_of(options: Any) -> list[str]:
    """The files and folders that the options name. Raises ``ValueError`` if they name none."""
    if "places" in options:
        return [str(place) for place in json.loads(options["places"])]
    if "path" in options:
        return [str(options["path"])]
    raise ValueError('give the location of the captures: load("captures/")')


def _table(options: Any) -> Table:
    rows_option = options.get("rows", PACKETS.name)
    for table in (PACKETS, BUNDLES):
        if table.name == rows_option:
            return table
    raise ValueError(f"rows are {PACKETS.name} or {BUNDLES.name}, not {rows_option}")


def _condition(column: str, kind: str, value: Any) -> PacketFilter:
    test = _TESTS[kind]
    return PacketFilter(column, lambda found: found is not None and test(found, value))
