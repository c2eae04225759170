"""Servers of a user's own, by name: a TOML file says how each is started.

    [myserver]
    protocol = "nats"                                      # or "amqp"
    start = "my-server -p {port} -c {config}"              # and the other keys of servers.start_command
    description = "What plumbline targets shows."

The command runs in the folder of the file, in the foreground.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from plumbline.servers.process import ServerError
from plumbline.servers.start_command import CommandServer, StartCommand, start_command
from plumbline.servers.targets import TargetError
from plumbline.untrusted import BadInputError, parse_toml, read_file

MAX_FILE_SIZE = 1 << 20  # bytes; a larger file is an error


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    protocol: Literal["nats", "amqp"]
    start: str
    description: str = ""
    ready: str = ""
    stop: str = "SIGTERM"
    environment: dict[str, str] = {}
    files: dict[str, str] = {}
    fresh: bool = False
    level: str = ""


class UserTarget(Struct, frozen=True):
    """One server of the file."""

    name: str
    file: Path
    description: str
    command: StartCommand

    @property
    def protocol(self) -> str:
        return self.command.protocol

    @property
    def folder(self) -> Path:
        """That of the file."""
        return self.file.parent

    @property
    def program(self) -> Path | None:
        """The first word of the command; a path is relative to the file. None: it is no program."""
        first = self.command.words[0]
        found = shutil.which(self.folder / first if "/" in first else first)
        return Path(found).absolute() if found else None


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
    command = start_command(
        where,
        protocol=read.protocol,
        start=read.start,
        ready=read.ready,
        stop=read.stop,
        environment=read.environment,
        files=read.files,
        fresh=read.fresh,
        level=read.level,
    )
    return UserTarget(name, path, read.description, command)


class UserServer(CommandServer):
    """One server of a user's file. ``config`` is for ``{config}``."""

    ready_within_s = 60.0

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
            first = target.command.words[0]
            raise ServerError(f"{target.file.name}: [{target.name}]: {first} is not a program")
        super().__init__(program, target.command, config, data, apart=apart)
        self._target = target

    def _working_folder(self) -> Path:
        return self._target.folder
