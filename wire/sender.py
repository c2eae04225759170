"""Who sent what a decoder reads: it decides which operations are legal."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Sender(StrEnum):
    """One of the two sides of a connection."""

    CLIENT = "client"
    SERVER = "server"


class Direction(IntEnum):
    """Where bytes go."""

    TO_SERVER = 0
    TO_CLIENT = 1

    @property
    def other(self) -> Direction:
        """The opposite one."""
        return Direction(1 - self)
