"""WebSocket: the client's half, by the examples of RFC 6455, and what a server may not send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.wire.errors import ProtocolError
from plumbline.wire.websocket import MAX_FRAME, Opcode, WebSocketDecoder, frame, upgrade_request

NONCE = b"the sample nonce"  # RFC 6455, section 1.3: its key, and what a server answers to that
ANSWER = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)
KEY = bytes.fromhex("37fa213d")


def opened() -> WebSocketDecoder:
    decoder = WebSocketDecoder(NONCE)
    assert decoder.feed(ANSWER) == b""
    assert decoder.is_open
    return decoder


def of_server(opcode: int, payload: bytes) -> bytes:
    """An unmasked frame."""
    size = len(payload)
    if size < 126:
        head = bytes([0x80 | opcode, size])
    else:
        code, width = (126, 2) if size < 1 << 16 else (127, 8)
        head = bytes([0x80 | opcode, code]) + size.to_bytes(width)
    return head + payload


def test_the_request_is_that_of_the_rfc() -> None:
    request = upgrade_request("server.example.com", NONCE)
    assert request.startswith(b"GET / HTTP/1.1\r\nHost: server.example.com\r\n")
    assert b"\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" in request
    assert request.endswith(b"\r\nSec-WebSocket-Version: 13\r\n\r\n")


def test_a_masked_frame_is_that_of_the_rfc() -> None:
    """RFC 6455, section 5.7."""
    assert frame(Opcode.TEXT, b"Hello", KEY) == bytes.fromhex("818537fa213d7f9f4d5158")


@given(st.lists(st.binary(max_size=70000), max_size=4), st.integers(1, 5000))
def test_what_is_inside_comes_out_in_any_segmentation(payloads: list[bytes], step: int) -> None:
    stream = ANSWER + b"".join(of_server(Opcode.BINARY, payload) for payload in payloads)
    decoder, found = WebSocketDecoder(NONCE), b""
    for start in range(0, len(stream), step):
        found += decoder.feed(stream[start : start + step])
    assert found == b"".join(payloads)


@given(st.binary(max_size=70000), st.binary(min_size=4, max_size=4))
def test_a_frame_can_be_unmasked(payload: bytes, key: bytes) -> None:
    raw = frame(Opcode.BINARY, payload, key)
    body = raw[len(raw) - len(payload) :]
    assert bytes(byte ^ key[at % 4] for at, byte in enumerate(body)) == payload
    assert raw[1] & 0x80


def test_pings_and_a_close_are_answered() -> None:
    decoder = opened()
    data = (
        of_server(Opcode.PING, b"?")
        + of_server(Opcode.BINARY, b"x")
        + of_server(Opcode.CLOSE, b"\x03\xe8bye")
    )
    assert decoder.feed(data + of_server(Opcode.BINARY, b"late")) == b"x"
    assert decoder.answers == [(Opcode.PONG, b"?"), (Opcode.CLOSE, b"\x03\xe8")]
    assert decoder.is_closed


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        ANSWER.replace(b"s3pP", b"xxxx"),
        b'INFO {"server_id":"X"}\r\n\r\n',
        b"x" * 20000,
    ],
)
def test_a_refused_upgrade(answer: bytes) -> None:
    decoder = WebSocketDecoder(NONCE)
    for _ in range(2):  # it stays refused
        with pytest.raises(ProtocolError):
            decoder.feed(answer)


@pytest.mark.parametrize(
    "data",
    [
        bytes([0x83, 0]),  # no such opcode
        bytes([0xC2, 0]),  # a reserved bit: compressed
        bytes([0x82, 0x80]) + KEY,  # masked
        bytes([0x82, 127]) + (MAX_FRAME + 1).to_bytes(8),
        bytes([0x89, 126, 0, 126]),  # a long ping
    ],
)
def test_frames_that_a_server_may_not_send(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        opened().feed(data)
