"""The client's half of WebSocket, as NATS uses it: one binary message for whatever bytes there are. Sans-I/O.

A client's frames are masked with a key, which its caller draws; nothing is compressed, since it is not asked
for. Source: RFC 6455; docs.nats.io, "WebSocket".
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from enum import IntEnum

from plumbline.wire.errors import ErrorKind, ProtocolError

MAX_FRAME = 16 * 1024 * 1024  # bytes; more than any operation of a target that is judged
MAX_ANSWER = 16 * 1024  # bytes of the answer to the upgrade
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_END = b"\r\n\r\n"


class Opcode(IntEnum):
    """RFC 6455, section 5.2."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


def upgrade_request(host: str, nonce: bytes, path: str = "/") -> bytes:
    """``nonce``: 16 random bytes."""
    key = b64encode(nonce).decode()
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def frame(opcode: Opcode, payload: bytes, key: bytes) -> bytes:
    """A whole message of a client, masked with ``key``, 4 random bytes."""
    size = len(payload)
    if size < 126:
        head = bytes([0x80 | opcode, 0x80 | size])
    elif size < 1 << 16:
        head = bytes([0x80 | opcode, 0x80 | 126]) + size.to_bytes(2)
    else:
        head = bytes([0x80 | opcode, 0x80 | 127]) + size.to_bytes(8)
    return head + key + masked(payload, key)


def frame_error(message: str, excerpt: bytes) -> ProtocolError:
    """For bytes that are no frame, or no upgrade."""
    return ProtocolError(ErrorKind.UNEXPECTED_FRAME, message, excerpt=excerpt)


def masked(payload: bytes, key: bytes) -> bytes:
    """XOR with the repeated key, in one operation on integers."""
    size = len(payload)
    mask = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(payload) ^ int.from_bytes(mask)).to_bytes(size)


def frame_head(buffer: bytearray) -> tuple[int, int, Opcode, int, int] | None:
    """The first two bytes of a frame, opcode, size of the payload, and where its mask or the payload begins.

    None as long as the head is not whole. Raises ``ProtocolError``. RFC 6455, section 5.2.
    """
    if len(buffer) < 2:
        return None
    first, second = buffer[0], buffer[1]
    size, start = second & 0x7F, 2
    if size >= 126:
        start = 4 if size == 126 else 10
        if len(buffer) < start:
            return None
        size = int.from_bytes(buffer[2:start])
    try:
        return first, second, Opcode(first & 0x0F), size, start
    except ValueError:
        raise frame_error(f"unknown WebSocket opcode {first & 0x0F}", bytes(buffer[:2])) from None


def require_frame_size(opcode: Opcode, size: int, buffer: bytearray) -> None:
    """Raises ``ProtocolError`` for a frame that is too long."""
    if size > MAX_FRAME or (opcode >= Opcode.CLOSE and size > 125):
        raise frame_error(f"a WebSocket frame of {size} bytes", bytes(buffer[:10]))


class WebSocketDecoder:
    """What a server sends: the answer to the upgrade, then frames, in any segmentation.

    ``answers`` collects frames that the client has to send (opcode and payload); ``is_closed`` after a close
    frame. After an error every further ``feed`` raises it again.
    """

    def __init__(self, nonce: bytes) -> None:
        self.is_open = False
        self.is_closed = False
        self.answers: list[tuple[Opcode, bytes]] = []
        digest = hashlib.sha1(b64encode(nonce) + GUID, usedforsecurity=False).digest()
        self._expected = b64encode(digest).decode()
        self._buffer = bytearray()
        self._error: ProtocolError | None = None

    def feed(self, data: bytes) -> bytes:
        """The bytes inside the messages. Raises ``ProtocolError``."""
        if self._error is not None:
            raise self._error
        self._buffer += data
        try:
            if not self.is_open and not self._take_answer():
                return b""
            return b"".join(self._payloads())
        except ProtocolError as error:
            self._error = error
            raise

    def _take_answer(self) -> bool:
        """Whether the upgrade has been answered. Raises ``ProtocolError`` for a refusal."""
        end = self._buffer.find(_END)
        if end < 0:
            if len(self._buffer) > MAX_ANSWER:
                raise frame_error("the answer to the WebSocket upgrade is too long", bytes(self._buffer[:80]))
            return False
        text = self._buffer[:end].decode("latin-1")
        first, *rest = text.split("\r\n")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)
        }
        if first.split(" ")[1:2] != ["101"] or headers.get("sec-websocket-accept") != self._expected:
            raise frame_error(f"no WebSocket: {first[:80]!r}", bytes(self._buffer[:80]))
        del self._buffer[: end + len(_END)]
        self.is_open = True
        return True

    def _payloads(self) -> list[bytes]:
        found: list[bytes] = []
        while not self.is_closed and (parsed := self._frame()) is not None:
            opcode, payload = parsed
            match opcode:
                case Opcode.BINARY | Opcode.TEXT | Opcode.CONTINUATION:
                    found.append(payload)
                case Opcode.PING:
                    self.answers.append((Opcode.PONG, payload))
                case Opcode.CLOSE:
                    self.answers.append((Opcode.CLOSE, payload[:2]))
                    self.is_closed = True
                case _:
                    pass  # a pong is no answer to anything: we send no ping
        return found

    def _frame(self) -> tuple[Opcode, bytes] | None:
        """The next whole frame, or None. Raises ``ProtocolError``."""
        buffer = self._buffer
        head = frame_head(buffer)
        if head is None:
            return None
        first, second, opcode, size, start = head
        if first & 0x70 or second & 0x80:
            raise frame_error("a WebSocket frame with reserved bits, or masked", bytes(buffer[:2]))
        require_frame_size(opcode, size, buffer)
        if len(buffer) < start + size:
            return None
        payload = bytes(buffer[start : start + size])
        del buffer[: start + size]
        return opcode, payload
