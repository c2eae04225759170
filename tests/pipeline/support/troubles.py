"""Captures with one trouble each, and nothing that breaks a rule."""

from __future__ import annotations

from pathlib import Path

from plumbline.captures.packets import ACK, SYN, PacketFlow
from plumbline.captures.pcapng import interface, packet, section_header
from plumbline.wire.sender import Direction

ASKS, ANSWERS = Direction.TO_SERVER, Direction.TO_CLIENT
OPENING = ((ANSWERS, b"INFO {}\r\n"), (ASKS, b"CONNECT {}\r\nPING\r\n"))
PONG = (ANSWERS, b"PONG\r\n")

# The name of each, and the kind of problem it is.
TROUBLES = {
    "truncated": "truncated",
    "damaged": "damaged",
    "picture": "not-a-capture",
    "hole": "hole",
    "undecodable": "undecodable",
    "strange": "unknown-protocol",
}


def write_trouble(name: str, folder: Path) -> None:
    """Writes the capture of that name."""
    (folder / f"{name}.pcapng").write_bytes(_troubled(name))


def sound(port: int = 100) -> bytes:
    """A capture with no trouble."""
    return _capture(port, *OPENING, PONG)


def _troubled(name: str) -> bytes:
    port = 101 + list(TROUBLES).index(name)
    match name:
        case "truncated":
            return sound(port)[:-6]
        case "damaged":
            return sound(port) + b"\x06\x00\x00\x00\x02\x00\x00\x00" + bytes(8)
        case "picture":
            return b"GIF89a, certainly"
        case "hole":
            return _capture(port, *OPENING, PONG, (ASKS, b"PING\r\n"), PONG, missing=2)
        case "undecodable":
            return _capture(port, *OPENING, (ANSWERS, b"PANG\r\n"))
        case "strange":
            return _capture(port, (ASKS, b"EHLO there\r\n"))
    raise KeyError(name)


def _capture(port: int, *parts_sent: tuple[Direction, bytes], missing: int = -1) -> bytes:
    """One connection; the packet at place ``missing`` was not recorded."""
    flow = PacketFlow(port, ("10.0.0.1", port), ("10.0.0.2", 9))
    parts = [section_header("tests") + interface("i", "d")]
    packet(parts, 1, flow.head(ASKS, 0, SYN), b"")
    packet(parts, 2, flow.head(ANSWERS, 0, SYN | ACK), b"")
    for place, (direction, data) in enumerate(parts_sent):
        head = flow.head(direction, len(data))
        if place != missing:
            packet(parts, place + 3, head, data)
    return b"".join(parts)
