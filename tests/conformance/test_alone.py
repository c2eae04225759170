"""The room: many together, or one alone."""

from __future__ import annotations

import threading
from pathlib import Path

from conformance.alone import Room


def test_checks_run_together_and_a_retry_waits_until_they_have_left(tmp_path: Path) -> None:
    room, order = Room(tmp_path), list[str]()
    both_inside = threading.Barrier(3, timeout=10)
    leave, done = threading.Event(), threading.Event()

    def beside() -> None:
        with Room(tmp_path).together():
            both_inside.wait()
            leave.wait(10)
            order.append("left")

    def retry() -> None:
        with room.alone():
            order.append("alone")
        done.set()

    for _ in range(2):
        threading.Thread(target=beside, daemon=True).start()
    both_inside.wait()
    threading.Thread(target=retry, daemon=True).start()
    assert not done.wait(0.1)
    leave.set()
    assert done.wait(10)
    assert order == ["left", "left", "alone"]
