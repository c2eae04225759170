"""Finds with Spark what may break a rule in a history of any size; the judge then judges only that.

    attempts, logs, reads --Spark--> suspects: a small history --cluster.nats.judging--> findings

No rule stands here. A message is unsuspicious if nothing about it can be a finding: it has one sequence in
all its acknowledgements and on every node, no other message is there, and no acknowledgement that came before
it was sent has a higher sequence. All other messages, everything at their sequences, and what the judge needs
to describe them (the higher acknowledgement, the ends of what each process has) are suspects. So the judge
gives the same findings for them as for the whole history.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812  # as the style guide of PySpark writes it

from plumbline.bounds import HISTORY_SUSPECTS
from plumbline.cluster.history import AttemptOutcome
from plumbline.cluster.judging import Unsuspected
from plumbline.cluster.nats.history import ClusterHistory
from plumbline.cluster.nats.history_files.files import (
    Row,
    check_attempts,
    history_of,
    rows_of,
    unknown_node,
)
from plumbline.cluster.nats.history_files.layout import (
    ATTEMPTS,
    LOGS,
    MAY_BE_NULL,
    MOST_COUNTERS,
    MOST_PROCESSES,
    OUTCOMES,
    READS,
    TABLES,
    HistoryError,
    HistoryHead,
    table_files,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

EVENTS_OF_SLICE = 500_000  # of time, in which the order is looked at by one task
_FOREIGN = -1  # ids of what is no message of a process are negative
_OK, _INDETERMINATE, _FAILED = 0, 1, 2  # the best outcome of a message's attempts
_RANKS = {
    AttemptOutcome.OK: _OK,
    AttemptOutcome.INDETERMINATE: _INDETERMINATE,
    AttemptOutcome.FAILED: _FAILED,
}
_SPARK_TYPES = {"int64": "bigint", "int32": "int", "bool": "boolean", "string": "string"}


class Suspects(Struct, frozen=True):
    """``history`` has only suspects. ``left_out``: suspects that are too many to be judged."""

    history: ClusterHistory
    others: Unsuspected
    left_out: int = 0


def find_suspects(
    spark: SparkSession, folder: Path, head: HistoryHead, scratch: Path, on_step: Callable[[str], None]
) -> Suspects:
    """``scratch``: a folder for tables in between. Raises ``HistoryError``."""
    return _Finder(spark, folder, head, scratch, on_step).find()


class _Finder:
    """One history."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        head: HistoryHead,
        scratch: Path,
        on_step: Callable[[str], None],
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._head = head
        self._scratch = scratch
        self._on_step = on_step
        self._nodes = len(head.complete_nodes)
        self._attempts = self._table(ATTEMPTS).withColumn("id", _id(F.col("process"), F.col("counter")))
        self._logs = self._table(LOGS).withColumn("id", _id_of_text(F.col("message")))
        self._reads = self._table(READS)

    def find(self) -> Suspects:
        self._on_step("checking the tables")
        self._check()
        self._on_step("comparing the copies of every sequence")
        sequences = self._stored("sequences", self._sequences())
        self._on_step("comparing the sequences of every message")
        messages = self._stored("messages", self._messages(sequences))
        self._on_step("comparing the order of acknowledgements")
        suspicious = messages.where("is_suspicious").select("id")
        early, more = self._out_of_order(messages)
        ids = {row.id for row in suspicious.limit(HISTORY_SUSPECTS).collect()} | early | self._ends(messages)
        self._on_step(f"reading {len(ids)} suspects")
        at = {row.sequence for row in sequences.where("is_suspicious").limit(HISTORY_SUSPECTS).collect()}
        history, ids = self._extract(ids, at)
        judged = self._flagged(ids, "id", "is_judged")
        left_out = suspicious.union(more).distinct().join(judged, "id", "left_anti").count()
        others = self._count_others(messages, ids, self._reads.count() - len(history.reads))
        return Suspects(history, others, left_out)

    # -- tables ------------------------------------------------------------------------------

    def _table(self, name: str) -> DataFrame:
        columns = ", ".join(f"{column} {_SPARK_TYPES[kind]}" for column, kind in TABLES[name].items())
        files = [str(file) for file in table_files(self._folder, name)]
        if not files:
            return self._spark.createDataFrame([], columns)
        return self._spark.read.schema(columns).parquet(*files)

    def _stored(self, name: str, rows: DataFrame) -> DataFrame:
        place = str(self._scratch / name)
        rows.write.parquet(place)
        return self._spark.read.schema(rows.schema).parquet(place)

    def _check(self) -> None:
        """What ``files.rows_of`` checks. Raises ``HistoryError``."""
        for name, rows in ((ATTEMPTS, self._attempts), (LOGS, self._logs), (READS, self._reads)):
            required = [column for column in TABLES[name] if (name, column) not in MAY_BE_NULL]
            nulls = _totals(rows, *(F.count_if(F.col(column).isNull()) for column in required))
            for column, number in zip(required, nulls, strict=True):
                if number:
                    raise HistoryError(f"{name}: column {column} has nulls")
        unknown = self._logs.where(~F.col("node").isin(*(one.node for one in self._head.nodes))).first()
        if unknown is not None:
            raise HistoryError(unknown_node(unknown.node))
        first, last, lowest, highest, outcomes = _totals(
            self._attempts, F.min("process"), F.max("process"), F.min("counter"), F.max("counter"),
            F.collect_set(F.when(~F.col("outcome").isin(*OUTCOMES), F.col("outcome"))),
        )  # fmt: skip
        check_attempts((first or 0, last or 0), (lowest or 0, highest or 0), outcomes)

    # -- what may break a rule ---------------------------------------------------------------

    def _sequences(self) -> DataFrame:
        """Each sequence with the least and the greatest id that anything has there, the number of complete
        copies that have it, and of all."""
        is_complete = F.col("node").isin(*self._head.complete_nodes).cast("int")
        acknowledged = self._attempts.where(_is_ok()).select("sequence", "id", *_numbers(0, 0))
        stored = self._logs.select("sequence", "id", is_complete.alias("complete"), *_numbers(copies=1))
        found = F.when(F.col("found").isNull(), F.lit(_FOREIGN)).otherwise(_id_of_text(F.col("found")))
        read = self._reads.select(F.col("asked").alias("sequence"), found.alias("id"), *_numbers(0, 0))
        return (
            acknowledged.unionByName(stored)
            .unionByName(read)
            .groupBy("sequence")
            .agg(
                F.min("id").alias("first"),
                F.max("id").alias("last"),
                F.sum("complete").alias("complete"),
                F.sum("copies").alias("copies"),
            )
            .withColumn(
                "is_suspicious",
                (F.col("first") < 0) | (F.col("first") != F.col("last")) | (F.col("complete") != self._nodes),
            )
        )

    def _messages(self, sequences: DataFrame) -> DataFrame:
        """Each message: its attempts, its acknowledgements, and its copies."""
        rank = F.create_map(*(F.lit(word) for pair in _RANKS.items() for word in pair))[F.col("outcome")]
        when_ok = {name: F.when(_is_ok(), F.col(name)) for name in ("sequence", "completed")}
        attempts = self._attempts.select(
            "id", "invoked", rank.alias("outcome"), when_ok["completed"].alias("completed"),
            when_ok["sequence"].alias("acknowledged"), when_ok["sequence"].alias("sequence"),
            F.lit(1).alias("attempts"), F.lit(False).alias("touched"), *_numbers(0, 0),
        )  # fmt: skip
        at = F.explode(F.array_distinct(F.array("first", "last"))).alias("id")
        placed = sequences.where("copies > 0 OR is_suspicious").select(
            at, "sequence", F.col("is_suspicious").alias("touched"), "complete", "copies"
        )
        least = ("invoked", "outcome", "completed", "acknowledged")
        copies, complete, outcome = F.col("copies"), F.col("complete"), F.col("outcome")
        is_suspicious = (
            (F.col("id") < 0)
            | F.col("touched")
            | (F.col("sequence") != F.col("last_sequence"))
            | outcome.isNull()
            | ((outcome == _OK) & ((complete != self._nodes) | (copies == 0)))
            | ((outcome == _INDETERMINATE) & ~complete.isin(0, self._nodes))
            | ((outcome == _FAILED) & (copies > 0))
        )
        return (
            attempts.unionByName(placed, allowMissingColumns=True)
            .groupBy("id")
            .agg(
                *(F.min(name).alias(name) for name in least),
                F.min("sequence").alias("sequence"),
                F.max("sequence").alias("last_sequence"),
                F.sum("attempts").alias("attempts"),
                F.sum("complete").alias("complete"),
                F.sum("copies").alias("copies"),
                F.max("touched").alias("touched"),
            )
            .withColumn("is_suspicious", F.coalesce(is_suspicious, F.lit(False)))
        )

    def _out_of_order(self, messages: DataFrame) -> tuple[set[int], DataFrame]:
        """Messages with a lower sequence than one that was acknowledged before they were sent, and those; and
        the ids of all if that are too many to be judged."""
        none = self._spark.createDataFrame([], "id bigint")
        placed = messages.where("acknowledged IS NOT NULL")
        count, begin, end = _totals(placed, F.count("*"), F.min("invoked"), F.max("invoked"))
        if not count:
            return set(), none
        slices = 2 * count // EVENTS_OF_SLICE + 1
        width = max((end - begin) // slices + 1, 1)

        def slice_of(at: str) -> Column:
            whole = F.expr(f"({at} - {begin}) div {width}")
            return F.greatest(F.least(whole, F.lit(slices)), F.lit(0)).cast("int").alias("slice")

        completed = placed.select(
            slice_of("completed"), F.col("completed").alias("at"), F.lit(1).alias("turn"),
            F.col("acknowledged").alias("known"), F.lit(None).cast("bigint").alias("id"),
            F.lit(None).cast("bigint").alias("acknowledged"),
        )  # fmt: skip
        invoked = placed.select(
            slice_of("invoked"), F.col("invoked").alias("at"), F.lit(0).alias("turn"),
            F.lit(None).cast("bigint").alias("known"), "id", "acknowledged",
        )  # fmt: skip
        highest: dict[int, int] = dict(completed.groupBy("slice").agg(F.max("known")).collect())
        earlier = list(_highest_before(highest, slices))
        before = self._spark.createDataFrame(earlier, "slice int, before bigint")
        until_now = (
            Window.partitionBy("slice").orderBy("at", "turn").rowsBetween(Window.unboundedPreceding, 0)
        )
        found = (
            completed.unionByName(invoked)
            .withColumn("known", F.max("known").over(until_now))
            .where("id IS NOT NULL")
            .join(F.broadcast(before), "slice")
            .withColumn("known", F.greatest("known", "before"))
            .where("acknowledged < known")
            .select("id", "known")
        )
        early = found.limit(HISTORY_SUSPECTS).collect()
        if not early:
            return set(), none
        more = found.select("id") if len(early) == HISTORY_SUSPECTS else none
        known = self._spark.createDataFrame([(row.known,) for row in early], "acknowledged bigint").distinct()
        holders = placed.join(F.broadcast(known), "acknowledged", "left_semi").select("id").collect()
        return {row.id for row in (*early, *holders)}, more

    def _ends(self, messages: DataFrame) -> set[int]:
        """The first and the last message of each process that is stored: they say where a loss is."""
        ends = (
            messages.where("id >= 0 AND attempts > 0 AND copies > 0")
            .groupBy(F.shiftright("id", MOST_COUNTERS.bit_length() - 1))
            .agg(F.min("id").alias("first"), F.max("id").alias("last"))
            .collect()
        )
        return {number for row in ends for number in (row.first, row["last"])}

    # -- suspects ----------------------------------------------------------------------------

    def _extract(self, ids: Collection[int], sequences: Collection[int]) -> tuple[ClusterHistory, set[int]]:
        """Everything about these messages and about everything at these sequences."""
        ids, sequences = set(ids), set(sequences)
        while True:
            of_ids = self._flagged(ids, "id", "of_id")
            at = self._flagged(sequences, "sequence", "at_sequence")
            logs = _matching(self._logs, of_ids, at).toArrow()
            attempts = _matching(self._attempts, of_ids, at, F.when(_is_ok(), F.col("sequence"))).toArrow()
            found_ids = {*logs.column("id").to_pylist(), *attempts.column("id").to_pylist()}
            found_at = set(logs.column("sequence").to_pylist())
            found_at |= {
                sequence
                for sequence, outcome in zip(
                    attempts.column("sequence").to_pylist(),
                    attempts.column("outcome").to_pylist(),
                    strict=True,
                )
                if outcome == AttemptOutcome.OK
            }
            if found_ids <= ids and found_at <= sequences:
                break
            ids, sequences = ids | found_ids, sequences | found_at
        reads = self._reads.join(F.broadcast(at.withColumnRenamed("sequence", "asked")), "asked", "left_semi")
        history = history_of(
            self._head,
            _rows(attempts, ATTEMPTS, "invoked", "process", "counter"),
            _rows(logs, LOGS, "node", "sequence"),
            _rows(reads.toArrow(), READS, "invoked"),
        )
        return history, ids

    def _flagged(self, numbers: Iterable[int], name: str, flag: str) -> DataFrame:
        rows = [(number, True) for number in numbers]
        return self._spark.createDataFrame(rows, f"{name} bigint, {flag} boolean")

    def _count_others(self, messages: DataFrame, ids: Collection[int], reads: int) -> Unsuspected:
        suspects = self._flagged(ids, "id", "is_suspect")
        others = messages.join(F.broadcast(suspects), "id", "left_anti").where("attempts > 0")
        outcome, is_stored = F.col("outcome"), F.col("copies") > 0
        attempts, *counts = _totals(
            others, F.sum("attempts"), F.count_if(outcome == _OK), F.count_if(outcome == _FAILED),
            F.count_if(outcome == _INDETERMINATE), F.count_if(is_stored),
            F.count_if((outcome == _INDETERMINATE) & is_stored),
        )  # fmt: skip
        return Unsuspected(*(attempts or 0, *counts, reads))


def _totals(rows: DataFrame, *columns: Column) -> tuple[Any, ...]:
    """Over all rows."""
    (row,) = rows.agg(*columns).collect()
    return tuple(row)


def _is_ok() -> Column:
    return F.col("outcome") == AttemptOutcome.OK.value


def _id(process: Column, counter: Column) -> Column:
    return process.cast("bigint") * MOST_COUNTERS + counter


def _id_of_text(text: Column) -> Column:
    """The id of ``3-17``. A text that names no message has a negative number."""
    process = F.substring_index(text, "-", 1).try_cast("int")
    counter = F.substring_index(text, "-", -1).try_cast("bigint")
    is_name = (
        (F.concat_ws("-", process, counter) == text)
        & process.between(0, MOST_PROCESSES - 1)
        & counter.between(0, MOST_COUNTERS - 1)
    )
    other = -F.xxhash64(text).bitwiseAND(F.lit((1 << 62) - 1)) - 1
    return F.when(F.coalesce(is_name, F.lit(False)), _id(process, counter)).otherwise(other)


def _numbers(complete: int | None = None, copies: int | None = None) -> list[Column]:
    """Constant columns."""
    given = {"complete": complete, "copies": copies}
    return [F.lit(number).alias(name) for name, number in given.items() if number is not None]


def _highest_before(highest: dict[int, int], slices: int) -> Iterator[tuple[int, int]]:
    """For each slice of time, the highest sequence that was acknowledged in earlier ones."""
    before = 0
    for number in range(slices + 1):
        yield number, before
        before = max(before, highest.get(number, 0))


def _matching(rows: DataFrame, of_ids: DataFrame, at: DataFrame, sequence: Column | None = None) -> DataFrame:
    """Rows of these ids, or at these sequences."""
    at_sequence = F.col("sequence") if sequence is None else sequence
    return (
        rows.withColumn("at", at_sequence)
        .join(F.broadcast(of_ids), "id", "left")
        .join(F.broadcast(at.withColumnRenamed("sequence", "at")), "at", "left")
        .where("of_id OR at_sequence")
        .drop("at", "of_id", "at_sequence")
    )


def _rows(table: pa.Table, name: str, *order: str) -> Iterator[Row]:
    for batch in table.sort_by([(column, "ascending") for column in order]).to_batches():
        yield from rows_of(batch, name)
