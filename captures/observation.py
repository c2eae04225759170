"""Observations of captures: their text is built only from the shown part of a payload."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from plumbline.monitors import Observation, Place
from plumbline.monitors.observation import MAX_TEXT
from plumbline.wire import amqp

PREFIX_CHARACTERS = (
    112  # bytes of a payload that is no text: escaped, they are mostly longer than what is shown
)
_CUT = 16  # characters at the end of a line: a character of which not all bytes are there, a quotation mark


class CaptureObservation(Observation, frozen=True, dict=True):
    """The same ``place`` as an ``Observation`` has."""

    def line(self) -> str:
        """The operation on one line; its beginning, if that is longer than what is shown."""
        return text_prefix(self.operation)

    @cached_property
    def place(self) -> Place:
        text = self.line()
        shown_text = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
        return Place(self.connection, self.index, self.at, f"{self.sender.arrow} {shown_text}")


def text_prefix(operation: Any) -> str:
    """``str(operation)``, or what begins it and is longer than what is shown."""
    start = header_end(operation)
    piece = operation.raw[start : start + PREFIX_CHARACTERS]
    if len(operation.raw) - start > PREFIX_CHARACTERS + PREFIX_CHARACTERS // 2 and not piece.isascii():
        cut = msgspec.structs.replace(operation, raw=operation.raw[: start + PREFIX_CHARACTERS])
        text = str(cut)[:-_CUT]
        if len(text) > MAX_TEXT:
            return text
    return str(operation)


def header_end(operation: Any) -> int:
    """Bytes of an operation before its payload (of NATS: and before its headers)."""
    head: int = getattr(operation, "head", 0)
    if isinstance(operation, amqp.Method) and operation.properties is not None:
        size = int.from_bytes(operation.raw[head + 3 : head + 7], "big")
        return head + size + amqp.FRAME_OVERHEAD
    return head
