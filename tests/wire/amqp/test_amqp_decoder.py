"""The decoder of AMQP: exact bytes, contents per channel, and the same answer however the bytes are cut."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.wire.amqp import (
    PROTOCOL_HEADER,
    AmqpError,
    Decoder,
    Heartbeat,
    Limits,
    Method,
    ProtocolHeader,
    Sender,
    encode_properties,
    frame,
    header_payload,
)
from plumbline.wire.errors import ErrorKind
from tests.wire.amqp.amqp_strategies import (
    CONTENT_METHODS,
    TIGHT,
    interleaved,
    methods,
    outcome,
    senders,
    streams,
    valid_streams,
)
from tests.wire.segments import byte_by_byte, cuts

PUBLISH = Method.make("basic.publish", 1, routing_key="q", body=b"hello")
METHOD = frame(1, 1, PUBLISH.shape.encode({"routing_key": "q"}))
NONE = encode_properties({})
EMPTY_HEADER = frame(2, 1, header_payload(NONE, 0))
LONG_HEADER = frame(2, 1, header_payload(NONE, 5))


@given(st.data(), senders)
def test_a_stream_gives_its_operations_and_every_byte_back(data: st.DataObject, sender: Sender) -> None:
    operations, stream = data.draw(valid_streams(sender))
    decoder = Decoder(sender)
    found = decoder.feed(stream)
    assert found == operations
    assert b"".join(operation.raw for operation in found) == stream
    assert (decoder.offset, decoder.held) == (len(stream), 0)
    decoder.finish()


@given(st.data(), senders, st.sampled_from([Limits(), TIGHT]))
def test_decoding_is_independent_of_segmentation(data: st.DataObject, sender: Sender, limits: Limits) -> None:
    stream = data.draw(streams(sender))
    whole = outcome([stream], sender, limits)
    assert outcome(byte_by_byte(stream), sender, limits) == whole
    assert outcome(data.draw(cuts(stream)), sender, limits) == whole


@given(interleaved())
def test_frames_of_several_channels_may_interleave(
    drawn: tuple[list[Method], bytes],
) -> None:
    operations, stream = drawn
    assert Decoder(Sender.SERVER).feed(stream) == operations


@given(methods())
def test_encode_decode_round_trip(method: Method) -> None:
    (found,) = Decoder(Sender.SERVER).feed(method.raw)
    assert isinstance(found, Method)
    assert found == method
    assert (found.arguments, found.properties, found.body) == (
        method.arguments,
        method.properties,
        method.body,
    )
    assert str(found) == str(method)
    assert str(found).isprintable()
    assert b"".join(frame(kind, found.channel, payload) for kind, payload in found.frames()) == method.raw


@given(methods(CONTENT_METHODS))
def test_properties_and_body_can_be_sent_on_as_they_are(method: Method) -> None:
    (found,) = Decoder(Sender.SERVER).feed(method.raw)
    assert isinstance(found, Method)
    payload = header_payload(found.raw_properties, len(found.body), found.shape.class_id)
    assert payload == next(part for kind, part in found.frames() if kind == 2)


REFUSED = {
    "wrong frame end": (frame(1, 1, METHOD[7:-1], end=b"\x00"), ErrorKind.FRAME_END, 501),
    "unknown type 9": (frame(9, 1, b"abcd"), ErrorKind.FRAME_TYPE, 501),
    "type 4, the misprinted heartbeat": (frame(4, 0, b""), ErrorKind.FRAME_TYPE, 501),
    "a payload over the limit": (frame(3, 1, b"", size=131073)[:7], ErrorKind.FRAME_SIZE, 501),
    "a size of 2 GiB": (frame(3, 1, b"", size=0x7FFFFFFF)[:7], ErrorKind.FRAME_SIZE, 501),
    "heartbeat on a channel": (frame(8, 1, b""), ErrorKind.UNEXPECTED_FRAME, 505),
    "heartbeat with a payload": (frame(8, 0, b"xx"), ErrorKind.FRAME_TYPE, 501),
    "no class": (frame(1, 1, b"\x00\x3c"), ErrorKind.ARGUMENTS, 501),
    "unknown class": (frame(1, 1, b"\x00\x63\x00\x01"), ErrorKind.UNKNOWN_OPERATION, 503),
    "unknown method": (frame(1, 1, b"\x00\x3c\x03\xe7"), ErrorKind.UNKNOWN_OPERATION, 503),
    "arguments cut": (frame(1, 1, METHOD[7:-3]), ErrorKind.ARGUMENTS, 501),
    "arguments and more": (frame(1, 1, METHOD[7:-1] + b"x"), ErrorKind.ARGUMENTS, 501),
    "bits cut": (frame(1, 1, b"\x00\x3c\x00\x14\x00\x00\x01q\x01c"), ErrorKind.ARGUMENTS, 501),
    "short string beyond the frame": (frame(1, 1, b"\x00\x14\x00\x0a\xff"), ErrorKind.ARGUMENTS, 501),
    "unknown value type": (
        frame(1, 1, b"\x00\x32\x00\x0a\x00\x00\x01q\x00\x00\x00\x00\x03\x01aQ"), ErrorKind.TABLE, 501,
    ),
    "table beyond the frame": (
        frame(1, 1, b"\x00\x32\x00\x0a\x00\x00\x01q\x00\x00\x00\x00\xff\x01at\x01"), ErrorKind.ARGUMENTS, 501,
    ),
    "name that is no UTF-8": (frame(1, 1, b"\x00\x3c\x00\x46\x00\x00\x01\xff\x00"), ErrorKind.TEXT, 501),
    "header without method": (EMPTY_HEADER, ErrorKind.UNEXPECTED_FRAME, 505),
    "body without method": (frame(3, 1, b"x"), ErrorKind.UNEXPECTED_FRAME, 505),
    "method for a header": (METHOD + METHOD, ErrorKind.UNEXPECTED_FRAME, 505),
    "body for a header": (METHOD + frame(3, 1, b"x"), ErrorKind.UNEXPECTED_FRAME, 505),
    "method for a body": (METHOD + LONG_HEADER + METHOD, ErrorKind.UNEXPECTED_FRAME, 505),
    "header for a body": (METHOD + LONG_HEADER + LONG_HEADER, ErrorKind.UNEXPECTED_FRAME, 505),
    "too much body": (METHOD + LONG_HEADER + frame(3, 1, b"hello!"), ErrorKind.UNEXPECTED_FRAME, 505),
    "header of another class": (
        METHOD + frame(2, 1, header_payload(NONE, 0, class_id=90)), ErrorKind.UNEXPECTED_FRAME, 505,
    ),
    "header with a weight": (
        METHOD + frame(2, 1, header_payload(NONE, 0, weight=1)), ErrorKind.UNEXPECTED_FRAME, 505,
    ),
    "no flags": (METHOD + frame(2, 1, header_payload(b"", 0)), ErrorKind.PROPERTIES, 501),
    "header cut": (METHOD + frame(2, 1, header_payload(NONE, 0)[:10]), ErrorKind.ARGUMENTS, 501),
    "property cut": (METHOD + frame(2, 1, header_payload(b"\x80\x00\x05ab", 0)), ErrorKind.PROPERTIES, 501),
    "flags of nothing": (METHOD + frame(2, 1, header_payload(b"\x00\x01", 0)), ErrorKind.PROPERTIES, 501),
    "properties and more": (METHOD + frame(2, 1, header_payload(NONE + b"x", 0)), ErrorKind.PROPERTIES, 501),
    "a body of 16 EiB": (METHOD + frame(2, 1, header_payload(NONE, 2**64 - 1)), ErrorKind.PAYLOAD_SIZE, 501),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_malformed_input_error_has_reply_code_and_offset(name: str) -> None:
    wrong, kind, code = REFUSED[name]
    stream = PROTOCOL_HEADER + PUBLISH.raw + wrong
    decoder = Decoder(Sender.CLIENT)
    with pytest.raises(AmqpError) as caught:
        decoder.feed(stream)
    error = caught.value
    assert (error.kind, error.reply_code) == (kind, code)
    assert error.operations == (ProtocolHeader.make(), PUBLISH)
    whole = len(PROTOCOL_HEADER + PUBLISH.raw)
    assert error.offset >= whole
    assert stream[error.offset :].startswith(error.excerpt)
    with pytest.raises(AmqpError) as again:
        decoder.feed(PUBLISH.raw)
    assert (again.value.kind, again.value.offset, again.value.operations) == (kind, error.offset, ())


def test_a_content_of_nothing_has_no_body_frame() -> None:
    with pytest.raises(AmqpError) as caught:
        Decoder(Sender.SERVER).feed(METHOD + EMPTY_HEADER + frame(3, 1, b""))
    assert caught.value.kind is ErrorKind.UNEXPECTED_FRAME
    assert [operation.raw for operation in caught.value.operations] == [METHOD + EMPTY_HEADER]


def test_an_error_inside_a_content_names_its_method_and_channel() -> None:
    with pytest.raises(AmqpError) as caught:
        Decoder(Sender.SERVER).feed(frame(1, 7, METHOD[7:-1]) + frame(1, 7, METHOD[7:-1]))
    assert (caught.value.channel, caught.value.class_id, caught.value.method_id) == (7, 60, 40)


def test_the_names_of_a_server_may_be_cut_inside_a_character() -> None:
    close = Method.make("channel.close", 1, reply_code=404, reply_text="x\udcc3")
    assert Decoder(Sender.SERVER).feed(close.raw) == [close]


def test_empty_body_frames_inside_a_content_are_taken() -> None:
    stream = (
        METHOD
        + frame(2, 1, header_payload(NONE, 2))
        + frame(3, 1, b"a")
        + frame(3, 1, b"")
        + frame(3, 1, b"b")
    )
    (found,) = Decoder(Sender.SERVER).feed(stream)
    assert isinstance(found, Method)
    assert (found.body, found.raw) == (b"ab", stream)


def test_content_on_channel_0_decodes_as_method_only() -> None:
    """Its peer answers 504, and does not wait for more."""
    (found,) = Decoder(Sender.SERVER).feed(frame(1, 0, METHOD[7:-1]))
    assert isinstance(found, Method)
    assert (found.method, found.properties, found.body) == ("basic.publish", None, b"")


def test_a_client_begins_with_a_protocol_header_whatever_its_bytes() -> None:
    assert Decoder(Sender.CLIENT).feed(b"GET / HT") == [ProtocolHeader(b"GET / HT", 0)]
    assert not ProtocolHeader(b"AMQP\x00\x01\x00\x00", 0).supported
    decoder = Decoder(Sender.CLIENT)
    assert decoder.feed(PROTOCOL_HEADER[:7]) == []
    assert decoder.feed(PROTOCOL_HEADER[7:]) == [ProtocolHeader.make()]


def test_a_server_may_begin_with_a_protocol_header() -> None:
    heartbeat = Heartbeat.make()
    assert Decoder(Sender.SERVER).feed(PROTOCOL_HEADER) == [ProtocolHeader.make()]
    assert Decoder(Sender.SERVER).feed(heartbeat.raw) == [heartbeat]


def test_the_limit_of_a_frame_may_change_between_feeds() -> None:
    large = Method.make("basic.publish", 1, body=b"x" * 5000)
    decoder = Decoder(Sender.SERVER, Limits(frame_max=4096))
    decoder.limits = Limits(frame_max=8192)
    assert decoder.feed(large.raw) == [large]
    decoder.limits = Limits(frame_max=4096)
    with pytest.raises(AmqpError):
        decoder.feed(large.raw)


def test_truncated_stream_is_an_error() -> None:
    for cut, held in ((METHOD[:5], 5), (METHOD, len(METHOD))):
        decoder = Decoder(Sender.SERVER)
        decoder.feed(cut)
        assert decoder.held == held
        with pytest.raises(AmqpError) as caught:
            decoder.finish()
        assert caught.value.kind is ErrorKind.TRUNCATED


def test_many_different_frames_do_not_make_a_decoder_grow() -> None:
    decoder = Decoder(Sender.SERVER)
    numbered = [
        Method.make("basic.publish", 1, routing_key=str(number), properties={"message_id": str(number)})
        for number in range(20_000)
    ]
    stream = b"".join(method.raw for method in numbered)
    tracemalloc.start()
    for at in range(0, len(stream), 4096):
        decoder.feed(stream[at : at + 4096])
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1_000_000


def test_a_body_in_tiny_segments_takes_linear_time() -> None:
    """Each byte of a frame is looked at once when the frame is whole, not with each segment."""
    method = Method.make("basic.deliver", 1, body=b"x" * 100_000)
    decoder = Decoder(Sender.SERVER)
    found = [operation for byte in byte_by_byte(method.raw) for operation in decoder.feed(byte)]
    assert found == [method]
