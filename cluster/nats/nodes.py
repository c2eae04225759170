"""The nodes of a cluster of nats-servers, whose routes pass relays, and what is done to them.

``cluster.advertise`` names an address where nothing listens: nodes would else learn the true ports of each
other (an implicit route) and pass by the relays. Source: docs.nats.io, "Clustering NATS servers",
configuration ``advertise`` and ``no_advertise``.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from plumbline.cluster.nats.reading import OwnCopy, stated_copy
from plumbline.cluster.nodes import NodeProcesses
from plumbline.cluster.relays import RouteRelays
from plumbline.cluster.traced import TracedProcess
from plumbline.cluster.user import UserCluster
from plumbline.servers.nats.cluster import NAME, NatsCluster, monitored
from plumbline.servers.nats.nats_server import NatsServer
from plumbline.servers.ports import free_ports


class TracedNatsServer(TracedProcess, NatsServer):
    """One node that can lose power."""

    store = "store"


class RelayedCluster(NatsCluster):
    """``relays`` are between the nodes while it runs. Killed and paused nodes are ended by ``stop``, too."""

    is_lasting = False

    def __init__(
        self,
        binary: Path | str,
        config: Mapping[str, object],
        nodes: int,
        *,
        node: Callable[[Path | str], NatsServer] = NatsServer,
    ) -> None:
        super().__init__(binary, config, nodes, node=node)
        self.processes = NodeProcesses(self.nodes, self._forget_ports)
        self.relays = RouteRelays()
        self._closed_port = socket.socket()  # bound, and listens never: a connection is refused at once

    def _prepare(self) -> None:
        ports = free_ports(len(self.nodes))
        self.relays.start(ports)
        self._closed_port.close()
        self._closed_port = socket.socket()
        self._closed_port.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{self._closed_port.getsockname()[1]}"
        for one, (node, port) in enumerate(zip(self.nodes, ports, strict=True)):
            routes = [
                f"nats://127.0.0.1:{relay}" for (here, _), relay in self.relays.ports.items() if here == one
            ]
            node.config = {
                "server_name": f"{NAME}-{one + 1}",
                "http": "127.0.0.1:-1",
                **self.config,
                "cluster": {
                    "name": NAME,
                    "host": "127.0.0.1",
                    "port": port,
                    "routes": routes,
                    "advertise": nowhere,
                    "no_advertise": True,
                },
            }

    def _forget_ports(self, node: int) -> None:
        """The next process writes its own."""
        for ports_file in self.nodes[node].ports_files:
            ports_file.unlink()

    def store_files(self, node: int) -> Sequence[Path]:
        """Blocks of messages."""
        return list(self.nodes[node].folder.glob("store/jetstream/*/streams/*/msgs/*.blk"))

    def lose_power(self, node: int) -> str:
        """Only of a ``TracedNatsServer``."""
        struck = self.nodes[node]
        assert isinstance(struck, TracedNatsServer), "what it fsyncs was not watched"
        return struck.lose_power()

    # -- what they say -----------------------------------------------------------------------

    def copies(self, stream: str) -> list[OwnCopy | None]:
        """What each node states of its copy, by its monitoring port; None without a copy."""
        return [_own_copy(node, stream) for node in self.nodes]

    def is_healthy(self) -> bool:
        """Whether all nodes are up to date, by their own word, and one cluster."""
        return self._is_whole()

    # -- the end -----------------------------------------------------------------------------

    def stop(self) -> None:
        with ExitStack() as ends:
            ends.callback(self._closed_port.close)
            ends.callback(self.relays.stop)
            ends.callback(super().stop)
            self.processes.end_pauses()


class UserStreams(UserCluster):
    """A user's cluster of nats-servers. Its monitoring ports are not known: what a node states of its copy is
    what the leader answers to a request through that node."""

    def copies(self, stream: str) -> list[OwnCopy | None]:
        """None if the node does not answer."""
        return [asyncio.run(stated_copy(url, stream)) for url in self.urls]

    def is_healthy(self) -> bool:
        """Whether the nodes are up to date is asked of the leader of the stream."""
        return True


def _own_copy(node: NatsServer, stream: str) -> OwnCopy | None:
    accounts: Sequence[Mapping[str, object]] = monitored(node, "/jsz?streams=true").get("account_details", [])
    for account in accounts:
        details = account.get("stream_detail") or []
        assert isinstance(details, list)
        for found in details:
            if found.get("name") == stream:
                state = found["state"]
                return int(state["first_seq"]), int(state["last_seq"]), int(state["messages"])
    return None
