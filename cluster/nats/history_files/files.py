"""Writes a history, and reads one as a whole: for histories that fit into memory."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from plumbline.cluster.history import Attempt, AttemptOutcome
from plumbline.cluster.nats.history import ClusterHistory, LeaderRead, NodeLog
from plumbline.cluster.nats.history_files.layout import (
    ATTEMPTS,
    HEAD,
    LOGS,
    MAY_BE_NULL,
    MOST_COUNTERS,
    MOST_PROCESSES,
    OUTCOMES,
    READS,
    SCHEMA,
    TABLES,
    HistoryError,
    HistoryHead,
    ReadNode,
    arrow_schema,
    table_files,
)

if TYPE_CHECKING:
    import pyarrow as pa

FILE = "part-0.parquet"
Row = tuple[Any, ...]
ROWS_OF_BATCH = 100_000


def write_history(folder: Path, history: ClusterHistory, server: str = "", version: str = "") -> None:
    """Replaces the folder. Consumers and keys are not written. Raises ``HistoryError`` for a folder with
    other files, and without PyArrow."""
    make_room(folder)
    rows: dict[str, Iterable[Sequence[Any]]] = {
        ATTEMPTS: map(attrgetter(*TABLES[ATTEMPTS]), history.attempts),
        LOGS: ((log.node, *stored) for log in history.logs for stored in log.messages.items()),
        READS: map(attrgetter(*TABLES[READS]), history.reads),
    }
    for table, of_table in rows.items():
        _write(folder / table, table, of_table)
    head = HistoryHead(
        schema=SCHEMA,
        nodes=tuple(ReadNode(log.node, log.complete, log.problem) for log in history.logs),
        server=server,
        version=version,
        stream_exists=history.stream_exists,
        is_whole=history.is_whole,
        problem=history.problem,
    )
    (folder / HEAD).write_bytes(msgspec.json.format(msgspec.json.encode(head)) + b"\n")


def make_room(folder: Path) -> None:
    """The folder without an older history. Raises ``HistoryError`` if it has other files, or without
    PyArrow."""
    arrow_schema(ATTEMPTS)
    foreign = {one.name for one in folder.iterdir()} - {HEAD, *TABLES} if folder.is_dir() else set()
    if foreign:
        raise HistoryError(f"{folder} has other files ({min(foreign)}): name an empty or a new folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / HEAD).unlink(missing_ok=True)
        for table in TABLES:
            shutil.rmtree(folder / table, ignore_errors=True)
    except OSError as problem:
        raise HistoryError(f"{folder}: {problem.strerror}") from None


def read_history(folder: Path, head: HistoryHead) -> ClusterHistory:
    """All of it. Raises ``HistoryError``."""
    return history_of(head, *(_rows(folder, table) for table in TABLES))


def history_of(
    head: HistoryHead, attempts: Iterable[Row], logs: Iterable[Row], reads: Iterable[Row]
) -> ClusterHistory:
    """From rows of each table. Raises ``HistoryError`` for a node that the head lacks."""
    stored: dict[int, dict[int, str]] = {one.node: {} for one in head.nodes}
    for node, sequence, message in logs:
        if node not in stored:
            raise HistoryError(unknown_node(node))
        stored[node][sequence] = message
    return ClusterHistory(
        [
            Attempt(process, counter, node, invoked, completed, AttemptOutcome(outcome), *rest)
            for process, counter, node, invoked, completed, outcome, *rest in attempts
        ],
        [LeaderRead(*row) for row in reads],
        [NodeLog(one.node, stored[one.node], one.complete, one.problem) for one in head.nodes],
        stream_exists=head.stream_exists,
        is_whole=head.is_whole,
        problem=head.problem,
    )


def unknown_node(node: int) -> str:
    """The text of the error."""
    return f"{LOGS} has node {node}, and {HEAD} has not"


def rows_of(batch: pa.RecordBatch, table: str) -> Iterator[Row]:
    """The rows, as tuples of the columns in the order of ``layout.TABLES``. Raises ``HistoryError``."""
    columns = [batch.column(name) for name in TABLES[table]]
    for name, column in zip(TABLES[table], columns, strict=True):
        if column.null_count and (table, name) not in MAY_BE_NULL:
            raise HistoryError(f"{table}: column {name} has nulls")
    lists = [column.to_pylist() for column in columns]
    if table == ATTEMPTS:
        processes, counters, outcomes = lists[0], lists[1], lists[5]
        if batch.num_rows:
            check_attempts(
                (min(processes), max(processes)),
                (min(counters), max(counters)),
                {*outcomes}.difference(OUTCOMES),
            )
    yield from zip(*lists, strict=True)


def check_attempts(processes: tuple[int, int], counters: tuple[int, int], unknown: Collection[str]) -> None:
    """Of attempts with processes and counters from the first to the second number. ``unknown``: outcomes that
    are none. Raises ``HistoryError``."""
    if unknown:
        raise HistoryError(f"{ATTEMPTS}: outcome {min(unknown)!r} is none of {', '.join(OUTCOMES)}")
    for name, (first, last), most in (
        ("process", processes, MOST_PROCESSES),
        ("counter", counters, MOST_COUNTERS),
    ):
        if first < 0 or last >= most:
            raise HistoryError(f"{ATTEMPTS}: {name} must be from 0 to {most - 1}")


def _rows(folder: Path, table: str) -> Iterator[Row]:
    import pyarrow.parquet as pq

    for path in table_files(folder, table):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_OF_BATCH, columns=list(TABLES[table])):
                yield from rows_of(batch, table)


def _write(folder: Path, table: str, rows: Iterable[Sequence[Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(table)
    folder.mkdir()
    with pq.ParquetWriter(folder / FILE, schema, compression="zstd") as writer:
        for some in _batches(rows):
            columns = zip(*some, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def _batches(rows: Iterable[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    some: list[Sequence[Any]] = []
    for row in rows:
        some.append(row)
        if len(some) == ROWS_OF_BATCH:
            yield some
            some = []
    if some:
        yield some
