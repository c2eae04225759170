"""Capture files to packets: pcapng of any interface and byte order, and classic pcap. Bytes in, packets out.

Sources: draft-ietf-opsawg-pcapng, sections 3 and 4; draft-ietf-opsawg-pcap, sections 4 and 5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any

from msgspec import Struct

from plumbline import bounds
from plumbline.captures import pcapng
from plumbline.errors import PlumblineError

_PCAP_MAGICS = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}  # nanoseconds of one unit of the fraction
_PCAP_HEADER, _PCAP_RECORD = 24, 16
_NANO = 1_000_000_000


class CaptureError(PlumblineError):
    """A file that is no capture, or is damaged in its middle. The message says where."""


class Packet(Struct, frozen=True, gc=False):
    """One packet as recorded: ``time`` in ns since the epoch, ``size`` on the wire, the bytes kept of it."""

    time: int
    link_type: int
    data: bytes
    size: int
    comments: tuple[str, ...] = ()


class Interface(Struct, frozen=True):
    """What an interface says of its packets."""

    link_type: int
    multiplier: int  # ns = units * multiplier // divisor + offset
    divisor: int
    offset: int


class BlockPosition(Struct, frozen=True):
    """Where a block of a file begins, and what the file declared before it: enough to read from there."""

    offset: int
    kind: str
    order: str
    interfaces: tuple[Interface, ...]


class CaptureParser:
    """Takes a file in pieces of any size, from ``start`` on. ``ended`` is set once the recorder has written
    that it stopped."""

    def __init__(self, start: BlockPosition | None = None) -> None:
        start = start or BlockPosition(0, "", "<", ())
        self.ended = ""  # the comment at the end of the file
        self.offset = start.offset  # of the first byte not yet understood
        self._held = bytearray()
        self._need = 0  # bytes of the block that is not whole, as far as it is known
        self._kind = start.kind
        self._order = start.order
        self._interfaces = list(start.interfaces)
        self._pcap = self._interfaces[0] if self._interfaces else Interface(0, 1, 1, 0)

    @property
    def position(self) -> BlockPosition:
        """Where it is. Ask between feeds, when nothing is held."""
        of = (self._pcap,) if self._kind == "pcap" else tuple(self._interfaces)
        return BlockPosition(self.offset, self._kind, self._order, of)

    @property
    def held(self) -> int:
        """Bytes of a block that is not whole."""
        return len(self._held)

    def feed(self, data: bytes) -> Iterator[Packet]:
        """The packets that ``data`` completes; take all before the next call. Raises ``CaptureError``."""
        if self._held:
            self._held += data
            if len(self._held) < self._need:
                return
            data = bytes(self._held)
        self._need = 0
        at = 0
        try:
            if not self._kind:
                if len(data) < 4:
                    return
                self._kind = self._recognised(data)
            step = self._block if self._kind == "pcapng" else self._record
            while True:
                size, packet = step(data, at)
                if size == 0:
                    return
                at += size
                if packet is not None:
                    yield packet
        except struct.error:
            raise CaptureError(f"damaged at byte {self.offset + at}: a block that is too short") from None
        finally:
            self._held = bytearray(data[at:])
            self.offset += at

    def _recognised(self, data: bytes) -> str:
        (magic,) = struct.unpack("<I", data[:4])
        if magic == pcapng.SECTION_HEADER:
            return "pcapng"
        for order in "<>":
            (magic,) = struct.unpack(order + "I", data[:4])
            if magic in _PCAP_MAGICS:
                self._order = order
                return "pcap"
        raise CaptureError(f"not a capture file: it starts with {data[:4]!r}")

    # -- pcapng ------------------------------------------------------------------------------

    def _block(self, data: bytes, at: int) -> tuple[int, Packet | None]:
        if len(data) - at < 12:
            return 0, None
        order = self._order
        kind, total = struct.unpack_from(order + "II", data, at)
        if kind == pcapng.SECTION_HEADER:
            order = self._order = self._section(data, at)
            self._interfaces = []
            (total,) = struct.unpack_from(order + "I", data, at + 4)
        if total % 4 or not 12 <= total <= bounds.CAPTURE_BLOCK_BYTES:
            raise CaptureError(f"damaged at byte {self.offset + at}: a block of {total} bytes")
        if len(data) - at < total:
            self._need = total
            return 0, None
        if struct.unpack_from(order + "I", data, at + total - 4)[0] != total:
            raise CaptureError(f"damaged at byte {self.offset + at}: a block's two lengths differ")
        body = data[at + 8 : at + total - 4]
        packet = None
        if kind == pcapng.ENHANCED_PACKET:
            packet = self._enhanced(body)
        elif kind == pcapng.INTERFACE:
            if len(self._interfaces) >= bounds.CAPTURE_INTERFACES:
                raise CaptureError(f"damaged at byte {self.offset + at}: too many interfaces")
            self._interfaces.append(self._interface(body))
        elif kind == pcapng.SIMPLE_PACKET:
            (size,) = struct.unpack_from(order + "I", body)
            packet = Packet(0, self._interface_of(0).link_type, body[4 : 4 + size], size)
        elif kind == pcapng.OBSOLETE_PACKET:
            number, _, high, low, captured_size, size = struct.unpack_from(order + "HHIIII", body)
            packet = self._packet(number, high << 32 | low, body[20 : 20 + captured_size], size, ())
        elif kind == pcapng.INTERFACE_STATISTICS:
            self.ended = " ".join(_comments(_options(body[12:], order))) or "statistics"
        return total, packet

    def _section(self, data: bytes, at: int) -> str:
        for order in "<>":
            if struct.unpack_from(order + "I", data, at + 8)[0] == pcapng.BYTE_ORDER_MAGIC:
                return order
        raise CaptureError(f"damaged at byte {self.offset + at}: a section header without a byte-order magic")

    def _interface(self, body: bytes) -> Interface:
        (link_type,) = struct.unpack_from(self._order + "H", body)
        multiplier, divisor, offset = 1000, 1, 0
        for code, value in _options(body[8:], self._order):
            if code == pcapng.IF_TSRESOL and value:
                exponent = value[0] & 0x7F
                per_second = 1 << exponent if value[0] & 0x80 else 10**exponent
                multiplier, divisor = _NANO, per_second
            elif code == 14 and len(value) == 8:  # if_tsoffset: seconds
                offset = struct.unpack(self._order + "q", value)[0] * _NANO
        return Interface(link_type, multiplier, divisor, offset)

    def _interface_of(self, number: int) -> Interface:
        if number >= len(self._interfaces):
            raise CaptureError(
                f"damaged near byte {self.offset}: a packet of interface {number} without an interface "
                "description"
            )
        return self._interfaces[number]

    def _enhanced(self, body: bytes) -> Packet:
        number, high, low, captured_size, size = struct.unpack_from(self._order + "5I", body)
        end = 20 + captured_size + (-captured_size & 3)
        comments: tuple[str, ...] = ()
        if len(body) > end:
            comments = tuple(
                islice(_comments(_options(body[end:], self._order)), bounds.CAPTURE_PACKET_COMMENTS)
            )
        return self._packet(number, high << 32 | low, body[20 : 20 + captured_size], size, comments)

    def _packet(self, number: int, units: int, data: bytes, size: int, comments: tuple[str, ...]) -> Packet:
        of = self._interface_of(number)
        return Packet(
            _possible(units * of.multiplier // of.divisor + of.offset), of.link_type, data, size, comments
        )

    # -- pcap --------------------------------------------------------------------------------

    def _record(self, data: bytes, at: int) -> tuple[int, Packet | None]:
        if self.offset + at == 0:
            if len(data) < _PCAP_HEADER:
                return 0, None
            magic, *_, link = struct.unpack_from(self._order + "IHHiIII", data)
            self._pcap = Interface(link & 0xFFFF, _PCAP_MAGICS[magic], 1, 0)
            return _PCAP_HEADER, None
        if len(data) - at < _PCAP_RECORD:
            return 0, None
        seconds, fraction, captured_size, size = struct.unpack_from(self._order + "IIII", data, at)
        if captured_size > bounds.CAPTURE_BLOCK_BYTES:
            raise CaptureError(f"damaged at byte {self.offset + at}: a packet of {captured_size} bytes")
        start = at + _PCAP_RECORD
        if len(data) < start + captured_size:
            self._need = start + captured_size - at
            return 0, None
        time = seconds * _NANO + fraction * self._pcap.multiplier
        return _PCAP_RECORD + captured_size, Packet(
            time, self._pcap.link_type, data[start : start + captured_size], size
        )


def _possible(time: int) -> int:
    """The nearest time that a packet can have."""
    return min(max(time, 0), bounds.CAPTURE_LAST_TIME_NS)


def _options(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        code, size = struct.unpack_from(order + "HH", data, at)
        if code == pcapng.OPT_END:
            return
        yield code, data[at + 4 : at + 4 + size]
        at += 4 + size + (-size & 3)


def _comments(options: Any) -> Iterator[str]:
    return (value.decode("utf-8", "replace") for code, value in options if code == pcapng.OPT_COMMENT)
