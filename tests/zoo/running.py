"""Starts a deployment of ``deployments.toml`` and runs the suite on it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec import Struct

from plumbline.conformance.target import NatsUrl, open_target
from plumbline.errors import TargetUnreachable
from plumbline.servers.nats.nats_server import MissingServer, NatsServer, ServerBinary, real_servers
from plumbline.servers.process import ServerError
from plumbline.servers.targets import target

DEPLOYMENTS = Path(__file__).with_name("deployments.toml")
READY_WITHIN_S = 30.0
LOOK_EVERY_S = 0.2
RUN_WITHIN_S = 900.0
GREEN = ("passed", "unsupported")  # outcomes of checks on a correct server


class Deployment(Struct, frozen=True, forbid_unknown_fields=True):
    """One table of the file. ``server``: the software and which of it, as in ``nats-server newest``."""

    server: str
    source: str
    select: tuple[str, ...]
    config: dict[str, Any] = {}
    login: str = ""
    nodes: int = 1
    jetstream: bool = True


class Run(Struct, frozen=True):
    """One run of the suite: how many checks had which outcome, and those that are not green."""

    exit_code: int
    outcomes: Mapping[str, int]
    red: tuple[str, ...]
    duration_s: float
    output: str

    @property
    def is_green(self) -> bool:
        return self.exit_code == 0 and not self.red and bool(self.outcomes.get("passed"))


def deployments(path: Path = DEPLOYMENTS) -> Mapping[str, Deployment]:
    """All of them by name. Raises ``msgspec.ValidationError``."""
    return msgspec.convert(tomllib.loads(path.read_text("utf-8")), dict[str, Deployment])


@contextmanager
def started(deployment: Deployment) -> Iterator[str]:
    """Its URL while it runs. Raises ``ServerError``."""
    software, _, which = deployment.server.partition(" ")
    with STARTS[software](which, deployment) as url:
        yield url


@contextmanager
def _nats(which: str, deployment: Deployment) -> Iterator[str]:
    binary = nats_binary(which)
    with ExitStack() as running:
        servers = [NatsServer(binary, config) for config in _nats_configs(deployment)]
        for server in servers:
            running.callback(server.stop)
            server.launch()  # the nodes of a cluster wait for each other
        for server in servers:
            server.await_ready()
        address = NatsUrl.parse(servers[0].url).address
        url = f"nats://{deployment.login}@{address}" if deployment.login else f"nats://{address}"
        _await_jetstream(url, deployment)
        yield url


def nats_binary(which: str) -> Path:
    """Raises ``ServerError`` with the command that installs it."""
    for found in real_servers():
        if found.name == which and isinstance(found, ServerBinary):
            return found.path
        if found.name == which and isinstance(found, MissingServer):
            raise ServerError(str(found))
    from plumbline.servers import getting

    return Path(getting.obtain_program(target(f"nats-server@{which}"), print))


def _nats_configs(deployment: Deployment) -> Sequence[dict[str, Any]]:
    if deployment.nodes == 1:
        return [deployment.config]
    ports = _free_ports(deployment.nodes)
    routes = [f"nats://127.0.0.1:{port}" for port in ports]
    return [
        {
            **deployment.config,
            "server_name": f"node{number}",
            "cluster": {"name": "zoo", "host": "127.0.0.1", "port": port, "routes": routes},
        }
        for number, port in enumerate(ports, 1)
    ]


def _free_ports(count: int) -> list[int]:
    """Routes have to be written before the servers start, so these ports are chosen here."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def _await_jetstream(url: str, deployment: Deployment) -> None:
    """A cluster answers the JetStream API once it has elected a leader. Raises ``ServerError``."""
    deadline = time.monotonic() + READY_WITHIN_S
    while deployment.jetstream:
        try:
            if open_target(NatsUrl.parse(url)).grants.limits:
                return
        except TargetUnreachable:
            pass
        if time.monotonic() > deadline:
            raise ServerError(f"{url} does not answer $JS.API.INFO within {READY_WITHIN_S:g} s")
        time.sleep(LOOK_EVERY_S)


STARTS: Mapping[str, Callable[[str, Deployment], Any]] = {"nats-server": _nats}


def run_suite(url: str, select: Sequence[str] = (), arguments: Sequence[str] = ()) -> Run:
    """``plumbline verify`` on it, in a process of its own."""
    began = time.monotonic()
    with TemporaryDirectory(prefix="plumbline-zoo-") as folder:
        result = Path(folder, "result.json")
        command = [sys.executable, "-m", "plumbline", "verify", url, "--json", str(result), *arguments]
        command += [f"--select={pattern}" for pattern in select]
        process = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=RUN_WITHIN_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        checks = json.loads(result.read_bytes())["checks"] if result.exists() else []
    wrong = [check for check in checks if check["outcome"] not in GREEN]
    red = [f"{check['id']}: {check['outcome']}: {check.get('message', '')}" for check in wrong]
    outcomes = Counter(check["outcome"] for check in checks)
    output = process.stdout[-4000:] + process.stderr[-4000:]
    return Run(process.returncode, outcomes, tuple(red), time.monotonic() - began, output)
