"""Servers that one command starts: what a table says of one, and how it is started.

The tables of ``targets.toml`` and of a user's own file share these keys:

    start = "my-server -p {port}"                          # no shell; the words that are replaced are below
    ready = "Listening for clients"                        # a regular expression; else the port is awaited
    stop = "SIGINT"                                        # else SIGTERM
    environment = { MY_SERVER_LOG = "debug" }
    files = { "my.conf" = "listen = 127.0.0.1:{port}" }    # written into {folder} before each start
    fresh = true                                           # every check gets a server of its own
    level = "2.9"                                          # the protocol level of a server that reports none

The command stays in the foreground. ``{config}`` is a file in the configuration language of nats-server,
with the port, the store and what a check needs. What is stored in ``{store}``, or in the ``store_dir`` of the
configuration, is there again when the server is started with the same one. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from plumbline.servers.ports import free_ports
from plumbline.servers.process import ServerError, ServerProcess
from plumbline.servers.targets import TargetError

PROGRAM = "{program}"  # only in targets.toml: the program that was obtained
PORT, OTHER_PORT = "{port}", "{other_port}"  # free ports; the second for what the server listens on beside
CONFIG, STORE, FOLDER = "{config}", "{store}", "{folder}"
KNOWN = (PORT, OTHER_PORT, CONFIG, STORE, FOLDER)
_PLACEHOLDER = re.compile(r"\{[a-z_]+\}")
_NATS, _AMQP = "nats", "amqp"


@dataclass(frozen=True)
class StartCommand:
    """How a server is started. ``words`` and the texts of ``files`` have placeholders."""

    protocol: str
    words: tuple[str, ...]
    ready: str = ""
    stop: signal.Signals = signal.SIGTERM
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    fresh: bool = False
    level: str = ""

    @property
    def takes_config(self) -> bool:
        """Whether it can be started in other configurations."""
        return self._has(CONFIG)

    @property
    def keeps_store(self) -> bool:
        """Whether it can be started again with what it stored."""
        return self._has(STORE) or self._has(CONFIG)

    def _has(self, placeholder: str) -> bool:
        return any(placeholder in text for text in (*self.words, *self.files.values()))


def start_command(
    where: str,
    *,
    protocol: str,
    start: str,
    ready: str,
    stop: str,
    environment: Mapping[str, str],
    files: Mapping[str, str],
    fresh: bool,
    level: str,
    known: Sequence[str] = KNOWN,
) -> StartCommand:
    """What a table says. Raises ``TargetError`` that says what is wrong, and ``where``."""
    words = _words(where, start, known)
    command = StartCommand(
        protocol, words, _pattern(where, ready), _signal(where, stop), environment, files, fresh, level
    )
    used = {placeholder for text in (*words, *files.values()) for placeholder in _PLACEHOLDER.findall(text)}
    if not used & {PORT, CONFIG}:
        raise TargetError(f"{where}: start must have {PORT} or {CONFIG}: Plumbline chooses the port")
    if protocol == _AMQP and PORT not in used:
        raise TargetError(f"{where}: start must have {PORT}: {CONFIG} is the configuration of a NATS server")
    if protocol == _AMQP and CONFIG in used:
        raise TargetError(f"{where}: {CONFIG} is the configuration of a NATS server; leave it out")
    for name in files:
        if PurePath(name).name != name:
            raise TargetError(f"{where}: files: {name!r} must be the name of a file, without a folder")
    if files and not command._has(FOLDER):
        raise TargetError(f"{where}: start must have {FOLDER}, where files are written")
    return command


def _words(where: str, start: str, known: Sequence[str]) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(start))
    except ValueError as error:
        raise TargetError(f"{where}: start: {error}") from None
    if not words:
        raise TargetError(f"{where}: start is empty; write the command that starts the server")
    used = {placeholder for word in words for placeholder in _PLACEHOLDER.findall(word)}
    if unknown := sorted(used - set(known)):
        raise TargetError(f"{where}: start has {unknown[0]}; the placeholders are {', '.join(known)}")
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


class CommandServer(ServerProcess):
    """One server that its command starts, with a port of its own. ``config`` is for ``{config}``."""

    ready_within_s = 180.0  # a Java program on a machine that does much else
    stopped_within_s = 20.0
    attempts = 3  # it gets its port, and another process may take that first

    def __init__(
        self,
        program: Path | str,
        command: StartCommand,
        config: Mapping[str, object] | None = None,
        data: Path | None = None,
        *,
        apart: bool = True,
    ) -> None:
        super().__init__(program, data, apart=apart)
        self.command = command
        self.config = dict(config or {})
        self.stop_signal = self.end_signal = command.stop
        self.fresh = command.fresh
        self._port = 0

    def end_alarm(self) -> None:
        """At SIGUSR2, which asks a NATS server for lame duck mode: nothing here knows how to begin that."""
        raise ServerError("its file names no signal for lame duck mode")

    def _commands(self) -> Sequence[Sequence[str | Path]]:
        self._port, other_port = free_ports(2)
        config_file, store = self._folder / "server.conf", self._folder / "store"
        store.mkdir(exist_ok=True)
        if self.command.protocol == _NATS:
            config_file.write_text(json.dumps(self._configuration(store), ensure_ascii=False), "utf-8")
        values = {
            PROGRAM: str(self.binary),
            PORT: str(self._port),
            OTHER_PORT: str(other_port),
            CONFIG: str(config_file),
            STORE: str(store),
            FOLDER: str(self._folder),
        }
        for name, text in self.command.files.items():
            (self._folder / name).write_text(_replaced(text, values), "utf-8")
        return [[self.binary, *(_replaced(word, values) for word in self.command.words[1:])]]

    def _configuration(self, store: Path) -> dict[str, object]:
        jetstream = self.config.get("jetstream", True)
        if jetstream is not False:
            given = jetstream if isinstance(jetstream, Mapping) else {}
            jetstream = {"store_dir": str(store), **given}
        return {"host": "127.0.0.1", **self.config, "port": self._port, "jetstream": jetstream}

    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, **self.command.environment}

    def _ready_url(self, deadline: float) -> str:
        if self.command.ready and not re.search(self.command.ready, self.log, re.MULTILINE):
            return ""
        if not _accepts(self._port):
            return ""
        return (
            f"nats://127.0.0.1:{self._port}"
            if self.command.protocol == _NATS
            else f"amqp://guest:guest@127.0.0.1:{self._port}/%2f"
        )


def started_for_a_check(
    make: Callable[[Mapping[str, object], Path | None], ServerProcess], config: Path
) -> ServerProcess:
    """``make(CONFIG, FOLDER)`` of what a check of NATS asks for, in a file that Plumbline wrote for it as
    nats-server reads it."""
    given = json.loads(config.read_bytes())
    store = Path(given.pop("jetstream")["store_dir"])
    del given["ports_file_dir"]
    return make(given, store)


def _replaced(text: str, values: Mapping[str, str]) -> str:
    """Other words in braces stay: a file may be a program."""
    return _PLACEHOLDER.sub(lambda found: values.get(found[0], found[0]), text)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True
