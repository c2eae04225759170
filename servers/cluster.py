"""Several servers that are one target: started side by side, ready when they have found each other.

Each software that has clusters has a subclass of ``Cluster``. Standard library only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import ClassVar, Self

from plumbline.servers.process import NotReady, ServerProcess

LOOK_EVERY_S = 0.1
ATTEMPTS = 3  # ports that nodes know of each other are chosen before they start: others may take one first


class Cluster:
    """It has the life of a ``ServerProcess``: ``launch``, ``await_ready``, ``stop``, or ``with``."""

    ready_within_s: ClassVar[float] = 60.0
    fresh: ClassVar[bool] = False

    def __init__(self, nodes: Sequence[ServerProcess]) -> None:
        self._nodes = nodes
        self.binary = nodes[0].binary

    @property
    def url(self) -> str:
        """That of the first node, while the cluster runs."""
        return self._nodes[0].url

    # -- what each software adds -------------------------------------------------------------

    def _prepare(self) -> None:
        """Chooses ports and configures the nodes, which do not run."""
        raise NotImplementedError

    def _is_whole(self) -> bool:
        """Whether all nodes, which accept clients already, have become one cluster."""
        raise NotImplementedError

    # -- its life ----------------------------------------------------------------------------

    def launch(self) -> None:
        """Starts all nodes and does not wait: they wait for each other."""
        self._prepare()
        for node in self._nodes:
            node.launch()

    def await_ready(self) -> None:
        """Returns once the nodes are one cluster. Raises ``ServerError``, and stops all of them, if they do
        not become one in time (``ready_within_s``)."""
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
        with ExitStack() as ends:
            for node in self._nodes:
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
        deadline = time.monotonic() + self.ready_within_s
        for node in self._nodes:
            node.await_ready(self.ready_within_s)
        while not self._is_whole():
            for node in self._nodes:
                if (status := node.poll()) is not None:
                    raise NotReady(f"{self.binary} ended with exit code {status}", ended=True, log=node.log)
            if time.monotonic() > deadline:
                what = f"{len(self._nodes)} nodes of {self.binary} are no cluster"
                raise NotReady(
                    f"{what} within {self.ready_within_s:g} s", ended=False, log=self._nodes[0].log
                )
            time.sleep(LOOK_EVERY_S)
