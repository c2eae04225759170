"""Brokers in several threads at once: what msgspec knows of structs is there before they need it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import HANGS_AFTER_S

ROOT = Path(__file__).parents[2]

# Each process has one chance to see it: afterwards msgspec knows the structs.
MANY_AT_ONCE = """
import sys, threading
from plumbline.reference_broker.nats.server import NatsBroker

sys.setswitchinterval(1e-6)
together = threading.Barrier(8)

def start():
    together.wait()
    with NatsBroker.in_thread(jetstream=True):
        pass

threads = [threading.Thread(target=start) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_brokers_that_start_at_the_same_moment_do_not_crash_the_process() -> None:
    runs = [subprocess.Popen([sys.executable, "-c", MANY_AT_ONCE], cwd=ROOT) for _ in range(3)]
    assert [run.wait(HANGS_AFTER_S) for run in runs] == [0, 0, 0]
