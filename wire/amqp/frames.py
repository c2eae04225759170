"""Frames of AMQP 0-9-1, written right or wrong.

Source: AMQP 0-9-1, section 4.2.3 ("General Frame Format").
"""

from __future__ import annotations

import struct
from enum import IntEnum

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"  # section 4.2.2
FRAME_END = 0xCE
FRAME_HEAD = struct.Struct(">BHI")  # type, channel, size of the payload
FRAME_OVERHEAD = FRAME_HEAD.size + 1
FRAME_MIN_SIZE = 4096
CONTENT_HEAD = struct.Struct(">HHQ")  # class id, weight, body size
DEFAULT_FRAME_MAX = 131072  # what RabbitMQ proposes
_END = bytes((FRAME_END,))


class FrameType(IntEnum):
    """What a frame carries."""

    METHOD = 1
    HEADER = 2
    BODY = 3
    HEARTBEAT = 8  # errata 29: the document's 4 is a misprint


def frame(kind: int, channel: int, payload: bytes, *, size: int | None = None, end: bytes = _END) -> bytes:
    """One frame; ``size`` and ``end`` are what the frame claims, for those that should be wrong."""
    return FRAME_HEAD.pack(kind, channel, len(payload) if size is None else size) + payload + end


def header_payload(properties: bytes, body_size: int, class_id: int = 60, weight: int = 0) -> bytes:
    """The payload of a content header; ``properties`` as ``encode_properties`` gives them."""
    return CONTENT_HEAD.pack(class_id, weight, body_size) + properties


def content_frames(
    channel: int, properties: bytes, body: bytes, *, frame_max: int = DEFAULT_FRAME_MAX, class_id: int = 60
) -> bytes:
    """A content header and as many body frames as ``frame_max`` (octets of a whole frame) makes necessary."""
    size = len(body)
    head = frame(FrameType.HEADER, channel, header_payload(properties, size, class_id))
    max_payload = frame_max - FRAME_OVERHEAD
    if size <= max_payload:
        return head + frame(FrameType.BODY, channel, body) if size else head
    pieces = [
        frame(FrameType.BODY, channel, body[at : at + max_payload]) for at in range(0, size, max_payload)
    ]
    return head + b"".join(pieces)
