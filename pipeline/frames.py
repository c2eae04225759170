"""Rows as both engines have them: a DataFrame of Spark, or an ``ArrowFrame`` of the local engine.

Derived tables and statistics are defined once, with the methods of ``Frame`` and the functions that
``functions_of`` gives. An ``ArrowFrame`` has the methods of a DataFrame that these definitions use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from typing import Self

    from plumbline.pipeline.tables import Table

_R_co = TypeVar("_R_co", covariant=True)


class FrameGroups(Protocol[_R_co]):
    """Rows of a frame with the same keys."""

    def agg(self, *aggregates: Any) -> _R_co:
        """A row for each group."""


class Frame(Protocol):
    """Rows of a table. See PySpark's DataFrame."""

    def where(self, condition: Any, /) -> Self: ...
    def select(self, *columns: Any) -> Self: ...
    def withColumn(self, name: str, values: Any, /) -> Self: ...  # noqa: N802  # as in PySpark
    def withColumnRenamed(self, old: str, new: str, /) -> Self: ...  # noqa: N802  # as in PySpark
    def withColumnsRenamed(self, names: dict[str, str], /) -> Self: ...  # noqa: N802  # as in PySpark
    def drop(self, *names: Any) -> Self: ...
    def join(self, other: Any, on: Any, how: str, /) -> Self: ...
    def groupBy(self, *keys: Any) -> FrameGroups[Self]: ...  # noqa: N802  # as in PySpark
    def agg(self, *aggregates: Any) -> Self: ...
    def orderBy(self, *order: Any) -> Self: ...  # noqa: N802  # as in PySpark
    def limit(self, most: int, /) -> Self: ...
    def unionByName(self, other: Any, /) -> Self: ...  # noqa: N802  # as in PySpark
    def collect(self) -> list[Any]: ...
    @property
    def columns(self) -> list[str]: ...


AnyFrame = TypeVar("AnyFrame", bound=Frame)


def functions_of(frame: Frame) -> Any:
    """The functions for its columns: ``pyspark.sql.functions``, or those of the local engine."""
    if _is_local(frame):
        from plumbline.pipeline.local import functions

        return functions
    from pyspark.sql import functions as spark_functions

    return spark_functions


def records(frame: Frame) -> list[Mapping[str, Any]]:
    """All rows, each by the names of its columns."""
    if _is_local(frame):
        return frame.collect()
    return [row.asDict() for row in frame.collect()]


def rows_beside(frame: AnyFrame, table: Table, rows: Sequence[Mapping[str, Any]]) -> AnyFrame:
    """Those rows as a frame of the same engine. What a row does not have is null."""
    beside: Any = frame
    if _is_local(frame):
        from plumbline.pipeline.local.frame import ArrowFrame

        beside = ArrowFrame.of_rows(table, rows)
    else:
        from plumbline.pipeline.tables import spark_schema

        values = [tuple(row.get(name) for name in table.names) for row in rows]
        beside = beside.sparkSession.createDataFrame(values, spark_schema(table))
    made: AnyFrame = beside
    return made


def first_of_each(frame: AnyFrame, by: str, order: Sequence[Any], most: int) -> AnyFrame:
    """The first rows of each value of ``by``, by that order."""
    rows: Any = frame
    if _is_local(frame):
        first: AnyFrame = rows.first_of_each(by, order, most)
        return first
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812  # as the style guide of PySpark writes it

    place = F.row_number().over(Window.partitionBy(by).orderBy(*order))
    numbered = rows.withColumn("place", place).where(F.col("place") <= most)
    spark_first: AnyFrame = numbered.orderBy(by, "place").drop("place")
    return spark_first


def _is_local(frame: object) -> bool:
    """Without an import of PyArrow for Spark's, or of PySpark for the local engine's."""
    return type(frame).__name__ == "ArrowFrame"
