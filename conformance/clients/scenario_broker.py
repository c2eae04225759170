"""The interface through which scenarios get a reference broker behind a watching proxy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from plumbline.conformance.clients.scenario import BrokerSetup
from plumbline.monitors import Observation


class ConnectionRemark(Protocol):
    """What happened on a connection and is no operation: closed, reset, a fault that struck."""

    @property
    def at(self) -> int:
        """Nanoseconds since 1970."""

    @property
    def connection(self) -> str: ...

    @property
    def text(self) -> str: ...


class ScenarioBroker(Protocol):
    """A reference broker of its own, and the watching proxy before it (``proxy.watching``)."""

    broker: str
    """The broker's own URL: for Plumbline, unwatched and undisturbed."""

    @property
    def url(self) -> str:
        """For the client: ``tls://`` or ``amqps://`` if it is to use TLS."""

    @property
    def authority(self) -> Path | None:
        """The certificates (PEM) that the client has to trust; None: it connects in the clear."""

    @property
    def observations(self) -> Sequence[Observation]:
        """All operations so far between client and broker, in the order of time. It only grows."""

    @property
    def clear_text(self) -> Sequence[bytes]:
        """What the client sent, on each connection, where TLS had to begin. It only grows."""

    @property
    def remarks(self) -> Sequence[ConnectionRemark]: ...

    def set_faults(self, *faults: str) -> None:
        """From now on these faults and no others; those of the scenario's decorator are no more."""

    def reset_connections(self) -> None:
        """Reset every connection of the client."""

    def close_connections(self) -> None:
        """Close every connection of the client: it reads the end of the stream."""

    def refuse_connections(self) -> None:
        """From now on the client's new connections to ``url`` read the end of the stream at once. Each is a
        remark of the connection ``refused``, once the client has closed, too."""

    def accept_connections(self) -> None:
        """The end of ``refuse_connections``."""

    def silence_connections(self) -> None:
        """No byte passes on the open connections of the client any more; they stay open."""

    def add_address(self) -> str:
        """Another URL of this broker, as of another server of a cluster: connections ``b1``, ``b2``, ..."""

    def is_open(self, connection: str) -> bool:
        """Whether more can come of that connection."""

    def inject(self, data: bytes, connection: str | None = None) -> None:
        """Send to the client what no broker sent (on that connection, or its last): whole operations."""

    def wait_until(self, condition: Callable[[], bool], within: float) -> bool:
        """Whether ``condition()`` came true in time; it is asked again after everything that passes."""


class ScenarioBrokers(Protocol):
    """Makes stands."""

    def scenario_broker(self, protocol: str, stage: BrokerSetup) -> AbstractContextManager[ScenarioBroker]:
        """A fresh one, while the block runs. ``stage.options`` go to the broker's configuration."""
