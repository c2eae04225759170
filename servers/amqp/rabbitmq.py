"""A real RabbitMQ node, started on this machine for one run and gone with it.

Knows nothing of the protocol beyond "it answers a protocol header with connection.start". The node has its
own name, ports and folders below one temporary folder, and its own epmd; nothing of it listens beyond
127.0.0.1, and the distribution's own service is neither used nor disturbed.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
import weakref
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from plumbline.servers.nats.nats_server import MissingServer, ServerBinary, ServerError

READY_WITHIN_S = 90.0
STOPPED_WITHIN_S = 20.0
POLL_S = 0.02
LOG_LINES = 15
NAMED_BY = "PLUMBLINE_RABBITMQ_SERVER"
COMMAND = "apt-get install rabbitmq-server"
# Debian's /usr/sbin/rabbitmq-server changes the user; the program behind it does not.
PACKAGED = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_HEADER = b"AMQP\x00\x00\x09\x01"


def rabbitmq_server() -> ServerBinary | MissingServer:
    """What ``PLUMBLINE_RABBITMQ_SERVER`` names, else the distribution's."""
    named = os.environ.get(NAMED_BY)
    path = Path(named) if named else PACKAGED
    if not path.exists():
        return MissingServer("rabbitmq", "the distribution's rabbitmq-server is not installed", COMMAND)
    return ServerBinary("rabbitmq", path, _version(path))


def _version(path: Path) -> str:
    """From where its libraries are: to ask the program itself takes seconds."""
    folders = sorted(path.resolve().parents[1].glob("lib/rabbitmq_server-*")) or [path.resolve().parents[1]]
    found = re.search(r"rabbitmq_server-([0-9.]+)", str(folders[-1]))
    return found[1] if found else "unknown"


def is_rabbitmq(binary: Path | str) -> bool:
    """Whether this is a rabbitmq-server, by the name of the program: to start it takes seconds."""
    return Path(binary).name.startswith("rabbitmq-server")


class RabbitMQ:
    """One node, started by ``start()`` or ``with``. ``url`` while it runs: ``amqp://guest:guest@127.0.0.1:PORT/%2f``.

    With ``data`` all that it has lies in that folder, and a later node on that folder is the same one. Not
    ``apart``, it belongs to the process group of who starts it, and dies with that.

    ``kill()`` ends it as a crash would; ``start()`` after that finds its data again.
    """

    def __init__(
        self, binary: Path | str = PACKAGED, data: Path | None = None, *, apart: bool = True
    ) -> None:
        found = shutil.which(binary)
        if found is None:
            raise ServerError(f"{binary} is not an executable file")
        self.binary = PACKAGED if Path(found) == Path("/usr/sbin/rabbitmq-server") else Path(found)
        self.url = ""
        self._name = f"plumbline{secrets.token_hex(4)}@localhost"
        temporary = None
        if data is None:
            temporary = TemporaryDirectory(prefix="plumbline-rabbitmq-")
            data = Path(temporary.name)
        self._folder = data
        self._folder.mkdir(parents=True, exist_ok=True)
        name = self._folder / "nodename"  # RabbitMQ finds its data by the name of the node
        if name.exists():
            self._name = name.read_text()
        name.write_text(self._name)
        self._group = 0 if apart else None
        self._ports = [0, 0, 0]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._end = weakref.finalize(self, _end, self._processes, temporary)

    @property
    def pid(self) -> int:
        """The node's process id."""
        return self._processes[-1].pid

    @property
    def log(self) -> str:
        """What the node printed so far."""
        log = self._folder / "log"
        return log.read_text(errors="replace") if log.exists() else ""

    def launch(self) -> None:
        """Starts epmd and the node, and does not wait for them."""
        if not any(self._ports):
            self._ports = free_ports(3)
        port, distribution, epmd = self._ports
        environment = self._environment(port, distribution, epmd)
        with (self._folder / "log").open("ab") as log:
            for command in (["epmd", "-port", str(epmd), "-address", "127.0.0.1"], [str(self.binary)]):
                # In a group of its own, since Ctrl-C is for us; the node has children.
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    process_group=self._group,
                    cwd=self._folder,
                )
                self._processes.append(process)

    def await_ready(self, within: float = READY_WITHIN_S) -> None:
        """Returns once the node answers a protocol header. Raises ``ServerError`` with its log."""
        deadline = time.monotonic() + within
        while not answers(self._ports[0]):
            if (status := self._processes[-1].poll()) is not None:
                raise ServerError(f"{self.binary} ended with exit code {status}; {self._end_of_log()}")
            if time.monotonic() > deadline:
                raise ServerError(f"{self.binary} was not ready within {within:g} s; {self._end_of_log()}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._processes[-1].wait(POLL_S)
        self.url = f"amqp://guest:guest@127.0.0.1:{self._ports[0]}/%2f"

    def start(self) -> None:
        """Launches and waits until ready."""
        self.launch()
        try:
            self.await_ready()
        except ServerError:
            self.stop()
            raise

    def wait(self) -> int:
        """The node's exit code, once it has ended."""
        return self._processes[-1].wait()

    def kill(self) -> None:
        """Ends node and epmd at once, as a crash does; the data stays."""
        _stop(self._processes, signal.SIGKILL)
        self.url = ""

    def shut_down(self) -> None:
        """Ends the node in order; the data stays."""
        _stop(self._processes, signal.SIGTERM)
        self.url = ""

    def stop(self) -> None:
        """Ends the node and removes its folder."""
        self._end()
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _environment(self, port: int, distribution: int, epmd: int) -> dict[str, str]:
        folder = self._folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")}
        plugins = Path(folder, "enabled_plugins")
        plugins.write_text("[].\n")
        return kept | {
            "HOME": str(folder),  # where Erlang keeps its cookie
            "ERL_EPMD_PORT": str(epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self._name,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/logs",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{folder}/advanced.config",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/env.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _end_of_log(self) -> str:
        lines = self.log.strip().splitlines()[-LOG_LINES:]
        return "\n".join(["it printed last:", *lines]) if lines else "it printed nothing"


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in sockets]


def answers(port: int) -> bool:
    """Whether a protocol header is answered with a method there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as probe:
            probe.sendall(_HEADER)
            return probe.recv(1) == b"\x01"
    except OSError:
        return False


def _stop(processes: list[subprocess.Popen[bytes]], how: signal.Signals) -> None:
    """The node first, then its epmd."""
    while processes:
        process = processes.pop()
        _signal(process, how)
        try:
            process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)
            process.wait()
        _signal(process, signal.SIGKILL)  # what it leaves of its group


def _signal(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, how)


def _end(processes: list[subprocess.Popen[bytes]], folder: TemporaryDirectory[str] | None) -> None:
    """What lies in a folder that vanishes needs no orderly end, which takes a second."""
    _stop(processes, signal.SIGTERM if folder is None else signal.SIGKILL)
    if folder is not None:
        folder.cleanup()
