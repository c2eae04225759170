"""A real Apache Qpid Broker-J, started on this machine for one run and gone with it.

Its jars come from Maven Central; ``install`` puts them beside a program, ``qpid-broker-j``, that starts them.
Knows nothing of the protocol. A broker has a port and a folder of its own, and listens on 127.0.0.1 only.

Run as ``python -m plumbline.servers.amqp.qpid PROGRAM -d FOLDER`` it serves in the foreground: it prints one
line that starts with its URL when clients can connect. SIGTERM ends it in order; kill -9 of the process group
is a crash. What it stores lies in the folder, for the next one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from plumbline.servers.amqp.rabbitmq import free_ports
from plumbline.servers.nats.nats_server import MissingServer, ServerBinary, ServerError, targets_folder

PROGRAM = "qpid-broker-j"
VERSION = "9.2.0"
COMMAND = f"python3 -m plumbline.servers.getting qpid@{VERSION} (which needs Java 11 or newer, and Maven)"
READY_WITHIN_S = 180.0  # a Java program on a machine that does much else
STOPPED_WITHIN_S = 10.0
POLL_S = 0.02
TRIES = 3  # it is told its port, and another may take that first
LOG_LINES = 10

_READY = "BRK-1004"  # of its operational log; it listens before its virtual host is there
_MAIN = "org.apache.qpid.server.Main"
_GROUP = "org.apache.qpid"
# The broker without its HTTP management and without BDB, which Maven Central does not have.
_ARTIFACTS = (
    "qpid-broker-core",
    "qpid-broker-plugins-amqp-0-8-protocol",
    "qpid-broker-plugins-derby-store",
    "qpid-broker-plugins-logging-logback",
)
_ALONE = "qpid-broker"  # for its main class; its dependencies are those left out above
_OTHERS = (("commons-cli", "commons-cli", "1.6.0"),)  # what the main class needs beside


def qpid_server() -> ServerBinary | MissingServer:
    """The one on PATH, else the one that ``servers.getting`` installed."""
    found = shutil.which(PROGRAM)
    path = Path(found) if found else targets_folder() / f"qpid-{VERSION}" / PROGRAM
    if not path.exists():
        return MissingServer(PROGRAM, "no Apache Qpid Broker-J is on this machine", COMMAND)
    if shutil.which("java") is None:
        return MissingServer(PROGRAM, "there is no java on PATH", "apt-get install default-jre-headless")
    return ServerBinary(PROGRAM, path, VERSION)


def is_qpid(binary: Path | str) -> bool:
    """Whether this is Broker-J, by the name of the program."""
    return Path(binary).name == PROGRAM


def project(version: str) -> str:
    """The Maven project whose dependencies are the broker."""
    left_out = (
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    )
    wanted = [(_GROUP, _ALONE, version, left_out)]
    wanted += [(_GROUP, artifact, version, "") for artifact in _ARTIFACTS]
    wanted += [(*other, "") for other in _OTHERS]
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{number}</version>{rest}</dependency>"
        for group, artifact, number, rest in wanted
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>plumbline</groupId><artifactId>qpid</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )


def install(jars: Path, place: Path) -> Path:
    """Puts the folder of jars, and the program that starts them, at ``place``. The program."""
    program = jars.parent / PROGRAM
    # A small heap and the first compiler only: it starts in half the time, and it lives shortly.
    program.write_text(
        "#!/bin/sh\n"
        'here=$(dirname "$(readlink -f "$0")")\n'
        "exec java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "
        f'-cp "$here/{jars.name}/*" {_MAIN} "$@"\n'
    )
    program.chmod(0o755)
    place.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # another process was first, and its is as good
        jars.parent.rename(place)
    return place / PROGRAM


class Qpid:
    """One process, started by ``start()`` or ``with``. ``url`` while it runs:
    ``amqp://guest:guest@127.0.0.1:PORT/%2f``.

    With ``data`` what it stores lies in that folder; otherwise it vanishes with it. Not ``apart``, it belongs
    to the process group of who starts it, and dies with that.
    """

    def __init__(self, binary: Path | str, data: Path | None = None, *, apart: bool = True) -> None:
        found = shutil.which(binary)
        if found is None:
            raise ServerError(f"{binary} is not an executable file")
        self.binary = Path(found)
        self.url = ""
        temporary = None
        if data is None:
            temporary = TemporaryDirectory(prefix="plumbline-qpid-")
            data = Path(temporary.name)
        data.mkdir(parents=True, exist_ok=True)
        self._folder = data
        self._group = 0 if apart else None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._end = weakref.finalize(self, _end, self._processes, temporary)

    @property
    def log(self) -> str:
        """What it printed so far since it was started last."""
        log = self._folder / "log"
        return log.read_text(errors="replace") if log.exists() else ""

    def start(self) -> None:
        """Starts it and waits until clients can connect. Raises ``ServerError`` with the end of its log."""
        for attempt in range(1, TRIES + 1):
            (port,) = free_ports(1)
            self._launch(port)
            status = self._await_ready()
            if status is None:
                self.url = f"amqp://guest:guest@127.0.0.1:{port}/%2f"
                return
            lines = self.log.strip().splitlines()[-LOG_LINES:] or ["nothing"]
            self.stop_process()
            if "BindException" not in self.log or attempt == TRIES:
                raise ServerError("\n".join([f"{self.binary} {status}; it printed last:", *lines]))

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return self._processes[-1].wait()

    def stop_process(self) -> None:
        """Ends it in order; the data stays."""
        _stop(self._processes, signal.SIGTERM)

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

    def _launch(self, port: int) -> None:
        initial = self._folder / "initial.json"
        initial.write_text(json.dumps(_CONFIGURATION), "utf-8")
        properties = {"qpid.amqp_port": port, "qpid.work_dir": self._folder}
        given = [part for name, value in properties.items() for part in ("-prop", f"{name}={value}")]
        with (self._folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [self.binary, "-icp", initial, *given],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                process_group=self._group,
            )
        self._processes.append(process)

    def _await_ready(self) -> str | None:
        """None once it is, else what became of it."""
        process = self._processes[-1]
        deadline = time.monotonic() + READY_WITHIN_S
        while _READY not in self.log:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return f"ended with exit code {process.wait(POLL_S)}"
            if time.monotonic() > deadline:
                return f"was not ready within {READY_WITHIN_S:g} s"
        return None


# One virtual host, the default, which clients ask for as "/"; what is durable is stored with Apache Derby.
_CONFIGURATION = {
    "name": "plumbline",
    "modelVersion": "8.0",
    "authenticationproviders": [
        {
            "name": "plain",
            "type": "Plain",
            "secureOnlyMechanisms": [],
            "users": [{"name": "guest", "type": "managed", "password": "guest"}],
        }
    ],
    "ports": [
        {
            "name": "AMQP",
            "type": "AMQP",
            "port": "${qpid.amqp_port}",
            "bindingAddress": "127.0.0.1",
            "authenticationProvider": "plain",
            "protocols": ["AMQP_0_9_1"],
            "virtualhostaliases": [
                {"name": "default", "type": "defaultAlias"},
                {"name": "name", "type": "nameAlias"},
            ],
        }
    ],
    "virtualhostnodes": [
        {
            "name": "default",
            "type": "JSON",
            "defaultVirtualHostNode": "true",
            "virtualHostInitialConfiguration": '{"type": "DERBY"}',
        }
    ],
}


def _stop(processes: list[subprocess.Popen[bytes]], how: signal.Signals) -> None:
    while processes:
        process = processes.pop()
        process.send_signal(how)
        try:
            process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end(processes: list[subprocess.Popen[bytes]], folder: TemporaryDirectory[str] | None) -> None:
    _stop(processes, signal.SIGTERM if folder is None else signal.SIGKILL)
    if folder is not None:
        folder.cleanup()


def main() -> int:
    """Runs until the server has ended."""
    parser = argparse.ArgumentParser(prog="python -m plumbline.servers.amqp.qpid", description=__doc__)
    parser.add_argument("program", type=Path)
    parser.add_argument("-d", "--data-dir", type=Path, required=True)
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    broker = None
    try:
        broker = Qpid(options.program, options.data_dir, apart=False)
        broker.start()
        print(f"{broker.url} ready", flush=True)
        return broker.wait() or 1
    except ServerError as error:
        print(f"plumbline: {error}", flush=True)
        return 1
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if broker is not None:
            broker.stop_process()


if __name__ == "__main__":
    raise SystemExit(main())
