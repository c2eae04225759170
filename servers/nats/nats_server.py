"""Finds and starts the real nats-servers of this machine, against which the suite is tested.

Knows nothing of the protocol beyond "a NATS server speaks first, and begins with INFO". The server chooses
its own port and tells it in a ports file (``port: -1`` with ``ports_file_dir``, the same in 2.9 and 2.15), so
that two runs never race for one. ``real_servers()`` lists all listed servers and what is missing, with the
command that gets it; ``NatsServer`` runs one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from plumbline.servers.process import ServerError, ServerProcess
from plumbline.versions import numbers

NAMED_BY = "PLUMBLINE_NATS_SERVER"
PACKAGED_COMMAND = "apt-get install nats-server"
NEWEST_COMMAND = "go install github.com/nats-io/nats-server/v2@latest (or, without Go: make servers)"


@dataclass(frozen=True)
class ServerBinary:
    """A real server on this machine. ``name`` is in test ids: ``packaged``, ``newest`` or its version."""

    name: str
    path: Path
    version: str


@dataclass(frozen=True)
class MissingServer:
    """A real server that this machine lacks, and the command that gets it."""

    name: str
    reason: str
    command: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.command}"


def cache_folder() -> Path:
    """Where ``ci.install`` puts servers that no package manager installs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "plumbline" / "servers"


def targets_folder() -> Path:
    """Where ``servers.getting`` puts servers that were asked for by name, one folder for each version."""
    return cache_folder() / "targets"


@cache
def version_of(binary: Path) -> str:
    """``2.9.10``, or ``ServerError`` if this is no nats-server."""
    try:
        answer = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerError(f"{binary} does not run: {error}") from error
    found = re.search(r"nats-server: v?(\S+)", answer.stdout)
    if found is None:
        output = (answer.stdout + answer.stderr).strip()[:200]
        raise ServerError(f"{binary} is not a nats-server: --version printed {output!r}")
    return found[1]


def named_servers() -> list[ServerBinary]:
    """The binaries that ``PLUMBLINE_NATS_SERVER`` names, in its order; each must run."""
    paths = [Path(entry) for entry in os.environ.get(NAMED_BY, "").split(os.pathsep) if entry]
    return [ServerBinary(f"nats-server-{version_of(path)}", path, version_of(path)) for path in paths]


def real_servers() -> list[ServerBinary | MissingServer]:
    """What ``PLUMBLINE_NATS_SERVER`` names, else the distribution's nats-server and the newest other one."""
    named = named_servers()
    if named:
        return list(named)
    return [_packaged(), _newest()]


def packaged_binary() -> Path | None:
    """The distribution's nats-server. Debian's is in ``/usr/sbin``, which is not on every user's PATH."""
    for folder in ("/usr/sbin", "/usr/bin"):
        path = Path(folder, "nats-server")
        if path.exists():
            return path
    return None


def _packaged() -> ServerBinary | MissingServer:
    path = packaged_binary()
    if path is None:
        return MissingServer("packaged", "the distribution's nats-server is not installed", PACKAGED_COMMAND)
    return ServerBinary("packaged", path, version_of(path))


def _newest() -> ServerBinary | MissingServer:
    found = [(numbers(version_of(path)), path) for path in _other_binaries()]
    if not found:
        return MissingServer("newest", "no newest nats-server is installed", NEWEST_COMMAND)
    path = max(found)[1]
    return ServerBinary("newest", path, version_of(path))


def _other_binaries() -> list[Path]:
    """Every other nats-server: on PATH, where Go installs, where ``ci.install`` puts them."""
    go = [os.environ.get("GOBIN", "")]
    go += [str(Path(root, "bin")) for root in os.environ.get("GOPATH", "").split(os.pathsep) if root]
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *go, str(Path.home() / "go" / "bin")]
    found = [Path(folder, "nats-server") for folder in folders if folder]
    found += sorted(cache_folder().glob("*/nats-server"))
    packaged = packaged_binary()
    own = packaged.resolve() if packaged else None
    usable = (path.resolve() for path in found if os.access(path, os.X_OK) and path.is_file())
    return [path for path in dict.fromkeys(usable) if path != own]


def binaries() -> list[Path]:
    """Every nats-server that this machine seems to have; those that the user names first."""
    named = [Path(entry) for entry in os.environ.get(NAMED_BY, "").split(os.pathsep) if entry]
    packaged = packaged_binary()
    return [*named, *([packaged] if packaged else []), *_other_binaries(), *fetched_binaries()]


def fetched_binaries() -> list[Path]:
    """Releases that were got by their name. They are no candidates for the newest: they may be of any age."""
    return sorted(targets_folder().glob("*/nats-server"))


class NatsServer(ServerProcess):
    """One nats-server with a port and a store of its own.

    ``config`` is a nats-server configuration. Unless it says otherwise the server listens on 127.0.0.1, with
    JetStream (``"jetstream": False`` switches that off). Its folder vanishes with it.
    """

    def __init__(self, binary: Path | str, config: Mapping[str, object] | None = None) -> None:
        super().__init__(binary)
        self.config = dict(config or {})

    def _commands(self) -> Sequence[Sequence[str | Path]]:
        config_file = self._folder / "server.conf"
        config_file.write_text(configuration(self.config, self._folder))
        return [[self.binary, "-c", config_file]]

    @property
    def ports_files(self) -> list[Path]:
        """Where its processes wrote their ports. A process that was killed leaves its file."""
        return list(self._folder.glob("*.ports"))

    def address(self, service: str) -> str:
        """The URL of a service (``nats``, ``monitoring``) in its ports file, else empty."""
        for ports_file in self.ports_files:
            with contextlib.suppress(ValueError, TypeError, LookupError, RecursionError):
                return str(json.loads(ports_file.read_bytes())[service][0])
        return ""

    def _ready_url(self, deadline: float) -> str:
        """Once it greets a connection."""
        url = self.address("nats")
        return url if url and _sends_info(url, deadline) else ""


SERVER = NatsServer


def configuration(config: Mapping[str, object], folder: Path) -> str:
    """The configuration file's text: JSON, which nats-server reads as its own format."""
    jetstream = config.get("jetstream", True)
    if jetstream is True:
        jetstream = {}
    if isinstance(jetstream, Mapping):
        jetstream = {"store_dir": str(folder / "store"), **jetstream}
    whole = {"host": "127.0.0.1", **config, "port": -1, "ports_file_dir": str(folder), "jetstream": jetstream}
    # Its lexer knows no \u escapes.
    return json.dumps(whole, ensure_ascii=False, indent=2)


def _sends_info(url: str, deadline: float) -> bool:
    """Whether a connection is greeted. The server let go of it on return: it counts as a client no more."""
    host, _, port = url.partition("://")[2].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1.0) as probe:
            probe.settimeout(max(0.05, deadline - time.monotonic()))
            greeted = probe.recv(5) == b"INFO "
            probe.shutdown(socket.SHUT_WR)
            while probe.recv(65536):
                pass
            return greeted
    except OSError:
        return False


def main() -> int:
    """Lists the real servers of this machine."""
    for server in real_servers():
        if isinstance(server, MissingServer):
            print(f"{server.name:10} missing   {server}")
        else:
            print(f"{server.name:10} {server.version:9} {server.path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
