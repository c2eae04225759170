"""A cluster of nats-servers on this machine, which is ready when it has a meta leader.

The state of each node comes from its monitoring port (``/healthz``, ``/jsz``), so no login is needed.
Source: docs.nats.io, "Clustering JetStream" and "Monitoring NATS".
"""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from plumbline.servers.nats.nats_server import NatsServer
from plumbline.servers.ports import free_ports
from plumbline.servers.process import NotReady

READY_WITHIN_S = 60.0
LOOK_EVERY_S = 0.1
ANSWERED_WITHIN_S = 2.0
ATTEMPTS = 3  # the ports of the routes are chosen here, and another process may take one first
NAME = "plumbline"


class NatsCluster:
    """``nodes`` servers with the same ``config``. ``url`` while it runs: that of the first node.

    It has the life of a ``ServerProcess``: ``launch``, ``await_ready``, ``stop``, or ``with``.
    """

    def __init__(self, binary: Path | str, config: Mapping[str, object], nodes: int) -> None:
        self.binary = binary
        self.config = dict(config)
        self.nodes: Sequence[NatsServer] = [NatsServer(binary) for _ in range(nodes)]

    @property
    def url(self) -> str:
        return self.nodes[0].url

    def launch(self) -> None:
        """Starts all nodes and does not wait: they wait for each other."""
        ports = free_ports(len(self.nodes))
        routes = [f"nats://127.0.0.1:{port}" for port in ports]
        for number, (node, port) in enumerate(zip(self.nodes, ports, strict=True), 1):
            node.config = {
                "server_name": f"{NAME}-{number}",
                "http": "127.0.0.1:-1",
                **self.config,
                "cluster": {"name": NAME, "host": "127.0.0.1", "port": port, "routes": routes},
            }
            node.launch()

    def await_ready(self) -> None:
        """Returns once a meta leader is elected and every node is healthy. Raises ``ServerError``, and stops
        all nodes, if that takes too long."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._await_nodes()
            except NotReady as problem:
                self.stop()
                if attempt == ATTEMPTS or not problem.ended:
                    raise
                self.launch()
            else:
                return

    def stop(self) -> None:
        """Ends all nodes and removes their folders. Idempotent."""
        with contextlib.ExitStack() as ends:
            for node in self.nodes:
                ends.callback(node.stop)

    def __enter__(self) -> Self:
        try:
            self.launch()
            self.await_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _await_nodes(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        for node in self.nodes:
            node.await_ready()
        while not (all(map(_is_healthy, self.nodes)) and self._has_leader()):
            for node in self.nodes:
                if (status := node.poll()) is not None:
                    raise NotReady(f"{self.binary} ended with exit code {status}", ended=True, log=node.log)
            if time.monotonic() > deadline:
                raise NotReady(
                    f"{len(self.nodes)} nodes of {self.binary} have no cluster within {READY_WITHIN_S:g} s",
                    ended=False,
                    log=self.nodes[0].log,
                )
            time.sleep(LOOK_EVERY_S)

    def _has_leader(self) -> bool:
        """Whether the nodes agree about the leader, and it sees every other node up to date."""
        if self.config.get("jetstream", True) is False:
            return True
        states = {str(node.config["server_name"]): _meta_state(node) for node in self.nodes}
        leaders = {state.get("leader") for state in states.values()}
        replicas = states.get(str(leaders.pop()), {}).get("replicas", []) if len(leaders) == 1 else []
        return len(replicas) == len(self.nodes) - 1 and all(one.get("current") for one in replicas)


def _is_healthy(node: NatsServer) -> bool:
    return _monitored(node, "/healthz").get("status") == "ok"


def _meta_state(node: NatsServer) -> Mapping[str, Any]:
    state: Mapping[str, Any] = _monitored(node, "/jsz").get("meta_cluster", {})
    return state


def _monitored(node: NatsServer, path: str) -> Mapping[str, Any]:
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
