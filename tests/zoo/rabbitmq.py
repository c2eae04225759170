"""RabbitMQ in a configuration: a start script of ours that configures it and then becomes it.

The script writes the configuration where the server looks for it. So ``plumbline verify --server SCRIPT``
starts the same deployment again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec import Struct

from plumbline.servers.amqp import rabbitmq_settings
from plumbline.servers.amqp.rabbitmq import RabbitMQ
from plumbline.servers.amqp.rabbitmq_settings import Settings
from plumbline.servers.getting import find_installed, obtain_program
from plumbline.servers.process import ServerError
from plumbline.servers.targets import TargetError, target
from tests.zoo.deployments import Deployment

# The data folder is the only one that the server of another Debian sees. Settings of a variant, which are
# there before, stay; so do its users, in definitions.json.
SCRIPT = """\
#!/bin/sh
folder=$(dirname "$RABBITMQ_CONFIG_FILE")
cp '{login}' "$folder/login.json"
conf="$RABBITMQ_CONFIG_FILE.conf" before="$folder/before.conf"
touch "$conf"
test -f "$before" || cp "$conf" "$before"
sed "s|@FOLDER@|$folder|" '{config}' | cat "$before" - > "$conf"
exec '{program}' "$@"
"""


class RabbitMQConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """``conf``: lines of rabbitmq.conf. ``permissions``: of the login, ``configure``, ``write`` and ``read``;
    without them it is ``guest``, who may do everything."""

    conf: dict[str, Any] = {}
    permissions: dict[str, str] = {}


@contextmanager
def start_script(deployment: Deployment) -> Iterator[Path]:
    """The program to start. Raises ``ServerError`` with what this machine lacks."""
    config = msgspec.convert(deployment.config, RabbitMQConfig)
    with TemporaryDirectory(prefix="plumbline-zoo-") as folder:
        yield _start_script(Path(folder), _program(deployment.which), config, deployment.login)


@contextmanager
def running(deployment: Deployment) -> Iterator[str]:
    """Its URL while it runs. Raises ``ServerError``."""
    with start_script(deployment) as script, RabbitMQ(script) as node:
        yield node.url.replace("guest:guest", deployment.login or "guest:guest")


def _program(which: str) -> Path:
    wanted = target(f"rabbitmq@{which}")
    try:
        return find_installed(wanted) or obtain_program(wanted, print)
    except TargetError as error:
        raise ServerError(str(error)) from None


def _start_script(folder: Path, program: Path, config: RabbitMQConfig, login: str) -> Path:
    """Beside it the port mapper of the program's own Erlang, where there is one."""
    epmd = program.with_name("epmd")
    if epmd.exists():
        (folder / "epmd").symlink_to(epmd)
    definitions, file = folder / "login.json", folder / "rabbitmq.conf"
    definitions.write_text(json.dumps(definitions_of(config, login)))
    lines = {**config.conf, **({"load_definitions": "@FOLDER@/login.json"} if login else {})}
    file.write_text("".join(f"{key} = {_value(value)}\n" for key, value in lines.items()))
    script = folder / "rabbitmq-server"
    script.write_text(SCRIPT.format(login=definitions, config=file, program=program))
    script.chmod(0o755)
    return script


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def definitions_of(config: RabbitMQConfig, login: str) -> dict[str, Any]:
    """One user, who has these permissions. Source: RabbitMQ, "Definitions" and "Passwords"."""
    if not login:
        return {}
    user, _, password = login.partition(":")
    users = Settings(users={user: password}, permissions={user: {"/": config.permissions}})
    return rabbitmq_settings.definitions_of(users)
