"""The server's half of WebSocket, as NATS uses it, with compression of whole messages. Sans-I/O.

Source: RFC 6455; RFC 7692, "permessage-deflate", without context takeover; docs.nats.io, "WebSocket".
"""

from __future__ import annotations

import hashlib
import zlib
from base64 import b64encode

from plumbline.wire.errors import ProtocolError
from plumbline.wire.websocket import (
    GUID,
    MAX_FRAME,
    Opcode,
    frame_error,
    frame_head,
    masked,
    require_frame_size,
)

MAX_REQUEST = 16 * 1024  # bytes of a request to upgrade
SMALLEST_COMPRESSED = 64  # bytes; a shorter message is sent as it is
_END = b"\r\n\r\n"
_DEFLATE = "permessage-deflate"
_WITHOUT_TAKEOVER = ("server_no_context_takeover", "client_no_context_takeover")
_FLUSHED = b"\x00\x00\xff\xff"  # ends each deflated block; not sent (RFC 7692, section 7.2.1)
_FIN, _COMPRESSED = 0x80, 0x40


class WebSocketServer:
    """One connection. ``outgoing`` collects what is to be sent: the answer to the upgrade, pongs.

    ``is_open`` after the upgrade, ``is_over`` after a close frame or a refused upgrade. After an error every
    further ``receive`` raises it again.
    """

    def __init__(self, *, compression: bool = False) -> None:
        self.is_open = False
        self.is_over = False
        self.outgoing = b""
        self.compresses = False
        self._may_compress = compression
        self._buffer = bytearray()
        self._message: bytearray | None = None  # the beginning of one in several frames
        self._message_is_compressed = False
        self._error: ProtocolError | None = None

    def receive(self, data: bytes) -> bytes:
        """The bytes inside the messages. Raises ``ProtocolError``."""
        if self._error is not None:
            raise self._error
        self._buffer += data
        try:
            if not self.is_open and not self._take_request():
                return b""
            found: list[bytes] = []
            while not self.is_over and (frame := self._frame()) is not None:
                found.append(self._payload(*frame))
            return b"".join(found)
        except ProtocolError as error:
            self._error = error
            raise

    def send(self, payload: bytes) -> bytes:
        """One binary message."""
        first = _FIN | Opcode.BINARY
        if self.compresses and len(payload) >= SMALLEST_COMPRESSED:
            deflater = zlib.compressobj(wbits=-zlib.MAX_WBITS)
            payload = deflater.compress(payload) + deflater.flush(zlib.Z_SYNC_FLUSH)
            payload = payload.removesuffix(_FLUSHED)
            first |= _COMPRESSED
        return _head(first, len(payload)) + payload

    def close(self) -> bytes:
        """The close frame of a normal end."""
        return _head(_FIN | Opcode.CLOSE, 2) + (1000).to_bytes(2)

    def _take_request(self) -> bool:
        """Whether the connection is a WebSocket now; a wrong request is refused with status 400."""
        end = self._buffer.find(_END)
        if end < 0:
            if len(self._buffer) > MAX_REQUEST:
                self._refuse("the request is too long")
            return False
        first, *rest = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + len(_END)]
        headers: dict[str, str] = {}
        for line in rest:
            name, _, value = line.partition(":")
            key = name.strip().lower()
            headers[key] = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()
        words = first.split(" ")
        problem = _problem(words, headers)
        if problem:
            self._refuse(problem)
            return False
        digest = hashlib.sha1(headers["sec-websocket-key"].encode("latin-1") + GUID, usedforsecurity=False)
        lines = [
            "HTTP/1.1 101 Switching Protocols",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Accept: {b64encode(digest.digest()).decode()}",
        ]
        if self._may_compress and _offers_deflate(headers.get("sec-websocket-extensions", "")):
            self.compresses = True
            lines.append(f"Sec-WebSocket-Extensions: {'; '.join((_DEFLATE, *_WITHOUT_TAKEOVER))}")
        self.outgoing += "\r\n".join([*lines, "", ""]).encode("latin-1")
        self.is_open = True
        return True

    def _refuse(self, problem: str) -> None:
        body = f"{problem}\n".encode()
        head = f"HTTP/1.1 400 Bad Request\r\nSec-WebSocket-Version: 13\r\nContent-Length: {len(body)}\r\n"
        self.outgoing += head.encode() + b"Connection: close\r\n\r\n" + body
        self.is_over = True

    def _payload(self, first: int, opcode: Opcode, payload: bytes) -> bytes:
        """What a frame adds to the bytes of the client. Raises ``ProtocolError``."""
        match opcode:
            case Opcode.PING:
                self.outgoing += _head(_FIN | Opcode.PONG, len(payload)) + payload
                return b""
            case Opcode.CLOSE:
                self.outgoing += _head(_FIN | Opcode.CLOSE, len(payload[:2])) + payload[:2]
                self.is_over = True
                return b""
            case Opcode.PONG:
                return b""
        if (opcode is Opcode.CONTINUATION) != (self._message is not None):
            raise frame_error(
                "a WebSocket frame that continues nothing, or begins inside a message", payload[:10]
            )
        if self._message is None:
            self._message, self._message_is_compressed = bytearray(), bool(first & _COMPRESSED)
        self._message += payload
        if len(self._message) > MAX_FRAME:
            raise frame_error("a WebSocket message that is too long", payload[:10])
        if not first & _FIN:
            return b""
        message, self._message = bytes(self._message), None
        return _inflated(message) if self._message_is_compressed else message

    def _frame(self) -> tuple[int, Opcode, bytes] | None:
        """The first byte, opcode and payload of the next whole frame, or None. Raises ``ProtocolError``."""
        buffer = self._buffer
        head = frame_head(buffer)
        if head is None:
            return None
        first, second, opcode, size, start = head
        if not second & 0x80:
            raise frame_error("a WebSocket frame of a client that is not masked", bytes(buffer[:2]))
        if first & (0x30 if self.compresses else 0x70) or (opcode >= Opcode.CLOSE and not first & _FIN):
            raise frame_error(
                "a WebSocket frame with reserved bits, or a part of a control frame", bytes(buffer[:2])
            )
        require_frame_size(opcode, size, buffer)
        if len(buffer) < start + 4 + size:
            return None
        key = bytes(buffer[start : start + 4])
        payload = masked(bytes(buffer[start + 4 : start + 4 + size]), key)
        del buffer[: start + 4 + size]
        return first, opcode, payload


def _head(first: int, size: int) -> bytes:
    if size < 126:
        return bytes([first, size])
    if size < 1 << 16:
        return bytes([first, 126]) + size.to_bytes(2)
    return bytes([first, 127]) + size.to_bytes(8)


def _problem(words: list[str], headers: dict[str, str]) -> str:
    """Why a request is no upgrade to WebSocket; empty if it is one. RFC 6455, section 4.2.1."""
    if len(words) != 3 or words[0] != "GET" or not words[2].startswith("HTTP/1."):
        return "request method must be GET"
    if words[1].partition("?")[0] in ("/leafnode", "/mqtt"):
        return "this server takes clients of NATS only"
    if "host" not in headers:
        return "'Host' missing in request"
    if "websocket" not in headers.get("upgrade", "").lower():
        return "invalid value for header 'Upgrade'"
    if "upgrade" not in headers.get("connection", "").lower():
        return "invalid value for header 'Connection'"
    if not headers.get("sec-websocket-key"):
        return "key missing"
    if headers.get("sec-websocket-version") != "13":
        return "invalid version"
    return ""


def _offers_deflate(extensions: str) -> bool:
    """Whether a client offers compression that keeps nothing from message to message."""
    for offer in extensions.lower().split(","):
        name, *parameters = (part.strip() for part in offer.split(";"))
        if name == _DEFLATE and all(one in parameters for one in _WITHOUT_TAKEOVER):
            return True
    return False


def _inflated(message: bytes) -> bytes:
    """Raises ``ProtocolError``, also for a message that becomes too long."""
    inflater = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    try:
        found = inflater.decompress(message + _FLUSHED, MAX_FRAME + 1)
    except zlib.error:
        raise frame_error("a compressed WebSocket message that cannot be read", message[:10]) from None
    if len(found) > MAX_FRAME:
        raise frame_error("a compressed WebSocket message that is too long", message[:10])
    return found
