"""The honest client beside the fuzzers: it publishes with acknowledgement and looks for every message.

All that was acknowledged has to be there, with its bytes, in order; counters have to agree with it.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

from tests.fuzz.live.programs import Broken

LEAST_KEPT, MOST_KEPT = 100, 300  # messages that the server holds
SIZES = (0, 5, 100, 2000, 20_000)  # bytes of a payload, besides its number


class Honest(Protocol):
    """One protocol's client. Methods raise ``Broken``, ``AssertionError``, ``Lost`` or ``TimeoutError``."""

    acknowledged: int

    async def connect(self, url: str) -> None:
        """A new connection in the place of the old one."""

    async def set_up(self) -> None:
        """Makes what messages are published to; once."""

    async def round(self) -> None:
        """Publishes some, reads them back, and compares the counters."""

    async def read_all(self) -> None:
        """Compares all that the server still has to hold."""

    async def sweep(self, left: set[tuple[str, str]]) -> None:
        """Deletes what fuzzers have made; ``left``: their names, as far as they are known."""

    def close(self) -> None: ...


class Payloads:
    """Unique payloads, each begins with its number."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"payloads {seed}")
        self.number = 0

    def next(self) -> bytes:
        self.number += 1
        return b"%d " % self.number + self._random.randbytes(self._random.choice(SIZES))


def require_equal(what: str, found: object, expected: object) -> None:
    """Raises ``Broken``."""
    if found != expected:
        raise Broken(f"{what}: {str(found)[:300]}, but expected {str(expected)[:300]}")
