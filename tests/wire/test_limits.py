"""What a decoder holds and how much it works, whatever comes: bounded memory, linear time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.wire.errors import ErrorKind, ProtocolError
from plumbline.wire.nats import Decoder, Info, Limits, Msg, Operation, Ping, Pub, Sender
from tests.wire.segments import byte_by_byte
from tests.wire.strategies import TIGHT, outcome, refusal, senders, streams

MIB = 1024 * 1024
SEGMENT = 1460  # the payload of an Ethernet frame
LONGEST_VERB = len(b"CONNECT")


def bound(limits: Limits, sender: Sender) -> int:
    """The most bytes of an unfinished operation: a line with its verb, and a payload with its end."""
    line = limits.max_control_line if sender is Sender.CLIENT else limits.max_server_line
    return LONGEST_VERB + len(b" ") + line + len(b"\r\n") + limits.max_payload + len(b"\r\n")


class CountingDecoder(Decoder):
    """Counts the bytes that are looked at; a byte looked at twice counts twice."""

    looked_at = 0

    def _decode(self, data: bytes, operations: list[Operation]) -> int:
        self.looked_at += len(data)
        return super()._decode(data, operations)


def segments(stream: bytes, size: int) -> Iterator[bytes]:
    return (stream[start : start + size] for start in range(0, len(stream), size))


def feed_all(decoder: Decoder, chunks: Iterable[bytes]) -> list[Operation]:
    return [operation for chunk in chunks for operation in decoder.feed(chunk)]


@given(st.data(), senders)
def test_buffered_bytes_stay_within_limits(data: st.DataObject, sender: Sender) -> None:
    decoder = Decoder(sender, TIGHT)
    try:
        for byte in byte_by_byte(data.draw(streams(sender))):
            decoder.feed(byte)
            assert decoder.held <= bound(TIGHT, sender)
    except ProtocolError:
        assert decoder.held == 0


@pytest.mark.parametrize("start", [b"PUB ", b"PUB a ", b"PING ", b"CONNECT ", b'CONNECT {"a":"', b"UNSUB "])
@pytest.mark.parametrize("more", [b"a", b" ", b"\r", b"\x0b", b"["])
@pytest.mark.parametrize("size", [1, SEGMENT, MIB])
def test_a_line_without_end_is_refused_soon_after_its_limit(start: bytes, more: bytes, size: int) -> None:
    decoder = Decoder(Sender.CLIENT)
    limits = decoder.limits
    most = LONGEST_VERB + 1 + limits.max_control_line + 2
    fed = 0
    for chunk in segments(start + more * 2 * MIB, size):
        refused = refusal(partial(decoder.feed, chunk))
        if refused:
            break
        fed += len(chunk)
        assert decoder.held == fed <= most
    assert refused is ErrorKind.CONTROL_LINE


@pytest.mark.parametrize("stream", [b" " * MIB, b"\r\n" * MIB, b"\r" * MIB, b"\x00" * MIB])
def test_lines_of_nothing_are_refused_at_the_first_byte(stream: bytes) -> None:
    for sender in Sender:
        found = outcome([stream], sender)
        assert (found.error, found.offset, found.operations) == (ErrorKind.UNKNOWN_OPERATION, 0, ())


@pytest.mark.parametrize("nested", [b"[" * 4090, b'{"a":' * 800, b"[" * 2000 + b"]" * 2000, b"{" * 4090])
def test_deeply_nested_json_is_refused(nested: bytes) -> None:
    found = outcome([b'CONNECT {"a":' + nested[:4080] + b"}\r\n"], Sender.CLIENT)
    assert found.error is ErrorKind.JSON


@pytest.mark.parametrize("digits", [10, 19, 20, 400, 4000])
def test_a_size_of_any_length_is_refused_before_its_payload(digits: int) -> None:
    assert outcome([b"PUB a " + b"9" * digits + b"\r\n"], Sender.CLIENT).error is ErrorKind.SIZE


def test_a_payload_over_the_limit_is_refused_before_it_comes() -> None:
    decoder = Decoder(Sender.CLIENT)
    with pytest.raises(ProtocolError) as caught:
        decoder.feed(b"PUB a 1048577\r\n")
    assert caught.value.kind is ErrorKind.PAYLOAD_SIZE


@pytest.mark.parametrize("content", [b"x", b"\n"])
@pytest.mark.parametrize("size", [1, 7, SEGMENT, 65536])
def test_the_largest_payload_is_looked_at_a_constant_number_of_times(size: int, content: bytes) -> None:
    pub = Pub.make("a", content * MIB)
    decoder = CountingDecoder(Sender.CLIENT)
    assert feed_all(decoder, segments(pub.raw, size)) == [pub]
    assert decoder.looked_at < 3 * len(pub.raw)


@pytest.mark.parametrize("size", [1, 7, SEGMENT])
def test_the_longest_line_is_looked_at_a_constant_number_of_times(size: int) -> None:
    info = Info.make({"connect_urls": ["10.0.0.1:4222"] * 3000})
    assert len(info.raw) > 40_000
    decoder = CountingDecoder(Sender.SERVER)
    assert feed_all(decoder, segments(info.raw, size)) == [info]
    assert decoder.looked_at < 3 * len(info.raw)


@pytest.mark.parametrize(("count", "size"), [(50_000, 5), (200_000, SEGMENT), (200_000, 2 * MIB)])
def test_tiny_operations_are_each_looked_at_a_constant_number_of_times(count: int, size: int) -> None:
    stream = b"PING\r\n" * count
    decoder = CountingDecoder(Sender.SERVER)
    found = sum(len(decoder.feed(chunk)) for chunk in segments(stream, size))
    assert (found, decoder.held) == (count, 0)
    assert decoder.looked_at < 3 * len(stream)


def test_completed_operations_release_buffer() -> None:
    decoder = Decoder(Sender.SERVER)
    msg = Msg.make("a", 1, b"x" * 100)
    assert decoder.feed(msg.raw * 100 + b"PI") == [msg] * 100
    assert decoder.unfinished == b"PI"
    assert [type(operation) for operation in decoder.feed(b"NG\r\n")] == [Ping]
    assert decoder.held == 0
