"""The journal of a session: everything exchanged, on all connections, in the order of time."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from plumbline.bounds import (
    JOURNAL_FIRST_LINES,
    JOURNAL_LAST_LINES,
    JOURNAL_RAW,
    JOURNAL_TEXT,
    WIRE_BYTES_OF_RUN,
    WIRE_FIRST_LINES,
    WIRE_LINES,
    WIRE_LINES_BEYOND,
    WIRE_TEXT_BEYOND,
)
from plumbline.masking import Mask
from plumbline.verdicts import CheckResult, Direction, WireLine

# Of one operation: megabytes of payload are too long to read, and results would carry them along.
MAX_RAW_BYTES = JOURNAL_RAW


class Journal:
    """Everything exchanged in a session, in the order of time. Every line passes ``mask``.

    Of long operations the beginning is kept, and of a long exchange the first and the last lines: a server
    under test decides how much it sends. A position counts all lines, also those that are left out.
    """

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self.started_at = time.monotonic()
        self.paused = False
        self._lines: list[WireLine] = []
        self._left_out = 0  # lines, after the first JOURNAL_FIRST_LINES

    @property
    def lines(self) -> Sequence[WireLine]:
        """The lines that are kept."""
        return self._lines

    @property
    def position(self) -> int:
        """How many lines there were so far."""
        return len(self._lines) + self._left_out

    def add(self, at: float, connection: str, direction: Direction, text: str, raw: bytes = b"") -> None:
        if self.paused:
            return
        self._lines.append(
            WireLine(
                at - self.started_at,
                connection,
                direction,
                _shortened(self._mask.text(text)),
                self._kept(raw),
            )
        )
        if len(self._lines) > JOURNAL_FIRST_LINES + 2 * JOURNAL_LAST_LINES:
            self._left_out += JOURNAL_LAST_LINES
            del self._lines[JOURNAL_FIRST_LINES : JOURNAL_FIRST_LINES + JOURNAL_LAST_LINES]

    def since(self, position: int) -> list[WireLine]:
        """The lines from this position on, as far as they are kept."""
        return self._lines[self._index(position) :]

    def forget_since(self, position: int) -> None:
        """Remove the lines from this position on."""
        del self._lines[self._index(position) :]
        self._left_out = min(self._left_out, max(0, position - JOURNAL_FIRST_LINES))

    def replace(self, lines: Sequence[WireLine]) -> None:
        """Have these lines and no others."""
        self._lines = list(lines)
        self._left_out = 0

    def _index(self, position: int) -> int:
        """Where the line of a position is, or the first one after it that is kept."""
        if position <= JOURNAL_FIRST_LINES:
            return position
        return max(JOURNAL_FIRST_LINES, position - self._left_out)

    def mark_offending(self, connection: str, raw: bytes) -> None:
        """Mark the last line that ``connection`` received with these bytes: reports point at it."""
        kept = self._kept(raw)
        for position in range(len(self._lines) - 1, -1, -1):
            line = self._lines[position]
            if line.connection == connection and line.direction == "<" and line.raw == kept:
                self._lines[position] = msgspec.structs.replace(line, offending=True)
                return

    def shown(self) -> tuple[WireLine, ...]:
        """What results carry of it: at most ``WIRE_LINES`` lines."""
        return shortened_exchange(self._lines, self._left_out)

    def _kept(self, raw: bytes) -> bytes:
        """What is kept of an operation."""
        return self._mask.beginning(raw, MAX_RAW_BYTES)


def shortened_exchange(lines: Sequence[WireLine], left_out: int = 0) -> tuple[WireLine, ...]:
    """Of a longer exchange the beginning, the end, and how many operations are left out between them.

    ``left_out``: how many of them are not in ``lines``.
    """
    if len(lines) <= WIRE_LINES and not left_out:
        return tuple(lines)
    first, last = lines[:WIRE_FIRST_LINES], lines[WIRE_FIRST_LINES - WIRE_LINES + 1 :]
    left_out += len(lines) - len(first) - len(last)
    return (*first, _gap(last[0], left_out), *last)


class WireBudget:
    """What the exchanges in the results of one run take. Beyond ``WIRE_BYTES_OF_RUN`` they are short."""

    def __init__(self) -> None:
        self._left = WIRE_BYTES_OF_RUN

    def within(self, result: CheckResult) -> CheckResult:
        """``result``, with less of its exchange if there is no room for it."""
        size = sum(len(line.text) + len(line.raw) for line in result.wire)
        if size <= self._left:
            self._left -= size
            return result
        last = result.wire[-WIRE_LINES_BEYOND:]
        short = (
            msgspec.structs.replace(line, text=_shortened(line.text, WIRE_TEXT_BEYOND), raw=b"")
            for line in last
        )
        return msgspec.structs.replace(result, wire=(_gap(last[0], len(result.wire) - len(last)), *short))


def _gap(before: WireLine, left_out: int) -> WireLine:
    return WireLine(before.at, before.connection, "!", f"... {left_out} operations left out ...")


def _shortened(text: str, limit: int = JOURNAL_TEXT) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"
