"""Decisions read from bytes: so that a mutation of the bytes is a mutation of what is done with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Reads ``data`` from its beginning. After the last byte every decision is 0 or empty."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        """Whether bytes are left."""
        return self._at < len(self._data)

    def number(self, below: int) -> int:
        """0 to ``below`` - 1; takes one byte, more for large ranges."""
        size = max(((below - 1).bit_length() + 7) // 8, 1)
        return int.from_bytes(self.take(size), "little") % below

    def one_of(self, options: Sequence[T]) -> T:
        """One of ``options``."""
        return options[self.number(len(options))]

    def flag(self) -> bool:
        """Yes or no."""
        return bool(self.number(2))

    def data(self, most: int = 255) -> bytes:
        """Bytes with their length before them."""
        return self.take(self.number(most + 1))

    def take(self, size: int) -> bytes:
        """At most ``size`` bytes."""
        found = self._data[self._at : self._at + size]
        self._at += size
        return found

    def rest(self) -> bytes:
        """All bytes that are left."""
        return self.take(len(self._data))


def decided(*steps: tuple[int, ...]) -> bytes:
    """The bytes of these decisions, one after the other."""
    return bytes(number for step in steps for number in step)
