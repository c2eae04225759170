"""Traffic that is made to cost a reader as much as possible: any number of segments of one connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from plumbline.captures.segments import ACK, FIN, SYN, Address, Segment

CLIENT, SERVER = Address("127.0.0.1", 5555), Address("127.0.0.2", 4222)
STRANGE = Address("127.0.0.2", 7000)  # no protocol is usual there
HELLO = b'CONNECT {"verbose":false}\r\nPING\r\n'
ANNOUNCED = b"PUB a 900000\r\n"
PACKET_BYTES = 1400


def sent(at: int, data: bytes = b"", flags: int = ACK, server: Address = SERVER) -> Segment:
    """By the client; ``at`` counts from its first byte."""
    return Segment(CLIENT, server, (at + 1) % 2**32, 1, flags, data, 0, 0, ())


def _opened() -> Iterator[Segment]:
    yield sent(-1, flags=SYN)
    yield sent(0, HELLO)


def holes(count: int) -> Iterator[Segment]:
    """One byte behind each missing byte; at last the first ones."""
    yield from _opened()
    for number in range(count):
        yield sent(len(HELLO) + 2 + 2 * number, b"x")
    yield sent(len(HELLO), b"yy")


def empty_behind_hole(count: int) -> Iterator[Segment]:
    """No bytes at all, but FIN, behind a missing byte."""
    yield from _opened()
    for number in range(count):
        yield sent(len(HELLO) + 1 + number, flags=ACK | FIN)


def unknown_bytes(count: int) -> Iterator[Segment]:
    """Single bytes of no known protocol."""
    yield sent(-1, flags=SYN, server=STRANGE)
    for number in range(count):
        yield sent(number, b"\0", server=STRANGE)


def false_starts(count: int) -> Iterator[Segment]:
    """What cannot be decoded, and then only beginnings of operations."""
    yield from _opened()
    at = len(HELLO)
    yield sent(at, b"NONSENSE\r\n")
    at += len(b"NONSENSE\r\n")
    stream = ANNOUNCED * (PACKET_BYTES // len(ANNOUNCED) + 2)
    for _ in range(count):
        first = at % len(ANNOUNCED)
        yield sent(at, stream[first : first + PACKET_BYTES])
        at += PACKET_BYTES


SHAPES: dict[str, Callable[[int], Iterator[Segment]]] = {
    "holes": holes,
    "empty behind a hole": empty_behind_hole,
    "unknown bytes": unknown_bytes,
    "false starts": false_starts,
}
