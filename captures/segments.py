"""Packets to TCP segments, through the link layers that tcpdump and Wireshark write on Linux and macOS.

Sources: tcpdump.org, "Link-layer header types"; RFC 791, RFC 8200, RFC 9293.
"""

from __future__ import annotations

import socket
import struct
from functools import lru_cache

from msgspec import Struct

from plumbline.captures.reader import Packet

FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10
_TCP = 6
_IPV4, _IPV6 = 0x0800, 0x86DD
_VLANS = frozenset((0x8100, 0x88A8, 0x9100))
_EXTENSIONS = frozenset((0, 43, 60))  # hop-by-hop, routing, destination options
_FRAGMENT = 44
_IP, _HEAD = struct.Struct("!2xH2xHxB"), struct.Struct("!HHIIBB")


class Address(Struct, frozen=True, gc=False):
    """One end of a connection."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Segment(Struct, frozen=True, gc=False):
    """One TCP segment. ``missing`` bytes at its end were on the wire and are not in the capture."""

    source: Address
    target: Address
    seq: int
    ack: int
    flags: int
    data: bytes
    missing: int
    time: int
    comments: tuple[str, ...]


def segment(packet: Packet) -> Segment | None:
    """The TCP segment of a packet; None if it carries none, or a fragment of one."""
    ip = _ip(packet.link_type, packet.data)
    if not ip:
        return None
    try:
        found = _tcp_v4(ip) if ip[0] >> 4 == 4 else _tcp_v6(ip)
        if found is None:
            return None
        (source, target), tcp, length = found
        source_port, target_port, seq, ack, offset, flags = _HEAD.unpack_from(tcp)
    except (struct.error, IndexError):
        return None
    head = (offset >> 4) * 4
    data = tcp[head:length]
    return Segment(
        _place(source, source_port),
        _place(target, target_port),
        seq,
        ack,
        flags,
        data,
        max(length - head - len(data), 0),
        packet.time,
        packet.comments,
    )


def _ip(link_type: int, data: bytes) -> bytes:
    """What follows the link header, if that announces IP."""
    match link_type:
        case 101 | 12 | 14 | 228 | 229:  # raw IP
            return data
        case 1:
            return _ethernet(data[12:])
        case 113:  # Linux cooked
            return _ethernet(data[14:])
        case 276:  # Linux cooked, version 2
            return _ethernet(data[:2] + data[20:])
        case 0 | 108:  # BSD loopback: the address family in some byte order
            return data[4:]
    return b""


def _ethernet(data: bytes) -> bytes:
    """``data`` from its EtherType on, VLAN tags skipped."""
    while len(data) >= 2:
        (kind,) = struct.unpack_from("!H", data)
        if kind in (_IPV4, _IPV6):
            return data[2:]
        if kind not in _VLANS:
            break
        data = data[4:]
    return b""


# Addresses as they are packed, the rest from the TCP header on, its length on the wire.
_Tcp = tuple[tuple[bytes, bytes], bytes, int]


def _tcp_v4(ip: bytes) -> _Tcp | None:
    total, fragment, protocol = _IP.unpack_from(ip)
    head = (ip[0] & 0xF) * 4
    if protocol != _TCP or fragment & 0x3FFF:  # a part of a packet
        return None
    total = total or len(ip)  # 0: the network card cut it into segments later
    if len(ip) < 20:
        return None
    return (ip[12:16], ip[16:20]), ip[head:total], total - head


def _tcp_v6(ip: bytes) -> _Tcp | None:
    length, following = struct.unpack_from("!4xHB", ip)
    end = 40 + (length or len(ip) - 40)
    at = 40
    while following in _EXTENSIONS:
        following, size = ip[at], (ip[at + 1] + 1) * 8
        at += size
    if following != _TCP:
        return None
    return (ip[8:24], ip[24:40]), ip[at:end], end - at


@lru_cache(maxsize=65536)  # there are few, each in many packets
def _place(packed: bytes, port: int) -> Address:
    return Address(_host(packed), port)


def _host(packed: bytes) -> str:
    if len(packed) == 4:
        return socket.inet_ntop(socket.AF_INET, packed)
    return (
        socket.inet_ntop(socket.AF_INET6, packed).removeprefix("::ffff:")
        if packed[:10] == bytes(10)
        else (socket.inet_ntop(socket.AF_INET6, packed))
    )
