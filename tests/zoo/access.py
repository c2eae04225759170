"""Starts the deployments of ``access.toml``: servers that one reaches by TLS or by a login.

python -m tests.zoo.access [PATTERN ...] [--short]: the whole suite on each; exit 1 if one is red.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec import Struct

from plumbline.servers.amqp.rabbitmq import RabbitMQ, rabbitmq_server
from plumbline.servers.nats.nats_server import MissingServer, NatsServer
from plumbline.servers.ports import free_ports
from plumbline.servers.process import ServerError
from tests.certificates import CLIENT, Certificates
from tests.nats_identities import write_creds, write_nkey
from tests.zoo.rabbitmq import RabbitMQConfig, definitions_of
from tests.zoo.running import Run, nats_binary, run_suite

DEPLOYMENTS = Path(__file__).with_name("access.toml")


class Deployment(Struct, frozen=True, forbid_unknown_fields=True):
    """One table of the file."""

    server: str
    scheme: str
    arguments: tuple[str, ...]
    source: str
    select: tuple[str, ...]
    login: str = ""
    query: str = ""
    refused: str = ""
    operator: bool = False
    without: tuple[str, ...] = ()
    config: dict[str, Any] = {}


def deployments(path: Path = DEPLOYMENTS) -> Mapping[str, Deployment]:
    """All of them by name. Raises ``msgspec.ValidationError``."""
    return msgspec.convert(tomllib.loads(path.read_text("utf-8")), dict[str, Deployment])


@contextmanager
def started(deployment: Deployment, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Its URL, and the other arguments of ``plumbline verify``, while it runs. Raises ``ServerError``."""
    software, _, which = deployment.server.partition(" ")
    Certificates(folder)
    nkey = write_nkey(folder / "user.nk")
    config = in_folder(deployment.config, folder, nkey)
    (port,) = free_ports(1)
    config = _with_port(config, port)
    config |= write_creds(folder / "user.creds", denied="_INBOX.>") if deployment.operator else {}
    arguments = in_folder(deployment.arguments, folder)
    with STARTS[software](which, config, folder) as address:
        login = f"{deployment.login}@" if deployment.login else ""
        place = f"127.0.0.1:{port}" if deployment.scheme in ("ws", "wss") else address
        yield f"{deployment.scheme}://{login}{place}{deployment.query}", arguments


def in_folder(value: Any, folder: Path, nkey: str = "") -> Any:
    """``value`` with the folder of the certificates, and the public key of the user, in its texts."""
    if isinstance(value, dict):
        return {key: in_folder(one, folder, nkey) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [in_folder(one, folder, nkey) for one in value]
    return value.replace("@FOLDER@", str(folder)).replace("@NKEY@", nkey) if isinstance(value, str) else value


def _with_port(value: Any, port: int) -> Any:
    """``value`` with a free port as a number."""
    if isinstance(value, dict):
        return {key: _with_port(one, port) for key, one in value.items()}
    return port if value == "@PORT@" else value


@contextmanager
def _nats(which: str, config: dict[str, Any], _: Path) -> Iterator[str]:
    with NatsServer(nats_binary(which), config) as server:
        yield server.url.partition("://")[2]


@contextmanager
def _rabbitmq(_: str, config: dict[str, Any], folder: Path) -> Iterator[str]:
    found = rabbitmq_server()
    if isinstance(found, MissingServer):
        raise ServerError(str(found))
    (port,) = free_ports(1)
    data = folder / "rabbitmq"
    data.mkdir()
    lines = (f"{key} = {str(value).lower()}\n" for key, value in config.items() if isinstance(value, bool))
    texts = (f"{key} = {value}\n" for key, value in config.items() if not isinstance(value, bool))
    whole = {"configure": ".*", "write": ".*", "read": ".*"}
    users = definitions_of(RabbitMQConfig(permissions=whole), f"{CLIENT}:password")
    (folder / "definitions.json").write_text(json.dumps(users))
    (data / "rabbitmq.conf").write_text("".join((*lines, *texts)).replace("@PORT@", str(port)))
    with _RabbitMQ(found.path, data):
        yield f"127.0.0.1:{port}"


class _RabbitMQ(RabbitMQ):
    """With the plugin for EXTERNAL."""

    def _plugins(self) -> Sequence[str]:
        return ("rabbitmq_auth_mechanism_ssl",)


Start = Callable[[str, dict[str, Any], Path], AbstractContextManager[str]]
STARTS: Mapping[str, Start] = {"nats-server": _nats, "rabbitmq": _rabbitmq}


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patterns", metavar="PATTERN", nargs="*", default=["*"])
    parser.add_argument("--short", action="store_true", help="only what each deployment selects")
    wanted = parser.parse_args()
    runs: list[Run] = []
    for name, deployment in deployments().items():
        if any(fnmatchcase(name, pattern) for pattern in wanted.patterns):
            with (
                TemporaryDirectory(prefix="plumbline-zoo-") as folder,
                started(deployment, Path(folder)) as (url, arguments),
            ):
                runs.append(run_suite((url, *arguments), deployment.select if wanted.short else ()))
            print(f"{name:<30} {runs[-1].exit_code} {dict(runs[-1].outcomes)} {runs[-1].duration_s:.0f} s")
            for line in runs[-1].red or ([] if runs[-1].is_green else [runs[-1].output[-2000:]]):
                print(f"  {line}")
    return 0 if runs and all(run.is_green for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
