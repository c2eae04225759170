"""Starts a real RabbitMQ node for one run, and removes it afterwards.

Knows nothing of the protocol beyond "it answers a protocol header with connection.start". The node has its
own name, ports and folders below one temporary folder, and its own epmd; nothing of it listens beyond
127.0.0.1, and the distribution's own service is neither used nor disturbed.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from plumbline.servers.amqp import rabbitmq_settings
from plumbline.servers.debian_suites import write_wrapper
from plumbline.servers.nats.nats_server import MissingServer, ServerBinary
from plumbline.servers.ports import free_ports
from plumbline.servers.process import ServerError, ServerProcess

NAMED_BY = "PLUMBLINE_RABBITMQ_SERVER"
COMMAND = "apt-get install rabbitmq-server"
# Debian's /usr/sbin/rabbitmq-server changes the user; the program behind it does not.
PACKAGED = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
LIBRARIES = Path("usr/lib/rabbitmq/lib")  # of a Debian
_HEADER = b"AMQP\x00\x00\x09\x01"


def rabbitmq_server() -> ServerBinary | MissingServer:
    """What ``PLUMBLINE_RABBITMQ_SERVER`` names, else the distribution's."""
    named = os.environ.get(NAMED_BY)
    path = Path(named) if named else PACKAGED
    if not path.exists():
        return MissingServer("rabbitmq", "the distribution's rabbitmq-server is not installed", COMMAND)
    return ServerBinary("rabbitmq", path, version_of(path))


def version_of(path: Path) -> str:
    """From where its libraries are: to ask the program itself takes seconds."""
    folder = path.resolve().parents[1]
    return packaged_version(folder / "root") or packaged_version(folder, "lib") or _named_version(folder)


def packaged_version(root: Path, libraries: Path | str = LIBRARIES) -> str:
    """The version of the RabbitMQ that is unpacked in ``root``; nothing if there is none."""
    folders = sorted(root.glob(f"{libraries}/rabbitmq_server-*"))
    return _named_version(folders[-1]) if folders else ""


def schema_of(path: Path) -> Path | None:
    """The folder with the keys of rabbitmq.conf, of a RabbitMQ from Debian, as the node itself sees it.

    One that is unpacked takes the folder ``root`` for ``/``. None: it is another program.
    """
    root = Path("/") if path == PACKAGED else path.resolve().parents[1] / "root"
    if not (version := packaged_version(root)):
        return None
    library = LIBRARIES / f"rabbitmq_server-{version}" / "plugins" / f"rabbit-{version}"
    return Path("/") / library if (root / library).is_dir() else None


def _named_version(folder: Path) -> str:
    found = re.search(r"rabbitmq_server-([0-9.]+)", str(folder))
    return found[1] if found else "unknown"


def install_unpacked(folder: Path, place: Path) -> None:
    """The programs to start, in ``folder/bin``, for a Debian that is unpacked in ``folder/root``: once that
    has been moved to ``place``."""
    for program in ("/usr/lib/rabbitmq/bin/rabbitmq-server", "/usr/bin/epmd"):
        write_wrapper(folder / "bin" / Path(program).name, place / "root", program)


class RabbitMQ(ServerProcess):
    """One node, and the epmd it needs. ``url`` while it runs: ``amqp://guest:guest@127.0.0.1:PORT/%2f``, or
    ``amqps://`` if its settings have TLS.

    ``kill()`` ends it as a crash would; ``start()`` after that finds its data again.
    """

    ready_within_s = 180.0
    stopped_within_s = 20.0
    log_lines = 15
    stop_signal = signal.SIGKILL  # an orderly end takes a second
    takes_settings = True
    log_level = "error"  # three lines for each connection take time

    def __init__(
        self, binary: Path | str = PACKAGED, data: Path | None = None, *, apart: bool = True
    ) -> None:
        super().__init__(binary, data, apart=apart)
        if self.binary == Path("/usr/sbin/rabbitmq-server"):
            self.binary = PACKAGED
        self._ports: list[int] = []
        self._tls_port = 0  # none
        self._settings: rabbitmq_settings.Settings | None = None

    def configure(self, settings: Mapping[str, object]) -> None:
        try:
            self._settings = rabbitmq_settings.settings_of(settings)
        except msgspec.ValidationError as error:
            raise ServerError(f"RabbitMQ cannot have these settings: {error}") from None

    def raise_alarm(self) -> None:
        (self._folder / rabbitmq_settings.ALARM).touch()

    def end_alarm(self) -> None:
        (self._folder / rabbitmq_settings.ALARM).unlink(missing_ok=True)

    @classmethod
    def installed(cls) -> ServerBinary | MissingServer:
        return rabbitmq_server()

    def _commands(self) -> Sequence[Sequence[str | Path]]:
        self._ports = self._ports or free_ports(3)
        epmd = self.binary.with_name("epmd")  # of its own Erlang, where it was unpacked
        program = epmd if epmd.exists() else "epmd"
        if self._settings is not None:
            self.end_alarm()
            if self._settings.tls is not None:
                self._tls_port = self._tls_port or free_ports(1)[0]
            rabbitmq_settings.write_files(self._settings, self._folder, self._tls_port)
        return [[program, "-port", str(self._ports[2]), "-address", "127.0.0.1"], [self.binary]]

    def _ready_url(self, deadline: float) -> str:
        port = self._ports[0]
        if not answers(port) or (self._tls_port and not accepts(self._tls_port)):
            return ""
        scheme, port = ("amqps", self._tls_port) if self._tls_port else ("amqp", port)
        return f"{scheme}://guest:guest@127.0.0.1:{port}/%2f"

    def _node_name(self) -> str:
        """RabbitMQ finds its data by the name of the node."""
        file = self._folder / "nodename"
        if not file.exists():
            file.write_text(f"plumbline{secrets.token_hex(4)}@localhost")
        return file.read_text()

    def _plugins(self) -> Sequence[str]:
        """What is enabled."""
        return self._settings.plugins if self._settings is not None else ()

    def _environment(self) -> Mapping[str, str]:
        folder = self._folder
        port, distribution, epmd = self._ports
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")}
        enabled = Path(folder, "enabled_plugins")
        plugins = self._plugins()
        enabled.write_text(f"[{','.join(plugins)}].\n")
        if not plugins and (schema := schema_of(self.binary)) is not None:
            kept["RABBITMQ_PLUGINS_DIR"] = str(_only(schema, folder / "plugins"))
        arguments = "-kernel inet_dist_use_interface {127,0,0,1}"
        if self._settings is not None:
            arguments += f" -eval {rabbitmq_settings.alarm_code(folder)}"
        return kept | {
            "HOME": str(folder),  # where Erlang keeps its cookie
            "ERL_EPMD_PORT": str(epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self._node_name(),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/logs",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{folder}/advanced.config",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/env.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(enabled),
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            "RABBITMQ_LOG": self.log_level,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": arguments,
        }


SERVER = RabbitMQ


def _only(library: Path, folder: Path) -> Path:
    """A folder with no plugin but this library.

    A node reads all plugins that it could enable: a quarter to half of what its start takes.
    """
    link = folder / library.name
    if not link.is_symlink():
        folder.mkdir()
        link.symlink_to(library)
    return folder


def accepts(port: int) -> bool:
    """Whether something listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


def answers(port: int) -> bool:
    """Whether a protocol header is answered with a method there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as probe:
            probe.sendall(_HEADER)
            return probe.recv(1) == b"\x01"
    except OSError:
        return False
