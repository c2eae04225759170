"""Who sent what a decoder reads, and which way the bytes went. Every translation of the two is here.

Decoders and monitors speak of a ``Sender``, captures and the proxy of a ``Direction``. As a number it is
an index: ``counters[direction]``.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Literal

Arrow = Literal[">", "<"]


class Sender(StrEnum):
    """One of the two sides of a connection."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def arrow(self) -> Arrow:
        """``>`` of what a client sent, ``<`` of what a server sent: as in traces."""
        return ">" if self is Sender.CLIENT else "<"


class Direction(IntEnum):
    """Where bytes go."""

    TO_SERVER = 0
    TO_CLIENT = 1

    @property
    def other(self) -> Direction:
        """The opposite one."""
        return Direction(1 - self)

    @property
    def sender(self) -> Sender:
        """Who sends in this direction."""
        return _SENDERS[self]

    @property
    def arrow(self) -> Arrow:
        """As ``Sender.arrow``."""
        return ">" if self is Direction.TO_SERVER else "<"

    @property
    def stream(self) -> Literal["upstream", "downstream"]:
        """The word of faults and of toxiproxy: clients send upstream."""
        return "upstream" if self is Direction.TO_SERVER else "downstream"


_SENDERS = (Sender.CLIENT, Sender.SERVER)
BY_ARROW: dict[str, Direction] = {direction.arrow: direction for direction in Direction}
BY_STREAM: dict[str, Direction] = {direction.stream: direction for direction in Direction}
