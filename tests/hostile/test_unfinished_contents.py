"""Contents that never end: a bound for all of one connection, and nothing is kept when it is gone."""

from __future__ import annotations

import weakref

import pytest

from plumbline.bounds import (
    CAPTURE_UNFINISHED_CONTENT_BYTES,
    UNFINISHED_BEFORE_LOGIN,
    UNFINISHED_BESIDES_ONE_MESSAGE,
)
from plumbline.captures.amqp.dialect import AmqpCaptureDialect
from plumbline.wire.amqp import (
    PROTOCOL_HEADER,
    AmqpError,
    Decoder,
    FrameType,
    Limits,
    Method,
    Sender,
    frame,
    header_payload,
)
from plumbline.wire.errors import ErrorKind
from plumbline.wire.sender import Direction
from tests.collector import without_garbage_collector
from tests.reference_broker.amqp.virtual import Virtual
from tests.reference_broker.virtual import Virtual as NatsVirtual

NONE = b"\x00\x00"  # no property
LIMITS = Limits(max_unfinished=100_000)
EMPTY = frame(FrameType.BODY, 1, b"")


def begun(channel: int, body_size: int) -> bytes:
    """A publish whose body has not come."""
    method = Method.make("basic.publish", channel, routing_key="q").raw
    first = method[: method.index(b"\xce", 7) + 1]
    return first + frame(FrameType.HEADER, channel, header_payload(NONE, body_size))


def decoder(limits: Limits = LIMITS) -> Decoder:
    made = Decoder(Sender.CLIENT, limits)
    made.feed(PROTOCOL_HEADER)
    return made


def test_contents_in_a_capture_have_the_bound_that_is_documented() -> None:
    reading = AmqpCaptureDialect().decoder_from(Direction.TO_SERVER)
    assert isinstance(reading, Decoder)
    assert reading.limits.max_unfinished == CAPTURE_UNFINISHED_CONTENT_BYTES


def feed_all(reading: Decoder, chunks: list[bytes]) -> None:
    for chunk in chunks:
        reading.feed(chunk)


@pytest.mark.parametrize("cut", [1, 7, 8, 1000, 10**6])
@pytest.mark.parametrize("piece", [b"", b"x"])
def test_small_body_frames_are_counted_by_the_memory_they_take(piece: bytes, cut: int) -> None:
    stream = begun(1, 10**6) + frame(FrameType.BODY, 1, piece) * 3000
    reading = decoder()
    with pytest.raises(AmqpError) as caught:
        feed_all(reading, [stream[at : at + cut] for at in range(0, len(stream), cut)])
    assert caught.value.kind is ErrorKind.PAYLOAD_SIZE
    per_frame = 64 + len(piece)
    frames = (LIMITS.max_unfinished - len(begun(1, 0)) - 512) // per_frame
    expected = len(PROTOCOL_HEADER + begun(1, 0)) + frames * (8 + len(piece))
    assert abs(caught.value.offset - expected) < 3 * (8 + len(piece))
    assert reading.held == 0


def test_unfinished_contents_of_all_channels_count_together() -> None:
    reading = decoder()
    with pytest.raises(AmqpError) as caught:
        feed_all(reading, [begun(channel, 1000) for channel in range(1, 1000)])
    assert 100 < caught.value.channel < 200


def test_what_is_complete_does_not_count() -> None:
    reading = decoder()
    for _ in range(50):
        for channel in (1, 2, 3):
            reading.feed(begun(channel, 20_000) + frame(FrameType.BODY, channel, b"x" * 10_000))
        for channel in (3, 1, 2):
            assert reading.feed(EMPTY.replace(b"\x00\x01", bytes((0, channel)), 1)) == []
            (operation,) = reading.feed(frame(FrameType.BODY, channel, b"y" * 10_000))
            assert isinstance(operation, Method)
            assert len(operation.body) == 20_000
    assert reading.held == 0


def test_a_message_a_little_too_large_closes_the_channel_and_a_flood_the_connection() -> None:
    virtual = Virtual(max_message_size=1000)
    client = virtual.client()
    client.publish("q", "x" * 1001)
    (closed,) = client.take()
    assert isinstance(closed, Method)
    assert (closed.method, closed.arguments["reply_code"]) == ("channel.close", 406)
    client.send("channel.close-ok")
    client.send("channel.open")
    client.take()
    client.raw(begun(1, 900) + EMPTY * (UNFINISHED_BESIDES_ONE_MESSAGE // 64 + 100))
    (ended,) = client.take()
    assert isinstance(ended, Method)
    assert (ended.method, ended.arguments["reply_code"]) == ("connection.close", 501)


def test_before_the_login_a_content_is_not_collected() -> None:
    client = Virtual().stranger()
    client.raw(PROTOCOL_HEADER + begun(1, 10**6))
    client.raw(frame(FrameType.BODY, 1, b"x" * 100_000) * (UNFINISHED_BEFORE_LOGIN // 100_000 + 1))
    assert client.virtual.broker.connections[client.number].decoder.held == 0


def test_nothing_of_a_refused_amqp_connection_waits_for_the_garbage_collector() -> None:
    with without_garbage_collector():
        virtual = Virtual()
        client = virtual.client()
        kept = weakref.ref(virtual.broker.connections[client.number].decoder)
        client.raw(begun(1, 100) + frame(9, 1, b""))
        client.leave()
        assert kept() is None


def test_nothing_of_a_refused_nats_connection_waits_for_the_garbage_collector() -> None:
    with without_garbage_collector():
        virtual = NatsVirtual()
        client = virtual.client()
        kept = weakref.ref(virtual.broker.connections[client.number].decoder)
        client.send(b"PUB a 5\r\nxx")
        client.send(b"x" * 100)
        assert client.number in virtual.ended
        virtual.client()  # until another speaks, the broker knows who spoke last
        assert kept() is None
