"""Starts the AMQP deployments of ``amqp.toml``: RabbitMQ in a configuration, or the reference broker.

RabbitMQ gets its configuration from a start script of ours, which writes it where the server looks for it and
then becomes the server. So ``plumbline verify --server SCRIPT`` starts the same deployment again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec import Struct

from plumbline.servers.amqp.rabbitmq import RabbitMQ
from plumbline.servers.getting import find_installed, obtain_program
from plumbline.servers.process import ServerError
from plumbline.servers.targets import TargetError, target

DEPLOYMENTS = Path(__file__).with_name("amqp.toml")
RABBITMQ, REFERENCE = "rabbitmq", "reference-amqp"
SALT = b"\1\2\3\4"

# The data folder is the only one that the server of another Debian sees.
SCRIPT = """\
#!/bin/sh
folder=$(dirname "$RABBITMQ_CONFIG_FILE")
cp '{definitions}' "$folder/definitions.json"
sed "s|@FOLDER@|$folder|" '{config}' > "$RABBITMQ_CONFIG_FILE.conf"
exec '{program}' "$@"
"""


class RabbitMQConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """``conf``: lines of rabbitmq.conf. ``permissions``: of the login, ``configure``, ``write`` and ``read``;
    without them it is ``guest``, who may do everything."""

    conf: dict[str, Any] = {}
    permissions: dict[str, str] = {}


class AmqpDeployment(Struct, frozen=True, forbid_unknown_fields=True):
    """One table of the file. ``server``: the software and which of it, as in ``rabbitmq 4.3``.

    ``restarts``: the suite starts the deployment itself, so that it can restart it.
    """

    server: str
    source: str
    select: tuple[str, ...]
    config: dict[str, Any] = {}
    login: str = ""
    restarts: bool = False


def deployments(path: Path = DEPLOYMENTS) -> Mapping[str, AmqpDeployment]:
    """All of them by name. Raises ``msgspec.ValidationError``."""
    return msgspec.convert(tomllib.loads(path.read_text("utf-8")), dict[str, AmqpDeployment])


@contextmanager
def started(deployment: AmqpDeployment) -> Iterator[tuple[str, ...]]:
    """The arguments of ``plumbline verify`` for it, while it runs. Raises ``ServerError``."""
    software, _, which = deployment.server.partition(" ")
    with STARTS[software](which, deployment) as arguments:
        yield arguments


@contextmanager
def _rabbitmq(which: str, deployment: AmqpDeployment) -> Iterator[tuple[str, ...]]:
    config = msgspec.convert(deployment.config, RabbitMQConfig)
    with TemporaryDirectory(prefix="plumbline-zoo-") as folder:
        script = _start_script(Path(folder), _program(which), config, deployment.login)
        if deployment.restarts:
            yield ("--server", str(script))
            return
        with RabbitMQ(script) as node:
            yield (node.url.replace("guest:guest", deployment.login or "guest:guest"),)


def _program(which: str) -> Path:
    """Raises ``ServerError`` with what this machine lacks."""
    wanted = target(f"{RABBITMQ}@{which}")
    try:
        return find_installed(wanted) or obtain_program(wanted, print)
    except TargetError as error:
        raise ServerError(str(error)) from None


def _start_script(folder: Path, program: Path, config: RabbitMQConfig, login: str) -> Path:
    """Beside it the port mapper of the program's own Erlang, where there is one."""
    epmd = program.with_name("epmd")
    if epmd.exists():
        (folder / "epmd").symlink_to(epmd)
    definitions, file = folder / "definitions.json", folder / "rabbitmq.conf"
    definitions.write_text(json.dumps(_definitions(config, login)))
    lines = {**config.conf, **({"load_definitions": "@FOLDER@/definitions.json"} if login else {})}
    file.write_text("".join(f"{key} = {_value(value)}\n" for key, value in lines.items()))
    script = folder / "rabbitmq-server"
    script.write_text(SCRIPT.format(definitions=definitions, config=file, program=program))
    script.chmod(0o755)
    return script


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _definitions(config: RabbitMQConfig, login: str) -> dict[str, Any]:
    """One user, who has these permissions. Source: RabbitMQ, "Definitions" and "Passwords"."""
    if not login:
        return {}
    user, _, password = login.partition(":")
    digest = hashlib.sha256(SALT + password.encode()).digest()
    return {
        "users": [
            {
                "name": user,
                "password_hash": base64.b64encode(SALT + digest).decode(),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": "",
            }
        ],
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": user, "vhost": "/", **config.permissions}],
    }


@contextmanager
def _reference(which: str, deployment: AmqpDeployment) -> Iterator[tuple[str, ...]]:
    """The reference broker with defects that no document forbids; the suite starts it."""
    yield ("amqp", *(f"--defect={name}" for name in deployment.config.get("defects", ())))


Start = Callable[[str, AmqpDeployment], AbstractContextManager[tuple[str, ...]]]
STARTS: Mapping[str, Start] = {RABBITMQ: _rabbitmq, REFERENCE: _reference}
