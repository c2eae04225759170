"""The files of ``plumbline-rabbitmq``: its configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plumbline.reference_broker.amqp.config import ConfigError
from plumbline.reference_broker.amqp.drop_in.language import Line, parse
from plumbline.reference_broker.amqp.drop_in.settings import Settings, settings
from plumbline.untrusted import read_file


def load(flags: Mapping[str, Any]) -> Settings:
    """The settings of a command line and of the configuration that is named. Raises ``ConfigError``."""
    lines: dict[str, Line] = {}
    if file := configuration_file(flags):
        lines = parse(read_text(file), file.name, os.environ)
    return settings(lines, os.environ, flags)


def configuration_file(flags: Mapping[str, Any]) -> Path | None:
    """That of the command line or the environment, which may leave ``.conf`` away, as RabbitMQ reads it."""
    name = flags.get("config") or os.environ.get("RABBITMQ_CONFIG_FILE")
    if not name:
        return None
    path = Path(name)
    with_ending = path.with_name(f"{path.name}.conf")
    return with_ending if not path.exists() and with_ending.exists() else path


def read_text(path: Path) -> str:
    """Raises ``ConfigError``."""
    try:
        return read_file(path).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
