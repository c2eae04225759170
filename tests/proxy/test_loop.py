"""The loop under the relay: timers."""

from __future__ import annotations

import threading

from proxy.loop import Loop

SOON_S = 0.05


def test_a_cancelled_timer_wakes_nobody() -> None:
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
