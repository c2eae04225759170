"""Ctrl-C, SIGTERM and the end of a run's time: all end a run in order, and none cuts off what cleans up.

Outside the main thread, where Python does not handle signals, all of this does nothing.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

TERMINATIONS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM, and the end of the terminal, raise KeyboardInterrupt, as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled(interrupt, TERMINATIONS):
        yield


class TimeIsUp(KeyboardInterrupt):
    """The time of a run is over. Code that lets Ctrl-C pass lets this pass, too."""


@contextmanager
def ended_after(seconds: float | None) -> Iterator[None]:
    """``TimeIsUp`` is raised after so many seconds; never if that is None."""

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeIsUp

    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    with _handled(end, (signal.SIGALRM,)):
        before = signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, *before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """None of the signals does anything: what runs here cleans up, and is soon done."""
    with _handled(signal.SIG_IGN, (signal.SIGINT, *TERMINATIONS)):
        yield


@contextmanager
def _handled(
    handler: Callable[[int, FrameType | None], Any] | signal.Handlers, numbers: tuple[signal.Signals, ...]
) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # What is ignored stays so: that is how nohup works.
    before = {
        number: signal.signal(number, handler)
        for number in numbers
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def kept_from_children() -> Iterator[None]:
    """Processes that are started meanwhile never see Ctrl-C: the one who started them ends them.

    A terminal sends it to all of them at once. What is blocked stays so across ``exec``; for this process
    it is only put off to the end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
