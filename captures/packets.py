"""Synthesised TCP/IP: the headers that make recorded bytes readable for every tool that reads packets.

Addresses and ports are those of client and server, as if they spoke directly. Every byte has its sequence
number, every connection its handshake and its FIN or RST, so a reader can tell what it has and what it lacks.
The TCP checksum is left 0, as captures show where a network card computes it.
Sources: RFC 791 section 3.1, RFC 8200 section 3, RFC 9293 section 3.1.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

from plumbline.wire.sender import Direction

MAX_DATA = 65535 - 60  # of one packet: the IP length field, less IPv6 and TCP headers

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10
_DATA = PSH | ACK
_WINDOW = 65535

_V4 = struct.Struct("!2sH4s2sH12sIIBBHI")
_V6 = struct.Struct("!4sH2s36sIIBBHI")
_V4_START, _V4_MIDDLE, _V4_TTL = b"\x45\x00", b"\x00\x00\x40\x00", b"\x40\x06"  # DF; TTL 64, TCP
_V6_START, _V6_NEXT = b"\x60\x00\x00\x00", b"\x06\x40"  # TCP, hop limit 64


class PacketFlow:
    """One connection as packets: knows both sequence numbers. ``number`` makes the first ones differ."""

    __slots__ = ("_addresses", "_is_v6", "_sums", "ends", "next", "number")

    def __init__(self, number: int, client: Any, server: Any) -> None:
        self.number = number
        first = number * 0x9E3779B1 & 0xFFFFFFFF  # apart, so that a port used again is a new connection
        self.next = [first, (first ^ 0x55555555) & 0xFFFFFFFF]  # by direction: the next byte's
        self.ends = tuple(_end(address, number, place) for place, address in enumerate((client, server)))
        self._is_v6 = any(":" in host for host, _ in self.ends)
        (client_ip, client_port), (server_ip, server_port) = (
            (_packed(host, is_v6=self._is_v6), port) for host, port in self.ends
        )
        self._addresses = (
            client_ip + server_ip + struct.pack("!HH", client_port, server_port),
            server_ip + client_ip + struct.pack("!HH", server_port, client_port),
        )
        self._sums = tuple(
            _checksum(_V4_START + _V4_MIDDLE + _V4_TTL + packed[:8]) for packed in self._addresses
        )

    def head(self, direction: Direction, size: int, flags: int = _DATA) -> bytes:
        """The headers of the next packet, which carries ``size`` bytes; counts them."""
        upcoming = self.next
        seq, ack = upcoming[direction], upcoming[1 - direction]
        if flags == _DATA:
            upcoming[direction] = (seq + size) & 0xFFFFFFFF
        else:
            if flags & SYN and not flags & ACK:
                ack = 0
            upcoming[direction] = (seq + size + (flags & (SYN | FIN) != 0)) & 0xFFFFFFFF
        if self._is_v6:
            return _V6.pack(
                _V6_START, size + 20, _V6_NEXT, self._addresses[direction], seq, ack, 0x50, flags, _WINDOW, 0
            )
        length = size + 40
        total = self._sums[direction] + length
        total = (total & 0xFFFF) + (total >> 16)
        return _V4.pack(
            _V4_START, length, _V4_MIDDLE, _V4_TTL, ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF,
            self._addresses[direction], seq, ack, 0x50, flags, _WINDOW, 0,
        )  # fmt: skip


def _end(address: Any, number: int, place: int) -> tuple[str, int]:
    """Host and port. A Unix socket has neither: it gets addresses of documentation (RFC 5737), and the
    client the connection's number as port."""
    if isinstance(address, tuple) and len(address) >= 2:
        host = str(address[0]).partition("%")[0]
        return host.removeprefix("::ffff:") if host.startswith("::ffff:") else host, int(address[1])
    return ("192.0.2.1", number & 0xFFFF or 1) if place == 0 else ("192.0.2.2", 1)


def _packed(host: str, *, is_v6: bool) -> bytes:
    if not is_v6:
        return socket.inet_pton(socket.AF_INET, host)
    return socket.inet_pton(socket.AF_INET6, host if ":" in host else f"::ffff:{host}")


def _checksum(data: bytes) -> int:
    return sum(struct.unpack(f"!{len(data) // 2}H", data))
