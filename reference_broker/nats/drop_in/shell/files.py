"""The files of ``plumbline-nats-server`` besides its store: configuration, pid file, ports file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from msgspec import structs

from plumbline.reference_broker.nats.config import ConfigError
from plumbline.reference_broker.nats.drop_in.language import Value, parse
from plumbline.reference_broker.nats.drop_in.options import OPERATOR_KEYS, Settings
from plumbline.reference_broker.nats.drop_in.settings import settings
from plumbline.untrusted import read_file

JWT_BEGIN = "eyJ"  # '{"' in base64


def read_text(path: PurePath) -> str:
    """The text of a configuration file. Raises ``ConfigError``."""
    try:
        return read_file(Path(path)).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise ConfigError(f"open {path}: {(error.strerror or str(error)).lower()}") from None


def load(flags: Mapping[str, Any]) -> Settings:
    """The settings of a command line and the configuration that it names. Raises ``ConfigError``."""
    fields: dict[str, Value] = {}
    if name := flags.get("config"):
        fields = parse(read_text(PurePath(name)), name, read=read_text, environment=os.environ)
        if not fields:
            raise ConfigError(f"{name}: config has no values or is empty")
        fields = {key: _with_file(key, value) for key, value in fields.items()}
    return settings(fields, flags)


def _with_file(key: str, value: Value) -> Value:
    """``operator`` with the text of the file that it may name. Raises ``ConfigError``."""
    if key.lower() not in OPERATOR_KEYS.split():
        return value
    if isinstance(value.value, list):
        return structs.replace(value, value=[_with_file(key, one) for one in value.value])
    if not isinstance(value.value, str) or value.value.startswith(JWT_BEGIN):
        return value
    return structs.replace(value, value=read_text(Path(value.value).expanduser()))


def ports_file(folder: str) -> Path:
    """Where launchers look for it."""
    return Path(folder, f"nats-server_{os.getpid()}.ports")


def write_ports_file(folder: str, urls: Mapping[str, Sequence[str]]) -> Path:
    """Whole or not at all: who waits for it may read it at once. Raises ``OSError``."""
    path = ports_file(folder)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps({name: list(found) for name, found in urls.items() if found}))
    unfinished.replace(path)
    return path


def write_pid_file(path: str) -> None:
    """Raises ``OSError``."""
    Path(path).write_text(str(os.getpid()))


def process_of(target: str) -> int:
    """The pid in ``--signal reload=TARGET``: a number, or a file that has it. Raises ``ConfigError``."""
    text = target
    if not target.isdecimal():
        try:
            text = Path(target).read_text().strip()
        except OSError as error:
            raise ConfigError(f"{target}: {error.strerror}") from None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ConfigError(f"invalid pid: {text}")
    return int(text)
