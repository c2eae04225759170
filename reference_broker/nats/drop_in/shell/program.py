"""``plumbline-nats-server``: it starts, logs, obeys signals and ends as nats-server does."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from plumbline.descriptors import allow_many_descriptors
from plumbline.errors import PlumblineError
from plumbline.garbage import collect_seldom
from plumbline.reference_broker.nats.config import ConfigError
from plumbline.reference_broker.nats.drop_in.flags import USAGE, read_flags
from plumbline.reference_broker.nats.drop_in.monitoring import digest
from plumbline.reference_broker.nats.drop_in.options import EVERYWHERE, Settings
from plumbline.reference_broker.nats.drop_in.shell.files import (
    load,
    ports_file,
    process_of,
    write_pid_file,
    write_ports_file,
)
from plumbline.reference_broker.nats.drop_in.shell.log import Log
from plumbline.reference_broker.nats.levels import NEWEST, VERSIONS
from plumbline.reference_broker.serving import stopped_or_failed
from plumbline.untrusted import read_file
from plumbline.visible import one_line

NAME = "nats-server"
SIGNALS = {
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
    "ldm": signal.SIGUSR2,
}


def run(arguments: Sequence[str]) -> int:
    """The exit code: 0 after a signal, 1 for whatever is wrong."""
    try:
        flags = read_flags(arguments)
    except ConfigError as error:
        print(f"{NAME}: {one_line(str(error))}", USAGE, sep="\n", file=sys.stderr)  # noqa: T201 - a program
        return 1
    if flags.get("version"):
        print(f"{NAME}: v{VERSIONS[NEWEST]}")  # noqa: T201
        return 0
    if flags.get("help"):
        print(USAGE)  # noqa: T201
        return 0
    try:
        if "signal" in flags:
            send_signal(flags["signal"])
            return 0
        settings = load(flags)
        if flags.get("check"):
            return check(settings, flags)
        return serve(settings, flags)
    except PlumblineError as error:
        print(f"{NAME}: {one_line(str(error))}", file=sys.stderr)  # noqa: T201
        return 1


def check(settings: Settings, flags: Mapping[str, Any]) -> int:
    """``-t``: says that the configuration, which was read, is valid. Raises ``ConfigError``."""
    from plumbline.reference_broker.nats.drop_in.shell.connections import tls_context

    for tls in (settings.tls, settings.websocket and settings.websocket.tls):
        if tls:
            tls_context(tls)
    if "config" not in flags:
        raise ConfigError("must specify [-c, --config] option to check configuration file syntax")
    file = flags["config"]
    print(  # noqa: T201
        f"{NAME}: configuration file {file} is valid ({digest(read_file(Path(file)))})", file=sys.stderr
    )
    return 0


def send_signal(wanted: str) -> None:
    """``--signal reload=PID``. Raises ``ConfigError``."""
    command, _, target = wanted.partition("=")
    if command not in SIGNALS:
        raise ConfigError(f'unknown signal "{command}"')
    if not target:
        raise ConfigError("--signal needs the process: --signal reload=PID")
    try:
        os.kill(process_of(target), SIGNALS[command])
    except OSError as error:
        raise ConfigError(f"{target}: {error.strerror}") from None


def serve(settings: Settings, flags: Mapping[str, Any]) -> int:
    """Until a signal. Raises ``PlumblineError``."""
    try:
        log = Log(settings)
    except OSError as error:
        raise ConfigError(f"cannot write {settings.log_file}: {error.strerror}") from None
    return asyncio.run(Program(settings, flags, log).run())


class Program:
    """A running server and its signals."""

    def __init__(self, settings: Settings, flags: Mapping[str, Any], log: Log) -> None:
        from plumbline.reference_broker.nats.drop_in.shell.server import DropInServer

        self.settings = settings
        self.flags = flags
        self.log = log
        self.server = DropInServer(settings)
        self.server.report = log.warning
        self.stopped = asyncio.Event()
        self._leaving: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """The exit code."""
        self._introduce()
        allow_many_descriptors()
        collect_seldom()
        self._obey_signals()
        try:
            await self.server.start()
        except (OSError, PlumblineError) as error:
            self.log.fatal(self._cannot_start(error))
            return 1
        try:
            self._announce()
            await stopped_or_failed(self.stopped, self.server)
            if self._leaving is not None:
                self._leaving.cancel()
        finally:
            self.log.info("Initiating Shutdown...")
            await self.server.stop()
            self._remove_files()
        failed = self.server.failed
        if failed is not None and failed.done():
            self.log.fatal(failed.result())
            return 1
        self.log.info("Server Exiting..")
        return 0

    def _introduce(self) -> None:
        log, identity = self.log, self.server.broker.identity
        log.info(f"Starting {NAME}")
        log.info(f"  Version:  {self.server.broker.rules.version}")
        log.info("  Git:      [plumbline reference broker]")
        log.info(f"  Name:     {identity.server_name}")
        log.info(f"  ID:       {identity.server_id}")
        if file := self.flags.get("config"):
            with suppress(OSError):
                log.info(f"Using configuration file: {file} ({digest(read_file(Path(file)))})")
        for name in self.settings.without_effect:
            log.warning(f'The field "{name}" of the configuration has no effect in this server')

    def _cannot_start(self, error: OSError | PlumblineError) -> str:
        if isinstance(error, PlumblineError):
            return f"Can't start JetStream: {error}"
        return f'Error listening on port: {self.server.host}:{self.server.port}, "{error.strerror or error}"'

    def _announce(self) -> None:
        """The lines that launchers wait for, then the files."""
        server, settings, log = self.server, self.settings, self.log
        for warning in server.warnings:
            log.warning(warning)
        urls = {"nats": _urls("tls" if settings.tls else "nats", server.host, server.port)}
        if settings.monitor is not None:
            host, port = settings.monitor.host or server.host, server.process.monitor_port
            log.info(f"Starting http monitor on {_joined(host, port)}")
            urls["monitoring"] = _urls("http", host, port)
        if (jetstream := server.broker.config.jetstream) is not None:
            log.info("Starting JetStream")
            if jetstream.store_dir:
                log.info(f'  Store Directory: "{Path(jetstream.store_dir, "jetstream")}"')
        if (options := settings.websocket) is not None:
            scheme, port = "ws" if options.no_tls else "wss", server.process.websocket_port
            log.info(f"Listening for websocket clients on {scheme}://{_joined(options.host, port)}")
            urls["websocket"] = _urls(scheme, options.host, port)
        log.info(f"Listening for client connections on {_joined(server.host, server.port)}")
        if settings.tls is not None:
            log.info("TLS required for client connections")
        try:
            if settings.pid_file:
                write_pid_file(settings.pid_file)
            if settings.ports_file_dir:
                write_ports_file(settings.ports_file_dir, urls)
        except OSError as error:
            log.error(f"Unable to write a file: {error}")
        log.info("Server is ready")

    def _remove_files(self) -> None:
        for path in (
            self.settings.ports_file_dir and ports_file(self.settings.ports_file_dir),
            self.settings.pid_file and Path(self.settings.pid_file),
        ):
            if path:
                with suppress(OSError):
                    Path(path).unlink()

    # Signals

    def _obey_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number, name, act in (
            (signal.SIGINT, "interrupt", self.stopped.set),
            (signal.SIGTERM, "terminated", self.stopped.set),
            (signal.SIGUSR1, "user defined signal 1", self._open_log_again),
            (signal.SIGUSR2, "user defined signal 2", self._leave),
            (signal.SIGHUP, "hangup", self._reload),
        ):

            def obey(name: str = name, act: Any = act) -> None:
                self.log.info(f'Trapped "{name}" signal')
                act()

            loop.add_signal_handler(number, obey)

    def _open_log_again(self) -> None:
        try:
            self.log.open()
        except OSError as error:
            self.log.error(f"cannot open the log file: {error}")
            return
        self.log.info("File log re-opened")

    def _leave(self) -> None:
        if self._leaving is None:
            self.log.info("Entering lame duck mode, stop accepting new clients")
            self._leaving = asyncio.ensure_future(self.server.leave())
            self._leaving.add_done_callback(lambda _: self.stopped.set())

    def _reload(self) -> None:
        try:
            settings = load(self.flags)
        except PlumblineError as error:
            self.log.error(f"Failed to reload server configuration: {error}")
            return
        self.settings = self.log.settings = settings
        for line in self.server.reload(settings):
            self.log.info(line)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _urls(scheme: str, host: str, port: int) -> list[str]:
    reachable = {EVERYWHERE: "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return [f"{scheme}://{_joined(reachable, port)}"]
