"""What a monitor is given and gives back: an operation with its place, a violation with its evidence."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property

from msgspec import Struct

from plumbline.visible import indented_line
from plumbline.wire import amqp, nats
from plumbline.wire.sender import Sender

MAX_TEXT = 300  # characters of an operation that a violation shows


class Observation(Struct, frozen=True, dict=True):
    """One operation as a connection carried it.

    ``index`` counts the connection's operations, of both directions, from 1; ``at`` is in ns since 1970.
    ``server`` tells servers (or clusters) apart: streams or queues of one name on two of them are two.
    """

    operation: nats.Operation | amqp.Operation
    sender: Sender
    connection: str
    index: int
    at: int
    server: str = ""

    @cached_property
    def place(self) -> Place:
        text = str(self.operation)
        shown = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
        return Place(self.connection, self.index, self.at, f"{self.sender.arrow} {shown}")


class Place(Struct, frozen=True, gc=False):
    """Where something was seen: enough to find it in the capture, and its line as it reads in a trace."""

    connection: str
    index: int
    at: int
    text: str = ""

    def __str__(self) -> str:
        return f"connection {self.connection}, operation {self.index}: {self.text}"


class Side(StrEnum):
    """Who breaks the rule."""

    SERVER = "server"
    CLIENT = "client"


class Violation(Struct, frozen=True):
    """A rule was broken. ``earlier`` is what made it so: the first acknowledgement, the pull request.

    ``certain`` is false where traffic that was not recorded, or two connections' clocks, could explain it.
    """

    rule: str
    requirements: tuple[str, ...]
    side: Side
    expected: str
    actual: str
    place: Place
    earlier: tuple[Place, ...] = ()
    certain: bool = True

    def __str__(self) -> str:
        known = "" if self.certain else " (possible: not all traffic is known)"
        lines = [f"{self.rule}{known}: {self.side} broke {', '.join(self.requirements)}"]
        lines += [f"  expected: {self.expected}", f"  actual:   {self.actual}", f"  at        {self.place}"]
        lines += [f"  because   {place}" for place in self.earlier]
        return "\n".join(map(indented_line, lines))
