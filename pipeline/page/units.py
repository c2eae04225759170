"""Numbers as people read them."""

from __future__ import annotations

from typing import Any

from plumbline.captures.show import clock

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
MINUTE_NS = 60 * 1_000_000_000


def text(value: Any) -> str:
    """Nothing where there is none."""
    return "" if value is None else str(value)


def count(value: Any) -> str:
    """``1,234,567``."""
    return "" if value is None else f"{value:,}"


def percent(value: Any) -> str:
    """Of a share of 1."""
    return "" if value is None else f"{100 * value:.1f} %"


def time(value: Any) -> str:
    """Nanoseconds, with three digits and the unit that suits."""
    if value is None:
        return ""
    size, unit = next((step for step in _UNITS if abs(value) >= step[0]), _UNITS[-1])
    number = value / size
    digits = 0 if unit == "ns" or abs(number) >= 100 else 1 if abs(number) >= 10 else 2
    return f"{number:.{digits}f} {unit}"


def moment(value: int, width: int) -> str:
    """A time of day, as exact as stretches of that width want it."""
    exact = clock(value)
    if width >= 1_000_000_000:
        return exact[:8]
    return exact[: 12 if width >= 1_000_000 else 15]


def day(value: int) -> str:
    """A day and its time, UTC."""
    return clock(value, "%Y-%m-%d %H:%M:%S")[:19]
