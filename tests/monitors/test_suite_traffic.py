"""The suite's own traffic, which tries every corner, breaks no rule on a sound server."""

from __future__ import annotations

import subprocess
import sys

from plumbline.monitors import Side
from plumbline.servers.nats.nats_server import NatsServer
from tests.monitors.tap import tapped
from tests.patience import HANGS_AFTER_S


def test_suite_through_a_tap_passes_and_shows_no_fault_of_the_server(nats_server: NatsServer) -> None:
    with tapped(nats_server.url) as tap:
        command = [sys.executable, "-m", "plumbline", "verify", tap.url]
        groups = ["--select", "JS-PULL-*", "--select", "JS-SEQ-*", "--select", "CORE-08*"]
        run = subprocess.run(
            [*command, *groups], capture_output=True, text=True, check=False, timeout=HANGS_AFTER_S
        )
    assert run.returncode == 0, run.stdout[-3000:]
    assert tap.operations > 1000
    assert [str(found) for found in tap.violations if found.side is Side.SERVER] == []
