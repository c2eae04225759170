"""Records of durable changes: what a journal consists of, one for each change, in their order.

Arguments and properties are kept as they are on the wire. Source: RabbitMQ, "Queues" (durability).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from zlib import crc32

import msgspec
from msgspec import Struct

from plumbline.errors import UNDECODABLE


class _Record(Struct, frozen=True, array_like=True, tag_field="t"):
    """One durable change."""


class ExchangeDeclared(_Record, frozen=True, array_like=True, tag="X"):
    """A durable exchange."""

    vhost: str
    name: str
    kind: str
    auto_delete: bool
    internal: bool
    arguments: bytes


class ExchangeDeleted(_Record, frozen=True, array_like=True, tag="x"):
    """A durable exchange is gone, and its bindings with it."""

    vhost: str
    name: str


class QueueDeclared(_Record, frozen=True, array_like=True, tag="Q"):
    """A durable queue; ``number`` is its name in the records."""

    vhost: str
    name: str
    number: int
    auto_delete: bool
    arguments: bytes


class QueueDeleted(_Record, frozen=True, array_like=True, tag="q"):
    """A durable queue is gone, with its messages and bindings."""

    number: int


class BindingAdded(_Record, frozen=True, array_like=True, tag="B"):
    """A binding between durable things."""

    vhost: str
    source: str
    to_queue: bool
    destination: str
    routing_key: str
    arguments: bytes


class BindingRemoved(_Record, frozen=True, array_like=True, tag="b"):
    """Such a binding is gone."""

    vhost: str
    source: str
    to_queue: bool
    destination: str
    routing_key: str
    arguments: bytes


class MessageStored(_Record, frozen=True, array_like=True, tag="M"):
    """A persistent message in a durable queue; ``expires`` in nanoseconds since the epoch."""

    queue: int
    position: int
    expires: int | None
    exchange: str
    routing_key: str
    properties: bytes
    body: bytes


class MessageRemoved(_Record, frozen=True, array_like=True, tag="r"):
    """A message left its queue for good."""

    queue: int
    position: int


class MessagesDelivered(_Record, frozen=True, array_like=True, tag="D"):
    """Messages that had been delivered before an orderly end."""

    queue: int
    positions: list[int]


class CleanShutdown(_Record, frozen=True, array_like=True, tag="S"):
    """The broker ended in order: what it says of deliveries is true."""


Record = (
    ExchangeDeclared
    | ExchangeDeleted
    | QueueDeclared
    | QueueDeleted
    | BindingAdded
    | BindingRemoved
    | MessageStored
    | MessageRemoved
    | MessagesDelivered
    | CleanShutdown
)
JOURNAL = "journal/records"
# A frame: length and CRC-32 of what follows, in little endian; then the records of one event, in MessagePack.
FRAME = struct.Struct("<II")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Record])


def encode_frame(records: Sequence[Record]) -> bytes:
    """Records that a restart finds all or not at all."""
    payload = _encoder.encode(records)
    return FRAME.pack(len(payload), crc32(payload)) + payload


def decode_frames(data: bytes) -> tuple[list[list[Record]], int]:
    """The records of each frame, and the offset of what is no whole frame any more."""
    frames: list[list[Record]] = []
    at = 0
    while len(data) - at >= FRAME.size:
        length, checksum = FRAME.unpack_from(data, at)
        payload = data[at + FRAME.size : at + FRAME.size + length]
        if len(payload) < length or crc32(payload) != checksum:
            break
        try:
            frames.append(_decoder.decode(payload))
        except UNDECODABLE:
            break
        at += FRAME.size + length
    return frames, at
