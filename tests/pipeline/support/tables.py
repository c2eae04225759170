"""Rows of the pipeline's tables, written down by the columns that matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from plumbline.pipeline.frames import Frame
from plumbline.pipeline.local.frame import ArrowFrame
from plumbline.pipeline.tables import Table, spark_schema

RowsEngine = SparkSession | None  # None: the local engine


def rows_of(engine: RowsEngine, table: Table, *rows: Mapping[str, Any]) -> Frame:
    """What is not given is null. Raises ``KeyError`` for a column that the table does not have."""
    for row in rows:
        for name in row:
            if name not in table.names:
                raise KeyError(name)
    if engine is None:
        frame: Frame = ArrowFrame.of_rows(table, rows)
        return frame
    values = [tuple(row.get(name) for name in table.names) for row in rows]
    return engine.createDataFrame(values, spark_schema(table))


def found(rows: Frame, *columns: str) -> list[tuple[Any, ...]]:
    """Those columns, as tuples, in their order."""
    return [tuple(row[name] for name in columns) for row in rows.select(*columns).collect()]
