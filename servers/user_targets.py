"""Servers of a user's own, by name: a TOML file says how each is started.

    [myserver]
    protocol = "nats"                                      # or "amqp"
    start = "my-server -p {port} -c {config}"              # no shell; {port}, {config}, {store}
    ready = "Listening for clients"                        # a regular expression; else the port is awaited
    stop = "SIGINT"                                        # else SIGTERM
    environment = { MY_SERVER_LOG = "debug" }
    description = "What plumbline targets shows."

The command runs in the folder of the file, in the foreground. ``{config}`` is a file in the configuration
language of nats-server, with the port, the store and what a check needs. What is stored in ``{store}``, or in
the ``store_dir`` of the configuration, is there again when the server is started with the same one.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from plumbline.servers.ports import free_ports
from plumbline.servers.process import ServerError, ServerProcess
from plumbline.servers.targets import TargetError
from plumbline.untrusted import BadInputError, parse_toml, read_file

PORT, CONFIG, STORE = "{port}", "{config}", "{store}"
KNOWN = (PORT, CONFIG, STORE)
MAX_FILE_SIZE = 1 << 20  # bytes; a larger file is an error
_PLACEHOLDER = re.compile(r"\{[a-z_]+\}")


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    protocol: Literal["nats", "amqp"]
    start: str
    description: str = ""
    ready: str = ""
    stop: str = "SIGTERM"
    environment: dict[str, str] = {}


class UserTarget(Struct, frozen=True):
    """One server of the file. ``command``: its words, with the placeholders; ``folder``: that of the file."""

    name: str
    file: Path
    protocol: str
    command: tuple[str, ...]
    description: str
    ready: str
    stop: signal.Signals
    environment: Mapping[str, str]

    @property
    def folder(self) -> Path:
        return self.file.parent

    @property
    def takes_config(self) -> bool:
        """Whether it can be started in other configurations."""
        return self._has(CONFIG)

    @property
    def keeps_store(self) -> bool:
        """Whether it can be started again with what it stored."""
        return self._has(STORE) or self._has(CONFIG)

    @property
    def program(self) -> Path | None:
        """The first word of the command; a path is relative to the file. None: it is no program."""
        first = self.command[0]
        found = shutil.which(self.folder / first if "/" in first else first)
        return Path(found).absolute() if found else None

    def _has(self, placeholder: str) -> bool:
        return any(placeholder in word for word in self.command)


def user_targets(path: Path) -> Mapping[str, UserTarget]:
    """Every server of the file, by name. Raises ``TargetError`` that says what is wrong, and where."""
    try:
        tables = parse_toml(read_file(path, MAX_FILE_SIZE), dict[str, Any])
    except OSError as error:
        raise TargetError(f"{path}: {error.strerror}") from None
    except BadInputError as error:
        raise TargetError(f"{path}: {error}") from None
    if not tables:
        raise TargetError(f'{path}: it has no server; write [NAME] with protocol = "nats" and start = "..."')
    return {name: _user_target(path.absolute(), name, table) for name, table in tables.items()}


def user_target(path: Path, name: str) -> UserTarget:
    """One server of the file. Raises ``TargetError``."""
    known = user_targets(path)
    if name not in known:
        raise TargetError(f"{path}: there is no [{name}]; there are: {', '.join(known)}")
    return known[name]


def _user_target(path: Path, name: str, table: object) -> UserTarget:
    where = f"{path.name}: [{name}]"
    try:
        read = msgspec.convert(table, _Table)
    except msgspec.ValidationError as error:
        raise TargetError(f"{where}: {error}") from None
    return UserTarget(
        name=name,
        file=path,
        protocol=read.protocol,
        command=_command(where, read),
        description=read.description,
        ready=_pattern(where, read.ready),
        stop=_signal(where, read.stop),
        environment=read.environment,
    )


def _command(where: str, table: _Table) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(table.start))
    except ValueError as error:
        raise TargetError(f"{where}: start: {error}") from None
    if not words:
        raise TargetError(f"{where}: start is empty; write the command that starts the server")
    used = {placeholder for word in words for placeholder in _PLACEHOLDER.findall(word)}
    if unknown := sorted(used - set(KNOWN)):
        raise TargetError(f"{where}: start has {unknown[0]}; the placeholders are {', '.join(KNOWN)}")
    if not used & {PORT, CONFIG}:
        raise TargetError(f"{where}: start must have {PORT} or {CONFIG}: Plumbline chooses the port")
    if table.protocol == "amqp" and PORT not in used:
        raise TargetError(f"{where}: start must have {PORT}: {CONFIG} is the configuration of a NATS server")
    if table.protocol == "amqp" and CONFIG in used:
        raise TargetError(f"{where}: {CONFIG} is the configuration of a NATS server; leave it out")
    return words


def _pattern(where: str, ready: str) -> str:
    try:
        re.compile(ready)
    except re.error as error:
        raise TargetError(f"{where}: ready is not a regular expression: {error}") from None
    return ready


def _signal(where: str, name: str) -> signal.Signals:
    try:
        return signal.Signals[name]
    except KeyError:
        raise TargetError(f"{where}: stop = {name!r} is no signal; write SIGTERM, for example") from None


class UserServer(ServerProcess):
    """One server of a user's file, with a port of its own. ``config`` is for ``{config}``."""

    ready_within_s = 60.0
    stopped_within_s = 20.0
    attempts = 3  # it gets its port, and another process may take that first

    def __init__(
        self,
        target: UserTarget,
        config: Mapping[str, object] | None = None,
        data: Path | None = None,
        *,
        apart: bool = True,
    ) -> None:
        program = target.program
        if program is None:
            raise ServerError(f"{target.file.name}: [{target.name}]: {target.command[0]} is not a program")
        super().__init__(program, data, apart=apart)
        self.target = target
        self.config = dict(config or {})
        self.stop_signal = self.end_signal = target.stop
        self._port = 0

    def end_alarm(self) -> None:
        """At SIGUSR2, which asks a NATS server for lame duck mode: nothing here knows how to begin that."""
        raise ServerError("its file names no signal for lame duck mode")

    def _commands(self) -> Sequence[Sequence[str | Path]]:
        (self._port,) = free_ports(1)
        config_file, store = self._folder / "server.conf", self._folder / "store"
        store.mkdir(exist_ok=True)
        jetstream = self.config.get("jetstream", True)
        if jetstream is not False:
            given = jetstream if isinstance(jetstream, Mapping) else {}
            jetstream = {"store_dir": str(store), **given}
        whole = {"host": "127.0.0.1", **self.config, "port": self._port, "jetstream": jetstream}
        config_file.write_text(json.dumps(whole, ensure_ascii=False), "utf-8")
        values = {PORT: str(self._port), CONFIG: str(config_file), STORE: str(store)}
        words = [_PLACEHOLDER.sub(lambda found: values[found[0]], word) for word in self.target.command]
        return [[self.binary, *words[1:]]]

    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, **self.target.environment}

    def _working_folder(self) -> Path:
        return self.target.folder

    def _ready_url(self, deadline: float) -> str:
        if self.target.ready and not re.search(self.target.ready, self.log, re.MULTILINE):
            return ""
        if not _accepts(self._port):
            return ""
        return (
            f"nats://127.0.0.1:{self._port}"
            if self.target.protocol == "nats"
            else f"amqp://guest:guest@127.0.0.1:{self._port}/%2f"
        )


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True
