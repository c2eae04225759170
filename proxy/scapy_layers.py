"""NATS and AMQP 0-9-1 for scapy: ``import proxy.scapy_layers``, and packets of their ports are dissected.

    packets = sniff(offline="some.pcapng", session=TCPSession)
    [operation.verb for packet in packets if NATS in packet for operation in packet[NATS].operations]
    [frame.method for packet in packets if AMQP in packet for frame in packet[AMQP].frames]

A segment holds many operations, and an operation many segments: a layer is the list of what is whole, and
what is not waits for the next segment (scapy's ``TCPSession``). A list, since scapy nests by recursion.
Needs scapy: the extra ``mitm``.
"""

from __future__ import annotations

import struct
from typing import Any

from scapy.fields import (
    ByteEnumField,
    FieldLenField,
    PacketListField,
    ShortField,
    StrField,
    StrLenField,
    XByteField,
)
from scapy.layers.inet import TCP
from scapy.packet import Packet, Padding, bind_layers

from plumbline.captures.nats.dialect import NatsCaptureDialect
from plumbline.wire.amqp import BY_NUMBERS, FRAME_OVERHEAD, PROTOCOL_HEADER, FrameType
from plumbline.wire.errors import ProtocolError
from plumbline.wire.sender import Direction

NATS_PORT, AMQP_PORT = 4222, 5672
_FRAME_SIZE = struct.Struct(">3xI")
_NUMBERS = struct.Struct(">HH")
_DIALECT = NatsCaptureDialect()


class NATSOperation(Packet):
    """One operation, as it was sent."""

    name = "NATS operation"
    fields_desc = [StrField("raw_bytes", b"")]  # noqa: RUF012 # as scapy has it

    @property
    def decoded(self) -> Any:
        """In terms of ``wire.nats``; None for what is not the protocol, or not whole."""
        found, _ = _split(self.raw_bytes)
        return found[0] if found else None

    @property
    def verb(self) -> str:
        """``PUB``; empty where nothing is decoded."""
        return getattr(self.decoded, "verb", "")

    def mysummary(self) -> str:
        """One line."""
        return str(self.decoded or "not NATS, or not whole")

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes | None]:
        """Nothing follows inside an operation."""
        return b"", s


def _split(data: bytes) -> tuple[list[Any], int]:
    """The operations that ``data`` begins with, whichever side sent them, and how many bytes they are."""
    best: tuple[list[Any], int] = ([], 0)
    for direction in Direction:
        try:
            found = list(_DIALECT.decoder(direction).feed(data))
        except ProtocolError as error:
            found = list(error.operations)
        size = sum(len(operation.raw) for operation in found)
        best = max(best, (found, size), key=lambda one: one[1])
    return best


class _Operations(PacketListField):
    """All of a segment: what is whole, then what is left."""

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, list[Any]]:
        decoded, size = _split(s)
        pieces = [operation.raw for operation in decoded] + ([s[size:]] if size < len(s) else [])
        return b"", [NATSOperation(raw_bytes=piece) for piece in pieces]


class NATS(Packet):
    """The operations of one segment, or of several."""

    name = "NATS"
    fields_desc = [_Operations("operations", [], NATSOperation)]  # noqa: RUF012 # as scapy has it

    @classmethod
    def tcp_reassemble(cls, data: bytes, metadata: dict[str, Any], session: dict[str, Any]) -> Packet | None:
        """See scapy's ``TCPSession``: the operations that are whole; the rest waits."""
        _, size = _split(data)
        return _whole(cls, data, size)


class AMQPFrame(Packet):
    """One frame. AMQP 0-9-1, section 4.2.3."""

    name = "AMQP frame"
    fields_desc = [  # noqa: RUF012 # as scapy has it
        ByteEnumField("type", 1, {kind.value: kind.name.lower() for kind in FrameType}),
        ShortField("channel", 0),
        FieldLenField("size", None, length_of="content", fmt="I"),
        StrLenField("content", b"", length_from=lambda frame: frame.size),
        XByteField("end", 0xCE),
    ]

    @property
    def method(self) -> str:
        """``basic.publish``; empty for frames that are no method."""
        if self.type != FrameType.METHOD or len(self.content) < _NUMBERS.size:
            return ""
        shape = BY_NUMBERS.get(_NUMBERS.unpack_from(self.content))
        return shape.name if shape else ""

    def mysummary(self) -> str:
        """One line."""
        return f"[{self.channel}] {self.method or FrameType(self.type).name.lower()}"

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes | None]:
        """What follows is another frame."""
        return b"", s


class AMQP(Packet):
    """The protocol header, where there is one, and frames."""

    name = "AMQP"
    fields_desc = [  # noqa: RUF012 # as scapy has it
        StrLenField("header", b"", length_from=lambda layer: _header_bytes(layer.original)),
        PacketListField("frames", [], AMQPFrame),
    ]

    @classmethod
    def tcp_reassemble(cls, data: bytes, metadata: dict[str, Any], session: dict[str, Any]) -> Packet | None:
        """See scapy's ``TCPSession``: the frames that are whole; the rest waits."""
        at = size = _header_bytes(data)
        while len(data) - at >= _FRAME_SIZE.size:
            at += _FRAME_SIZE.unpack_from(data, at)[0] + FRAME_OVERHEAD
            if at > len(data):
                break
            size = at
        return _whole(cls, data, size)


def _header_bytes(data: bytes) -> int:
    return len(PROTOCOL_HEADER) if data.startswith(PROTOCOL_HEADER[:4]) else 0


def _whole(layer: type[Packet], data: bytes, size: int) -> Packet | None:
    if not size or size > len(data):
        return None
    packet = layer(data[:size])
    return packet / Padding(data[size:]) if size < len(data) else packet


for _port, _layer in ((NATS_PORT, NATS), (AMQP_PORT, AMQP)):
    bind_layers(TCP, _layer, dport=_port)
    bind_layers(TCP, _layer, sport=_port)
