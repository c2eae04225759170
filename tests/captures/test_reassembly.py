"""What reassembly makes of segments that are late, doubled, overlapping, lost, or without a beginning."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plumbline.captures.reassembly import (
    PATIENCE,
    BytesLost,
    ConnectionOpened,
    Event,
    Reassembler,
    StreamBytes,
    StreamEnded,
)
from plumbline.captures.segments import ACK, FIN, RST, SYN, Address, Segment
from plumbline.wire.sender import Direction

CLIENT, SERVER = Address("10.0.0.1", 40000), Address("10.0.0.2", 4222)
FIRST = 2**32 - 20  # so that sequence numbers go round


def sent(at: int, data: bytes = b"", flags: int = ACK, ack: int = 0, missing: int = 0) -> Segment:
    """From the client; ``at`` counts from its first byte."""
    return Segment(CLIENT, SERVER, (FIRST + 1 + at) % 2**32, ack, flags, data, missing, 0, ())


def answered(ack: int, data: bytes = b"", at: int = 0, flags: int = ACK) -> Segment:
    """From the server, which has so many of the client's bytes."""
    return Segment(SERVER, CLIENT, 1000 + at, (FIRST + 1 + ack) % 2**32, flags, data, 0, 0, ())


HANDSHAKE = [sent(-1, flags=SYN), answered(0, at=-1, flags=SYN | ACK), sent(0, ack=1000)]


def events(*segments: Segment) -> list[Event]:
    reassembler = Reassembler()
    found = [event for one in segments for event in reassembler.feed(one)]
    return found + list(reassembler.finish(0))


def stream(found: list[Event], direction: Direction = Direction.TO_SERVER) -> list[bytes | int]:
    """Bytes, joined, and sizes of losses between them."""
    parts: list[bytes | int] = []
    for event in found:
        if isinstance(event, StreamBytes) and event.direction is direction:
            last = parts.pop() if parts and isinstance(parts[-1], bytes) else b""
            assert isinstance(last, bytes)
            parts.append(last + event.data)
        elif isinstance(event, BytesLost) and event.direction is direction:
            parts.append(event.size)
    return parts


@given(st.binary(min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_segments_in_any_order_and_number_give_the_stream_once(data: bytes, random: object) -> None:
    import random as module

    assert isinstance(random, module.Random)
    pieces = []
    for _ in range(random.randint(0, 12)):
        start, end = sorted((random.randint(0, len(data)), random.randint(0, len(data))))
        pieces.append(sent(start, data[start:end]))
    whole = [sent(at, data[at : at + 7]) for at in range(0, len(data), 7)]
    mixed = whole + pieces
    random.shuffle(mixed)
    assert stream(events(*HANDSHAKE, *mixed)) == [data]


def test_a_handshake_opens_and_fins_close() -> None:
    found = events(*HANDSHAKE, sent(0, b"hi", FIN | ACK), answered(3, b"bye", flags=FIN | ACK))
    assert [type(event) for event in found] == [
        ConnectionOpened,
        StreamBytes,
        StreamEnded,
        StreamBytes,
        StreamEnded,
    ]
    opened = found[0]
    assert (opened.connection.client, opened.connection.mid_stream) == (CLIENT, False)


def test_a_reset_ends_and_the_same_ends_may_begin_anew() -> None:
    again = Segment(CLIENT, SERVER, 77, 0, SYN, b"", 0, 0, ())
    found = events(*HANDSHAKE, sent(0, b"hi"), sent(2, flags=RST | ACK), again)
    assert [type(event) for event in found] == [ConnectionOpened, StreamBytes, StreamEnded, ConnectionOpened]
    assert [event.connection.number for event in found if isinstance(event, ConnectionOpened)] == [1, 2]


def test_acknowledged_but_uncaptured_bytes_are_lost() -> None:
    acks = [answered(9)] * (PATIENCE + 1)
    assert stream(events(*HANDSHAKE, sent(0, b"abc"), sent(6, b"ghi"), *acks)) == [b"abc", 3, b"ghi"]


def test_bytes_missing_at_end_are_lost() -> None:
    assert stream(events(*HANDSHAKE, sent(0, b"abc"), sent(6, b"ghi"))) == [b"abc", 3, b"ghi"]
    assert stream(events(*HANDSHAKE, sent(0, b"abc"), answered(9))) == [b"abc", 6]


def test_a_packet_captured_in_part_is_lost_in_part() -> None:
    assert stream(events(*HANDSHAKE, sent(0, b"abc", missing=5), sent(8, b"ijk"))) == [b"abc", 5, b"ijk"]


def test_of_overlapping_bytes_the_first_are_believed() -> None:
    assert stream(events(*HANDSHAKE, sent(0, b"abc"), sent(1, b"XYZW"))) == [b"abcZW"]


def test_a_connection_seen_in_its_middle_begins_there() -> None:
    found = events(sent(500, b"PING\r\n", ack=1000), answered(506, b"PONG\r\n"))
    assert isinstance(found[0], ConnectionOpened)
    assert found[0].connection.mid_stream
    assert found[0].connection.client == CLIENT
    assert (stream(found), stream(found, Direction.TO_CLIENT)) == ([b"PING\r\n"], [b"PONG\r\n"])
