"""The search for a place from which a stream can be decoded, where its own beginning is not known.

Each place where an operation may begin gets a decoder, which is fed as the stream goes on. The first one
from which everything is the protocol, with at least one operation, wins. The number of places that are tried
at the same time, and the bytes that are decoded for them, are bounded: see ``bounds``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from plumbline import bounds
from plumbline.captures.dialects import CaptureDialect, StreamDecoder
from plumbline.wire.errors import ProtocolError
from plumbline.wire.sender import Direction

SHORT_BYTES = 32  # may be the beginning of an operation that cannot be recognized yet
LINE_END_BYTES = 2  # before that, which show that a line begins there
PIECE_BYTES = 512  # decoded first: most places that are none show it there
LAST_PLACES = bounds.CAPTURE_START_CANDIDATES  # of a segment, which are tried in any case


class Entry(Struct, frozen=True):
    """Where decoding goes on: ``offset`` bytes after the search began, with these operations."""

    offset: int
    decoder: StreamDecoder
    operations: Sequence[Any]


class _Candidate:
    """A place that may be the beginning of an operation, and its decoder."""

    __slots__ = ("decoder", "offset", "size")

    def __init__(self, offset: int, decoder: StreamDecoder) -> None:
        self.offset = offset
        self.decoder = decoder
        self.size = 0  # bytes that it has read


class StartSearch:
    """One search in one stream. Offsets count the bytes since it began."""

    __slots__ = ("_candidates", "_end", "_tail", "_tried")

    def __init__(self) -> None:
        self._end = 0  # offset of the next byte
        self._tail = b""  # the last bytes, in which an operation may have begun
        self._tried: set[int] = set()  # offsets in the tail that were tried
        self._candidates: list[_Candidate] = []  # in the order of their places

    @property
    def held(self) -> int:
        """Bytes that it holds, at most."""
        return len(self._tail) + sum(candidate.size for candidate in self._candidates)

    def feed(self, data: bytes, dialect: CaptureDialect, direction: Direction) -> Entry | None:
        """Takes the next bytes of the stream; where decoding goes on, once that is known."""
        for candidate in list(self._candidates):
            entry = self._read(candidate, data)
            if entry is not None:
                return entry
        begins_in_line = bool(self._candidates)
        joined = self._tail + data
        first = self._end - len(self._tail)
        self._end += len(data)
        entry = self._try_places(joined, first, dialect, direction, begins_in_line=begins_in_line)
        if entry is not None:
            return entry
        oldest = self._end - bounds.CAPTURE_START_WINDOW_BYTES
        self._candidates = [one for one in self._candidates if one.offset >= oldest]
        self._tail = joined[-SHORT_BYTES - (LINE_END_BYTES if self._candidates else 0) :]
        start = self._end - len(self._tail)
        self._tried = {offset for offset in self._tried if offset >= start}
        return None

    def _try_places(
        self, data: bytes, first: int, dialect: CaptureDialect, direction: Direction, *, begins_in_line: bool
    ) -> Entry | None:
        """The places of ``data``, whose first byte has the offset ``first``."""
        places = [
            place
            for place in dialect.starts(data, direction)
            if first + place not in self._tried and not (begins_in_line and place == 0)
        ]
        work = (len(data) + bounds.CAPTURE_ENTRY_BYTES) * bounds.CAPTURE_START_WORK
        for number, place in enumerate(places, 1):
            if work <= 0 and len(places) - number >= LAST_PLACES:
                continue
            self._tried.add(first + place)
            candidate = _Candidate(first + place, dialect.decoder_from(direction))
            self._candidates.append(candidate)
            entry = self._read(candidate, data[place:])
            if entry is not None:
                return entry
            work -= candidate.size + bounds.CAPTURE_ENTRY_BYTES
            if len(self._candidates) > bounds.CAPTURE_START_CANDIDATES:
                del self._candidates[0]
        return None

    def _read(self, candidate: _Candidate, data: bytes) -> Entry | None:
        """Decodes more of it. A place that turns out to be none is dropped."""
        operations: list[Any] = []
        try:
            for piece in (data[:PIECE_BYTES], data[PIECE_BYTES:]):
                if piece:
                    candidate.size += len(piece)
                    operations += candidate.decoder.feed(piece)
        except ProtocolError:
            self._candidates.remove(candidate)
            return None
        return Entry(candidate.offset, candidate.decoder, operations) if operations else None
