"""What could not be judged, from files and from connections, as the table ``problems``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import structs

from plumbline.captures.operations import UNKNOWN
from plumbline.pipeline.frames import AnyFrame, functions_of
from plumbline.pipeline.input.files import CaptureProblem
from plumbline.pipeline.rows import RowKind, without_surrogates
from plumbline.pipeline.tables import PROBLEMS, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def problems_of_places(spark: SparkSession, problems: Sequence[CaptureProblem]) -> DataFrame:
    """Of folders and files that were not even opened."""
    rows = [tuple(row.get(name) for name in PROBLEMS.names) for row in rows_of_problems(problems)]
    return spark.createDataFrame(rows, spark_schema(PROBLEMS))


def rows_of_problems(problems: Sequence[CaptureProblem]) -> list[dict[str, Any]]:
    """Rows of the table, of files and folders."""
    return [
        {name: without_surrogates(value) for name, value in structs.asdict(problem).items()}
        for problem in problems
    ]


def problems_of_files(staged: DataFrame) -> DataFrame:
    """Of files, found while they were read."""
    from pyspark.sql import functions as F  # noqa: N812  # as the style guide of PySpark writes it

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


def problems_of_connections(operations: AnyFrame) -> AnyFrame:
    """Holes, bytes that are not the protocol, and connections of no known protocol."""
    F = functions_of(operations)  # noqa: N806  # as the style guide of PySpark writes it
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
