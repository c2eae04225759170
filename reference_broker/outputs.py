"""What every broker core asks of its shell: bytes to send, a connection to close."""

from __future__ import annotations

from msgspec import Struct


class SendOutput(Struct, frozen=True, gc=False):
    """Bytes for one connection."""

    connection: int
    data: bytes


class CloseOutput(Struct, frozen=True, gc=False):
    """The server closes this connection, once what it was sent is written."""

    connection: int
