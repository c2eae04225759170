"""Ranges are a set that knows its gaps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plumbline.monitors.ranges import Ranges


@given(st.lists(st.integers(0, 40)))
def test_ranges_are_a_set(numbers: list[int]) -> None:
    ranges = Ranges()
    for number in numbers:
        ranges.add(number)
    assert [number for number in range(-1, 43) if number in ranges] == sorted(set(numbers))
    missing = [number for first, last in ranges.gaps for number in range(first, last + 1)]
    held = set(numbers)
    assert missing == [
        number for number in range(min(held, default=0), max(held, default=0)) if number not in held
    ]
    assert all(last + 1 < first for last, first in zip(ranges.last, ranges.first[1:], strict=False))
