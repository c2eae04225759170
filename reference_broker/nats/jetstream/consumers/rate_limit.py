"""``rate_limit_bps`` of a push consumer: a bucket of bytes that fills at that rate, full at first.

Knows no clock. Source: docs.nats.io, "Consumers", "RateLimit"; that there is a burst: as observed.
"""

from __future__ import annotations

from plumbline.wire.units import SECOND


class RateLimit:
    """``burst`` is what the full bucket holds; what is larger goes out when it is full."""

    def __init__(self, bits_per_second: int, burst: int) -> None:
        self.bits_per_second = bits_per_second
        self.burst = burst
        self._bytes_per_second = max(bits_per_second // 8, 1)
        self._full_at = 0

    def due(self, size: int, now: int) -> int:
        """When ``size`` bytes may go out."""
        missing_then = self.burst - min(size, self.burst)
        return max(now, self._full_at - self._duration_of(missing_then))

    def spend(self, size: int, now: int) -> None:
        self._full_at = max(self._full_at, now) + self._duration_of(size)

    def _duration_of(self, size: int) -> int:
        return size * SECOND // self._bytes_per_second
