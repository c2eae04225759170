"""From packets to tables, each step a function from DataFrame to DataFrame, named for what it gives.

Batch and streaming share them. ``staged`` decodes, ``found`` runs monitors, the others are SQL; ``answered``
has those from operations on.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # as the style guide of PySpark writes it

from pipeline.flows import FOR_VIOLATIONS, PACKET_COLUMNS, STAGED, decode
from pipeline.packets import PROBLEM
from pipeline.streams import FACT_COLUMNS, FOUND, SHARED, judge_streams, local_violations
from pipeline.tables import (
    LONG,
    OPERATIONS,
    PACKETS,
    VIOLATIONS,
    Column,
    Table,
    spark_schema,
)
from proxy.reassembly import Numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NUMBERS = Table(
    "numbers", "Connections.", (Column("connection", LONG, "provisional id"), Column("given", LONG, "number"))
)


def flows(packets: DataFrame, parts: int) -> DataFrame:
    """Packets between two ends together and in order, in so many parts; no rows that tell problems."""
    ends = F.least("source", "target"), F.greatest("source", "target")
    return (
        packets.withColumn("flow", F.xxhash64(*ends))
        .select(*PACKET_COLUMNS)
        .repartition(parts, "flow")
        .sortWithinPartitions("flow", "file", "frame")
    )


def staged(packets: DataFrame, parts: int, *, keeps_payloads: bool) -> DataFrame:
    """Packets to ``flows.STAGED``."""
    function = partial(decode, keeps_payloads=keeps_payloads)
    return flows(packets, parts).mapInArrow(function, spark_schema(STAGED))


def staged_for_violations(packets: DataFrame, parts: int) -> DataFrame:
    """Packets to ``flows.FOR_VIOLATIONS``: much less, where nobody wants the operations."""
    function = partial(decode, keeps_payloads=False, table=FOR_VIOLATIONS)
    return flows(packets, parts).mapInArrow(function, spark_schema(FOR_VIOLATIONS))


def found(staged: DataFrame, parts: int) -> DataFrame:
    """Staged operations to ``streams.FOUND``: what was found on connections, and what goes across them."""
    local = staged.where(F.col("broken").isNotNull()).select(*SHARED, "broken")
    across = (
        staged.where(F.col("facts").isNotNull())
        .select(*FACT_COLUMNS)
        .repartition(parts, "key")
        .sortWithinPartitions("key", "file", "frame", "number")
    )
    schema = spark_schema(FOUND)
    return local.mapInArrow(local_violations, schema).unionByName(across.mapInArrow(judge_streams, schema))


def numbers(staged: DataFrame) -> DataFrame:
    """The number of each connection, as ``plumbline show`` gives it: counted on the driver, in order."""
    openings = staged.where(F.col("op") == "opened").select("connection", "recorded").orderBy("connection")
    given = list(_numbered(openings))
    return openings.sparkSession.createDataFrame(given, spark_schema(NUMBERS))


def _numbered(openings: DataFrame) -> Iterator[tuple[int, int]]:
    numbers = Numbers()
    for connection, recorded in openings.toLocalIterator():
        yield connection, numbers.give(recorded)


def operations(staged: DataFrame, numbers: DataFrame) -> DataFrame:
    """Staged operations to the table, with numbers for ids."""
    decoded = staged.where(F.col("op") != PROBLEM)
    return _with_day(_given(decoded, numbers)).select(*OPERATIONS.names)


def violations(found: DataFrame, numbers: DataFrame) -> DataFrame:
    """Found violations to the table, with numbers for ids."""
    rest = [name for name in FOUND.names if name != "earlier"]
    earlier = found.select(*rest, F.posexplode_outer("earlier").alias("place", "earlier"))
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
    """Packets without the rows that tell problems."""
    payload = F.col("payload") if "payload" in packets.columns else F.lit(None).cast("binary")
    return packets.where(F.col("source").isNotNull()).withColumn("payload", payload).select(*PACKETS.names)


def _with_day(rows: DataFrame) -> DataFrame:
    return rows.withColumn("day", F.to_date("time"))


def _given(rows: DataFrame, numbers: DataFrame) -> DataFrame:
    return rows.join(numbers, "connection", how="left").withColumn("connection", F.col("given")).drop("given")
