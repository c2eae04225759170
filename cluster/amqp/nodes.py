"""The nodes of a RabbitMQ cluster, whose connections pass relays.

A node that receives nothing from another for 5 s gives it up (``net_ticktime``; the default is a minute), so
that a partition of seconds is one. The schedulers do not wait busily: three nodes share this machine.
Sources: RabbitMQ, "Clustering", "Net Tick Time", and "Runtime Tuning"; Erlang, "kernel", ``net_ticktime``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from plumbline.cluster.amqp.port_mapper import PortMapper
from plumbline.cluster.nodes import NodeProcesses
from plumbline.cluster.relays import RouteRelays
from plumbline.errors import UsageProblem
from plumbline.servers.amqp.rabbitmq_cluster import ClusterNode, RabbitMQCluster

NET_TICK_S = 5
ARGUMENTS = f"-kernel net_ticktime {NET_TICK_S} +sbwt none +sbwtdcpu none +sbwtdio none"
STORED = (".wal", ".segment")
ERLANG_ARGUMENTS = "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"
_LEADS = re.compile(r"^(\S+ \S+) .*queue '(.+?)' in vhost .*-> leader in term", re.MULTILINE)


class RelayedNode(ClusterNode):
    """One node, with a port mapper of ours."""

    def __init__(self, binary: Path | str) -> None:
        super().__init__(binary, has_port_mapper=False)

    def _environment(self) -> Mapping[str, str]:
        found = super()._environment()
        return {**found, ERLANG_ARGUMENTS: f"{found[ERLANG_ARGUMENTS]} {ARGUMENTS}"}

    def elections(self, queue: str) -> list[float]:
        """When it became the leader of a queue, in seconds since 1970, by its log."""
        logs = [file.read_text(errors="replace") for file in (self.folder / "logs").glob("*.log")]
        return [
            datetime.fromisoformat(when).timestamp()
            for when, name in _LEADS.findall("\n".join(logs))
            if name == queue
        ]


class RelayedRabbitMQ(RabbitMQCluster):
    """``relays`` and port mappers are between the nodes while it runs."""

    is_lasting = False

    def __init__(self, binary: Path | str, nodes: int) -> None:
        super().__init__(binary, nodes)
        self.processes = NodeProcesses(self.nodes)
        self.relays = RouteRelays()
        self._mappers: list[PortMapper] = []

    def _make_nodes(self, binary: Path | str, count: int) -> Sequence[RelayedNode]:
        return [RelayedNode(binary) for _ in range(count)]

    def elections(self, queue: str) -> list[tuple[float, int]]:
        """When which node became the leader of a queue, by their logs."""
        return sorted(
            (at, one)
            for one, node in enumerate(self.nodes)
            if isinstance(node, RelayedNode)
            for at in node.elections(queue)
        )

    def _prepare(self) -> None:
        self._end_mappers()
        super()._prepare()
        self.relays.start([node.distribution_port for node in self.nodes])
        names = [node.name.partition("@")[0] for node in self.nodes]
        for one, node in enumerate(self.nodes):
            relays = self.relays.ports.items()
            mapper = PortMapper({names[other]: relay for (here, other), relay in relays if here == one})
            self._mappers.append(mapper)
            node.map_ports_at(mapper.port)

    def store_files(self, node: int) -> Sequence[Path]:
        """The write-ahead log and the segments of quorum queues."""
        files = (self.nodes[node].folder / "mnesia").rglob("*")
        return [file for file in files if file.suffix in STORED and "quorum" in file.parts]

    def lose_power(self, node: int) -> str:
        raise UsageProblem("a node of RabbitMQ cannot lose power")

    def stop(self) -> None:
        with ExitStack() as ends:
            ends.callback(self.relays.stop)
            ends.callback(self._end_mappers)
            ends.callback(super().stop)
            self.processes.end_pauses()

    def _end_mappers(self) -> None:
        while self._mappers:
            self._mappers.pop().stop()
