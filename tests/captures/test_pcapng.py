"""What is written is read back, by us and by another program; what is cut short is read as far as it goes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline import bounds
from plumbline.captures.packets import ACK, FIN, SYN, PacketFlow
from plumbline.captures.pcapng import interface, packet, section_header, statistics
from plumbline.captures.reader import CaptureError, CaptureParser, Packet
from plumbline.captures.segments import Address, segment
from plumbline.wire.sender import Direction
from tests.captures import tshark

NOW = 1_795_000_000_123_456_789
START = section_header("test") + interface("one", "described")


def parsed(data: bytes, step: int = 1 << 20) -> list[Packet]:
    parser = CaptureParser()
    return [found for at in range(0, len(data), step) for found in parser.feed(data[at : at + step])]


def block(data: bytes, *comments: str, time: int = NOW, head: bytes = b"") -> bytes:
    parts: list[bytes] = []
    size = packet(parts, time, head, data, comments)
    assert size == len(b"".join(parts))
    return b"".join(parts)


TIMES = st.integers(0, bounds.CAPTURE_LAST_TIME_NS)


@given(st.lists(st.tuples(st.binary(max_size=9), st.text(max_size=9), TIMES)), st.integers(1, 99))
def test_packets_stamps_and_comments_come_back_from_pieces_of_any_size(
    packets: list[tuple[bytes, str, int]], step: int
) -> None:
    data = START + b"".join(block(payload, text, time=time) for payload, text, time in packets)
    comments = [text.encode("utf-8", "replace").decode() for _, text, _ in packets]
    assert parsed(data, step) == [
        Packet(time, 101, payload, len(payload), (text,))
        for (payload, _, time), text in zip(packets, comments, strict=True)
    ]


def test_a_file_cut_anywhere_gives_its_whole_blocks() -> None:
    blocks = [block(b"one"), block(b"four"), block(b"seven!!")]
    data = START + b"".join(blocks)
    ends = [len(START), len(START + blocks[0]), len(data) - len(blocks[2]), len(data)]
    for cut in range(len(START), len(data) + 1):
        assert len(parsed(data[:cut])) == sum(end <= cut for end in ends) - 1


def test_damaged_file_error_has_offset() -> None:
    data = bytearray(START + block(b"one"))
    data[-1] = 9
    with pytest.raises(CaptureError, match=f"damaged at byte {len(START)}: a block's two lengths differ"):
        parsed(bytes(data))
    with pytest.raises(CaptureError, match="not a capture file"):
        parsed(b"#!/bin/sh\n")


def test_last_block_marks_end_of_recording() -> None:
    parser = CaptureParser()
    assert list(parser.feed(START + statistics(NOW, NOW, 3, 0, "the recording ended"))) == []
    assert parser.ended == "the recording ended"


@pytest.mark.parametrize("order", ["<", ">"])
def test_sections_of_both_byte_orders(order: str) -> None:
    section = struct.pack(order + "IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    described = struct.pack(order + "IIHHII", 1, 20, 1, 0, 0, 20)
    body = struct.pack(order + "IIIII", 0, 0, 5_000_000, 2, 2) + b"hi\0\0"
    data = section + described + struct.pack(order + "II", 6, 36) + body + struct.pack(order + "I", 36)
    assert parsed(data) == [Packet(5_000_000_000, 1, b"hi", 2)]  # microseconds are the default


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("magic", "unit"), [(0xA1B2C3D4, 1000), (0xA1B23C4D, 1)])
@pytest.mark.parametrize("step", [1, 1000])
def test_classic_pcap(order: str, magic: int, unit: int, step: int) -> None:
    head = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, 1)
    data = head + struct.pack(order + "IIII", 7, 9, 2, 3) + b"hi"
    assert parsed(data, step) == [Packet(7_000_000_000 + 9 * unit, 1, b"hi", 3)]


AFTER_FLAGS = 6  # bytes of a TCP header that say nothing of the stream: window, checksum, urgent pointer
V4 = (("127.0.0.1", 40000), ("10.0.0.9", 4222))
V6 = (("::1", 40000, 0, 0), ("fe80::1", 4222, 0, 0))
MIXED = (("127.0.0.1", 40000), ("::1", 4222, 0, 0))
UNIX = ("", "/run/nats.sock")


@pytest.mark.parametrize(("client", "server"), [V4, V6, MIXED, UNIX], ids=["v4", "v6", "mixed", "unix"])
def test_a_flow_counts_its_bytes_and_its_ends(client: object, server: object) -> None:
    flow = PacketFlow(1, client, server)
    heads = [
        (flow.head(Direction.TO_SERVER, 0, SYN), b""),
        (flow.head(Direction.TO_CLIENT, 0, SYN | ACK), b""),
        (flow.head(Direction.TO_SERVER, 5), b"hello"),
        (flow.head(Direction.TO_CLIENT, 2), b"ok"),
        (flow.head(Direction.TO_SERVER, 0, FIN | ACK), b""),
    ]
    found = [segment(Packet(NOW, 101, head + data, 0)) for head, data in heads]
    syn, syn_ack, hello, ok, fin = (one for one in found if one is not None)
    assert (hello.data, ok.data) == (b"hello", b"ok")
    assert hello.seq == (syn.seq + 1) % 2**32 == ok.ack - 5
    assert ok.seq == (syn_ack.seq + 1) % 2**32
    assert fin.seq == hello.seq + 5
    assert (hello.source, hello.target) == (ok.target, ok.source)
    assert hello.source == Address(*flow.ends[0])


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_cut_packet_is_no_segment_or_has_missing_bytes(host: str) -> None:
    whole = PacketFlow(1, (host, 5000), (host, 4222)).head(Direction.TO_SERVER, 4) + b"PING"
    for size in range(len(whole) + 1):
        found = segment(Packet(NOW, 101, whole[:size], len(whole)))
        if size < len(whole) - len(b"PING") - AFTER_FLAGS:
            assert found is None
        else:
            assert found is not None
            assert (found.data, found.missing) == (whole[-4:size], min(len(whole) - size, 4))


def test_tshark_reads_headers_stamps_and_comments(tmp_path: Path) -> None:
    flow = PacketFlow(7, *V4)
    place = tmp_path / "some.pcapng"
    data = [
        block(b"", "connection 7", head=flow.head(Direction.TO_SERVER, 0, SYN)),
        block(b"", head=flow.head(Direction.TO_CLIENT, 0, SYN | ACK)),
        block(b"", head=flow.head(Direction.TO_SERVER, 0, ACK)),
        block(b"PING\r\n", head=flow.head(Direction.TO_SERVER, 6)),
        block(b"PONG\r\n", "answered", head=flow.head(Direction.TO_CLIENT, 6)),
    ]
    place.write_bytes(START + b"".join(data))
    rows = tshark.fields(
        place,
        "frame.time_epoch",
        "ip.src",
        "tcp.dstport",
        "tcp.seq",
        "tcp.ack",
        "tcp.payload",
        "frame.comment",
    )
    assert rows[0] == ["1795000000.123456789", "127.0.0.1", "4222", "0", "0", "", "connection 7"]
    assert rows[3][1:] == ["127.0.0.1", "4222", "1", "1", b"PING\r\n".hex(), ""]
    assert rows[4][1:] == ["10.0.0.9", "40000", "1", "7", b"PONG\r\n".hex(), "answered"]
    assert (
        tshark.fields(place, "frame.number", where="_ws.expert.severity >= warning or ip.checksum.bad") == []
    )


def test_tshark_finds_the_ip_checksum_right(tmp_path: Path) -> None:
    place = tmp_path / "some.pcapng"
    flow = PacketFlow(7, *V4)
    blocks = [block(bytes(size), head=flow.head(Direction.TO_SERVER, size)) for size in (0, 999, 65000)]
    place.write_bytes(START + b"".join(blocks))
    checked = tshark.fields(place, "ip.checksum.status", options=["-o", "ip.check_checksum:TRUE"])
    assert checked == [["1"]] * 3
