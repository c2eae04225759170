"""``plumbline-nats-server`` as a process, for tests."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.patience import HANGS_AFTER_S
from tests.reference_broker.started import StartedServer

COMMAND = [sys.executable, "-m", "plumbline.cli.nats_server"]


class DropIn(StartedServer):
    """A running server."""

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port_of('Listening for client connections on')}"

    def get(self, path: str) -> Any:
        """A page of the monitoring port."""
        port = self.port_of("Starting http monitor on")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=HANGS_AFTER_S) as answer:
            return json.loads(answer.read())


@contextmanager
def drop_in(*flags: str, folder: Path | None = None, command: Sequence[str] = COMMAND) -> Iterator[DropIn]:
    """A server that is ready, on a free port unless ``flags`` say otherwise. ``command``: the real one."""
    given = flags if {"-p", "-c", "--port"}.intersection(flags) else ("-p", "-1", *flags)
    with subprocess.Popen([*command, *given], stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        server = DropIn(process, process.stderr)
        try:
            server.wait_for("Server is ready")
            yield server
        finally:
            process.kill()


def ended(*flags: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A server that ends by itself."""
    return subprocess.run(
        [*COMMAND, *flags], capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False, cwd=folder
    )
