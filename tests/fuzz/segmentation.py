"""The rule of every decoder: however the bytes are cut, it gives the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import TypeVar
from zlib import crc32

from tests.wire.segments import byte_by_byte, cut

T = TypeVar("T")
CUTS = 3
BYTE_BY_BYTE = 300  # longer streams would take the time of many others


def same_however_cut(stream: bytes, read: Callable[[Iterable[bytes]], T]) -> T:
    """What ``read`` makes of the stream; the cuts are chosen by the stream, so a failure fails again."""
    whole = read([stream])
    random = Random(crc32(stream))
    for _ in range(CUTS):
        pieces = cut(random, stream)
        assert read(pieces) == whole, f"cut after {[len(piece) for piece in pieces]} bytes"
    if len(stream) <= BYTE_BY_BYTE:
        assert read(byte_by_byte(stream)) == whole, "byte by byte"
    return whole
