"""The server configurations that checks need: ``variants.toml`` and ``amqp_variants.toml``, read and checked.

This module starts no server and connects to none: who does so gets a configuration as a plain dict, to be
written as JSON, which nats-server and the reference broker read with ``-c FILE``. Ports and folders are
for the one who starts it to add.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from plumbline.errors import UNDECODABLE, ExitCode, PlumblineError

VARIANTS = Path(__file__).parent / "variants.toml"
AMQP_VARIANTS = VARIANTS.with_name("amqp_variants.toml")


Contents = TypeVar("Contents")


class VariantsError(PlumblineError):
    """The file is wrong; the text says where and what to write."""

    exit_code = ExitCode.HARNESS_ERROR


class Variant(Struct, frozen=True):
    """One configuration. ``credentials`` maps a role to the CONNECT fields it sends."""

    name: str
    description: str
    config: dict[str, Any]
    credentials: dict[str, dict[str, str]] = {}
    refuses: bool = False  # its checks want to be refused

    def url(self, address: str) -> str:
        """``host:port`` as a URL that carries the ``default`` credentials, where there are any."""
        default = self.credentials.get("default", {})
        secrets = [default[field] for field in ("user", "pass", "auth_token") if field in default]
        login = ":".join(quote(secret, safe="") for secret in secrets)
        return f"nats://{login}@{address}" if login else f"nats://{address}"


class AmqpVariant(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of an AMQP broker, in the names of the reference broker's."""

    description: str
    settings: dict[str, Any]


class _Table(Struct, forbid_unknown_fields=True):
    description: str
    config: dict[str, Any]
    credentials: dict[str, dict[str, str]] = {}
    refuses: bool = False


class _VariantsFile(Struct, forbid_unknown_fields=True):
    main: _Table
    variant: dict[str, _Table]


def main_server(path: Path = VARIANTS) -> Variant:
    """The configuration for every check that names no variant. Raises ``VariantsError``."""
    return _variant("main", _read(path, _VariantsFile).main)


def variants(path: Path = VARIANTS) -> Mapping[str, Variant]:
    """All variants by name, in the order of the file. Raises ``VariantsError``."""
    return {name: _variant(name, table) for name, table in _read(path, _VariantsFile).variant.items()}


def amqp_variants(path: Path = AMQP_VARIANTS) -> Mapping[str, AmqpVariant]:
    """Those for AMQP by name, in the order of the file. Raises ``VariantsError``."""
    return _read(path, dict[str, AmqpVariant])


def _read(path: Path, kind: type[Contents]) -> Contents:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        return msgspec.convert(tables, kind)
    except UNDECODABLE as error:
        raise VariantsError(f"{path.name}: {error}") from None


def _variant(name: str, table: _Table) -> Variant:
    return Variant(name, table.description, table.config, table.credentials, table.refuses)
