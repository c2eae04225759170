"""The fixture, in a project of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import HANGS_AFTER_S
from tests.proxy.peers import echo, server

TEST = """
import socket
from pathlib import Path

def test_with_a_fault(recording_proxy, tmp_path):
    proxy = recording_proxy("URL", "drop PING the 1st on upstream")
    address = proxy.relay.address
    with socket.create_connection((address.host, address.port)) as client:
        client.sendall(b"PING\\r\\nPONG\\r\\n")
        assert client.recv(100) == b"PONG\\r\\n"
    assert list((tmp_path / "captures").iterdir())
"""


def test_fixture_gives_proxy_with_faults(tmp_path: Path) -> None:
    with server(echo) as url:
        place = tmp_path / "test_theirs.py"
        place.write_text(TEST.replace("URL", url.replace("tcp", "nats")))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(place)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=HANGS_AFTER_S
        )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
