"""What a run needs of one protocol: nodes, clients, and the history when all has ended."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, ClassVar, Protocol

from msgspec import Struct

from plumbline.cluster.history import Attempt, Retention
from plumbline.cluster.judging import ClusterJudgement
from plumbline.cluster.nodes import ClusterNodes
from plumbline.cluster.plan import FaultType
from plumbline.cluster.publishing import Processes


class ClusterOptions(Struct, frozen=True):
    """What a user asked for. ``sync``: ``sync_interval`` of JetStream; "" for the server's default.
    ``retention`` is that of the stream."""

    nodes: int
    faults: tuple[FaultType, ...]
    duration_ns: int
    rate: float  # publishes a second, of all processes together
    seed: int
    sync: str = "always"
    retention: Retention = Retention.LIMITS


class RunHistory(Protocol):
    """What happened, as plain data."""

    @property
    def attempts(self) -> list[Attempt]: ...

    def places(self, message: str, sequence: int) -> Iterator[str]:
        """Where a message is, or was seen."""


class Scenario(Protocol):
    """One protocol's part of a run. It is used once, in one event loop. ``impossible``: faults that it cannot
    make."""

    impossible: ClassVar[frozenset[FaultType]]

    @property
    def nodes(self) -> ClusterNodes: ...

    @property
    def shared(self) -> Processes: ...

    async def prepare(self) -> None:
        """Makes what is published to. Raises ``TargetUnreachable``."""

    def publishers(self) -> Sequence[Coroutine[Any, Any, None]]:
        """They run until ``shared.publishing`` ends and everything is answered."""

    def readers(self) -> Sequence[Coroutine[Any, Any, None]]:
        """They run until ``end_reading``."""

    async def await_whole(self, broken: Callable[[], str]) -> str:
        """Returns when every node is up to date: ""; or what is missing when the time is over. ``broken``
        says why a node does not start again, if so."""

    async def step_down(self) -> str:
        """Asks the leader to step down. Says what was answered."""

    def end_reading(self) -> None:
        """Readers end soon."""

    async def end(self, problem: str) -> tuple[RunHistory, ClusterJudgement]:
        """Reads everything that is left, and judges. ``problem``: of ``await_whole``."""

    async def remove(self) -> None:
        """Deletes what ``prepare`` made, as far as possible."""
