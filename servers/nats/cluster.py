"""A cluster of nats-servers on this machine, which is ready when it has a meta leader.

The state of each node comes from its monitoring port (``/healthz``, ``/jsz``), so no login is needed.
Source: docs.nats.io, "Clustering JetStream" and "Monitoring NATS".
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from plumbline.servers.cluster import Cluster
from plumbline.servers.nats.nats_server import NatsServer
from plumbline.servers.ports import free_ports

ANSWERED_WITHIN_S = 2.0
NAME = "plumbline"


class NatsCluster(Cluster):
    """``nodes`` servers with the same ``config``, each made by ``node``. Raises ``ServerError`` if ``binary``
    is no program."""

    def __init__(
        self,
        binary: Path | str,
        config: Mapping[str, object],
        nodes: int,
        *,
        node: Callable[[Path | str], NatsServer] = NatsServer,
    ) -> None:
        self.config = dict(config)
        self.nodes: Sequence[NatsServer] = [node(binary) for _ in range(nodes)]
        super().__init__(self.nodes)

    def _prepare(self) -> None:
        ports = free_ports(len(self.nodes))
        routes = [f"nats://127.0.0.1:{port}" for port in ports]
        for number, (node, port) in enumerate(zip(self.nodes, ports, strict=True), 1):
            node.config = {
                "server_name": f"{NAME}-{number}",
                "http": "127.0.0.1:-1",
                **self.config,
                "cluster": {"name": NAME, "host": "127.0.0.1", "port": port, "routes": routes},
            }

    def _is_whole(self) -> bool:
        """Every node is healthy, all agree about the leader, and it sees every other node up to date."""
        if not all(monitored(node, "/healthz").get("status") == "ok" for node in self.nodes):
            return False
        if self.config.get("jetstream", True) is False:
            return True
        states = {str(node.config["server_name"]): _meta_state(node) for node in self.nodes}
        leaders = {state.get("leader") for state in states.values()}
        replicas = states.get(str(leaders.pop()), {}).get("replicas", []) if len(leaders) == 1 else []
        return len(replicas) == len(self.nodes) - 1 and all(one.get("current") for one in replicas)


def _meta_state(node: NatsServer) -> Mapping[str, Any]:
    state: Mapping[str, Any] = monitored(node, "/jsz").get("meta_cluster", {})
    return state


def monitored(node: NatsServer, path: str) -> Mapping[str, Any]:
    """What its monitoring port answers, whatever the status; nothing if it does not."""
    address = urlsplit(node.address("monitoring")).netloc
    if not address:
        return {}
    link = http.client.HTTPConnection(address, timeout=ANSWERED_WITHIN_S)
    try:
        link.request("GET", path)
        answer: Mapping[str, Any] = json.loads(link.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        link.close()
    return answer
