"""Runs one nats-server program under several configurations, each alone or as a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType

from plumbline.servers.nats.cluster import NatsCluster
from plumbline.servers.nats.nats_server import NatsServer
from plumbline.servers.process import ServerError

ALONE: Mapping[str, int] = MappingProxyType({})


@contextmanager
def start_variants(
    binary: Path | str, variants: Mapping[str, Mapping[str, object]], nodes: Mapping[str, int] = ALONE
) -> Iterator[Mapping[str, str]]:
    """Starts ``binary`` for each configuration, all at the same time; gives name -> URL while they run.

    ``nodes``: how many servers a variant has, if more than one. Raises ``ServerError``.
    """
    with ExitStack() as running:
        servers = {name: nats_target(binary, config, nodes.get(name, 1)) for name, config in variants.items()}
        for name, server in servers.items():
            running.callback(server.stop)
            try:
                server.launch()
            except OSError as error:
                raise ServerError(f"variant {name}: {binary} does not start: {error}") from error
        for name, server in servers.items():
            try:
                server.await_ready()
            except ServerError as error:
                raise ServerError(f"variant {name}: {error}") from error
        yield {name: server.url for name, server in servers.items()}


def nats_target(binary: Path | str, config: Mapping[str, object], nodes: int) -> NatsServer | NatsCluster:
    """One server, or a cluster of several. Raises ``ServerError`` if ``binary`` is no program."""
    return NatsServer(binary, config) if nodes == 1 else NatsCluster(binary, config, nodes)
