"""A cluster of RabbitMQ nodes on this machine, which is ready when every node has met all others.

The nodes have one port mapper (epmd) and one Erlang cookie, names and ports of their own, and listen on
127.0.0.1 only. Source: RabbitMQ, "Cluster Formation and Peer Discovery", classic config.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from plumbline.servers.amqp.rabbitmq import RabbitMQ
from plumbline.servers.cluster import Cluster
from plumbline.servers.ports import free_ports

CONFIG = """\
cluster_formation.peer_discovery_backend = classic_config
cluster_formation.discovery_retry_limit = 60
cluster_formation.discovery_retry_interval = 1000
"""


class ClusterNode(RabbitMQ):
    """One node. ``has_port_mapper``: it starts the one of the cluster."""

    log_level = "info"  # its log shows which nodes it has met

    def __init__(self, binary: Path | str, *, has_port_mapper: bool) -> None:
        super().__init__(binary)
        self.has_port_mapper = has_port_mapper
        self.name = ""
        self.names: Sequence[str] = ()
        self.cookie = ""

    def join(self, name: str, names: Sequence[str], ports: list[int], cookie: str) -> None:
        """Before it is launched; ``ports`` are those of clients, of other nodes and of the port mapper."""
        self.name, self.names, self._ports, self.cookie = name, names, ports, cookie

    @property
    def distribution_port(self) -> int:
        """Where other nodes connect to it."""
        return self._ports[1]

    def map_ports_at(self, port: int) -> None:
        """Where its port mapper listens, if it is another one than that of ``join``."""
        self._ports[2] = port

    def _node_name(self) -> str:
        return self.name

    def _commands(self) -> Sequence[Sequence[str | Path]]:
        cookie = self._folder / ".erlang.cookie"
        cookie.write_text(self.cookie)
        cookie.chmod(0o400)
        nodes = [
            f"cluster_formation.classic_config.nodes.{number} = {name}\n"
            for number, name in enumerate(self.names, 1)
        ]
        (self._folder / "rabbitmq.conf").write_text(CONFIG + "".join(nodes))
        port_mapper, server = super()._commands()
        return [port_mapper, server] if self.has_port_mapper else [server]

    def has_met_all(self) -> bool:
        """Whether its log has seen every other node come up."""
        logs = [file.read_text(errors="replace") for file in (self._folder / "logs").glob("*.log")]
        met = set(re.findall(r"rabbit on node '?([^'\s]+)'? up", "\n".join(logs)))
        return met >= {*self.names} - {self.name}


class RabbitMQCluster(Cluster):
    """``nodes`` nodes. Raises ``ServerError`` if ``binary`` is no program."""

    ready_within_s = 240.0

    def __init__(self, binary: Path | str, nodes: int) -> None:
        self.nodes = self._make_nodes(binary, nodes)
        super().__init__(self.nodes)

    def _make_nodes(self, binary: Path | str, count: int) -> Sequence[ClusterNode]:
        return [ClusterNode(binary, has_port_mapper=number == 0) for number in range(count)]

    def _prepare(self) -> None:
        mark, cookie = secrets.token_hex(4), secrets.token_hex(16)
        names = [f"plumbline{mark}n{number}@localhost" for number in range(1, len(self.nodes) + 1)]
        epmd, *ports = free_ports(1 + 2 * len(self.nodes))
        for node, name in zip(self.nodes, names, strict=True):
            node.join(name, names, [ports.pop(), ports.pop(), epmd], cookie)

    def _is_whole(self) -> bool:
        return all(node.has_met_all() for node in self.nodes)
