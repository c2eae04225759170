"""The one exception every codec raises, with the evidence of what was wrong and where."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Self


class ErrorKind(StrEnum):
    """What a codec found wrong; a broker maps each kind to the answer its documents ask for."""

    UNKNOWN_OPERATION = "unknown operation"
    ARGUMENTS = "wrong arguments"
    SIZE = "bad size"
    CONTROL_LINE = "control line too long"
    PAYLOAD_SIZE = "payload too large"
    PAYLOAD_END = "payload not followed by CRLF"
    JSON = "malformed JSON"
    HEADERS = "malformed headers"
    TRUNCATED = "truncated"
    FRAME_TYPE = "unknown frame type"
    FRAME_SIZE = "frame too large"
    FRAME_END = "wrong frame end"
    UNEXPECTED_FRAME = "unexpected frame"
    TABLE = "malformed field table"
    PROPERTIES = "malformed properties"
    TEXT = "malformed UTF-8"


EXCERPT_BYTES = 64


class ProtocolError(Exception):
    """Bytes that are not what the protocol allows.

    ``kind``        what was wrong
    ``offset``      byte offset of the offending operation, from the first byte the decoder was fed
    ``excerpt``     the first bytes of that operation, at most ``EXCERPT_BYTES``
    ``operations``  what was decoded, in the same ``feed`` call, before the error: nothing is lost
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        offset: int = 0,
        excerpt: bytes = b"",
        operations: tuple[Any, ...] = (),
    ) -> None:
        self.kind = kind
        self.message = message
        self.offset = offset
        self.excerpt = excerpt[:EXCERPT_BYTES]
        self.operations = operations
        super().__init__(message)

    def detached(self) -> Self:
        """Itself, for who keeps it: without the traceback, whose frames would keep the decoder and its data
        until the garbage collector finds the circle."""
        self.__traceback__ = self.__context__ = None
        return self

    def __str__(self) -> str:
        return f"{self.kind}: {self.message} (byte {self.offset}: {self.excerpt!r})"
