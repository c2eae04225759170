"""Starts Plumbline for pytest: a broker, with or without a defect, or a proxy that injects faults.

In an environment where Plumbline is installed, its fixtures do this.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

Start = Callable[..., str]


@pytest.fixture
def plumbline() -> Iterator[Start]:
    """A function that runs plumbline until the test ends: the URL at the beginning of its first line."""
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> str:
        command = [os.environ.get("PLUMBLINE", "plumbline"), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"{' '.join(command)} did not start"
        return line.split()[0]

    yield start
    for process in reversed(running):
        process.terminate()
        process.communicate()


def test_broker(plumbline: Start) -> None:
    lines = ask(plumbline("broker", "nats", "-js", "-p", "-1"), 2)
    assert '"proto":1' in lines[0]
    assert lines[1] == "PONG"


def test_broker_with_defect(plumbline: Start) -> None:
    assert '"proto":0' in ask(plumbline("broker", "nats", "-p", "-1", "--defect", "info-has-proto-0"), 2)[0]


def test_proxy_with_fault(plumbline: Start, tmp_path: Path) -> None:
    broker = plumbline("broker", "nats", "-p", "-1")
    options = ("--listen", "127.0.0.1:0", "-o", str(tmp_path), "--fault", "duplicate PONG")
    assert ask(plumbline("record", broker, *options), 3)[1:] == ["PONG", "PONG"]


def ask(server: str, count: int) -> list[str]:
    """This is where your client would be: sends a PING, and returns that many lines of the server."""
    place = urlsplit(server)
    with socket.create_connection((place.hostname, place.port)) as connection:
        connection.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        with connection.makefile() as lines:
            return [lines.readline().rstrip() for _ in range(count)]
