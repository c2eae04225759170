"""A bound on memory that many owners share: who has it, how much, and who has had it longest."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Owner = TypeVar("Owner", bound=Hashable)


class Budget(Generic[Owner]):
    """At most ``limit`` bytes of all owners together. The work of a call does not depend on their number."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._owners: dict[Owner, int] = {}  # in the order in which they began

    def set(self, owner: Owner, size: int) -> None:
        """``owner`` has ``size`` bytes now; with 0 it has none and may begin again as the newest."""
        before = self._owners.get(owner, 0)
        if size:
            self._owners[owner] = size
        elif before:
            del self._owners[owner]
        self.used += size - before

    @property
    def oldest_to_release(self) -> Owner | None:
        """The owner that has had bytes longest, if all together have more than the limit."""
        return next(iter(self._owners)) if self.used > self.limit else None
