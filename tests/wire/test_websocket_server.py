"""WebSocket: the server's half, against the client's, with and without compression."""

from __future__ import annotations

import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.wire.errors import ProtocolError
from plumbline.wire.websocket import Opcode, WebSocketDecoder, frame, upgrade_request
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
