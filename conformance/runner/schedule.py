"""Which worker runs which checks: xdist asks this instead of a scheduler of its own.

All checks wait in one line, in the order in which they were collected: what takes long comes first, so no run
ends with it. Checks of one group go to one worker together. The first worker that is ready begins; the others
join it, since a process takes half a second of CPU time to start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import PurePath
from typing import TYPE_CHECKING, NoReturn

from plumbline.conformance.check import Check

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

# What --dist must be: who asks for groups has them. Marks of groups do not reach xdist 3.8 with pytest 9.2,
# so the checks themselves say what belongs together.
DISTRIBUTION = "loadgroup"
# A worker runs a check only when it knows whether another one comes after it.
AHEAD = 2


class Schedule:
    """One run's. The methods are those of ``xdist.scheduler.Scheduling``. A check is known by its place in
    the collection, which is the same for all workers."""

    def __init__(self, checks: Iterable[Check]) -> None:
        self._groups = {_key(check): check.group for check in checks if check.group}
        self._collected: list[str] | None = None  # names of pytest, once a worker has collected
        self._waiting: deque[list[int]] = deque()  # groups
        self._given: dict[WorkerController, list[int]] = {}  # what each worker has not finished, in order
        self._ready: set[WorkerController] = set()

    # -- what xdist asks -----------------------------------------------------------------------

    @property
    def nodes(self) -> list[WorkerController]:
        return list(self._given)

    @property
    def collection_is_completed(self) -> bool:
        """Whether checks can be given to workers. There may be none: pytest ends such a run at once."""
        return self._collected is not None

    @property
    def tests_finished(self) -> bool:
        """Whether no worker needs anything but its end."""
        return (
            self.collection_is_completed
            and not self._waiting
            and all(len(given) < AHEAD for given in self._given.values())
        )

    @property
    def has_pending(self) -> bool:
        return bool(self._waiting) or any(self._given.values())

    # -- what xdist tells ----------------------------------------------------------------------

    def add_node(self, node: WorkerController) -> None:
        """A worker has started."""
        self._given[node] = []

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """It has collected."""
        if self._collected is None:
            self._collected = list(collection)
            self._waiting.extend(self._groups_of(collection))
        assert list(collection) == self._collected, "workers have collected different checks"
        self._ready.add(node)

    def schedule(self) -> None:
        for node in self._given:
            self._give(node)

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        self._given[node].remove(item_index)
        self._give(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """A worker has ended: the check that it ran, if it did. Others get what it leaves."""
        left = self._given.pop(node)
        self._ready.discard(node)
        if not left:
            return None
        assert self._collected is not None, "a worker is given checks only after one has collected"
        died_in, *rest = left
        if rest:
            self._waiting.appendleft(rest)
        self.schedule()
        return self._collected[died_in]

    def mark_test_pending(self, item: str) -> NoReturn:
        raise NotImplementedError("no check is run again because its worker died")

    def remove_pending_tests_from_node(self, node: WorkerController, indices: Sequence[int]) -> NoReturn:
        raise NotImplementedError("nothing is taken from a worker")

    # -- giving --------------------------------------------------------------------------------

    def _give(self, node: WorkerController) -> None:
        if node not in self._ready or node.shutting_down:
            return
        given = self._given[node]
        while self._waiting and len(given) < AHEAD:
            group = self._waiting.popleft()
            given += group
            node.send_runtest_some(group)
        if not self._waiting:
            node.shutdown()  # after what it was given

    def _groups_of(self, collection: Sequence[str]) -> Iterator[list[int]]:
        """The places of checks that one worker runs: those of one group, which are side by side, and each of
        the others."""
        for _, members in groupby(enumerate(collection), lambda member: self._group(*member)):
            yield [place for place, _ in members]

    def _group(self, place: int, name: str) -> str | int:
        path, _, last = name.rpartition("::")
        return self._groups.get((PurePath(path).name, last)) or place


def _key(check: Check) -> tuple[str, str]:
    """The end of its name in pytest: its file, and the last part of its id (``runner.items``)."""
    return PurePath(check.where.rpartition(":")[0]).name, check.id.rpartition("::")[2]
