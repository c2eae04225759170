"""Reads every open connection of a session while anyone waits, so that arrivals are stamped in time."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from typing import Protocol

from plumbline.conformance.targets.links import Link


class Readable(Protocol):
    """What the pump feeds: a connection."""

    def readable(self) -> None:
        """There is something to read, or the peer has closed."""


class Pump:
    """Reads every open connection of a session while anyone waits."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def add(self, connection: Readable, link: Link) -> None:
        self._selector.register(link, selectors.EVENT_READ, connection)

    def remove(self, link: Link) -> None:
        self._selector.unregister(link)

    def run(self, until: Callable[[], bool], deadline: float) -> bool:
        """Read until ``until()`` holds (True) or the monotonic ``deadline`` passes (False)."""
        while not until():
            left = deadline - time.monotonic()
            for key, _ in self._selector.select(max(left, 0)):
                key.data.readable()
            if left <= 0:
                return until()
        return True

    def close(self) -> None:
        self._selector.close()
