"""What happened to a queue, as plain data: publishes and their confirms, and every delivery."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from plumbline.cluster.history import Attempt


class Settlement(StrEnum):
    """What the consumer answered to a delivery."""

    NONE = "none"  # nothing: its connection ended first
    ACK = "ack"
    REQUEUE = "requeue"


class Delivery(Struct):
    """One basic.deliver. ``channel`` is a number for each consumer's connection of the run."""

    message: str
    channel: int
    node: int  # to which the consumer is connected
    at: int
    redelivered: bool = False
    settlement: Settlement = Settlement.NONE


class QueueHistory(Struct, frozen=True):
    """One run. ``deliveries`` are in the order in which they were read; the last ones empty the queue.
    ``answers``: confirms for publishes that have one already, or that were never sent, in words.
    ``is_whole``: every node answered in time; ``is_empty``: the queue was drained completely."""

    attempts: list[Attempt]
    deliveries: list[Delivery]
    answers: list[str] = []
    unconfirmed: list[Attempt] = []  # without a confirm, on channels that are open still
    exists: bool = True
    is_whole: bool = True
    is_empty: bool = True
    problem: str = ""

    def places(self, message: str, sequence: int) -> Iterator[str]:
        """Each delivery of a message."""
        found = [one for one in self.deliveries if one.message == message]
        for one in found:
            again = ", redelivered" if one.redelivered else ""
            yield f"delivered by node {one.node + 1} on channel {one.channel}{again}: {one.settlement}"
        if not found:
            yield "never delivered"
