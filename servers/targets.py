"""Named real servers: ``servers/targets.toml`` read, names such as ``nats-server@2.10.14`` understood.

What a name means is decided here; ``servers.getting`` obtains a server, ``servers.nats`` and ``servers.amqp``
start one. Standard library only. A name is ``SOFTWARE@VERSION``: a release (``2.10.14``), a series, which
means its last listed release (``2.10``; of RabbitMQ the release that the Debian suite has), ``newest``, or
``debian``, whatever version that package has. Without ``@`` it is the newest. ``x3`` at the end means a
cluster of three: ``nats-server@2.15x3``.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from plumbline.errors import PlumblineError

TARGETS = Path(__file__).parent / "targets.toml"
NEWEST = "newest"
DEBIAN = "debian"
DEFAULT = "nats-server"  # what --server starts where the name of the program says nothing
_RELEASE = re.compile(r"v?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.]+)?)", re.ASCII)
_SERIES = re.compile(r"v?\d+(\.\d+)?", re.ASCII)
_NODES = re.compile(r"(.*)x(\d{1,3})", re.ASCII)


class TargetError(PlumblineError):
    """A name that means nothing, a server that cannot be had, a wrong table; the message says what to do."""


@dataclass(frozen=True)
class Software:
    """One table of ``targets.toml``; its comment says what each field is. Empty: there is no such way."""

    name: str
    protocol: str
    description: str
    newest: str
    versions: tuple[str, ...]
    program: str
    module: str = ""
    start: str = ""
    ready: str = ""
    stop: str = "SIGTERM"
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    fresh: bool = False
    level: str = ""
    debian: str = ""
    go: str = ""
    suites: Mapping[str, str] = field(default_factory=dict)
    wheels: Mapping[str, str] = field(default_factory=dict)
    maven: str = ""
    cargo: str = ""
    library: str = ""
    pip: str = ""
    jars: str = ""
    container: str = ""
    clusters: tuple[int, ...] = ()


@dataclass(frozen=True)
class NamedServer:
    """One server that a name means. ``version`` is empty for ``@debian``: the package decides. ``nodes`` is
    how many of it are one target, as a cluster."""

    software: Software
    version: str
    nodes: int = 1

    @property
    def name(self) -> str:
        """What it is asked for by: ``nats-server@2.10.14``, ``nats-server@2.15.2x3``."""
        cluster = f"x{self.nodes}" if self.nodes > 1 else ""
        return f"{self.software.name}@{self.version or DEBIAN}{cluster}"

    @property
    def image(self) -> str:
        """The container image, or nothing."""
        return self.software.container.format(version=self.version) if self.version else ""

    @property
    def suite(self) -> str:
        """The Debian suite that has this release, or nothing."""
        suites = self.software.suites
        return next((suites[series] for series in suites if is_release_of(self.version, series)), "")

    def is_met_by(self, version: str) -> bool:
        """Whether the name means a program of this version: a series means any of its releases."""
        return is_release_of(version, self.version)


def is_release_of(version: str, series: str) -> bool:
    """``4.3.6`` and ``4.3`` are of ``4.3``, ``4.30.1`` is not. Every version is of the empty series."""
    return not series or f"{version}.".startswith(f"{series}.")


def software(path: Path = TARGETS) -> Mapping[str, Software]:
    """Every table, by name. Raises ``TargetError`` for a file that is wrong."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TargetError(f"{path.name}: {error}") from None
    return {name: _software(path, name, table) for name, table in tables.items()}


def targets(path: Path = TARGETS) -> list[NamedServer]:
    """What ``plumbline targets`` lists: the packaged one and every listed release of each software."""
    listed: list[NamedServer] = []
    for known in software(path).values():
        listed += [NamedServer(known, "")] if known.debian else []
        listed += [NamedServer(known, version) for version in known.versions]
    return listed


def target(name: str, path: Path = TARGETS) -> NamedServer:
    """The server that ``name`` means. Raises ``TargetError``."""
    known = software(path)
    software_name, _, version = name.partition("@")
    if software_name not in known:
        near = difflib.get_close_matches(software_name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
        raise TargetError(f"unknown target {software_name!r}; {hint}")
    found = known[software_name]
    nodes = 1
    if cluster := _NODES.fullmatch(version):
        version, nodes = cluster[1], int(cluster[2])
        if nodes not in found.clusters:
            sizes = " or ".join(f"x{size}" for size in found.clusters)
            choices = f"write {sizes} for a cluster" if sizes else "it is started alone only: leave it out"
            raise TargetError(f"{name}: x{nodes} is not possible; {choices}")
    return NamedServer(found, _version(found, version), nodes)


def software_of(binary: Path | str) -> Software:
    """The software that a program is, by the beginning of its name; nats-server if none has such a name.

    The program is not asked: some take seconds to answer.
    """
    known = software()
    name = Path(binary).name
    return next((one for one in known.values() if name.startswith(one.program)), known[DEFAULT])


def _version(known: Software, requested: str) -> str:
    """The release that is meant; empty for the package."""
    if requested in ("", NEWEST):
        return known.newest
    if requested == DEBIAN and known.debian:
        return ""
    if requested in known.versions:
        return requested
    if release := _RELEASE.fullmatch(requested):
        return release[1]
    series = requested.removeprefix("v") + "."
    listed = [version for version in known.versions if version.startswith(series)]
    if _SERIES.fullmatch(requested) and listed:
        return listed[-1]
    choices = ", ".join(["a release such as " + known.newest, NEWEST, *([DEBIAN] if known.debian else [])])
    raise TargetError(f"{known.name}@{requested}: write {choices}, or a series that is listed")


def _software(path: Path, name: str, table: Any) -> Software:
    """Raises ``TargetError`` that names the field."""
    shapes: dict[str, type] = {known.name: str for known in fields(Software)}
    shapes |= {"versions": list, "clusters": list, "fresh": bool}
    shapes |= dict.fromkeys(("suites", "wheels", "environment", "files"), dict)
    del shapes["name"]
    required = {"protocol", "description", "newest", "versions", "program"}
    if not isinstance(table, dict):
        raise TargetError(f"{path.name}: {name!r} must be a table")
    for key in table:
        if key not in shapes:
            raise TargetError(f"{path.name}: [{name}] has an unknown key {key!r}; known: {', '.join(shapes)}")
    for key, shape in shapes.items():
        if key not in table and key in required:
            raise TargetError(f"{path.name}: [{name}] lacks {key!r}")
        if key in table and not isinstance(table[key], shape):
            raise TargetError(f"{path.name}: [{name}] {key!r} must be a {shape.__name__}")
    if ("module" in table) == ("start" in table):
        raise TargetError(f"{path.name}: [{name}] must have 'module' or 'start', and not both")
    versions = tuple(map(str, table["versions"]))
    if table["newest"] not in versions:
        raise TargetError(f"{path.name}: [{name}] newest = {table['newest']} is not in versions")
    clusters = tuple(table.get("clusters", ()))
    if not all(isinstance(size, int) and size > 1 for size in clusters):
        raise TargetError(f"{path.name}: [{name}] clusters must be numbers of nodes, more than 1")
    return Software(**{**table, "name": name, "versions": versions, "clusters": clusters})
