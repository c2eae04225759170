"""The table of deployments, ``deployments.toml``: its comment says what each field is."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

DEPLOYMENTS = Path(__file__).with_name("deployments.toml")


class Deployment(Struct, frozen=True, forbid_unknown_fields=True):
    """One table of the file."""

    server: str
    source: str
    planted: str
    fails: str
    select: tuple[str, ...] = ()
    config: dict[str, Any] = {}
    login: str = ""
    nodes: int = 1
    restarts: bool = False
    risky: bool = False

    @property
    def software(self) -> str:
        return self.server.partition(" ")[0]

    @property
    def which(self) -> str:
        return self.server.partition(" ")[2]

    @property
    def protocol(self) -> str:
        return "nats" if self.software == "nats-server" else "amqp"


def deployments(path: Path = DEPLOYMENTS) -> Mapping[str, Deployment]:
    """All of them by name. Raises ``msgspec.ValidationError``."""
    return msgspec.convert(tomllib.loads(path.read_text("utf-8")), dict[str, Deployment])
