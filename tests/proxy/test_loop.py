"""The loop under the relay: timers, and when it sleeps."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Callable

import pytest

from plumbline.proxy import loop as loop_module
from plumbline.proxy.loop import FEW_TIMERS, TALK_TURNS, Loop

SOON_S = 0.05
DAY_S = 86400.0
EXCHANGES = 500


def test_cancelled_timer_does_not_run() -> None:
    turns: list[None] = []
    loop = Loop(lambda: turns.append(None))
    done: list[str] = []
    loop.after(SOON_S, lambda: done.append("cancelled")).cancel()
    late = threading.Timer(4 * SOON_S, loop.stop)
    late.start()
    try:
        loop.run()
    finally:
        late.join()
        loop.close()
    assert (done, len(turns)) == ([], 1)


class Owner:
    """What a timer is about."""


def test_cancelled_timers_keep_nothing() -> None:
    loop = Loop()
    first = loop.after(DAY_S, lambda: None)
    owners = [Owner() for _ in range(1000)]
    known = [weakref.ref(owner) for owner in owners]
    for owner in owners:
        loop.after(2 * DAY_S, lambda: None, owner).cancel()
    del owner, owners
    assert [ref for ref in known if ref() is not None] == []
    kept = len(loop._timers)
    loop.close()
    assert first.action is not None
    assert kept <= FEW_TIMERS


def test_timers_are_done_in_the_order_of_their_times() -> None:
    loop = Loop()
    done: list[str] = []
    loop.after(3 * SOON_S, loop.stop)
    loop.after(2 * SOON_S, lambda: done.append("second"))
    loop.after(SOON_S, lambda: done.append("first"))
    try:
        loop.run()
    finally:
        loop.close()
    assert done == ["first", "second"]


class Epoll:
    """Counts the calls that may sleep."""

    slept = 0

    def __init__(self, make: Callable[[], select.epoll] = select.epoll) -> None:
        self._epoll = make()
        self.register, self.unregister = self._epoll.register, self._epoll.unregister
        self.close = self._epoll.close

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        Epoll.slept += timeout != 0
        return self._epoll.poll(timeout)


def talk(loop: Loop, then: Callable[[], object]) -> None:
    """Exchanges so many words with ``cat``, one at a time; runs until ``then`` stops the loop."""
    ours, theirs = socket.socketpair()
    left = EXCHANGES

    def answer(_mask: int) -> None:
        nonlocal left
        word = ours.recv(100)
        left -= 1
        if left:
            ours.send(word)
        else:
            then()

    with subprocess.Popen(["cat"], stdin=theirs.fileno(), stdout=theirs.fileno()) as cat, ours:
        theirs.close()
        loop.add(ours.fileno(), select.EPOLLIN, answer)
        ours.send(b"word")
        loop.run()
        loop.remove(ours.fileno())
        ours.close()
        assert cat.wait() == 0


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one processor the loop always sleeps")
@pytest.mark.parametrize("awake_s", [0.0, 10.0])
def test_in_a_talk_it_stays_awake(awake_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "AWAKE_S", awake_s)
    monkeypatch.setattr("select.epoll", Epoll)
    Epoll.slept = 0
    loop = Loop()
    try:
        talk(loop, loop.stop)
    finally:
        loop.close()
    assert (Epoll.slept < 2 * TALK_TURNS) == bool(awake_s), Epoll.slept


def test_after_a_talk_it_sleeps() -> None:
    loop = Loop()
    began: list[float] = []

    def rest() -> None:
        began.append(time.thread_time())
        loop.after(10 * SOON_S, loop.stop)

    try:
        talk(loop, rest)
    finally:
        loop.close()
    assert time.thread_time() - began[0] < SOON_S


def test_a_talk_keeps_no_timer_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer that waited until the loop sleeps would outlast the time limit of a test."""
    monkeypatch.setattr(loop_module, "AWAKE_S", 3600.0)
    loop = Loop()

    def rest() -> None:
        loop.after(SOON_S, loop.stop)

    try:
        talk(loop, rest)
    finally:
        loop.close()
