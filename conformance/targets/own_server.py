"""A server for one check only, which the check can kill and restart with its stored data.

Possible where Plumbline knows how to start the target: ``program`` is a command that takes nats-server's
``-c FILE``, or for AMQP ``-d FOLDER``; such a server chooses its own port and names it, as nats-server does
in a ports file, and others in their first line. Or a claims file has a command with a port and a folder.
Nothing of it is left when the check has ended.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct

from plumbline.conformance.outcomes import Inconclusive
from plumbline.conformance.targets.certificates import Certificates, make_certificates, require_certificates
from plumbline.process_groups import await_end_of_group, signal_group
from plumbline.untrusted import BadInputError, parse_json

RESTARTS = (
    "the check restarts its server, and Plumbline did not start this one "
    "(--server PROGRAM, --target NAME, restart in a claims file, or no URL: the reference broker), or its "
    "start command has no {store}"
)  # why a check is unsupported
READY_WITHIN_S = 100.0  # a start of RabbitMQ may take 90 (servers.amqp.rabbitmq)
ENDED_WITHIN_S = 30.0
POLL_INTERVAL_S = 0.005
CONNECT_S = 1.0
TLS = "tls"  # the setting of an AMQP server, and the folder of its certificates
MAX_EXIT_OUTPUT = 400  # of its log, what is shown when it does not start


class OwnServer:
    """One server with a store of its own; ``url`` changes with every start."""

    def __init__(self, program: Sequence[str], config: Mapping[str, Any]) -> None:
        self.url = ""
        self._start_command = list(program)
        self._config = dict(config)
        self._folder = TemporaryDirectory(prefix="plumbline-own-")
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._heir = _Watchdog(self._folder.name)

    def start(self) -> str:
        """Start it, or start it again; where it listens. Raises ``Inconclusive`` if it does not come up."""
        self._starts += 1
        start_folder = Path(self._folder.name, f"life-{self._starts}")
        start_folder.mkdir()
        log = start_folder / "log"
        arguments = self._arguments(start_folder, Path(self._folder.name, "store"))
        with log.open("wb") as output:
            # In a group of its own, since Ctrl-C is for us: what it stored is to be cleaned up.
            self._process = subprocess.Popen(
                [*self._start_command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
            )
        self._heir.watch(self._process.pid)
        self.url = self._await_url(start_folder, log)
        return self.url

    def _arguments(self, start_folder: Path, store: Path) -> list[str]:
        """The program's arguments beside its configuration: to store in ``store`` and to take a free port."""
        config_file = start_folder / "server.conf"
        whole = {
            "host": "127.0.0.1",
            **self._config,
            "port": -1,
            "ports_file_dir": str(start_folder),
            "jetstream": {"store_dir": str(store)},
        }
        config_file.write_text(json.dumps(whole), "utf-8")
        return ["-c", str(config_file)]

    def kill(self) -> None:
        """Kill -9: nothing that it has not written yet is written any more."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        self._end(signal.SIGTERM)

    def enter_lame_duck_mode(self) -> None:
        """SIGUSR2, at which nats-server sends its clients away. Another program may end."""
        self._signal(signal.SIGUSR2)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def close(self) -> None:
        """End it, however it is, and remove what it stored. Idempotent."""
        self._end(signal.SIGKILL)
        self._heir.cancel()
        self._folder.cleanup()

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        process = self._process
        try:
            if number == signal.SIGKILL or not _ended_in_order(process, number):
                # A crash takes the children along: the program may only start the server.
                signal_group(process.pid, signal.SIGKILL)
                process.wait()
                await_end_of_group(process.pid, ENDED_WITHIN_S)
                if number != signal.SIGKILL:
                    raise Inconclusive(f"the server did not end within {ENDED_WITHIN_S:g} s of {number.name}")
        finally:
            self._process = None
            self._heir.watch(None)

    def exit_output(self, within: float) -> str:
        """What it printed last, if it ends by itself within so many seconds; else nothing."""
        if self._process is None:
            return ""
        try:
            status = self._process.wait(within)
        except subprocess.TimeoutExpired:
            return ""
        log = Path(self._folder.name, f"life-{self._starts}", "log")
        output = log.read_text(errors="replace").partition("\n")[2]
        return f"it ended with code {status}: {output[:MAX_EXIT_OUTPUT]}"

    def _await_url(self, start_folder: Path, log: Path) -> str:
        assert self._process is not None
        deadline = time.monotonic() + READY_WITHIN_S
        while not (url := self._address(start_folder, log)):
            try:
                status = self._process.wait(POLL_INTERVAL_S)  # also the pause between two looks
            except subprocess.TimeoutExpired:
                status = None
            if status is not None or time.monotonic() > deadline:
                output = log.read_text(errors="replace")[-MAX_EXIT_OUTPUT:]
                self._end(signal.SIGKILL)
                what = f"ended with code {status}" if status is not None else "does not report its address"
                raise Inconclusive(f"{self._start_command[0]} {what}", actual=output)
        return url

    def _address(self, start_folder: Path, log: Path) -> str:
        """Its URL, once it listens; else nothing."""
        return _announced_url(start_folder, log)


def _ended_in_order(process: subprocess.Popen[bytes], number: signal.Signals) -> bool:
    """Whether a process and its group end in time at this signal.

    The process gets it first: it may end the server in another way. A shell ends and does not pass it on.
    """
    deadline = time.monotonic() + ENDED_WITHIN_S
    process.send_signal(number)  # none is sent to one that has ended
    try:
        process.wait(ENDED_WITHIN_S)
    except subprocess.TimeoutExpired:
        return False
    signal_group(process.pid, number)
    return await_end_of_group(process.pid, max(0.0, deadline - time.monotonic()))


class _Watchdog:
    """Ends the server, with its group of processes, and removes its folder if Plumbline is killed first: a
    shell that waits for our end."""

    SCRIPT = 'while read -r pid; do last=$pid; done; [ -n "$last" ] && kill -s KILL -- "-$last"; rm -rf "$0"'

    def __init__(self, folder: str) -> None:
        self._shell: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(FileNotFoundError):  # a platform without such a shell
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", self.SCRIPT, folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )

    def watch(self, pid: int | None) -> None:
        """Which process to end; None: there is none any more."""
        if self._shell is not None and self._shell.stdin is not None:
            self._shell.stdin.write(b"%d\n" % pid if pid else b"\n")
            self._shell.stdin.flush()

    def cancel(self) -> None:
        """Nothing is left to do. Idempotent."""
        if self._shell is not None:
            self._shell.kill()
            self._shell.communicate()
            self._shell = None


class _PortsFile(Struct):
    """What nats-server writes there, as far as it is read."""

    nats: tuple[str, ...] = ()


def _announced_url(start_folder: Path, log: Path) -> str:
    """Where it listens; nothing while that is not wholly written."""
    for ports_file in start_folder.glob("*.ports"):
        try:
            addresses = parse_json(ports_file.read_bytes(), _PortsFile).nats
        except BadInputError:
            continue
        if addresses:
            return addresses[0]
    line, end, _ = log.read_text(errors="replace").partition("\n")
    return line.split()[0] if end and line.startswith(("nats://", "amqp://", "amqps://")) else ""


class OwnAmqpServer(OwnServer):
    """The same for AMQP: ``program`` takes ``-d FOLDER``, and with settings, as JSON, ``-c FILE``.

    One with settings raises an alarm at SIGUSR1, which makes publishers wait, and ends it at SIGUSR2. For one
    with ``tls`` in them ``certificates`` are made.
    """

    def __init__(self, program: Sequence[str], config: Mapping[str, Any]) -> None:
        if TLS in config:
            require_certificates()
        super().__init__(program, config)
        self.certificates: Certificates | None = None
        if TLS in config:
            self.certificates = make_certificates(Path(self._folder.name, TLS))
            self._config[TLS] = {**config[TLS], **self.certificates.settings}

    def _arguments(self, start_folder: Path, store: Path) -> list[str]:
        if not self._config:
            return ["-d", str(store)]
        settings = start_folder / "settings.json"
        settings.write_text(json.dumps(self._config), "utf-8")
        return ["-d", str(store), "-c", str(settings)]

    def raise_alarm(self) -> None:
        """From soon on publishers wait."""
        self._signal(signal.SIGUSR1)

    def end_alarm(self) -> None:
        """Publishers may soon go on."""
        self._signal(signal.SIGUSR2)


class ClaimedServer(OwnServer):
    """One that the command of a claims file starts, on the port that it names. It serves who has no
    credentials, or for AMQP those of RabbitMQ's default user."""

    def __init__(self, command: str, protocol: str) -> None:
        self._words = shlex.split(command)
        self._protocol = protocol
        self._port = 0
        super().__init__(self._words[:1], {})

    def _arguments(self, start_folder: Path, store: Path) -> list[str]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        return [
            word.replace("{port}", str(self._port)).replace("{store}", str(store)) for word in self._words[1:]
        ]

    def _address(self, start_folder: Path, log: Path) -> str:
        try:
            with socket.create_connection(("127.0.0.1", self._port), CONNECT_S):
                return f"{self._protocol}://127.0.0.1:{self._port}"
        except OSError:
            return ""
