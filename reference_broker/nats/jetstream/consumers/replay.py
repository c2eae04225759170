"""Replay policy ``original``: stored messages come with the distance in time they were stored with.

Source: deep dive, "Consumer Message Rates". What is stored after the consumer was made comes at once.
"""

from __future__ import annotations

from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.wire.units import MILLISECOND


class OriginalReplay:
    """Until the message that was last when the consumer was made."""

    def __init__(self, until: int) -> None:
        self.until = until
        self._stored: int | None = None  # of the last delivery: when it was stored,
        self._delivered = 0  # and when delivered

    def due(self, message: StoredMessage, now: int) -> int:
        if self._stored is None or message.seq > self.until:
            return now
        distance = message.time - self._stored
        return self._delivered + distance if distance > MILLISECOND else now

    def delivered(self, message: StoredMessage, now: int) -> None:
        self._stored, self._delivered = message.time, now
