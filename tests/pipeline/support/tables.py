"""Rows of the pipeline's tables, written down by the columns that matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from plumbline.pipeline.tables import Table, spark_schema


def rows_of(spark: SparkSession, table: Table, *rows: Mapping[str, Any]) -> DataFrame:
    """What is not given is null. Raises ``KeyError`` for a column that the table does not have."""
    for row in rows:
        for name in row:
            if name not in table.names:
                raise KeyError(name)
    values = [tuple(row.get(name) for name in table.names) for row in rows]
    return spark.createDataFrame(values, spark_schema(table))


def found(rows: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Those columns, as tuples, in their order."""
    return [tuple(row) for row in rows.select(*columns).collect()]
