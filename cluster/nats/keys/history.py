"""Updates of keys and what the nodes have of them, as plain data. Times are those of ``cluster.history``."""

from __future__ import annotations

from msgspec import Struct

from plumbline.cluster.history import AttemptOutcome


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


class KeyHistory(Struct, frozen=True):
    """One bucket in one run."""

    updates: list[KeyUpdate]
    copies: list[KeyCopy]
