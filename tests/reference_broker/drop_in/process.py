"""``plumbline-nats-server`` as a process, for tests."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "plumbline.cli.nats_server"]
STARTS_S = 20.0


class DropIn:
    """A running server. ``lines`` are those of its log up to now."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def wait_for(self, words: str) -> str:
        """The next line of the log with these words."""
        assert self.process.stderr is not None
        timer = threading.Timer(STARTS_S, self.process.kill)
        timer.start()
        try:
            for line in self.process.stderr:
                self.lines.append(line.rstrip("\n"))
                if words in line:
                    return line.rstrip("\n")
        finally:
            timer.cancel()
        raise AssertionError(f"no line with {words!r} in {self.lines}")

    def port_of(self, words: str) -> int:
        line = next(line for line in self.lines if words in line)
        return int(line.rpartition(":")[2])

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port_of('Listening for client connections on')}"

    def get(self, path: str) -> Any:
        """A page of the monitoring port."""
        port = self.port_of("Starting http monitor on")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return json.loads(answer.read())


@contextmanager
def drop_in(*flags: str, folder: Path | None = None, command: Sequence[str] = COMMAND) -> Iterator[DropIn]:
    """A server that is ready, on a free port unless ``flags`` say otherwise. ``command``: the real one."""
    given = flags if {"-p", "-c", "--port"}.intersection(flags) else ("-p", "-1", *flags)
    with subprocess.Popen([*command, *given], stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        server = DropIn(process)
        try:
            server.wait_for("Server is ready")
            yield server
        finally:
            process.kill()


def ended(*flags: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A server that ends by itself."""
    return subprocess.run(
        [*COMMAND, *flags], capture_output=True, text=True, timeout=60, check=False, cwd=folder
    )
