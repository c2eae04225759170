"""The journal of a session: everything exchanged, on all connections, in the order of time."""

from __future__ import annotations

import time

import msgspec

from plumbline.verdicts import Direction, WireLine

# Of one operation: nobody reads through megabytes of payload, and results would carry them along.
MAX_RAW_BYTES = 4096


class Journal:
    """Everything exchanged in a session, in the order of time. Of long operations the beginning is kept."""

    def __init__(self) -> None:
        self.started_at = time.monotonic()
        self.lines: list[WireLine] = []
        self.paused = False

    def add(self, at: float, connection: str, direction: Direction, text: str, raw: bytes = b"") -> None:
        if not self.paused:
            self.lines.append(
                WireLine(at - self.started_at, connection, direction, text, raw[:MAX_RAW_BYTES])
            )

    def mark_offending(self, connection: str, raw: bytes) -> None:
        """Mark the last line that ``connection`` received with these bytes: reports point at it."""
        for position in range(len(self.lines) - 1, -1, -1):
            line = self.lines[position]
            if line.connection == connection and line.direction == "<" and line.raw == raw[:MAX_RAW_BYTES]:
                self.lines[position] = msgspec.structs.replace(line, offending=True)
                return
