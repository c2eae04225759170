"""What could not be judged, from files and from connections, as the table ``problems``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # as the style guide of PySpark writes it

from plumbline.captures.operations import UNKNOWN
from plumbline.pipeline.input.files import CaptureProblem
from plumbline.pipeline.rows import RowKind
from plumbline.pipeline.tables import PROBLEMS, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def problems_of_places(spark: SparkSession, problems: Sequence[CaptureProblem]) -> DataFrame:
    """Of folders and files that were not even opened."""
    rows = [(one.capture, one.kind, one.text, None, None, None, one.bytes) for one in problems]
    return spark.createDataFrame(rows, spark_schema(PROBLEMS))


def problems_of_files(staged: DataFrame) -> DataFrame:
    """Of files, as reading them told."""
    missing = F.lit(None).cast("bigint")
    return staged.where(F.col("row_kind") == F.lit(str(RowKind.PROBLEM))).select(
        "capture",
        F.col("description").alias("kind"),
        "text",
        missing.alias("connection"),
        missing.alias("frame"),
        missing.alias("time_ns"),
        F.col("size").alias("bytes"),
    )


def problems_of_connections(operations: DataFrame) -> DataFrame:
    """Holes, bytes that are not the protocol, and connections of no known protocol."""
    text = F.col("text")
    kind = (
        F.when(F.col("op") == "lost", "hole")
        .when(text == UNKNOWN, "unknown-protocol")
        .otherwise("undecodable")
    )
    where = F.format_string(
        "connection %d, %s to %s, packet %d: %s", "connection", "client", "server", "frame", text
    )
    size = F.when(F.col("op") == "lost", F.regexp_extract(text, r"^(\d+) bytes", 1).cast("bigint"))
    return operations.where(F.col("op").isin("lost", "undecodable") & (F.col("number") == 0)).select(
        "capture",
        kind.alias("kind"),
        where.alias("text"),
        "connection",
        "frame",
        "time_ns",
        size.alias("bytes"),
    )
