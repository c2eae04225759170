"""A real GarageMQ, started on this machine for one check or one run and gone with it.

Small and quick to start, and fragile: some methods end its process, others block a virtual host for good. So
the suite gives every check a process of its own (``RunningTarget.fresh``), and a death is the verdict of one
check.

Run as ``python -m plumbline.servers.amqp.garagemq PROGRAM -d FOLDER`` it serves in the foreground: it prints
one line that starts with its URL when clients can connect. SIGTERM ends it in order; kill -9 of the process
group is a crash. What it stores lies in the folder, for the next one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import subprocess
import time
import weakref
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from plumbline.servers.amqp.rabbitmq import answers, free_ports
from plumbline.servers.nats.nats_server import MissingServer, ServerBinary, ServerError, targets_folder

PROGRAM = "garagemq"
COMMAND = "apt-get install garagemq"
VERSION = "0.1"  # what it says of itself, whichever it is; its program tells none
READY_WITHIN_S = 15.0
STOPPED_WITHIN_S = 5.0
POLL_S = 0.01
LOOK_EVERY_S = 0.5
TRIES = 3  # it cannot choose its own ports, and another may take them first
LOG_LINES = 10
_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


def garagemq_server() -> ServerBinary | MissingServer:
    """The one on PATH, else the one that ``servers.getting`` took out of Debian's package."""
    found = shutil.which(PROGRAM)
    path = Path(found) if found else targets_folder() / "debian" / PROGRAM
    if not path.exists():
        return MissingServer(PROGRAM, "no garagemq is on this machine", COMMAND)
    return ServerBinary(PROGRAM, path, VERSION)


def is_garagemq(binary: Path | str) -> bool:
    """Whether this is a garagemq, by the name of the program."""
    return Path(binary).name == PROGRAM


class GarageMQ:
    """One process, started by ``start()`` or ``with``. ``url`` while it runs:
    ``amqp://guest:guest@127.0.0.1:PORT/%2f``.

    With ``data`` what it stores lies in that folder; otherwise it vanishes with it.
    """

    def __init__(self, binary: Path | str = PROGRAM, data: Path | None = None) -> None:
        found = shutil.which(binary)
        if found is None:
            raise ServerError(f"{binary} is not an executable file")
        self.binary = Path(found)
        self.url = ""
        if data is not None:
            data.mkdir(parents=True, exist_ok=True)  # what kill -9 leaves goes with the folder that was given
        self._folder = TemporaryDirectory(prefix="plumbline-garagemq-", dir=data)
        self._data = data or Path(self._folder.name, "data")
        self._data.mkdir(parents=True, exist_ok=True)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._end = weakref.finalize(self, _end, self._processes, self._folder)

    @property
    def log(self) -> str:
        """What it printed so far."""
        log = Path(self._folder.name, "log")
        return log.read_text(errors="replace") if log.exists() else ""

    def start(self, *, output: int | None = None) -> None:
        """Starts it and waits until it answers; it prints to ``output``, if given, else to its log.

        Raises ``ServerError`` with the end of its log.
        """
        for attempt in range(1, TRIES + 1):
            port, admin = free_ports(2)
            self._launch(port, admin, output)
            if self._is_ready(port):
                self.url = f"amqp://guest:guest@127.0.0.1:{port}/%2f"
                return
            status = self._processes[-1].poll()
            _stop(self._processes)
            if status is None or attempt == TRIES:
                lines = self.log.strip().splitlines()[-LOG_LINES:]
                said = f"ended with exit code {status}" if status is not None else "did not get ready"
                raise ServerError("\n".join([f"{self.binary} {said}; it printed last:", *lines]))

    def wait(self, ends: Iterable[signal.Signals]) -> int:
        """Waits until it has ended, or one of ``ends``, which are blocked, has come. Its exit code, or 0."""
        while (status := self._processes[-1].poll()) is None:
            came = signal.sigtimedwait(ends, LOOK_EVERY_S)
            if came is not None and came.si_signo != signal.SIGCHLD:
                return 0
        return status if status > 0 else 1

    def stop(self) -> None:
        """Ends it and removes its folder. Idempotent."""
        self._end()
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self, port: int, admin: int, output: int | None) -> None:
        folder = Path(self._folder.name)
        file = folder / "config.yaml"
        file.write_text(json.dumps(_configuration(port, admin, self._data)), "utf-8")
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [self.binary, "--config", file],
                stdin=subprocess.DEVNULL,
                stdout=log if output is None else output,
                stderr=log if output is None else output,
                cwd=folder,
            )
        self._processes.append(process)

    def _is_ready(self, port: int) -> bool:
        process = self._processes[-1]
        deadline = time.monotonic() + READY_WITHIN_S
        while not answers(port):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
                return False
            if time.monotonic() > deadline:
                return False
        return process.poll() is None


def _configuration(port: int, admin: int, data: Path) -> dict[str, object]:
    """Debian's, with ports and a folder of its own. YAML holds JSON."""
    return {
        "proto": "amqp-rabbit",
        # It compares with the MD5 of the password: "guest".
        "users": [{"username": "guest", "password": "084e0343a0486ff05530df6c705c8bb4"}],
        "tcp": {
            "ip": "127.0.0.1",
            "port": str(port),
            "nodelay": True,
            "readBufSize": 196608,
            "writeBufSize": 196608,
        },
        "admin": {"ip": "127.0.0.1", "port": str(admin)},
        "queue": {"shardSize": 8192, "maxMessagesInRam": 131072},
        "db": {"defaultPath": str(data), "engine": "badger"},
        "vhost": {"defaultPath": "/"},
        "security": {"passwordCheck": "md5"},
        "connection": {"channelsMax": 4096, "frameMaxSize": 65536},
    }


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    while processes:
        process = processes.pop()
        process.terminate()
        try:
            process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end(processes: list[subprocess.Popen[bytes]], folder: TemporaryDirectory[str]) -> None:
    _stop(processes)
    folder.cleanup()


def main() -> int:
    """Runs until the server has ended."""
    parser = argparse.ArgumentParser(prog="python -m plumbline.servers.amqp.garagemq", description=__doc__)
    parser.add_argument("program", type=Path)
    parser.add_argument("-d", "--data-dir", type=Path, required=True)
    options = parser.parse_args()
    # The first line is the URL; the end of what the server prints follows it.
    options.data_dir.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="plumbline-garagemq-log-", dir=options.data_dir) as folder:
        log = Path(folder, "log")
        server = GarageMQ(options.program, options.data_dir)
        try:
            with log.open("ab") as output:
                server.start(output=output.fileno())
            signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)  # awaited below: a handler may come at any place
            print(f"{server.url} ready", flush=True)
            status = server.wait(_ENDS)
        except ServerError as error:
            print(f"plumbline: {error}", flush=True)
            return 1
        finally:
            server.stop()
        print(*_last_words(log.read_text(errors="replace")), sep="\n", flush=True)
        return status


def _last_words(log: str) -> list[str]:
    """Why it died, if it says so, else the last lines."""
    lines = log.splitlines()
    died = [number for number, line in enumerate(lines) if line.startswith(("panic:", "fatal error:"))]
    return lines[died[0] :][:LOG_LINES] if died else lines[-LOG_LINES:]


if __name__ == "__main__":
    raise SystemExit(main())
