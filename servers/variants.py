"""Runs several servers side by side: one software under several configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Protocol

from plumbline.servers.process import ServerError


class Startable(Protocol):
    """A server, or a cluster, that is started in two steps, so that several can start at the same time."""

    @property
    def binary(self) -> object: ...

    @property
    def url(self) -> str: ...

    def launch(self) -> None: ...

    def await_ready(self) -> None: ...

    def stop(self) -> None: ...


@contextmanager
def start_servers(servers: Mapping[str, Startable]) -> Iterator[Mapping[str, str]]:
    """Starts all at the same time; gives name -> URL while they run. Raises ``ServerError``."""
    with ExitStack() as running:
        for name, server in servers.items():
            running.callback(server.stop)
            try:
                server.launch()
            except OSError as error:
                raise ServerError(f"variant {name}: {server.binary} does not start: {error}") from error
        for name, server in servers.items():
            try:
                server.await_ready()
            except ServerError as error:
                raise ServerError(f"variant {name}: {error}") from error
        yield {name: server.url for name, server in servers.items()}
