"""The dimensions of a run: what streams and queues are made like where a check does not name it.

``--storage``, ``--replicas`` (NATS) and ``--queue-type`` (AMQP): the same checks on what people deploy. What
a check names itself is kept, since its requirement is about that.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from plumbline.conformance.requirements.catalogue import within_levels
from plumbline.conformance.targets.urls import AnyUrl
from plumbline.errors import UsageProblem

STORAGES = ("file", "memory")
QUEUE_TYPES = ("quorum", "classic")
TABLE = Path(__file__).with_name("dimensions.toml")
MAX_REPLICAS = 5  # docs.nats.io, "Clustering JetStream"
_PROTOCOLS = {"storage": "nats", "replicas": "nats", "queue_type": "amqp"}


class Dimensions(Struct, frozen=True):
    """What is asked for; an empty field or 0 is what Plumbline does by itself."""

    storage: str = ""
    replicas: int = 0
    queue_type: str = ""

    @property
    def given(self) -> Mapping[str, str]:
        """Those that are asked for, by the names of their options without the dashes."""
        values = {name.replace("_", "-"): getattr(self, name) for name in self.__struct_fields__}
        return {name: str(value) for name, value in values.items() if value}

    def require_fitting(self, url: AnyUrl) -> None:
        """Raises ``UsageProblem`` for a value that does not exist, or that is not of this protocol."""
        if self.storage not in ("", *STORAGES):
            raise UsageProblem(f"--storage {self.storage}: write one of {', '.join(STORAGES)}")
        if self.queue_type not in ("", *QUEUE_TYPES):
            raise UsageProblem(f"--queue-type {self.queue_type}: write one of {', '.join(QUEUE_TYPES)}")
        if not 0 <= self.replicas <= MAX_REPLICAS:
            raise UsageProblem(f"--replicas {self.replicas}: write a number from 1 to {MAX_REPLICAS}")
        for name, protocol in _PROTOCOLS.items():
            if getattr(self, name) and protocol != url.protocol:
                option = name.replace("_", "-")
                raise UsageProblem(f"--{option} is for {protocol.upper()}, but {url} is not such a target")

    def require_cluster(self, info: Mapping[str, Any], url: AnyUrl) -> None:
        """Raises ``UsageProblem`` for several replicas on a server that says it is alone."""
        if self.replicas > 1 and not info.get("cluster"):
            raise UsageProblem(
                f"--replicas {self.replicas}: {url} is not part of a cluster (INFO has no cluster), so it "
                "refuses streams with several replicas"
            )

    def unsupported_reason(self, check: str, level: tuple[int, ...]) -> str:
        """Why the check of this id cannot hold in one of them, in a sentence; empty if it can."""
        for row in unsupported_rows():
            value = self.given.get(row.dimension, "")
            is_given = fnmatchcase(value, row.value)
            if is_given and within_levels(level, since=row.since, until=row.until) and row.names(check):
                return f"with --{row.dimension} {value}: {row.reason} ({row.source})"
        return ""


class UnsupportedRow(Struct, frozen=True, forbid_unknown_fields=True):
    """One table of ``dimensions.toml``."""

    dimension: str
    value: str
    checks: tuple[str, ...]
    reason: str
    source: str
    since: str = ""
    until: str = ""

    def names(self, check: str) -> bool:
        """Whether one of its patterns matches."""
        return any(fnmatchcase(check, pattern) for pattern in self.checks)


@cache
def unsupported_rows() -> tuple[UnsupportedRow, ...]:
    """All of ``dimensions.toml``."""
    table = tomllib.loads(TABLE.read_text("utf-8"))
    return msgspec.convert(table["unsupported"], tuple[UnsupportedRow, ...])
