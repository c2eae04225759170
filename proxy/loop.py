"""The event loop under the relay: one thread, epoll, timers, and a turn that ends in one place.

asyncio costs twice the time for each event and has no end of a turn. The relay needs that end: what all
connections received in one turn is recorded in one write, then forwarded. Everything here is called from the
loop's thread, except ``call`` and ``stop``.
"""

from __future__ import annotations

import heapq
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

Handler = Callable[[int], None]  # takes the epoll mask
TALK_TURNS = 16  # with one event each, soon after another: somebody asks and somebody answers
LONGEST_SLEEP_S = 3600.0  # epoll takes no more than 24 days
FEW_TIMERS = 64
AWAKE_S = 0.0002  # so long the next event of a talk is waited for awake


class LoopTimer:
    """Something to be done later, unless cancelled."""

    __slots__ = ("action", "at", "order", "owner")

    def __init__(self, at: float, order: int, action: Callable[[], None], owner: object) -> None:
        self.at = at
        self.order = order
        self.owner = owner
        self.action: Callable[[], None] | None = action

    def __lt__(self, other: LoopTimer) -> bool:
        return (self.at, self.order) < (other.at, other.order)

    def cancel(self) -> None:
        """It will not be done, and keeps nothing alive. May be called twice, and after it was done."""
        self.action = None
        self.owner = None


class Loop:
    """Runs until ``stop``. Times are ``time.monotonic`` seconds.

    What a handler or timer raises that has an owner goes to ``on_error``, with the owner.
    """

    def __init__(
        self,
        end_of_turn: Callable[[], None] | None = None,
        on_error: Callable[[Any, Exception], None] | None = None,
    ) -> None:
        self.end_of_turn = end_of_turn or (lambda: None)
        self.on_error = on_error
        self.ready = 0  # how many descriptors this turn serves
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._owners: dict[int, object] = {}
        self._timers: list[LoopTimer] = []
        self._most_timers = FEW_TIMERS  # before cancelled ones are dropped
        self._orders = count()
        self._calls: deque[Callable[[], None]] = deque()
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._running = True
        self.stays_awake = len(os.sched_getaffinity(0)) > 1  # who is waited for has another processor
        self._alone = 0  # turns before this one that served one descriptor, soon after the turn before
        self._closed = False
        self._lock = threading.RLock()  # a signal handler may interrupt ``call`` and call
        self.add(self._wakeup, select.EPOLLIN, self._woken)

    def add(self, fd: int, mask: int, handler: Handler, owner: object = None) -> None:
        """Calls ``handler`` for each turn in which ``fd`` is ready for ``mask``."""
        self._handlers[fd] = handler
        self._owners[fd] = owner
        self._epoll.register(fd, mask)

    def modify(self, fd: int, mask: int) -> None:
        """Waits for ``mask`` from now on; for 0, only errors and hang-ups are reported."""
        self._epoll.modify(fd, mask)

    def remove(self, fd: int) -> None:
        """Before ``fd`` is closed. An event of this turn that is not served yet is dropped."""
        self._owners.pop(fd, None)
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def at(self, when: float, action: Callable[[], None], owner: object = None) -> LoopTimer:
        """Does ``action`` at that monotonic time or shortly after."""
        timer = LoopTimer(when, next(self._orders), action, owner)
        if len(self._timers) >= self._most_timers:
            self._drop_cancelled()
        heapq.heappush(self._timers, timer)
        return timer

    def _drop_cancelled(self) -> None:
        """Where they are not the first ones, ``run`` finds them only when they are due."""
        self._timers[:] = [timer for timer in self._timers if timer.action is not None]
        heapq.heapify(self._timers)
        self._most_timers = max(FEW_TIMERS, 2 * len(self._timers))

    def after(self, seconds: float, action: Callable[[], None], owner: object = None) -> LoopTimer:
        """Does ``action`` after that many seconds."""
        return self.at(time.monotonic() + seconds, action, owner)

    def call(self, action: Callable[[], None]) -> None:
        """From any thread: ``action`` is done in the loop's, unless that has ended."""
        with self._lock:
            if not self._closed:
                self._calls.append(action)
                os.eventfd_write(self._wakeup, 1)

    def stop(self) -> None:
        """From any thread: ``run`` returns after this turn."""
        self.call(self._stop)

    def run(self) -> None:
        """Until ``stop``. What a handler without an owner raises comes out here."""
        poll, handlers, timers, end_of_turn = self._epoll.poll, self._handlers, self._timers, self.end_of_turn
        while self._running:
            while timers and timers[0].action is None:  # cancelled
                heapq.heappop(timers)
            events = self._wait(poll)
            self.ready = len(events)
            for fd, mask in events:
                handler = handlers.get(fd)
                if handler is not None:
                    try:
                        handler(mask)
                    except Exception as error:
                        self._fail(self._owners.get(fd), error)
            if timers:
                self._run_timers()
            end_of_turn()

    def close(self) -> None:
        """Frees what the loop itself holds."""
        with self._lock:
            self._closed = True
            self._epoll.close()
            os.close(self._wakeup)

    def _wait(self, poll: Callable[..., list[tuple[int, int]]]) -> list[tuple[int, int]]:
        """The next events, or none when a timer is due.

        A process that sleeps takes as long to wake as all its work on a message: in a talk it stays awake,
        and lets others of its processor go first.
        """
        began = time.monotonic()
        if self._alone >= TALK_TURNS and self.stays_awake:
            until = began + AWAKE_S
            if self._timers:
                until = min(until, self._timers[0].at)
            while not (events := poll(0)) and time.monotonic() < until:
                os.sched_yield()
            if events:
                self._alone = self._alone + 1 if len(events) == 1 else 0
                return events
        events = poll(self._timeout()) if self._timers else poll()
        is_soon = time.monotonic() - began < AWAKE_S
        self._alone = self._alone + 1 if is_soon and len(events) == 1 else 0
        return events

    def _timeout(self) -> float:
        return min(max(self._timers[0].at - time.monotonic(), 0), LONGEST_SLEEP_S)

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0].at <= now:
            timer = heapq.heappop(self._timers)
            if timer.action is not None:
                try:
                    timer.action()
                except Exception as error:
                    self._fail(timer.owner, error)

    def _fail(self, owner: object, error: Exception) -> None:
        if owner is None or self.on_error is None:
            raise error
        self.on_error(owner, error)

    def _woken(self, _mask: int) -> None:
        os.eventfd_read(self._wakeup)
        while self._calls:
            self._calls.popleft()()

    def _stop(self) -> None:
        self._running = False
