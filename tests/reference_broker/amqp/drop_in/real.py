"""A real RabbitMQ with its management API, on a node of its own, for tests."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.servers.amqp.rabbitmq import RabbitMQ
from plumbline.servers.ports import free_ports
from tests.patience import HANGS_AFTER_S


class ManagedRabbitMQ(RabbitMQ):
    """``ask`` it as the drop-in."""

    management = 0

    def _plugins(self) -> Sequence[str]:
        return ("rabbitmq_management",)

    def _environment(self) -> Mapping[str, str]:
        found = super()._environment()
        if not self.management:
            (self.management,) = free_ports(1)
        listener = f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self.management}\n"
        Path(found["RABBITMQ_CONFIG_FILE"] + ".conf").write_text(listener)
        return found

    def ask(self, method: str, path: str, body: Any = None, user: str = "guest") -> tuple[int, Any]:
        """The status, and what the answer holds."""
        return ask(self.management, method, path, body, user)


def ask(port: int, method: str, path: str, body: Any, user: str) -> tuple[int, Any]:
    """A request to the management API at ``port``; the password is the name."""
    login = base64.b64encode(f"{user}:{user}".encode()).decode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANGS_AFTER_S)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(
            method, path, text, {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        found = answer.read()
        is_json = "json" in (answer.getheader("Content-Type") or "")
        return answer.status, json.loads(found) if found and is_json else None
    finally:
        connection.close()
