"""A table of PyArrow with the methods of Spark's DataFrame that the pipeline's definitions use.

So each derived table and each statistic is defined once: see ``frames``. Columns are read and computed when
somebody asks for them, so a filter over fifty columns costs what its condition costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from plumbline.pipeline.local.functions import Aggregate, Descending, Exploded, Values, as_values, col
from plumbline.pipeline.tables import Table, arrow_schema

_GROUP, _VALUE, _PLACE = "group", "value", "place"
_LEFT, _RIGHT = "left row", "right row"
_Order = str | Values | Descending


class _Lazy:
    """A column that is made once, when it is asked for."""

    __slots__ = ("_array", "_make")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make: Callable[[], Any] | None = make
        self._array: Any = None

    def __call__(self) -> Any:
        if self._make is not None:
            self._array, self._make = self._make(), None
        return self._array


class ArrowFrame:
    """Rows that many, by columns. A column is a function that gives its array."""

    def __init__(self, columns: Mapping[str, Callable[[], Any]], rows: int) -> None:
        self._columns = {name: one if isinstance(one, _Lazy) else _Lazy(one) for name, one in columns.items()}
        self._rows = rows

    @classmethod
    def of_table(cls, table: pa.Table) -> ArrowFrame:
        """All of a table of Arrow."""

        def reader(name: str) -> Callable[[], Any]:
            return lambda: _contiguous(table.column(name))

        return cls({name: reader(name) for name in table.column_names}, table.num_rows)

    @classmethod
    def of_rows(cls, table: Table, rows: Sequence[Mapping[str, Any]]) -> ArrowFrame:
        """What a row does not have is null."""
        schema = arrow_schema(table)
        arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
        return cls.of_table(pa.Table.from_arrays(arrays, schema=schema))

    # -- reading --

    @property
    def columns(self) -> list[str]:
        """Their names."""
        return list(self._columns)

    def column(self, name: str) -> Any:
        """The array of a column. Raises ``KeyError``."""
        return self._columns[name]()

    def count(self) -> int:
        """How many rows there are."""
        return self._rows

    def table(self) -> pa.Table:
        """All columns."""
        return pa.Table.from_pydict({name: column() for name, column in self._columns.items()})

    def collect(self) -> list[dict[str, Any]]:
        """The rows, each by its columns' names."""
        names = self.columns
        values = [self.column(name).to_pylist() for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]

    # -- rows --

    def where(self, condition: Values) -> ArrowFrame:
        """Where it is true, and neither false nor null."""
        holds = pc.fill_null(self._evaluated(condition), False)
        return self._taken(pc.indices_nonzero(holds))

    def limit(self, most: int) -> ArrowFrame:
        """The first of them."""
        return self if self._rows <= most else self._taken(pa.array(range(most), pa.int64()))

    def orderBy(self, *order: _Order) -> ArrowFrame:  # noqa: N802  # as in PySpark
        """Nulls first; last where the order is descending."""
        return self._taken(self._sorted(order))

    def first_of_each(self, by: str, order: Sequence[_Order], most: int) -> ArrowFrame:
        """The first rows of each value of ``by``, in that order."""
        ordered = self.orderBy(by, *order)
        kept: list[int] = []
        before, place = object(), 0
        for row, value in enumerate(ordered.column(by).to_pylist()):
            place = place + 1 if value == before else 0
            before = value
            if place < most:
                kept.append(row)
        return ordered._taken(pa.array(kept, pa.int64()))

    def unionByName(self, other: ArrowFrame) -> ArrowFrame:  # noqa: N802  # as in PySpark
        """The rows of both, which have the same columns."""

        def both(name: str) -> Callable[[], Any]:
            return lambda: pa.concat_arrays([self.column(name), other.column(name)])

        return ArrowFrame({name: both(name) for name in self._columns}, self._rows + other._rows)

    def join(self, other: ArrowFrame, on: Sequence[str], how: str = "inner") -> ArrowFrame:
        """Rows with the same values in the columns ``on``. ``left``: all of these."""
        kinds = {"inner": "inner", "left": "left outer"}
        keys = list(on)
        left = self.select(*keys).table().append_column(_LEFT, _numbers(self._rows))
        right = other.select(*keys).table().append_column(_RIGHT, _numbers(other._rows))
        places = left.join(right, keys, join_type=kinds[how]).sort_by(_LEFT)
        mine = self._taken(_contiguous(places[_LEFT]))
        others = other._taken(_contiguous(places[_RIGHT]))
        more = {name: column for name, column in others._columns.items() if name not in keys}
        return ArrowFrame({**mine._columns, **more}, mine._rows)

    # -- columns --

    def select(self, *wanted: str | Values | Exploded) -> ArrowFrame:
        """Those columns; one of them may be exploded."""
        columns = [col(one) if isinstance(one, str) else one for one in wanted]
        lists = [one for one in columns if isinstance(one, Exploded)]
        if not lists:
            return ArrowFrame(
                {one.name: self._maker(one) for one in columns if isinstance(one, Values)}, self._rows
            )
        (exploded,) = lists
        values = self._evaluated(exploded.lists)
        flat = pc.list_flatten(values)
        frame = self._taken(pc.list_parent_indices(values))
        made = {
            one.name: frame._maker(one) if isinstance(one, Values) else _Lazy(lambda: flat) for one in columns
        }
        return ArrowFrame(made, frame._rows)

    def withColumn(self, name: str, values: Values) -> ArrowFrame:  # noqa: N802  # as in PySpark
        """With one more column, or one replaced."""
        return ArrowFrame({**self._columns, name: self._maker(values)}, self._rows)

    def withColumnsRenamed(self, names: Mapping[str, str]) -> ArrowFrame:  # noqa: N802  # as in PySpark
        """Old name to new name."""
        return ArrowFrame({names.get(name, name): one for name, one in self._columns.items()}, self._rows)

    def withColumnRenamed(self, old: str, new: str) -> ArrowFrame:  # noqa: N802  # as in PySpark
        """One of them."""
        return self.withColumnsRenamed({old: new})

    def drop(self, *names: str) -> ArrowFrame:
        """Without these columns."""
        return ArrowFrame({name: one for name, one in self._columns.items() if name not in names}, self._rows)

    # -- groups --

    def groupBy(self, *by: str | Values) -> ArrowGroups:  # noqa: N802  # as in PySpark
        """Rows with the same values, nulls among them, are one group."""
        keys = self.select(*by)
        return ArrowGroups(self, keys.columns, [keys.column(name) for name in keys.columns])

    def agg(self, *aggregates: Aggregate) -> ArrowFrame:
        """One row over all of these, also if there are none."""
        return ArrowGroups(self, [], []).agg(*aggregates)

    # -- inside --

    def _maker(self, values: Values) -> _Lazy:
        if values.source is not None:
            return self._columns[values.source]
        return _Lazy(lambda: self._evaluated(values))

    def _evaluated(self, values: Values) -> Any:
        value = values.evaluate(self)
        return pa.repeat(value, self._rows) if isinstance(value, pa.Scalar) else _contiguous(value)

    def _taken(self, indices: Any) -> ArrowFrame:
        def taker(column: Callable[[], Any]) -> Callable[[], Any]:
            return lambda: column().take(indices)

        return ArrowFrame({name: taker(one) for name, one in self._columns.items()}, len(indices))

    def _sorted(self, order: Sequence[_Order]) -> Any:
        keys: dict[str, tuple[Any, str]] = {}
        for place, one in enumerate(order):
            direction = "descending" if isinstance(one, Descending) else "ascending"
            values = self._evaluated(one.values if isinstance(one, Descending) else as_values(one))
            if values.null_count:
                keys[f"{place} is there"] = pc.is_valid(values), direction
            keys[f"{place}"] = values, direction
        table = pa.Table.from_pydict({name: values for name, (values, _) in keys.items()})
        return pc.sort_indices(table, sort_keys=[(name, direction) for name, (_, direction) in keys.items()])


class ArrowGroups:
    """Groups of rows: a number from 0 for each row, in the order in which groups are met."""

    def __init__(self, frame: ArrowFrame, names: Sequence[str], keys: Sequence[Any]) -> None:
        self._frame, self._names, self._keys = frame, names, keys
        self._numbers, self._groups = _numbered(keys, frame.count())

    def agg(self, *aggregates: Aggregate) -> ArrowFrame:
        """A row for each group: its keys, then the aggregates."""
        columns = dict(zip(self._names, map(self._key, self._keys), strict=True))
        columns |= {one.name: self._aggregate(one) for one in aggregates}
        return ArrowFrame(columns, self._groups)

    def _key(self, key: Any) -> _Lazy:
        return _Lazy(lambda: key.take(_grouped(self._numbers, _numbers(len(key)), "min")))

    def _aggregate(self, one: Aggregate) -> _Lazy:
        return _Lazy(lambda: _contiguous(self._aggregated(one)))

    def _aggregated(self, one: Aggregate) -> Any:
        if one.values is None:
            counted = pa.repeat(pa.scalar(1, pa.int64()), len(self._numbers))
            return pc.fill_null(self._by_group(counted, "sum"), 0)
        values = self._frame._evaluated(one.values)
        match one.kind:
            case "count_if":
                ones = pc.cast(pc.fill_null(values, False), pa.int64())
                return pc.fill_null(self._by_group(ones, "sum"), 0)
            case "count_distinct":
                return pc.fill_null(self._by_group(values, "count_distinct"), 0)
            case "collect_set":
                different = self._by_group(values, "distinct").to_pylist()
                texts = [sorted(value for value in row or () if value is not None) for row in different]
                return pa.array(texts, pa.list_(values.type))
            case "min_by":
                return self._min_by(values, self._frame._evaluated(one.argument))
            case "percentile":
                return self._percentile(values, one.argument)
        return self._by_group(values, one.kind)

    def _by_group(self, values: Any, function: str) -> Any:
        if not len(values):  # one group at most: that of all rows
            return pa.nulls(self._groups, pa.list_(values.type) if function == "distinct" else values.type)
        return _grouped(self._numbers, values, function)

    def _min_by(self, values: Any, order: Any) -> Any:
        table = pa.Table.from_pydict({_GROUP: self._numbers, _VALUE: order, _PLACE: _numbers(len(values))})
        first = table.sort_by([(_GROUP, "ascending"), (_VALUE, "ascending")])
        rows = _grouped(_contiguous(first[_GROUP]), _contiguous(first[_PLACE]), "first")
        return values.take(rows)

    def _percentile(self, values: Any, rank: float) -> Any:
        """The value below or at which that share of a group's values are; nulls are not counted."""
        table = pa.Table.from_pydict({_GROUP: self._numbers, _VALUE: values}).filter(pc.is_valid(values))
        ordered = _contiguous(table.sort_by([(_GROUP, "ascending"), (_VALUE, "ascending")])[_VALUE])
        counted = pc.value_counts(table[_GROUP])
        counts = dict(zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True))
        places: list[int | None] = []
        start = 0
        for group in range(self._groups):
            size = counts.get(group, 0)
            places.append(start + max(math.ceil(rank * size), 1) - 1 if size else None)
            start += size
        return ordered.take(pa.array(places, pa.int64()))


def _grouped(groups: Any, values: Any, function: str) -> Any:
    """By group, in the order of their numbers."""
    table = pa.Table.from_pydict({_GROUP: groups, _VALUE: values})
    options = pc.ScalarAggregateOptions(skip_nulls=False) if function == "first" else None
    made = table.group_by(_GROUP, use_threads=False).aggregate([(_VALUE, function, options)])
    return _contiguous(made.sort_by(_GROUP)[f"{_VALUE}_{function}"])


def _numbered(keys: Sequence[Any], rows: int) -> tuple[Any, int]:
    """A number for each row, the same for the same keys; and how many numbers there are."""
    if not keys:
        return pa.repeat(pa.scalar(0, pa.int64()), rows), 1
    numbers, groups = _encoded(keys[0])
    for key in keys[1:]:
        own, many = _encoded(key)
        numbers, groups = _encoded(pc.add(pc.multiply(numbers, many), own))
    return numbers, groups


def _encoded(values: Any) -> tuple[Any, int]:
    encoded = values.dictionary_encode(null_encoding="encode")
    return pc.cast(encoded.indices, pa.int64()), len(encoded.dictionary)


def _numbers(rows: int) -> Any:
    return pa.array(range(rows), pa.int64())


def _contiguous(values: Any) -> Any:
    """One array of a chunked one."""
    if not isinstance(values, pa.ChunkedArray):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
