"""Starts a deployment, as it is or with its planted defect, and runs the suite on it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from plumbline.errors import ExitCode
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.servers import getting
from plumbline.servers.nats.nats_server import MissingServer, ServerBinary, real_servers
from plumbline.servers.nats.variants import nats_target
from plumbline.servers.process import ServerError
from plumbline.servers.targets import target
from tests.zoo import rabbitmq
from tests.zoo.deployments import Deployment
from tests.zoo.planted import DEFECTS
from tests.zoo.relay import relay

RUN_WITHIN_S = 900.0
GREEN = ("passed", "unsupported")  # outcomes of checks on a correct server
MAY_FAIL = ("SHOULD", "MAY")  # levels of checks that a conformant server may fail


class Run(Struct, frozen=True):
    """One run of the suite: how many checks had which outcome, those that are not green, and the requirements
    of those that failed."""

    exit_code: int
    outcomes: Mapping[str, int]
    red: tuple[str, ...]
    failed: frozenset[str]
    duration_s: float
    output: str

    @property
    def is_green(self) -> bool:
        """Conformant, and nothing is left open."""
        return self.exit_code == 0 and not self.red and bool(self.outcomes.get("passed"))

    def convicts(self, requirement: str) -> bool:
        """Not conformant, because of this requirement."""
        return self.exit_code == ExitCode.NOT_CONFORMANT and requirement in self.failed


@contextmanager
def started(deployment: Deployment) -> Iterator[tuple[str, ...]]:
    """The arguments of ``plumbline verify`` for it, while it runs. Raises ``ServerError``."""
    if deployment.restarts:
        with rabbitmq.start_script(deployment) as script:
            yield ("--server", str(script))
    elif deployment.software == REFERENCE:
        yield ("amqp", *(f"--defect={name}" for name in deployment.config.get("defects", ())))
    else:
        with STARTS[deployment.software](deployment) as url:
            yield (url,)


@contextmanager
def started_with_defect(deployment: Deployment) -> Iterator[tuple[str, ...]]:
    """The same, with its planted defect in front of it."""
    with STARTS[deployment.software](deployment) as url:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        defect = DEFECTS[deployment.planted]
        with relay(deployment.protocol, (parts.hostname, parts.port), defect) as address:
            login, at, _ = parts.netloc.rpartition("@")
            yield (parts._replace(netloc=f"{login}{at}{address}").geturl(),)


@contextmanager
def _nats(deployment: Deployment) -> Iterator[str]:
    with nats_target(nats_binary(deployment.which), deployment.config, deployment.nodes) as server:
        address = urlsplit(server.url).netloc
        yield f"nats://{deployment.login}@{address}" if deployment.login else f"nats://{address}"


def nats_binary(which: str) -> Path:
    """Raises ``ServerError`` with the command that installs it."""
    for found in real_servers():
        if found.name == which and isinstance(found, ServerBinary):
            return found.path
        if found.name == which and isinstance(found, MissingServer):
            raise ServerError(str(found))
    return getting.obtain_program(target(f"nats-server@{which}"), print)


def _reference(deployment: Deployment) -> AbstractContextManager[str]:
    """The reference broker with defects that no document forbids."""
    return AmqpBroker.in_thread(defect=deployment.config.get("defects", ()))


REFERENCE = "reference-amqp"
STARTS: Mapping[str, Callable[[Deployment], AbstractContextManager[str]]] = {
    "nats-server": _nats,
    "rabbitmq": rabbitmq.running,
    REFERENCE: _reference,
}


def run_suite(arguments: Sequence[str], select: Sequence[str] = (), more: Sequence[str] = ()) -> Run:
    """``plumbline verify`` with these arguments, in a process of its own."""
    began = time.monotonic()
    with TemporaryDirectory(prefix="plumbline-zoo-") as folder:
        result = Path(folder, "result.json")
        command = [sys.executable, "-m", "plumbline", "verify", *arguments, "--json", str(result), *more]
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
    failed = [check for check in checks if check["outcome"] == "failed"]
    wrong = [
        check
        for check in checks
        if check["outcome"] not in GREEN and not (check["outcome"] == "failed" and check["level"] in MAY_FAIL)
    ]
    return Run(
        exit_code=process.returncode,
        outcomes=Counter(check["outcome"] for check in checks),
        red=tuple(map(_evidence, wrong)),
        failed=frozenset(name for check in failed for name in check["requirements"]),
        duration_s=time.monotonic() - began,
        output=process.stdout[-4000:] + process.stderr[-4000:],
    )


def _evidence(check: dict[str, Any]) -> str:
    """How it ended, and the start of what was seen."""
    return (
        f"{check['id']}: {check['outcome']}: {check.get('message', '')}\n    {check.get('actual', '')[:300]}"
    )
