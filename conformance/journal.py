"""The journal of a session: everything exchanged, on all connections, in the order of time."""

from __future__ import annotations

import time

import msgspec

from conformance.verdicts import Direction, WireLine


class Journal:
    """Everything exchanged in a session, in the order of time."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.lines: list[WireLine] = []
        self.paused = False

    def add(self, at: float, connection: str, direction: Direction, text: str, raw: bytes = b"") -> None:
        if not self.paused:
            self.lines.append(WireLine(at - self.began, connection, direction, text, raw))

    def mark_offending(self, connection: str, raw: bytes) -> None:
        """Mark the last line that ``connection`` received with these bytes: reports point at it."""
        for position in range(len(self.lines) - 1, -1, -1):
            line = self.lines[position]
            if line.connection == connection and line.direction == "<" and line.raw == raw:
                self.lines[position] = msgspec.structs.replace(line, offending=True)
                return
