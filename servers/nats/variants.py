"""Runs one nats-server program under several configurations, each alone or as a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType

from plumbline.servers.nats.cluster import NatsCluster
from plumbline.servers.nats.nats_server import NatsServer
from plumbline.servers.variants import start_servers

ALONE: Mapping[str, int] = MappingProxyType({})


def start_variants(
    binary: Path | str, variants: Mapping[str, Mapping[str, object]], nodes: Mapping[str, int] = ALONE
) -> AbstractContextManager[Mapping[str, str]]:
    """Starts ``binary`` for each configuration, all at the same time; gives name -> URL while they run.

    ``nodes``: how many servers a variant has, if more than one. Raises ``ServerError``.
    """
    return start_servers(
        {name: nats_target(binary, config, nodes.get(name, 1)) for name, config in variants.items()}
    )


def nats_target(binary: Path | str, config: Mapping[str, object], nodes: int) -> NatsServer | NatsCluster:
    """One server, or a cluster of several. Raises ``ServerError`` if ``binary`` is no program."""
    return NatsServer(binary, config) if nodes == 1 else NatsCluster(binary, config, nodes)
