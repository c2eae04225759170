"""Starts a real GarageMQ for one check or run, and removes it afterwards.

Small and quick to start, and fragile: some methods end its process, others block a virtual host for good. So
the suite gives every check a process of its own (``RunningTarget.fresh``), and a death is the verdict of one
check.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from plumbline.servers.amqp.rabbitmq import answers
from plumbline.servers.nats.nats_server import MissingServer, ServerBinary, targets_folder
from plumbline.servers.ports import free_ports
from plumbline.servers.process import ServerProcess

PROGRAM = "garagemq"
COMMAND = "apt-get install garagemq"
VERSION = "0.1"  # what it says of itself, whichever it is; its program tells none


def garagemq_server() -> ServerBinary | MissingServer:
    """The one on PATH, else the one that ``servers.getting`` took out of Debian's package."""
    found = shutil.which(PROGRAM)
    path = Path(found) if found else targets_folder() / "debian" / PROGRAM
    if not path.exists():
        return MissingServer(PROGRAM, "no garagemq is on this machine", COMMAND)
    return ServerBinary(PROGRAM, path, VERSION)


class GarageMQ(ServerProcess):
    """One broker. ``url`` while it runs: ``amqp://guest:guest@127.0.0.1:PORT/%2f``."""

    stopped_within_s = 25.0  # it waits ten seconds for a client that does not answer its connection.close
    attempts = 3  # it cannot choose its own ports, and another may take them first
    fresh = True

    @classmethod
    def installed(cls) -> ServerBinary | MissingServer:
        return garagemq_server()

    def _commands(self) -> Sequence[Sequence[str | Path]]:
        self._port, admin = free_ports(2)
        data = self._folder / "data"
        data.mkdir(exist_ok=True)
        file = self._folder / "config.yaml"
        file.write_text(json.dumps(_configuration(self._port, admin, data)), "utf-8")
        return [[self.binary, "--config", file]]

    def _ready_url(self, deadline: float) -> str:
        # A connection may have been answered by another program, which took the port first.
        is_ready = answers(self._port) and self.poll() is None
        return f"amqp://guest:guest@127.0.0.1:{self._port}/%2f" if is_ready else ""


SERVER = GarageMQ


def _configuration(port: int, admin: int, data: Path) -> dict[str, object]:
    """Debian's, with ports and a folder of its own. YAML holds JSON."""
    return {
        "proto": "amqp-rabbit",
        # It compares with the MD5 of the password: "guest".
        "users": [{"username": "guest", "password": "084e0343a0486ff05530df6c705c8bb4"}],
        "tcp": {
            "ip": "127.0.0.1",
            "port": str(port),
            "nodelay": True,
            "readBufSize": 196608,
            "writeBufSize": 196608,
        },
        "admin": {"ip": "127.0.0.1", "port": str(admin)},
        "queue": {"shardSize": 8192, "maxMessagesInRam": 131072},
        "db": {"defaultPath": str(data), "engine": "badger"},
        "vhost": {"defaultPath": "/"},
        "security": {"passwordCheck": "md5"},
        "connection": {"channelsMax": 4096, "frameMaxSize": 65536},
    }
