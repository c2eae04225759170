"""The settings of an AMQP variant as files that RabbitMQ reads.

Sources: RabbitMQ, "Configuration" (rabbitmq.conf, advanced.config), "Schema Definition Export and Import",
"Passwords", "Memory Threshold and Limit".
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

ALARM = "alarm"  # while this file is in the folder of a node, publishers wait
SALT = b"\1\2\3\4"
TICK_MS = 250  # how often RabbitMQ looks for what was not acknowledged in time: each minute if not set
# Erlang for -eval, without blanks. "rabbitmqctl set_vm_memory_high_watermark 0" does the same, in seconds.
_ALARM_CODE = (
    "spawn(fun()->Run=fun(F,Old)->timer:sleep(50),New=filelib:is_file('@FILE@'),case{Old,New}of"
    "{false,true}->vm_memory_monitor:set_vm_memory_high_watermark(0);"
    "{true,false}->vm_memory_monitor:set_vm_memory_high_watermark(0.9);"
    "_->(ok)end,F(F,New)end,Run(Run,false)end)."
)


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """As the reference broker has them: seconds and bytes; permissions by user and virtual host."""

    consumer_timeout: float | None = None
    max_message_size: int | None = None
    vhosts: tuple[str, ...] = ("/",)
    users: dict[str, str] = {}
    permissions: dict[str, dict[str, dict[str, str]]] = {}


def settings_of(fields: Mapping[str, Any]) -> Settings:
    """Raises ``msgspec.ValidationError`` for a setting that this module does not know."""
    return msgspec.convert(fields, Settings)


def configuration(settings: Settings, definitions: str) -> str:
    """The text of rabbitmq.conf; ``definitions`` is the path of that file."""
    lines = {
        "consumer_timeout": None
        if settings.consumer_timeout is None
        else round(1000 * settings.consumer_timeout),
        "max_message_size": settings.max_message_size,
        "load_definitions": definitions if settings.users else None,
    }
    return "".join(f"{key} = {value}\n" for key, value in lines.items() if value is not None)


def definitions_of(settings: Settings) -> dict[str, Any]:
    """Users, virtual hosts and permissions. A user without permissions may enter no virtual host."""
    return {
        "users": [_user(name, password) for name, password in settings.users.items()],
        "vhosts": [{"name": host} for host in settings.vhosts],
        "permissions": [
            {"user": user, "vhost": host, **permission}
            for user, own in settings.permissions.items()
            for host, permission in own.items()
        ],
    }


def _user(name: str, password: str) -> dict[str, str]:
    digest = hashlib.sha256(SALT + password.encode()).digest()
    return {
        "name": name,
        "password_hash": base64.b64encode(SALT + digest).decode(),
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": "",
    }


def write_files(settings: Settings, folder: Path) -> None:
    """rabbitmq.conf, advanced.config and the definitions, in the folder of a node."""
    definitions = folder / "definitions.json"
    definitions.write_text(json.dumps(definitions_of(settings)), "utf-8")
    (folder / "rabbitmq.conf").write_text(configuration(settings, str(definitions)), "utf-8")
    (folder / "advanced.config").write_text(f"[{{rabbit, [{{channel_tick_interval, {TICK_MS}}}]}}].\n")


def alarm_code(folder: Path) -> str:
    """An argument of -eval: while the file ``ALARM`` is in the folder, publishers wait."""
    return _ALARM_CODE.replace("@FILE@", str(folder / ALARM))
