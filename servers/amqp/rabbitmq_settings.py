"""The settings of an AMQP variant as files that RabbitMQ reads.

Sources: RabbitMQ, "Configuration" (rabbitmq.conf, advanced.config), "Schema Definition Export and Import",
"Passwords", "Memory Threshold and Limit", "TLS Support".
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
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


class TlsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Files, and what is asked of clients: ``ssl_options`` and ``ssl_cert_login_from``."""

    certfile: str = ""
    keyfile: str = ""
    cacertfile: str = ""
    verify: bool = False
    required: bool = False
    login_from: str = "distinguished_name"


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """As the reference broker has them: seconds and bytes; permissions by user and virtual host."""

    consumer_timeout: float | None = None
    max_message_size: int | None = None
    vhosts: tuple[str, ...] = ("/",)
    users: dict[str, str] = {}
    permissions: dict[str, dict[str, dict[str, str]]] = {}
    topic_permissions: dict[str, dict[str, dict[str, dict[str, str]]]] = {}
    auth_mechanisms: tuple[str, ...] = ()
    tls: TlsSettings | None = None

    @property
    def plugins(self) -> tuple[str, ...]:
        """What has to be enabled for them."""
        return ("rabbitmq_auth_mechanism_ssl",) if "EXTERNAL" in self.auth_mechanisms else ()


def settings_of(fields: Mapping[str, Any]) -> Settings:
    """Raises ``msgspec.ValidationError`` for a setting that this module does not know."""
    return msgspec.convert(fields, Settings)


def configuration(settings: Settings, definitions: str, tls_port: int = 0) -> str:
    """The text of rabbitmq.conf; ``definitions`` is the path of that file, ``tls_port`` that of the listener
    with TLS, on 127.0.0.1."""
    lines = {
        "consumer_timeout": None
        if settings.consumer_timeout is None
        else round(1000 * settings.consumer_timeout),
        "max_message_size": settings.max_message_size,
        "load_definitions": definitions if settings.users else None,
        **{f"auth_mechanisms.{number}": name for number, name in enumerate(settings.auth_mechanisms, 1)},
    }
    if settings.tls is not None:
        lines |= _of_listener(settings.tls, tls_port)
    return "".join(f"{key} = {value}\n" for key, value in lines.items() if value is not None)


def _of_listener(tls: TlsSettings, port: int) -> dict[str, Any]:
    return {
        "listeners.ssl.1": f"127.0.0.1:{port}",
        "ssl_options.cacertfile": tls.cacertfile,
        "ssl_options.certfile": tls.certfile,
        "ssl_options.keyfile": tls.keyfile,
        "ssl_options.verify": "verify_peer" if tls.verify else "verify_none",
        "ssl_options.fail_if_no_peer_cert": str(tls.required).lower(),
        "ssl_cert_login_from": tls.login_from,
    }


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
        "topic_permissions": [
            {"user": user, "vhost": host, "exchange": exchange, **keys}
            for user, hosts in settings.topic_permissions.items()
            for host, exchanges in hosts.items()
            for exchange, keys in exchanges.items()
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


def write_files(settings: Settings, folder: Path, tls_port: int = 0) -> None:
    """rabbitmq.conf, advanced.config and the definitions, in the folder of a node."""
    if settings.tls is not None:
        settings = msgspec.structs.replace(settings, tls=_copied(settings.tls, folder))
    definitions = folder / "definitions.json"
    definitions.write_text(json.dumps(definitions_of(settings)), "utf-8")
    (folder / "rabbitmq.conf").write_text(configuration(settings, str(definitions), tls_port), "utf-8")
    (folder / "advanced.config").write_text(f"[{{rabbit, [{{channel_tick_interval, {TICK_MS}}}]}}].\n")


def _copied(tls: TlsSettings, folder: Path) -> TlsSettings:
    """Its files in this folder: one that is unpacked sees no other."""
    files = {name: folder / f"{name}.pem" for name in ("cacertfile", "certfile", "keyfile")}
    for name, path in files.items():
        shutil.copy(getattr(tls, name), path)
    return msgspec.structs.replace(tls, **{name: str(path) for name, path in files.items()})


def alarm_code(folder: Path) -> str:
    """An argument of -eval: while the file ``ALARM`` is in the folder, publishers wait."""
    return _ALARM_CODE.replace("@FILE@", str(folder / ALARM))
