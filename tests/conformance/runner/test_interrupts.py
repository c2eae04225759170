"""The end of a run's time, as code that is interrupted sees it."""

from __future__ import annotations

import signal
import threading

import pytest

from plumbline.interrupts import TimeIsUp, ended_after


def test_the_end_of_the_time_interrupts_what_waits() -> None:
    with pytest.raises(TimeIsUp), ended_after(0.01):
        threading.Event().wait()


def test_code_that_lets_ctrl_c_pass_lets_it_pass() -> None:
    assert issubclass(TimeIsUp, KeyboardInterrupt)


@pytest.mark.parametrize("seconds", [None, 60.0])
def test_what_ends_in_time_leaves_no_timer(seconds: float | None) -> None:
    before = signal.getsignal(signal.SIGALRM)
    was_left, _ = signal.getitimer(signal.ITIMER_REAL)
    with ended_after(seconds):
        pass
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    assert signal.getsignal(signal.SIGALRM) is before
    assert (left > 0) == (was_left > 0)  # of whoever limits the time of this test
