"""Starts a deployment of ``deployments.toml`` and runs the suite on it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec import Struct

from plumbline.conformance.target import NatsUrl
from plumbline.servers.nats.nats_server import MissingServer, ServerBinary, real_servers
from plumbline.servers.nats.variants import nats_target
from plumbline.servers.process import ServerError
from plumbline.servers.targets import target

DEPLOYMENTS = Path(__file__).with_name("deployments.toml")
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
    with nats_target(nats_binary(which), deployment.config, deployment.nodes) as server:
        address = NatsUrl.parse(server.url).address
        yield f"nats://{deployment.login}@{address}" if deployment.login else f"nats://{address}"


def nats_binary(which: str) -> Path:
    """Raises ``ServerError`` with the command that installs it."""
    for found in real_servers():
        if found.name == which and isinstance(found, ServerBinary):
            return found.path
        if found.name == which and isinstance(found, MissingServer):
            raise ServerError(str(found))
    from plumbline.servers import getting

    return Path(getting.obtain_program(target(f"nats-server@{which}"), print))


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
