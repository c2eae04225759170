"""Timers without a clock: the caller passes the time; the broker runs what is due."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """At most one moment per key; setting a key again moves it."""

    def __init__(self) -> None:
        self._when: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._pushed = 0  # equal moments: first set, first due

    def set(self, key: K, when: int) -> None:
        self._when[key] = when
        self._pushed += 1
        heappush(self._heap, (when, self._pushed, key))

    def clear(self, key: K) -> None:
        self._when.pop(key, None)

    def next(self) -> int | None:
        """The earliest moment that is set; None if there is none."""
        heap = self._heap
        while heap and self._when.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now: int) -> Iterator[K]:
        """Every key whose moment has come, each unset before it is given out."""
        while (when := self.next()) is not None and when <= now:
            key = heappop(self._heap)[2]
            del self._when[key]
            yield key
