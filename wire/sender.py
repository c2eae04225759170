"""Who sent what a decoder reads: it decides which operations are legal."""

from __future__ import annotations

from enum import StrEnum


class Sender(StrEnum):
    """One of the two sides of a connection."""

    CLIENT = "client"
    SERVER = "server"
