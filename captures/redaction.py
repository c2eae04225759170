"""What redactors of both protocols share."""

from __future__ import annotations

from typing import Protocol

MASK = ord("*")


class Redactor(Protocol):
    """What a client sends on one connection, to what may be written of it."""

    @property
    def masked(self) -> int:
        """Bytes so far."""

    def feed(self, data: bytes) -> bytes:
        """``data``, or a copy of it with secrets masked."""
