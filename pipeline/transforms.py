"""From packets to tables, each step a function from DataFrame to DataFrame, named for what it gives.

Batch and streaming share them. ``staged`` decodes, ``found_violations`` runs monitors, the others are SQL;
``answered`` has those from operations on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # as the style guide of PySpark writes it

from plumbline.captures.reassembly import ConnectionNumbers
from plumbline.pipeline.input.bundles import packet_rows
from plumbline.pipeline.judging.flows import FOR_VIOLATIONS, STAGED, Ending, decode
from plumbline.pipeline.judging.streams import FACT_COLUMNS, FOUND, FOUND_OR_STATE, judge_streams
from plumbline.pipeline.rows import RowKind
from plumbline.pipeline.tables import LONG, OPERATIONS, PACKETS, VIOLATIONS, Column, Table, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

_PLACES = 1 << 24
NUMBERS = Table(
    "numbers", "Connections.", (Column("connection", LONG, "provisional id"), Column("given", LONG, "number"))
)


def co_partitioned(rows: DataFrame, parts: int, key: SparkColumn) -> DataFrame:
    """Rows with the same ``key`` in one of so many parts, of which each gets less than the one before.

    Spark begins tasks in that order, so the last are short, and no core waits long for another: the shares
    are as 2 * parts - 1, ..., 5, 3, 1.
    """
    place = F.pmod(F.xxhash64(key), F.lit(_PLACES)) / F.lit(float(_PLACES))  # evenly spread, below 1
    return rows.repartitionById(parts, F.floor(parts * (1 - F.sqrt(1 - place))).cast("int"))


def flows(bundles: DataFrame, parts: int) -> DataFrame:
    """What passes between two ends together and in order, in so many parts."""
    return co_partitioned(bundles, parts, F.col("flow")).sortWithinPartitions("flow", "file", "frame")


def staged(
    bundles: DataFrame,
    parts: int,
    *,
    keeps_payloads: bool,
    ending: Ending = Ending.FINAL,
    state_key: bytes = b"",
) -> DataFrame:
    """Bundles to ``flows.STAGED``. ``state_key``: see ``states``."""
    function = partial(decode, keeps_payloads=keeps_payloads, ending=ending, state_key=state_key)
    return flows(bundles, parts).mapInArrow(function, spark_schema(STAGED))


def staged_for_violations(bundles: DataFrame, parts: int) -> DataFrame:
    """Bundles to ``flows.FOR_VIOLATIONS``: much less, where the operations are not needed."""
    function = partial(decode, keeps_payloads=False, table=FOR_VIOLATIONS)
    return flows(bundles, parts).mapInArrow(function, spark_schema(FOR_VIOLATIONS))


def found_violations(
    staged: DataFrame,
    parts: int,
    remembered: DataFrame | None = None,
    ending: Ending = Ending.FINAL,
    state_key: bytes = b"",
) -> DataFrame:
    """Staged operations to ``streams.FOUND_OR_STATE``: found on connections, and across them.

    ``remembered``: what ``found_violations`` gave for the batch before, where there is one.
    ``state_key``: see ``states``.
    """
    fact_rows = staged.where(_is(RowKind.FACTS) | F.col("broken").isNotNull()).select(*FACT_COLUMNS)
    if remembered is not None:
        fact_rows = fact_rows.unionByName(_as_facts(remembered), allowMissingColumns=True)
    whose = F.coalesce("key", F.col("connection").cast("string"))  # without a key: wherever
    ordered = co_partitioned(fact_rows, parts, whose).sortWithinPartitions("key", "file", "frame", "number")
    function = partial(judge_streams, ending=ending, state_key=state_key)
    return ordered.mapInArrow(function, spark_schema(FOUND_OR_STATE))


def _as_facts(found: DataFrame) -> DataFrame:
    """The monitors of each key, to stand before its facts."""
    return found.where(_is(RowKind.STATE)).select("row_kind", "key", "state")


def as_bundles(staged: DataFrame) -> DataFrame:
    """What is remembered of each flow, to stand before its packets."""
    return staged.where(_is(RowKind.STATE)).select("row_kind", "flow", "state")


def unbundled(bundles: DataFrame, *, with_payload: bool) -> DataFrame:
    """The packets of bundles, one a row."""
    table = PACKETS if with_payload else PACKETS.without("payload")
    return bundles.mapInArrow(partial(packet_rows, columns=table.names), spark_schema(table))


def connection_numbers(staged: DataFrame) -> DataFrame:
    """The number of each connection, as ``plumbline show`` gives it: counted on the driver, in order."""
    return connection_numbers_table(staged.sparkSession, new_connection_numbers(staged, ConnectionNumbers()))


def new_connection_numbers(staged: DataFrame, numbers: ConnectionNumbers) -> list[tuple[int, int]]:
    """Provisional id and number of each connection that begins here, ``numbers`` having been given before."""
    openings = staged.where(F.col("op") == "opened").select("connection", "recorded").orderBy("connection")
    return [(row.connection, numbers.give(row.recorded)) for row in openings.collect()]


def connection_numbers_table(spark: SparkSession, given: Sequence[tuple[int, int]]) -> DataFrame:
    """Numbers as a table to join with."""
    return spark.createDataFrame(given, spark_schema(NUMBERS))


def operations(staged: DataFrame, numbers: DataFrame) -> DataFrame:
    """Staged operations to the table, with numbers for ids."""
    decoded = staged.where(_is(RowKind.OPERATION))
    return _with_day(_given(decoded, numbers)).select(*OPERATIONS.names)


def violations(found: DataFrame, numbers: DataFrame) -> DataFrame:
    """Found violations to the table, with numbers for ids."""
    rest = [name for name in FOUND.names if name != "earlier"]
    earlier = found.where(_is(RowKind.VIOLATION)).select(
        *rest, F.posexplode_outer("earlier").alias("place", "earlier")
    )
    ids = numbers.select(F.col("connection").alias("id"), F.col("given").alias("earlier_given"))
    place = F.struct(
        F.col("place"),
        F.col("earlier_given").alias("connection"),
        F.col("earlier.number"),
        F.col("earlier.time_ns"),
        F.col("earlier.text"),
    )
    gathered = (
        earlier.join(ids, F.col("earlier.connection") == F.col("id"), how="left")
        .groupBy(*rest)
        .agg(F.sort_array(F.collect_list(F.when(F.col("place").isNotNull(), place))).alias("places"))
        .withColumn("earlier", F.transform("places", lambda one: one.dropFields("place")))
    )
    return _with_day(_given(gathered, numbers)).select(*VIOLATIONS.names, "file", "rank")


def packets_table(packets: DataFrame) -> DataFrame:
    """Packets to the table, whether they were read with their payloads or without."""
    payload = F.col("payload") if "payload" in packets.columns else F.lit(None).cast("binary")
    return packets.withColumn("payload", payload).select(*PACKETS.names)


def _is(kind: RowKind) -> SparkColumn:
    return F.col("row_kind") == F.lit(str(kind))


def _with_day(rows: DataFrame) -> DataFrame:
    return rows.withColumn("day", F.to_date("time"))


def _given(rows: DataFrame, numbers: DataFrame) -> DataFrame:
    return rows.join(numbers, "connection", how="left").withColumn("connection", F.col("given")).drop("given")
