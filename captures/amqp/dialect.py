"""AMQP 0-9-1 for readers of captures: how its streams are recognised, entered in their middle, and shown."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from plumbline.bounds import CAPTURE_OPERATION_BYTES, CAPTURE_UNFINISHED_CONTENT_BYTES
from plumbline.captures.amqp.redaction import AmqpRedactor
from plumbline.captures.dialects import StreamDecoder
from plumbline.captures.redaction import redacted_text
from plumbline.wire.amqp import (
    BY_NUMBERS,
    FRAME_END,
    FRAME_OVERHEAD,
    PROTOCOL_HEADER,
    Decoder,
    FrameType,
    Limits,
    Method,
    Operation,
)
from plumbline.wire.sender import Direction

LIMITS = Limits(frame_max=CAPTURE_OPERATION_BYTES, max_unfinished=CAPTURE_UNFINISHED_CONTENT_BYTES)
_METHOD = struct.Struct(">BHIHH")
_CONNECTION_START = (10, 10)


class AmqpCaptureDialect:
    """See ``dialects.CaptureDialect``."""

    name = "amqp"
    ports = frozenset({5672})

    def sent_by_server(self, data: bytes) -> bool | None:
        if data[:4] == PROTOCOL_HEADER[:4]:
            return False
        if len(data) < _METHOD.size or data[0] != FrameType.METHOD:
            return None
        numbers = _METHOD.unpack_from(data)[3:]
        return True if numbers == _CONNECTION_START and data[1:3] == b"\0\0" else None

    def decoder(self, direction: Direction) -> StreamDecoder:
        return Decoder(direction.sender, LIMITS)

    def decoder_from(self, direction: Direction) -> StreamDecoder:
        decoder = self.decoder(direction)
        if direction is Direction.TO_SERVER:
            decoder.feed(PROTOCOL_HEADER)  # which it would wait for
        return decoder

    def starts(self, data: bytes, direction: Direction) -> Sequence[int]:
        return [at for at in _each(data, FrameType.METHOD) if _is_method(data, at)]

    def fields(self, operation: Operation) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "op": operation.method,
            "channel": operation.channel,
            "size": len(operation.raw),
        }
        if isinstance(operation, Method):
            fields |= operation.arguments
            if operation.properties is not None:
                fields |= {f"property.{name}": value for name, value in operation.properties.items()}
                headers = operation.properties.get("headers") or {}
                fields |= {f"header.{name}": value for name, value in headers.items()}
                fields["payload"] = operation.body.decode("utf-8", "surrogateescape")
        return {name: value for name, value in fields.items() if value is not None}

    def text(self, operation: Operation) -> str:
        return str(operation)

    def redacted_text(self, operation: Operation) -> str:
        redactor = AmqpRedactor()
        redactor.feed(PROTOCOL_HEADER)  # which it would wait for
        return redacted_text(operation, redactor, self.decoder_from(Direction.TO_SERVER))


def _each(data: bytes, byte: int) -> Sequence[int]:
    places, at = [], data.find(byte)
    while at >= 0:
        places.append(at)
        at = data.find(byte, at + 1)
    return places


def _is_method(data: bytes, at: int) -> bool:
    """Whether a whole frame of a known method stands there."""
    if len(data) - at < _METHOD.size:
        return False
    _, _, size, *numbers = _METHOD.unpack_from(data, at)
    end = at + size + FRAME_OVERHEAD
    return end <= len(data) and data[end - 1] == FRAME_END and tuple(numbers) in BY_NUMBERS
