"""``plumbline-rabbitmq`` as a process, for tests."""

from __future__ import annotations

import base64
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika

from tests.patience import HANGS_AFTER_S
from tests.reference_broker.started import StartedServer

COMMAND = [sys.executable, "-m", "plumbline.cli.rabbitmq"]


class RabbitDropIn(StartedServer):
    """A running server."""

    @property
    def port(self) -> int:
        return self.port_of("started TCP listener on")

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str = "guest",
        password: str = "guest",
        headers: Mapping[str, str] = {},
    ) -> tuple[int, Any]:
        """A request to the management API: the status, and what the answer holds."""
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port_of("Management plugin"), timeout=HANGS_AFTER_S
        )
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Authorization": f"Basic {login}", **headers})
            answer = connection.getresponse()
            found = answer.read()
            return answer.status, json.loads(found) if found else None
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """What a page of the management API holds."""
        status, found = self.ask("GET", path)
        assert status == 200, found
        return found

    @contextmanager
    def connect(
        self, user: str = "guest", password: str = "guest", vhost: str = "/"
    ) -> Iterator[pika.BlockingConnection]:
        """A client of this server, closed at the end."""
        login = pika.PlainCredentials(user, password)
        connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self.port, vhost, credentials=login)
        )
        try:
            yield connection
        finally:
            if connection.is_open:
                connection.close()


@contextmanager
def rabbit_drop_in(
    configuration: str = "", *flags: str, folder: Path, **environment: str
) -> Iterator[RabbitDropIn]:
    """A server that is ready, with ``configuration`` as its rabbitmq.conf, on a free port."""
    (folder / "rabbitmq.conf").write_text(configuration)
    given = environment or {"RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf")}
    if "RABBITMQ_NODE_PORT" not in given and "--port" not in flags:
        given = {**given, "RABBITMQ_NODE_PORT": "-1"}
    with subprocess.Popen(
        [*COMMAND, *flags], stdout=subprocess.PIPE, text=True, cwd=folder, env=_environment(given)
    ) as process:
        server = RabbitDropIn(process, process.stdout)
        try:
            server.wait_for("Server startup complete")
            yield server
        finally:
            process.kill()


def ended(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A server that ends by itself."""
    return subprocess.run(
        [*COMMAND, *flags],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
        env=_environment(environment),
    )


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")}
    return {**own, **more}
