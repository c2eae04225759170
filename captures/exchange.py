"""A capture of what one client saw: operations with their times, as packets in pcapng.

For evidence that was not recorded by the proxy. Of an operation that was kept in part, the part is in a
packet that says so, and a byte is missing after it: readers tell that something is lost, and read on.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from plumbline.captures.packets import ACK, MAX_DATA, SYN, PacketFlow
from plumbline.captures.pcapng import MARK, interface, packet, section_header
from plumbline.wire.sender import Direction

FIRST_PORT = 50_001
LONGEST_COMMENT = 1_000
CLIENT = "192.0.2.1"  # RFC 5737: what the address was is not known
NOWHERE = ("192.0.2.2", 1)


class ExchangedOperation(Struct, frozen=True):
    """One operation, or (``direction`` None) a remark. ``at`` in nanoseconds since the epoch."""

    at: int
    connection: str
    direction: Direction | None
    raw: bytes
    text: str = ""
    cut: bool = False  # ``raw`` is the beginning of it


def exchange_capture(exchange: Iterable[ExchangedOperation], server: tuple[str, int]) -> bytes:
    """A whole pcapng file. Each connection is one between a client's port of its own and ``server``."""
    parts = [section_header("plumbline"), interface("plumbline", "what a check saw")]
    flows: dict[str, PacketFlow] = {}
    for one in exchange:
        if one.connection not in flows:
            flows[one.connection] = flow = PacketFlow(
                len(flows) + 1, (CLIENT, FIRST_PORT + len(flows)), _address(server)
            )
            about = _comment(f"connection {one.connection}")
            packet(parts, one.at, flow.head(Direction.TO_SERVER, 0, SYN), b"", (about,))
            packet(parts, one.at, flow.head(Direction.TO_CLIENT, 0, SYN | ACK), b"")
        _add(parts, flows[one.connection], one)
    return b"".join(parts)


def _add(parts: list[bytes], flow: PacketFlow, one: ExchangedOperation) -> None:
    if one.direction is None:
        packet(parts, one.at, flow.head(Direction.TO_SERVER, 0, ACK), b"", (_comment(one.text),))
        return
    notes = [_comment(f"only the first {len(one.raw)} bytes are known")] if one.cut else []
    for start in range(0, len(one.raw), MAX_DATA):
        piece = one.raw[start : start + MAX_DATA]
        packet(parts, one.at, flow.head(one.direction, len(piece)), piece, notes)
    if one.cut:
        flow.next[one.direction] += 1


def _comment(text: str) -> str:
    """Comments are UTF-8, and short."""
    return MARK + text[:LONGEST_COMMENT].encode("utf-8", "backslashreplace").decode()


def _address(server: tuple[str, int]) -> tuple[str, int]:
    """Packets hold numbers; a host that is a name gets an address of documentation."""
    host, port = server
    is_number = ":" in host or host.replace(".", "").isdigit()
    return (host, port) if is_number else (NOWHERE[0], port)
