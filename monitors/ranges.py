"""A set of sequence numbers that is kept as ranges: small however many there are, as long as gaps are few."""

from __future__ import annotations

from bisect import bisect_right

from msgspec import Struct


class Ranges(Struct):
    """``first[i]`` to ``last[i]``, both in it; ranges are in order and do not touch."""

    first: list[int] = []
    last: list[int] = []

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.first, number) - 1
        return at >= 0 and number <= self.last[at]

    def add(self, number: int) -> None:
        if number in self:
            return
        at = bisect_right(self.first, number)
        joins_before = at > 0 and self.last[at - 1] == number - 1
        joins_after = at < len(self.first) and self.first[at] == number + 1
        if joins_before and joins_after:
            self.last[at - 1] = self.last.pop(at)
            del self.first[at]
        elif joins_before:
            self.last[at - 1] = number
        elif joins_after:
            self.first[at] = number
        else:
            self.first.insert(at, number)
            self.last.insert(at, number)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """What is missing between the smallest and the largest number, as (first, last) of each gap."""
        return [(last + 1, first - 1) for last, first in zip(self.last, self.first[1:], strict=False)]
