"""Updates of keys and what the nodes have of them, as plain data. Times are those of ``cluster.history``."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from plumbline.cluster.history import AttemptOutcome

HISTORY = 64  # values of a key; the most that a bucket keeps


class KeyUpdate(Struct):
    """One update of ``key``, on condition that its last revision is ``expected``. ``value`` is unique."""

    key: str
    value: str
    expected: int  # 0: the key is not there
    node: int  # to which it was sent
    invoked: int
    completed: int = 0  # 0: no answer
    outcome: AttemptOutcome = AttemptOutcome.INDETERMINATE
    revision: int = 0  # of the acknowledgement
    error: str = ""


class KeyCopy(Struct, frozen=True):
    """The last revision and value of each key on one node, after healing. ``problem``: why it could not be
    read."""

    node: int
    keys: dict[str, tuple[int, str]]
    problem: str = ""


class WatchedUpdate(Struct, frozen=True):
    """One message of a watch. ``consumer`` counts the consumers of the watch, each of which was made after
    the last revision that was seen."""

    key: str
    value: str
    revision: int
    consumer: int
    at: int


class KeyWatch(Struct):
    """What one client that watches the bucket got, in its order. ``problem``: why it may lack the last
    updates."""

    updates: list[WatchedUpdate]
    problem: str = ""

    @property
    def last(self) -> int:
        """The highest revision so far."""
        return self.updates[-1].revision if self.updates else 0


class KeyHistory(Struct, frozen=True):
    """One bucket in one run."""

    updates: list[KeyUpdate]
    copies: list[KeyCopy]
    watches: list[KeyWatch] = []

    def of_value(self, value: str) -> KeyUpdate | None:
        """The update to this value."""
        return next((one for one in self.updates if one.value == value), None)

    def places(self, update: KeyUpdate, revision: int) -> Iterator[str]:
        """Successful updates of its key that expected or made a revision which this one replaced; and what
        each node has."""
        for one in self.updates:
            covers = update.expected <= one.expected < revision or update.expected <= one.revision <= revision
            if one.key == update.key and one.outcome is AttemptOutcome.OK and covers:
                yield (
                    f"update of {one.key} to {one.value} with the last revision {one.expected} through node "
                    f"{one.node + 1}: revision {one.revision}"
                )
        for copy in self.copies:
            has, value = copy.keys.get(update.key, (0, "no value"))
            yield f"node {copy.node + 1}: {copy.problem or f'{update.key} is {value} ({has})'}"
