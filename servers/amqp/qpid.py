"""Starts a real Apache Qpid Broker-J for one run, and removes it afterwards.

Its jars come from Maven Central; ``install`` puts them beside a program, ``qpid-broker-j``, that starts them.
Knows nothing of the protocol. A broker has a port and a folder of its own, and listens on 127.0.0.1 only.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

from plumbline.servers import registries
from plumbline.servers.nats.nats_server import MissingServer, ServerBinary, targets_folder
from plumbline.servers.ports import free_ports
from plumbline.servers.process import NotReady, ServerProcess

PROGRAM = "qpid-broker-j"
CHECKSUMS = Path(__file__).with_name("qpid.sha256")
VERSION = "9.2.0"
COMMAND = f"python3 -m plumbline.servers.getting qpid@{VERSION} (which needs Java 11 or newer, and Maven)"

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
        return MissingServer(PROGRAM, "java is not on PATH", "apt-get install default-jre-headless")
    return ServerBinary(PROGRAM, path, VERSION)


def dependencies(version: str) -> list[str]:
    """Elements of a Maven project: what the broker is made of."""
    left_out = (
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    )
    coordinates = [(_GROUP, _ALONE, version, left_out)]
    coordinates += [(_GROUP, artifact, version, "") for artifact in _ARTIFACTS]
    coordinates += [(*other, "") for other in _OTHERS]
    return [
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{number}</version>{rest}</dependency>"
        for group, artifact, number, rest in coordinates
    ]


def unexpected_jars(jars: Path, version: str) -> list[str]:
    """Names of the jars whose SHA-256 differs from ``qpid.sha256``, and of those missing here or there.

    The list is that of ``VERSION``. For another one Maven compares the checksums of the repository itself.
    """
    if version != VERSION:
        return []
    known = dict(line.split()[::-1] for line in CHECKSUMS.read_text("ascii").splitlines())
    return registries.unexpected_jars(jars, known)


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


class Qpid(ServerProcess):
    """One broker. ``url`` while it runs: ``amqp://guest:guest@127.0.0.1:PORT/%2f``."""

    ready_within_s = 180.0  # a Java program on a machine that does much else
    stopped_within_s = 10.0
    stop_signal = signal.SIGKILL
    attempts = 3  # its port is an argument, and another program may take that first

    @classmethod
    def installed(cls) -> ServerBinary | MissingServer:
        return qpid_server()

    def _commands(self) -> Sequence[Sequence[str | Path]]:
        (self._port,) = free_ports(1)
        initial = self._folder / "initial.json"
        initial.write_text(json.dumps(_CONFIGURATION), "utf-8")
        properties = {"qpid.amqp_port": self._port, "qpid.work_dir": self._folder}
        given = [part for name, value in properties.items() for part in ("-prop", f"{name}={value}")]
        return [[self.binary, "-icp", initial, *given]]

    def _ready_url(self, deadline: float) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self._port}/%2f" if _READY in self.log else ""

    def _may_try_again(self, problem: NotReady) -> bool:
        return "BindException" in problem.log


SERVER = Qpid


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
