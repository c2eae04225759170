"""How long single messages live, whatever max_age the stream has: ``Nats-TTL``.

Knows no store and no clock: it gets messages and returns those that are over. ADR-43, "Per-Message TTL".
"""

from __future__ import annotations

from heapq import heappop, heappush

from plumbline.wire.units import SECOND, parse_duration, read_number

NO_EXPIRY = -1


def read_ttl(text: str) -> int | None:
    """Nanoseconds, in whole seconds; 0 is as if there were none, ``NO_EXPIRY`` is ``never``; None for a value
    that is no lifetime."""
    if text.lower() == "never":
        return NO_EXPIRY
    if (seconds := read_number(text)) is not None:
        return seconds * SECOND
    duration = parse_duration(text)
    if duration is None or duration < SECOND:
        return None
    return duration // SECOND * SECOND


class Lifetimes:
    """The messages of one stream that have a lifetime of their own."""

    def __init__(self) -> None:
        self.never_expiring: set[int] = set()  # for ever, by sequence
        self._ends: list[tuple[int, int]] = []  # when, sequence

    def set_ttl(self, seq: int, ttl: int, now: int) -> None:
        if ttl == NO_EXPIRY:
            self.never_expiring.add(seq)
        elif ttl:
            heappush(self._ends, (now + ttl, seq))

    def expired(self, now: int) -> list[int]:
        """The sequences whose time is over; each is returned once."""
        ended = []
        while self._ends and self._ends[0][0] <= now:
            ended.append(heappop(self._ends)[1])
        return ended

    def next_end(self) -> int | None:
        return self._ends[0][0] if self._ends else None
