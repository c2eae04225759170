"""``plumbline-rabbitmq``: it starts, logs and ends as rabbitmq-server does."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from plumbline.descriptors import allow_many_descriptors
from plumbline.errors import PlumblineError
from plumbline.garbage import collect_seldom
from plumbline.reference_broker.amqp.connections.handshake import SERVER_PROPERTIES
from plumbline.reference_broker.amqp.drop_in.flags import USAGE, read_flags
from plumbline.reference_broker.amqp.drop_in.settings import Settings
from plumbline.reference_broker.amqp.drop_in.shell.files import load
from plumbline.reference_broker.amqp.drop_in.shell.log import write
from plumbline.reference_broker.serving import stopped_or_failed
from plumbline.visible import one_line

NAME = "plumbline-rabbitmq"
LISTENERS = {
    "http": "Management plugin: HTTP (non-TLS) listener started on",
    "amqp": "started TCP listener on",
    "amqp/ssl": "started TLS (SSL) listener on",
}


def run(arguments: Sequence[str]) -> int:
    """The exit code: 0 after a signal, 1 for whatever is wrong."""
    try:
        flags = read_flags(arguments)
        if flags.get("version"):
            print(SERVER_PROPERTIES["version"])  # noqa: T201 - a program
            return 0
        if flags.get("help"):
            print(USAGE)  # noqa: T201
            return 0
        return asyncio.run(Program(load(flags)).run())
    except (PlumblineError, LookupError) as error:
        print(f"{NAME}: {one_line(str(error))}", file=sys.stderr)  # noqa: T201
        return 1


class Program:
    """A running server and its signals."""

    def __init__(self, settings: Settings) -> None:
        from plumbline.reference_broker.amqp.drop_in.shell.server import DropInServer

        self.settings = settings
        self.server = DropInServer(settings, partial(write, "warning"))
        self.stopped = asyncio.Event()

    async def run(self) -> int:
        """The exit code."""
        write("info", f"Starting RabbitMQ {SERVER_PROPERTIES['version']} (the reference broker of Plumbline)")
        for name in self.settings.without_effect:
            write("warning", f"The setting '{name}' has no effect in this server")
        allow_many_descriptors()
        collect_seldom()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._end, number)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)  # a terminal that closes: RabbitMQ stays
        await self.server.start()
        try:
            self._announce()
            await stopped_or_failed(self.stopped, self.server)
        finally:
            await self.server.stop()
            self._remove_pid_file()
        write("info", "RabbitMQ is stopped")
        return 0

    def _end(self, number: signal.Signals) -> None:
        write("info", f"{number.name} received - shutting down")
        self.stopped.set()

    def _announce(self) -> None:
        """The lines that launchers wait for."""
        for protocol, (host, port) in self.server.process.ports.items():
            write("info", f"{LISTENERS[protocol]} {host}:{port}")
        if self.settings.pid_file:
            try:
                Path(self.settings.pid_file).write_text(f"{os.getpid()}\n")
            except OSError as error:
                write("error", f"{self.settings.pid_file}: cannot be written ({error.strerror})")
        write("info", "Server startup complete; 1 plugins started.", " * rabbitmq_management")

    def _remove_pid_file(self) -> None:
        if self.settings.pid_file:
            with suppress(OSError):
                Path(self.settings.pid_file).unlink()
