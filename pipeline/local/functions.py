"""Functions over the columns of an ``ArrowFrame``, named as ``pyspark.sql.functions`` names them.

They are those that the definitions of tables and statistics use, and no others. Nulls behave as in SQL.
Aggregates are counted exactly; ``percentile_approx`` too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from plumbline.pipeline.local.frame import ArrowFrame

_TYPES = {"bigint": pa.int64(), "double": pa.float64(), "binary": pa.binary()}


class Values:
    """One value for each row. ``evaluate`` gives an array of the frame's length, or a scalar."""

    def __init__(
        self, evaluate: Callable[[ArrowFrame], Any], name: str = "", source: str | None = None
    ) -> None:
        self.evaluate, self.name = evaluate, name
        self.source = source  # the column that these are, unchanged

    def alias(self, name: str) -> Values:
        """The same, as a column of that name."""
        return Values(self.evaluate, name, self.source)

    def cast(self, kind: str) -> Values:
        """An empty text is no number: null."""

        def cast(value: Any) -> Any:
            if pa.types.is_string(value.type):
                value = pc.if_else(pc.equal(value, ""), pa.scalar(None, pa.string()), value)
            return pc.cast(value, _TYPES[kind])

        return _function(cast, self)

    def isin(self, *values: Any) -> Values:
        def is_in(value: Any) -> Any:
            return pc.if_else(
                pc.is_valid(value), pc.is_in(value, pa.array(values)), pa.scalar(None, pa.bool_())
            )

        return _function(is_in, self)

    def isNull(self) -> Values:  # noqa: N802  # as in PySpark
        return _function(pc.is_null, self)

    def isNotNull(self) -> Values:  # noqa: N802  # as in PySpark
        return _function(pc.is_valid, self)

    def __eq__(self, other: object) -> Values:  # type: ignore[override]
        return _function(pc.equal, self, other)

    def __ne__(self, other: object) -> Values:  # type: ignore[override]
        return _function(pc.not_equal, self, other)

    __hash__ = None  # type: ignore[assignment]

    def __gt__(self, other: object) -> Values:
        return _function(pc.greater, self, other)

    def __and__(self, other: object) -> Values:
        return _function(pc.and_kleene, self, other)

    def __or__(self, other: object) -> Values:
        return _function(pc.or_kleene, self, other)

    def __invert__(self) -> Values:
        return _function(pc.invert, self)

    def __add__(self, other: object) -> Values:
        return _function(pc.add, self, other)

    def __sub__(self, other: object) -> Values:
        return _function(pc.subtract, self, other)

    def __mul__(self, other: object) -> Values:
        return _function(pc.multiply, self, other)

    def __truediv__(self, other: object) -> Values:
        return _function(_divided, self, other)

    def otherwise(self, value: object) -> Values:
        """The value of a ``when`` whose condition does not hold."""
        raise TypeError("only when() has an otherwise()")


class _When(Values):
    def __init__(self, cases: Sequence[tuple[Values, object]], rest: object = None) -> None:
        self._cases = cases

        def evaluate(frame: ArrowFrame) -> Any:
            value = _value(rest, frame)
            for condition, then in reversed(cases):
                holds = pc.fill_null(condition.evaluate(frame), False)
                value = pc.if_else(holds, *_of_one_type(_value(then, frame), value))
            return value

        super().__init__(evaluate)

    def when(self, condition: Values, value: object) -> _When:
        return _When([*self._cases, (condition, value)])

    def otherwise(self, value: object) -> Values:
        return Values(_When(self._cases, value).evaluate)


class Exploded:
    """A row for each value of a list; rows with none have none."""

    def __init__(self, lists: Values, name: str) -> None:
        self.lists, self.name = lists, name

    def alias(self, name: str) -> Exploded:
        return Exploded(self.lists, name)


class Aggregate:
    """One value for each group. ``kind``: see ``frame``; ``argument`` is a rank or what decides the order."""

    def __init__(self, kind: str, values: Values | None, name: str, argument: Any = None) -> None:
        self.kind, self.values, self.name, self.argument = kind, values, name, argument

    def alias(self, name: str) -> Aggregate:
        return Aggregate(self.kind, self.values, name, self.argument)


class Descending:
    """An order: the largest first, nulls last."""

    def __init__(self, values: Values) -> None:
        self.values = values


# -- columns --


def col(name: str) -> Values:
    """The column of that name."""
    return Values(lambda frame: frame.column(name), name, name)


def lit(value: Any) -> Values:
    """The same value in each row."""
    return Values(lambda _: pa.scalar(value), str(value))


def when(condition: Values, value: object) -> _When:
    """``value`` where the condition holds; else what ``otherwise`` gives, or null."""
    return _When([(condition, value)])


def coalesce(*values: str | Values) -> Values:
    """The first of them that is not null."""

    def first(*given: Any) -> Any:
        filled = given[0]
        for one in given[1:]:
            filled = pc.coalesce(*_of_one_type(filled, one))
        return filled

    return _function(first, *map(as_values, values))


def greatest(*values: str | Values) -> Values:
    """The largest of them; nulls are passed over."""
    return _function(pc.max_element_wise, *map(as_values, values))


def floor(value: Values) -> Values:
    """Rounded down to a whole number."""
    return _function(lambda given: pc.cast(pc.floor(given), pa.int64()), value)


def round(value: Values) -> Values:  # noqa: A001  # as in PySpark
    """Rounded, halves away from zero."""
    return _function(lambda given: pc.round(given, round_mode="half_towards_infinity"), value)


def log10(value: Values) -> Values:
    """The logarithm to the base 10."""
    return _function(lambda given: pc.log10(pc.cast(given, pa.float64())), value)


def pow(base: Values, exponent: Values) -> Values:  # noqa: A001  # as in PySpark
    """``base`` to the power ``exponent``."""
    return _function(pc.power, base, exponent)


def pmod(value: str | Values, divisor: Values) -> Values:
    """The rest of a division, never negative."""

    def rest(given: Any, width: Any) -> Any:
        left = pc.subtract(given, pc.multiply(pc.divide(given, width), width))
        return pc.if_else(pc.less(left, 0), pc.add(left, width), left)

    return _function(rest, as_values(value), divisor)


def try_divide(value: str | Values, divisor: str | Values) -> Values:
    """The quotient as a float; null where the divisor is 0."""

    def divided(given: Any, by: Any) -> Any:
        return _divided(given, pc.if_else(pc.equal(by, 0), pa.scalar(None, by.type), by))

    return _function(divided, as_values(value), as_values(divisor))


def concat_ws(separator: str, *values: str | Values) -> Values:
    """Texts joined by ``separator``; nulls are left out."""

    def joined(*texts: Any) -> Any:
        return pc.binary_join_element_wise(*texts, separator, null_handling="skip")

    return _function(joined, *map(as_values, values))


def regexp_replace(text: str | Values, pattern: str, replacement: str) -> Values:
    """Each match of ``pattern`` replaced."""
    return _function(
        lambda given: pc.replace_substring_regex(given, pattern=pattern, replacement=replacement),
        as_values(text),
    )


def regexp_extract(text: str | Values, pattern: str, group: int) -> Values:
    """That group of the first match; empty without a match."""
    find = re.compile(pattern).search

    def extracted(given: Any) -> Any:
        found = [find(one or "") for one in given.to_pylist()]
        texts = ["" if match is None else match[group] for match in found]
        return pa.array(texts, pa.string())

    return _function(extracted, as_values(text))


def format_string(pattern: str, *values: str | Values) -> Values:
    """``%d`` and ``%s``; null reads ``null``."""
    texts = pattern.replace("%d", "%s")

    def formatted(*given: Any) -> Any:
        rows = zip(*(one.to_pylist() for one in given), strict=True)
        return pa.array(
            [texts % tuple("null" if one is None else one for one in row) for row in rows], pa.string()
        )

    return _function(formatted, *map(as_values, values))


def try_element_at(lists: str | Values, place: Values) -> Values:
    """The element at that place, from 1; null where the list is shorter."""

    def element(frame: ArrowFrame) -> Any:
        index = place.evaluate(frame).as_py() - 1
        given = as_values(lists).evaluate(frame)
        cut = pc.list_slice(given, index, index + 1)
        rows = pa.array(range(len(given)), pa.int64())
        at = pc.index_in(rows, value_set=pc.cast(pc.list_parent_indices(cut), pa.int64()))
        return pc.list_flatten(cut).take(at)

    return Values(element)


def explode(lists: str | Values) -> Exploded:
    """A row for each value of the lists."""
    return Exploded(as_values(lists), "col")


def desc(value: str | Values) -> Descending:
    """The largest first, nulls last."""
    return Descending(as_values(value))


# -- aggregates --


def count(_: str) -> Aggregate:
    """How many rows there are."""
    return Aggregate("count", None, "count")


def count_if(condition: str | Values) -> Aggregate:
    """In how many rows it is true."""
    return Aggregate("count_if", as_values(condition), "count_if")


def count_distinct(value: str | Values) -> Aggregate:
    """How many different values there are; null is none."""
    return Aggregate("count_distinct", as_values(value), "count")


def sum(value: str | Values) -> Aggregate:  # noqa: A001  # as in PySpark
    """Of what is not null."""
    return Aggregate("sum", as_values(value), "sum")


def min(value: str | Values) -> Aggregate:  # noqa: A001  # as in PySpark
    """Of what is not null."""
    return Aggregate("min", as_values(value), "min")


def max(value: str | Values) -> Aggregate:  # noqa: A001  # as in PySpark
    """Of what is not null."""
    return Aggregate("max", as_values(value), "max")


def min_by(value: str | Values, order: str | Values) -> Aggregate:
    """The value, null too, of the row with the lowest ``order``."""
    return Aggregate("min_by", as_values(value), "min_by", as_values(order))


def collect_set(value: str | Values) -> Aggregate:
    """The different values that are not null, in their order."""
    return Aggregate("collect_set", as_values(value), "collect_set")


def sort_array(values: Aggregate) -> Aggregate:
    """A ``collect_set`` is sorted already."""
    return values


def percentile_approx(value: str | Values, rank: float) -> Aggregate:
    """The value at that rank, 0 to 1, of what is not null."""
    return Aggregate("percentile", as_values(value), "percentile", rank)


# -- inside --


def as_values(value: str | Values) -> Values:
    """A column's name, or values as they are."""
    return col(value) if isinstance(value, str) else value


def _value(value: object, frame: ArrowFrame) -> Any:
    return value.evaluate(frame) if isinstance(value, Values) else pa.scalar(value)


def _function(function: Callable[..., Any], *values: object) -> Values:
    return Values(lambda frame: function(*(_value(value, frame) for value in values)))


def _of_one_type(one: Any, other: Any) -> tuple[Any, Any]:
    """A null takes the type of the other."""
    if pa.types.is_null(one.type):
        return pa.scalar(None, other.type), other
    if pa.types.is_null(other.type):
        return one, pa.scalar(None, one.type)
    return one, other


def _divided(value: Any, by: Any) -> Any:
    return pc.divide(pc.cast(value, pa.float64()), pc.cast(by, pa.float64()))
