"""Timers without a clock: the caller passes the time; due timers run.

A timer set twice keeps the later setting only; stale entries are dropped when they come up.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from types import MethodType
from weakref import WeakMethod

Callback = Callable[[int], None]


class Timer:
    """One thing that may be due at one moment. ``when`` is None while it is not set.

    It does not keep the object whose method it runs: a consumer that was deleted, and all that it has, is
    freed at once, and does not wait for the garbage collector or for the moment of a stale entry.
    """

    __slots__ = ("_timers", "callback", "when")

    def __init__(self, timers: Timers, callback: Callback) -> None:
        self.when: int | None = None
        self.callback: Callable[[], Callback | None] = (
            WeakMethod(callback) if isinstance(callback, MethodType) else lambda: callback
        )
        self._timers = timers

    def set(self, when: int) -> None:
        if self.when != when:
            self.when = when
            self._timers.push(when, self)

    def set_earliest(self, when: int) -> None:
        """Set it, unless it is already due sooner."""
        if self.when is None or when < self.when:
            self.when = when
            self._timers.push(when, self)

    def clear(self) -> None:
        self.when = None


class Timers:
    """All timers of one service. ``due`` is never later than the next timer's moment."""

    def __init__(self) -> None:
        self.due: float = float("inf")
        self._heap: list[tuple[int, int, Timer]] = []
        self._pushed = 0  # breaks ties, first set first run

    def timer(self, callback: Callback) -> Timer:
        return Timer(self, callback)

    def push(self, when: int, timer: Timer) -> None:
        self._pushed += 1
        heappush(self._heap, (when, self._pushed, timer))
        self.due = self._heap[0][0]

    def next(self) -> int | None:
        """When the next timer is due; None if none is set."""
        heap = self._heap
        while heap and heap[0][2].when != heap[0][0]:
            heappop(heap)
        self.due = heap[0][0] if heap else float("inf")
        return heap[0][0] if heap else None

    def run(self, now: int) -> None:
        """Run what is due, in order; what a callback makes due at once runs too."""
        heap = self._heap
        while (when := self.next()) is not None and when <= now:
            timer = heappop(heap)[2]
            timer.when = None
            callback = timer.callback()
            if callback is not None:
                callback(now)
