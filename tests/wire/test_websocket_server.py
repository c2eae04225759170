"""WebSocket: the server's half, against the client's, with and without compression."""

from __future__ import annotations

import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.wire.errors import ProtocolError
from plumbline.wire.websocket import MAX_FRAME, Opcode, WebSocketDecoder, frame, upgrade_request
from plumbline.wire.websocket_server import WebSocketServer

NONCE = b"the sample nonce"
KEY = bytes.fromhex("37fa213d")
OFFER = (
    b"Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; "
    b"client_no_context_takeover\r\n"
)


def opened(*, compression: bool = False) -> WebSocketServer:
    server = WebSocketServer(compression=compression)
    request = upgrade_request("h", NONCE)
    assert server.receive(request[:-2] + OFFER + b"\r\n" if compression else request) == b""
    assert server.is_open
    return server


def test_the_answer_opens_the_client() -> None:
    client, server = WebSocketDecoder(NONCE), opened()
    assert client.feed(server.outgoing) == b""
    assert client.is_open
    assert client.feed(server.send(b"INFO {}\r\n")) == b"INFO {}\r\n"


@given(st.lists(st.binary(max_size=70000), max_size=4), st.integers(1, 5000))
def test_messages_come_whole_in_any_segmentation(messages: list[bytes], size: int) -> None:
    server = opened()
    data = b"".join(frame(Opcode.BINARY, message, KEY) for message in messages)
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    assert b"".join(map(server.receive, parts)) == b"".join(messages)


def test_a_message_may_come_in_several_frames() -> None:
    first = bytearray(frame(Opcode.BINARY, b"PUB a", KEY))
    first[0] &= 0x7F
    server = opened()
    assert server.receive(bytes(first) + frame(Opcode.PING, b"x", KEY)) == b""
    assert server.outgoing.endswith(b"\x8a\x01x")
    assert server.receive(frame(Opcode.CONTINUATION, b" 1\r\n", KEY)) == b"PUB a 1\r\n"


def test_long_messages_are_compressed_if_both_sides_agree() -> None:
    server = opened(compression=True)
    assert b"permessage-deflate" in server.outgoing
    sent = server.send(b"a" * 1000)
    assert (sent[0], sent[1] < 100) == (0xC2, True)
    assert zlib.decompressobj(-15).decompress(sent[2:] + b"\0\0\xff\xff") == b"a" * 1000
    assert server.send(b"PING\r\n") == b"\x82\x06PING\r\n"
    deflater = zlib.compressobj(wbits=-15)
    packed = (deflater.compress(b"b" * 500) + deflater.flush(zlib.Z_SYNC_FLUSH))[:-4]
    compressed = bytearray(frame(Opcode.BINARY, packed, KEY))
    compressed[0] |= 0x40
    assert server.receive(bytes(compressed)) == b"b" * 500
    assert b"permessage" not in opened().outgoing


@pytest.mark.parametrize(
    "offer",
    [
        b"x-other",
        b"permessage-deflate",  # would keep a window from message to message
        b"permessage-deflate; server_no_context_takeover",
        b"permessage-deflate; server_no_context_takeover\r\nSec-WebSocket-Extensions: x-other",
    ],
)
def test_no_compression_is_agreed_that_keeps_a_window(offer: bytes) -> None:
    server = WebSocketServer(compression=True)
    server.receive(upgrade_request("h", NONCE)[:-2] + b"Sec-WebSocket-Extensions: " + offer + b"\r\n\r\n")
    assert (server.is_open, server.compresses) == (True, False)
    assert b"permessage" not in server.outgoing


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_a_message_of_any_size_is_one_frame(size: int) -> None:
    client, server = WebSocketDecoder(NONCE), opened()
    client.feed(server.outgoing)
    sent = server.send(bytes(size))
    assert len(sent) == size + (2 if size < 126 else 4 if size < 65536 else 10)
    assert client.feed(sent) == bytes(size)


def test_a_pong_adds_nothing() -> None:
    client, server = WebSocketDecoder(NONCE), opened()
    client.feed(server.outgoing)
    assert server.receive(frame(Opcode.PONG, b"x", KEY) + frame(Opcode.BINARY, b"PING", KEY)) == b"PING"
    assert client.feed(b"\x8a\x01x" + server.send(b"PONG")) == b"PONG"
    assert client.answers == []


def test_a_normal_end_is_a_close_frame() -> None:
    client, server = WebSocketDecoder(NONCE), opened()
    client.feed(server.outgoing + server.close())
    assert client.is_closed
    assert client.answers == [(Opcode.CLOSE, (1000).to_bytes(2))]


def test_a_message_of_too_many_frames_is_refused() -> None:
    first = bytearray(frame(Opcode.BINARY, bytes(MAX_FRAME), KEY))
    first[0] &= 0x7F
    server = opened()
    assert server.receive(bytes(first)) == b""
    with pytest.raises(ProtocolError, match="too long"):
        server.receive(frame(Opcode.CONTINUATION, b"x", KEY))


def test_what_cannot_be_inflated_is_refused() -> None:
    broken = bytearray(frame(Opcode.BINARY, b"\xff\xff\xff", KEY))
    broken[0] |= 0x40
    with pytest.raises(ProtocolError, match="cannot be read"):
        opened(compression=True).receive(bytes(broken))


def test_a_small_message_that_inflates_without_end_is_refused() -> None:
    deflater = zlib.compressobj(wbits=-15)
    packed = (deflater.compress(bytes(64 * 1024 * 1024)) + deflater.flush(zlib.Z_SYNC_FLUSH))[:-4]
    compressed = bytearray(frame(Opcode.BINARY, packed, KEY))
    compressed[0] |= 0x40
    with pytest.raises(ProtocolError, match="too long"):
        opened(compression=True).receive(bytes(compressed))


def test_a_close_frame_is_answered() -> None:
    server = opened()
    server.outgoing = b""
    server.receive(frame(Opcode.CLOSE, (1000).to_bytes(2), KEY))
    assert (server.is_over, server.outgoing) == (True, b"\x88\x02\x03\xe8")


@pytest.mark.parametrize(
    "data",
    [
        b"\x82\x01a",  # not masked
        b"\xb2\x80" + KEY,  # a reserved bit
        b"\x83\x80" + KEY,  # an unknown opcode
        b"\x80\x80" + KEY,  # continues nothing
        b"\x09\x80" + KEY,  # a part of a ping
        b"\xc2\x80" + KEY,  # compressed, although it was not agreed
        b"\x82\xff" + bytes([0x7F]) + bytes(7),  # too long
    ],
)
def test_a_frame_that_no_client_may_send_is_refused_again_and_again(data: bytes) -> None:
    server = opened()
    for _ in range(2):
        with pytest.raises(ProtocolError):
            server.receive(data)


@pytest.mark.parametrize(
    "request_",
    [
        b"CONNECT {}\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\n\r\n",
        upgrade_request("h", NONCE).replace(b"Version: 13", b"Version: 12"),
        upgrade_request("h", NONCE).replace(b"Upgrade: websocket\r\n", b""),
        upgrade_request("h", NONCE).replace(b"Connection: Upgrade\r\n", b""),
        upgrade_request("h", NONCE).replace(b"Sec-WebSocket-Key", b"Another-Key"),
        upgrade_request("h", NONCE).replace(b"Host: h\r\n", b""),
        upgrade_request("h", NONCE, "/leafnode"),
        b"G" * 20000,
    ],
)
def test_what_is_no_upgrade_is_refused_with_a_status(request_: bytes) -> None:
    server = WebSocketServer()
    assert server.receive(request_) == b""
    assert server.is_over
    assert server.outgoing.startswith(b"HTTP/1.1 400 ")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    server = opened()
    with suppress(ProtocolError):
        server.receive(data)
