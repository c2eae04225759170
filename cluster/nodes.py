"""What is done to the nodes of a cluster, and what a run needs of one, whatever its software."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from plumbline.cluster.relays import RouteRelays
from plumbline.servers.process import ServerProcess

RESTARTED_WITHIN_S = 180.0
SIGCONT, SIGSTOP = signal.SIGCONT, signal.SIGSTOP


class ClusterNodes(Protocol):
    """The nodes of one run, and the relays between them while they run."""

    @property
    def is_lasting(self) -> bool:
        """Whether they keep what the run has made there."""

    @property
    def processes(self) -> NodeProcesses: ...

    @property
    def relays(self) -> RouteRelays: ...

    def store_files(self, node: int) -> Sequence[Path]:
        """Those in which a node that does not run keeps messages."""

    def lose_power(self, node: int) -> str:
        """Takes from the store of a node that was killed what is not on disk. Says what was lost."""

    def launch(self) -> None:
        """Starts all nodes and does not wait."""

    def await_ready(self) -> None:
        """Returns once the nodes are one cluster. Raises ``ServerError``."""

    def stop(self) -> None:
        """Ends all nodes, also killed and paused ones. Idempotent."""


class NodeProcesses:
    """Kills, restarts and pauses nodes, which count from 0. ``ended`` is called with each node after its
    end."""

    def __init__(
        self, nodes: Sequence[ServerProcess], ended: Callable[[int], None] = lambda node: None
    ) -> None:
        self._nodes = nodes
        self._after_end = ended
        self._paused: set[int] = set()
        self._killed: set[int] = set()

    def url_of(self, node: int) -> str:
        """Where clients connect to it; "" while it does not run."""
        return "" if node in self._killed else self._nodes[node].url

    def kill(self, nodes: Collection[int]) -> None:
        """SIGKILL to all of them. What they stored stays."""
        for one in nodes:
            self._killed.add(one)
            self._nodes[one].kill()
            self._after_end(one)

    def shut_down(self, nodes: Collection[int]) -> None:
        """Ends them in order. What they stored stays."""
        for one in nodes:
            self._killed.add(one)
            self._nodes[one].shut_down()
            self._after_end(one)

    def restart(self, nodes: Collection[int]) -> None:
        """Starts killed nodes with what they stored; returns when clients can connect to them.

        Raises ``ServerError``.
        """
        for one in nodes:
            self._nodes[one].launch()
        for one in nodes:
            self._nodes[one].await_ready(RESTARTED_WITHIN_S)
            self._killed.discard(one)

    def pause(self, nodes: Collection[int]) -> None:
        """They stop where they are; their connections stay open."""
        for one in nodes:
            os.killpg(self._nodes[one].pid, SIGSTOP)  # the pid may be that of a start script
            self._paused.add(one)

    def go_on(self, nodes: Collection[int]) -> None:
        """Paused nodes run again."""
        for one in nodes:
            with suppress(ProcessLookupError):
                os.killpg(self._nodes[one].pid, SIGCONT)
            self._paused.discard(one)

    def end_pauses(self) -> None:
        """Before they are stopped."""
        self.go_on(set(self._paused))
