"""Packets to segments to the bytes of connections: what comes out is what was sent, in its order."""

from __future__ import annotations

from plumbline.captures.packets import PacketFlow
from plumbline.captures.reader import Packet
from plumbline.captures.reassembly import BytesLost, ConnectionOpened, Reassembler, StreamBytes, StreamEnded
from plumbline.captures.segments import ACK, FIN, RST, SYN, Address, Segment, segment
from plumbline.wire.sender import Direction
from tests.fuzz.choices import Choices
from tests.fuzz.target import Target

MOST_SEGMENTS = 80
CLIENT, SERVER = Address("10.0.0.1", 40000), Address("10.0.0.2", 4222)
ENDS = ((CLIENT, SERVER), (SERVER, CLIENT))
SENT = bytes(range(1, 251)) * 4  # what each side sends: every byte shows its place
WHOLE = 1 << 32
LINK_TYPES = (101, 12, 1, 113, 276, 0, 108, 147)


def reassembly(data: bytes) -> None:
    """Segments of one connection, late, twice, overlapping, or missing."""
    choices = Choices(data)
    starts = (choices.one_of((0, 1000, WHOLE - 20, 1 << 31)), choices.one_of((0, WHOLE - 1)))
    reassembler = Reassembler()
    events = []
    if choices.flag():
        for segment_ in (_segment(0, starts, -1, b"", SYN, 0), _segment(1, starts, -1, b"", SYN | ACK, 0)):
            events += list(reassembler.feed(segment_))
    plain = True  # no flag has ended or begun anything
    for number in range(MOST_SEGMENTS):
        if not choices:
            break
        side, at, size = choices.number(2), choices.number(len(SENT)), choices.number(30)
        flags = choices.one_of((ACK,) * 12 + (FIN | ACK, RST, SYN, 0))
        plain &= flags in (ACK, 0)
        acked = choices.number(len(SENT)) if flags & ACK and choices.number(4) == 3 else 0
        missing = choices.number(6) if choices.number(8) == 7 else 0
        one = _segment(side, starts, at, SENT[at : at + size], flags, acked, missing, number)
        events += list(reassembler.feed(one))
    events += list(reassembler.finish(99))
    for event in events:
        assert not isinstance(event, BytesLost) or event.size > 0
        assert not isinstance(event, StreamBytes) or event.data
    opened = [event.connection.number for event in events if isinstance(event, ConnectionOpened)]
    assert len(opened) == len(set(opened))
    ended = [(id(event.connection), event.direction) for event in events if isinstance(event, StreamEnded)]
    assert len(ended) == len(set(ended)), "a stream ended twice"
    if plain:
        for direction in Direction:
            _check_stream(
                [event for event in events if isinstance(event, StreamBytes | BytesLost)], direction
            )


def _segment(
    side: int,
    starts: tuple[int, int],
    at: int,
    data: bytes,
    flags: int,
    acked: int,
    missing: int = 0,
    time: int = 0,
) -> Segment:
    """``at`` counts from the first byte of that side."""
    seq, ack = (starts[side] + 1 + at) % WHOLE, (starts[1 - side] + 1 + acked) % WHOLE
    return Segment(*ENDS[side], seq, ack if flags & ACK else 0, flags, data, missing, time, ())


def _check_stream(events: list[StreamBytes | BytesLost], direction: Direction) -> None:
    """The bytes follow each other as they were sent; a loss is as long as what is left out."""
    at: int | None = None
    for event in events:
        if event.direction is not direction:
            continue
        if isinstance(event, BytesLost):
            at = None if at is None else at + event.size
            continue
        if at is None:  # the first byte seen shows its own place
            return
        assert event.data == SENT[at : at + len(event.data)], "bytes that were not sent there"
        at += len(event.data)


def segments(data: bytes) -> None:
    """Any bytes of any link: a segment, or none."""
    choices = Choices(data)
    link, size, rest = choices.one_of(LINK_TYPES), choices.number(3000), choices.rest()
    found = segment(Packet(0, link, rest, size))
    if found is not None:
        assert found.missing >= 0
        assert found.data in rest
        list(Reassembler().feed(found))


def _packet() -> bytes:
    return PacketFlow(1, ("10.0.0.1", 5), ("10.0.0.2", 4222)).head(Direction.TO_SERVER, 4) + b"PING"


def _seeds() -> list[bytes]:
    one = bytes((0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 9, 0, 9, 0, 0))
    return [
        one,
        one + bytes((0, 40, 0, 9, 0, 0, 0, 0, 18, 0, 22, 0, 0, 0)),
        bytes((2, 1, 1)) + bytes(range(80)),
    ]


TARGETS = [
    Target("reassembly", reassembly, _seeds, (), 3000),
    Target(
        "segments",
        segments,
        lambda: [
            bytes((place, 60, 0)) + head + _packet()
            for place, head in enumerate(
                (
                    b"",
                    b"",
                    bytes(12) + b"\x08\x00",
                    bytes(14) + b"\x08\x00",
                    b"\x08\x00" + bytes(18),
                    b"\x02\0\0\0",
                    b"\x02\0\0\0",
                )
            )
        ],
        (b"\x08\x00", b"\x86\xdd", b"\x81\x00", b"\x45\x00", b"\x60\0\0\0", b"\x06"),
        4000,
    ),
]
