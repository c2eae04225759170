"""The folder of a history: ``history.json``, and a folder of Parquet files for each table.

``attempts``: one row for each publish; ``logs``: one row for each message on each node, when all has ended;
``reads``: one row for each answered read from the leader. Times are ns of one clock that never goes back. No
cell is null, except ``found`` of a read that found no message.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from plumbline.cluster.history import AttemptOutcome
from plumbline.errors import PlumblineError
from plumbline.untrusted import BadInputError, parse_json, read_file

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "plumbline.cluster-history/1"
HEAD = "history.json"
ATTEMPTS, LOGS, READS = "attempts", "logs", "reads"
LONG, INT, BOOL, TEXT = "int64", "int32", "bool", "string"
MOST_PROCESSES, MOST_COUNTERS = 1 << 22, 1 << 40  # numbers below these
TABLES: dict[str, dict[str, str]] = {
    ATTEMPTS: {
        "process": INT, "counter": LONG, "node": INT, "invoked": LONG, "completed": LONG, "outcome": TEXT,
        "sequence": LONG, "duplicate": BOOL, "error": TEXT, "connection": INT,
    },
    LOGS: {"node": INT, "sequence": LONG, "message": TEXT},
    READS: {"invoked": LONG, "completed": LONG, "node": INT, "asked": LONG, "found": TEXT},
}  # fmt: skip
MAY_BE_NULL = frozenset({(READS, "found")})
OUTCOMES = tuple(outcome.value for outcome in AttemptOutcome)
PYARROW_MISSING = "histories are Parquet files, which need PyArrow: pip install 'plumbline-mq[judge]'"


class HistoryError(PlumblineError):
    """A folder is no history, or its files are not as ``layout`` describes them."""


class ReadNode(Struct, frozen=True, forbid_unknown_fields=True):
    """A node that was read. ``complete``: every message of it; ``problem`` says why not."""

    node: int
    complete: bool = True
    problem: str = ""


class HistoryHead(Struct, frozen=True, forbid_unknown_fields=True):
    """``history.json``. ``is_whole``: every node was up to date in time; ``problem``: what was missing."""

    schema: str
    nodes: tuple[ReadNode, ...]
    server: str = ""
    version: str = ""
    stream_exists: bool = True
    is_whole: bool = True
    problem: str = ""

    @property
    def complete_nodes(self) -> tuple[int, ...]:
        """The nodes of which every message was read."""
        return tuple(one.node for one in self.nodes if one.complete)


def read_head(folder: Path) -> HistoryHead:
    """Raises ``HistoryError``, also if a file of a table is not as it has to be."""
    try:
        head = parse_json(read_file(folder / HEAD), HistoryHead)
    except OSError as problem:
        raise HistoryError(f"{folder} is no history: {HEAD}: {problem.strerror}") from None
    except BadInputError as problem:
        raise HistoryError(f"{folder / HEAD}: {problem}") from None
    if head.schema != SCHEMA:
        raise HistoryError(f"{folder / HEAD}: schema {head.schema!r} is not known: {SCHEMA} is")
    if len({one.node for one in head.nodes}) < len(head.nodes):
        raise HistoryError(f"{folder / HEAD}: a node is there twice")
    for table in TABLES:
        for file in table_files(folder, table):
            _check(file, table)
    return head


def table_files(folder: Path, table: str) -> list[Path]:
    """The files of a table, in the order of their names."""
    return sorted((folder / table).glob("*.parquet"))


def count_rows(folder: Path, table: str) -> int:
    """As the files of the table state it."""
    pq = _parquet()
    return sum(pq.read_metadata(file).num_rows for file in table_files(folder, table))


def arrow_schema(table: str) -> pa.Schema:
    """Of the files of a table."""
    pa = _pyarrow()
    return pa.schema(
        [
            pa.field(name, getattr(pa, "bool_" if kind == BOOL else kind)(), (table, name) in MAY_BE_NULL)
            for name, kind in TABLES[table].items()
        ]
    )


def _check(file: Path, table: str) -> None:
    """Names and types of the columns. Raises ``HistoryError``."""
    where = f"{file.parent.name}/{file.name}"
    pa, pq = _pyarrow(), _parquet()
    try:
        found = pq.read_schema(file)
    except (OSError, pa.ArrowException) as problem:
        raise HistoryError(f"{where} is no Parquet file: {str(problem).splitlines()[0]}") from None
    for field in arrow_schema(table):
        at = found.get_field_index(field.name)
        if at < 0:
            raise HistoryError(f"{where} has no column {field.name}")
        kind = found.field(at).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if kind != field.type:
            raise HistoryError(f"{where}: column {field.name} is {kind}, and must be {field.type}")


def _pyarrow() -> pa:
    try:
        import pyarrow
    except ImportError:
        raise HistoryError(PYARROW_MISSING) from None
    return pyarrow


def _parquet() -> pa.parquet:
    _pyarrow()
    import pyarrow.parquet

    return pyarrow.parquet
