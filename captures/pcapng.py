"""pcapng blocks as bytes: what the writer and the reader agree on.

Source: "PCAP Now Generic (pcapng) Capture File Format", draft-ietf-opsawg-pcapng, sections 3 and 4.
Everything is little-endian when written; the reader takes both.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

SECTION_HEADER = 0x0A0D0D0A
INTERFACE = 1
OBSOLETE_PACKET = 2
SIMPLE_PACKET = 3
INTERFACE_STATISTICS = 5
ENHANCED_PACKET = 6
BYTE_ORDER_MAGIC = 0x1A2B3C4D

MARK = "plumbline: "  # every comment of ours begins so
LINK_RAW = 101  # the packet starts with its IP header

OPT_END = 0
OPT_COMMENT = 1
SHB_HARDWARE, SHB_OS, SHB_USERAPPL = 2, 3, 4
IF_NAME, IF_DESCRIPTION, IF_TSRESOL = 2, 3, 9
ISB_STARTTIME, ISB_ENDTIME, ISB_IFRECV, ISB_IFDROP = 2, 3, 4, 5
NANOSECONDS = 9  # if_tsresol: 10 to the power of -9 s

PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")  # by length modulo 4
_OPTION = struct.Struct("<HH")
_FRAME = struct.Struct("<II")
_PACKET = struct.Struct("<7I")
MAX_OPTION_BYTES = 0xFFFF

Option = tuple[int, bytes]


def options(given: Iterable[Option]) -> bytes:
    """Options with their end mark; no bytes for none. Each value is cut at what its length field can say."""
    parts = []
    for code, value in given:
        short = value[:MAX_OPTION_BYTES]
        parts.append(_OPTION.pack(code, len(short)) + short + PADDING[len(short) % 4])
    return b"".join(parts) + _OPTION.pack(OPT_END, 0) if parts else b""


def block(kind: int, body: bytes) -> bytes:
    """One block around ``body``, whose length is a multiple of four."""
    total = len(body) + 12
    return _FRAME.pack(kind, total) + body + total.to_bytes(4, "little")


def section_header(application: str) -> bytes:
    """A section of unknown length, so that it can be written to its end by appending."""
    body = struct.pack("<IHHq", BYTE_ORDER_MAGIC, 1, 0, -1) + options([(SHB_USERAPPL, application.encode())])
    return block(SECTION_HEADER, body)


def interface(name: str, description: str, link_type: int = LINK_RAW) -> bytes:
    """An interface with stamps in nanoseconds and packets of any size."""
    given_options = [
        (IF_NAME, name.encode()),
        (IF_DESCRIPTION, description.encode()),
        (IF_TSRESOL, bytes([NANOSECONDS])),
    ]
    return block(INTERFACE, struct.pack("<HHI", link_type, 0, 0) + options(given_options))


def statistics(now: int, started: int, received: int, dropped: int, comment: str) -> bytes:
    """What the interface saw, from ``started`` to ``now`` (nanoseconds)."""

    def stamp(time: int) -> bytes:
        return struct.pack("<II", time >> 32, time & 0xFFFFFFFF)

    given_options = [
        (OPT_COMMENT, comment.encode()),
        (ISB_STARTTIME, stamp(started)),
        (ISB_ENDTIME, stamp(now)),
        (ISB_IFRECV, received.to_bytes(8, "little")),
        (ISB_IFDROP, dropped.to_bytes(8, "little")),
    ]
    return block(
        INTERFACE_STATISTICS, struct.pack("<III", 0, now >> 32, now & 0xFFFFFFFF) + options(given_options)
    )


def packet(parts: list[bytes], now: int, head: bytes, data: bytes, comments: Iterable[str] = ()) -> int:
    """Appends one enhanced packet block, the packet being ``head`` and ``data``; returns the block's bytes.

    ``data`` is appended as it is, so that a large one is never copied.
    """
    size = len(head) + len(data)
    notes = options([(OPT_COMMENT, comment.encode()) for comment in comments]) if comments else b""
    pad = PADDING[size & 3]
    total = 32 + size + len(pad) + len(notes)
    parts.append(_PACKET.pack(ENHANCED_PACKET, total, 0, now >> 32, now & 0xFFFFFFFF, size, size) + head)
    if data:
        parts.append(data)
    parts.append(pad + notes + total.to_bytes(4, "little"))
    return total
