"""Bytes from one side of one AMQP 0-9-1 connection, in any segmentation, to operations.

Frames become methods, methods get their contents, each channel on its own. Whether a method is legal now, on
this channel, from this side, is not asked here: that is the peer's state. However the same bytes are cut, the
decoder gives the same operations and the same error at the same offset.
Sources: AMQP 0-9-1, section 4.2; where it is silent or not followed, what RabbitMQ 3.10 does, marked
"servers".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from plumbline.wire.amqp.errors import AmqpError
from plumbline.wire.amqp.fields import MAX_DEPTH
from plumbline.wire.amqp.frames import (
    CONTENT_HEAD,
    DEFAULT_FRAME_MAX,
    FRAME_END,
    FRAME_HEAD,
    FRAME_OVERHEAD,
    PROTOCOL_HEADER,
    FrameType,
)
from plumbline.wire.amqp.methods import MethodSpec, shape_of
from plumbline.wire.amqp.operations import Heartbeat, Method, Operation, ProtocolHeader
from plumbline.wire.amqp.properties import decode_properties
from plumbline.wire.errors import EXCERPT_BYTES, ErrorKind
from plumbline.wire.sender import Sender

_METHOD, _HEADER, _BODY, _HEARTBEAT = FrameType
# Equal frames come again and again: the last ones that were read are kept.
_MAX_CACHED_FRAMES = 256
_MAX_CACHED_FRAME_BYTES = 512
# What is counted for an unfinished content, and for each frame of it, besides their bytes: what Python needs
# for them. So a peer gains nothing by empty frames.
_CONTENT_COST = 512
_FRAME_COST = 64


class Limits(Struct, frozen=True):
    """The most a decoder holds; larger input is an ``AmqpError``.

    ``frame_max`` is compared with the payload of a frame, not with the whole frame: servers allow the eight
    bytes.
    """

    frame_max: int = DEFAULT_FRAME_MAX
    max_body: int = 512 * 1024 * 1024  # of one content, in bytes; the most that RabbitMQ can be set to
    table_depth: int = MAX_DEPTH
    max_unfinished: int = 576 * 1024 * 1024  # of all contents that are not complete, in bytes of memory


class _Content:
    """A method whose content is not complete yet."""

    __slots__ = ("arguments", "frames", "head", "missing", "properties", "shape")

    def __init__(self, shape: MethodSpec, arguments: Mapping[str, Any], frame: bytes) -> None:
        self.shape = shape
        self.arguments = arguments
        self.frames = [frame]
        self.head = len(frame)
        self.properties: Mapping[str, Any] | None = None  # None: the content header has not come
        self.missing = 0  # bytes of the body

    @property
    def cost(self) -> int:
        """What was counted for it, see ``Limits.max_unfinished``."""
        count = len(self.frames)
        return sum(map(len, self.frames)) - FRAME_OVERHEAD * count + _CONTENT_COST + _FRAME_COST * (count - 1)


class Decoder:
    """One side of one connection.

    Holds one unfinished frame and the unfinished content of each channel. After an ``AmqpError`` the
    connection is lost: every later ``feed`` raises the same error again, without operations. ``limits`` may
    be replaced between feeds, as when connection.tune-ok tells ``frame_max``.
    """

    def __init__(self, sender: Sender, limits: Limits | None = None) -> None:
        self.offset = 0  # of the first byte that is not yet part of a whole frame
        self.limits = limits or Limits()
        self._sender = sender
        self._header_read = False
        self._held = bytearray()
        self._need = 1  # decode again once this many bytes are held
        self._contents: dict[int, _Content] = {}
        self._unfinished = 0  # what ``Limits.max_unfinished`` is compared with
        self._methods: dict[bytes, tuple[MethodSpec, Mapping[str, Any]]] = {}
        self._headers: dict[bytes, tuple[int, Mapping[str, Any]]] = {}
        self._error: AmqpError | None = None

    @property
    def held(self) -> int:
        """How many bytes are waiting for the rest of their operation."""
        return len(self._held) + sum(sum(map(len, held.frames)) for held in self._contents.values())

    @property
    def unfinished(self) -> bytes:
        """The bytes of an unfinished frame."""
        return bytes(self._held)

    def feed(self, data: bytes) -> list[Operation]:
        """The operations that ``data`` completes.

        Raises ``AmqpError``; its ``operations`` are those completed before the error.
        """
        if self._error is not None:
            raise self._error.located(self._error.offset, self._error.excerpt, ())
        held = self._held
        if held:
            held += data
            if len(held) < self._need:
                return []
            data = bytes(held)
            held.clear()
        operations: list[Operation] = []
        start = self._begin(data, operations)
        base = self.offset
        try:
            used = self._decode(data, start, operations)
        except AmqpError as error:
            excerpt = data[self.offset - base :][:EXCERPT_BYTES]
            self._contents.clear()
            self._error = error.located(self.offset, excerpt, ())
            # Not the object that is raised: its traceback would keep this decoder, and all it holds, until
            # the garbage collector finds the circle.
            raise error.located(self.offset, excerpt, tuple(operations)) from None
        self.offset = base + used
        if used < len(data):
            held += data[used:]
        return operations

    def finish(self) -> None:
        """The stream has ended. Raises ``AmqpError`` (``TRUNCATED``) inside an operation."""
        if self._held:
            raise AmqpError(
                ErrorKind.TRUNCATED,
                "the stream ended inside a frame",
                offset=self.offset,
                excerpt=bytes(self._held),
            )
        for channel, content in self._contents.items():
            message = f"the stream ended inside the content of {content.shape.name}"
            raise AmqpError(ErrorKind.TRUNCATED, message, offset=self.offset, channel=channel)

    def _begin(self, data: bytes, operations: list[Operation]) -> int:
        """Takes the protocol header; returns where frames begin."""
        size = len(PROTOCOL_HEADER)
        if self._header_read or not data:
            return 0
        if self._sender is Sender.SERVER and not data.startswith(PROTOCOL_HEADER[:1]):
            self._header_read = True
            return 0
        if len(data) < size:
            self._need = size
            return 0
        self._header_read = True
        operations.append(ProtocolHeader(data[:size], 0))
        return size

    def _decode(self, data: bytes, start: int, operations: list[Operation]) -> int:
        """Appends what is complete in ``data``; returns how many bytes that took."""
        if not self._header_read:
            return 0
        # For the common operation few calls: all that is built on this pays for it.
        base = self.offset
        unpack, append = FRAME_HEAD.unpack_from, operations.append
        methods, headers, contents = self._methods, self._headers, self._contents
        frame_max, total = self.limits.frame_max, len(data)
        unfinished, max_unfinished = self._unfinished, self.limits.max_unfinished
        while start + 7 <= total:
            kind, channel, size = unpack(data, start)
            self.offset = base + start
            if size > frame_max:
                message = f"{size} bytes of type {kind} announced, {frame_max} allowed"
                raise AmqpError(ErrorKind.FRAME_SIZE, message, channel=channel)
            at = start + 7
            end = at + size
            if end >= total:
                self._need = size + 8
                self._unfinished = unfinished
                return start
            if data[end] != FRAME_END:
                raise AmqpError(ErrorKind.FRAME_END, f"frame end {data[end]:#04x}", channel=channel)
            payload = data[at:end]
            end += 1
            content = contents.get(channel) if contents else None
            if kind == _METHOD and content is None:
                known = methods.get(payload) or self._method(payload, channel)
                shape, arguments = known
                if shape.has_content and channel:
                    contents[channel] = _Content(shape, arguments, data[start:end])
                    unfinished += size + _CONTENT_COST
                else:
                    append(Method(data[start:end], channel, shape, arguments, None, size + 8))
            elif kind == _BODY and content is not None and content.properties is not None:
                content.missing -= size
                if content.missing < 0:
                    raise _unexpected(f"{-content.missing} bytes more than the body has", channel, content)
                content.frames.append(data[start:end])
                unfinished += size + _FRAME_COST
                if not content.missing:
                    append(_complete(content, channel))
                    del contents[channel]
                    unfinished = unfinished - content.cost if contents else 0
                elif unfinished > max_unfinished:
                    raise _too_much(max_unfinished, channel, content)
            elif kind == _HEADER and content is not None and content.properties is None:
                content.missing, content.properties = headers.get(payload) or self._header(
                    payload, channel, content
                )
                content.frames.append(data[start:end])
                unfinished += size + _FRAME_COST
                if not content.missing:
                    append(_complete(content, channel))
                    del contents[channel]
                    unfinished = unfinished - content.cost if contents else 0
                elif unfinished > max_unfinished:
                    raise _too_much(max_unfinished, channel, content)
            else:
                append(self._non_content_frame(kind, channel, data[start:end], content))
            start = end
        self._need = 7
        self._unfinished = unfinished
        return start

    def _method(self, payload: bytes, channel: int) -> tuple[MethodSpec, Mapping[str, Any]]:
        """Reads a method frame that is not like one of the last."""
        shape: MethodSpec | None = None
        try:
            shape = shape_of(payload)
            arguments = shape.decode(payload, self.limits.table_depth)
            if self._sender is Sender.CLIENT:
                _check_text(shape, arguments)
        except AmqpError as error:
            error.channel = channel
            if shape is not None:
                error.class_id, error.method_id = shape.class_id, shape.method_id
            raise
        known = (shape, arguments)
        if len(payload) <= _MAX_CACHED_FRAME_BYTES and "delivery_tag" not in arguments:
            if len(self._methods) >= _MAX_CACHED_FRAMES:
                self._methods.clear()
            self._methods[payload] = known
        return known

    def _header(self, payload: bytes, channel: int, content: _Content) -> tuple[int, Mapping[str, Any]]:
        """Reads a content header that is not like one of the last."""
        if len(payload) < CONTENT_HEAD.size:
            raise AmqpError(ErrorKind.ARGUMENTS, "a content header cut short", channel=channel)
        class_id, weight, body_size = CONTENT_HEAD.unpack_from(payload)
        if class_id != content.shape.class_id:
            raise _unexpected(f"a content header of class {class_id}", channel, content)
        if weight:
            raise _unexpected(f"a content header of weight {weight}", channel, content)
        if body_size > self.limits.max_body:
            message = f"a body of {body_size} bytes announced, {self.limits.max_body} allowed"
            raise AmqpError(ErrorKind.PAYLOAD_SIZE, message, channel=channel)
        try:
            properties = decode_properties(payload[CONTENT_HEAD.size :], self.limits.table_depth)
        except AmqpError as error:
            error.channel = channel
            raise
        known = (body_size, properties)
        if len(payload) <= _MAX_CACHED_FRAME_BYTES:
            if len(self._headers) >= _MAX_CACHED_FRAMES:
                self._headers.clear()
            self._headers[payload] = known
        return known

    def _non_content_frame(self, kind: int, channel: int, raw: bytes, content: _Content | None) -> Operation:
        """A heartbeat; everything else is an error here."""
        if kind == _HEARTBEAT:
            if channel:
                raise AmqpError(ErrorKind.UNEXPECTED_FRAME, "a heartbeat on a channel", channel=channel)
            if len(raw) > FRAME_OVERHEAD:
                raise AmqpError(ErrorKind.FRAME_TYPE, "a heartbeat with a payload")
            return Heartbeat(raw, 0)
        if kind not in (_METHOD, _HEADER, _BODY):
            raise AmqpError(ErrorKind.FRAME_TYPE, f"frame type {kind}", channel=channel)
        if content is None:
            message = f"frame type {kind} where a method was expected"
            raise AmqpError(ErrorKind.UNEXPECTED_FRAME, message, channel=channel)
        expected = "content header" if content.properties is None else "content body"
        raise _unexpected(f"frame type {kind} where a {expected} was expected", channel, content)


def _complete(content: _Content, channel: int) -> Method:
    raw = b"".join(content.frames)
    return Method(raw, channel, content.shape, content.arguments, content.properties, content.head)


def _check_text(shape: MethodSpec, arguments: Mapping[str, Any]) -> None:
    """Servers: a client's short strings must be UTF-8. A server may cut a reply text inside a character."""
    for name in shape.texts:
        if not arguments[name].isascii():
            try:
                arguments[name].encode()
            except UnicodeEncodeError:
                raise AmqpError(ErrorKind.TEXT, f"{shape.name} {name}") from None


def _too_much(limit: int, channel: int, content: _Content) -> AmqpError:
    error = _unexpected(f"unfinished contents of more than {limit} bytes", channel, content)
    error.kind = ErrorKind.PAYLOAD_SIZE
    return error


def _unexpected(message: str, channel: int, content: _Content) -> AmqpError:
    shape = content.shape
    return AmqpError(
        ErrorKind.UNEXPECTED_FRAME,
        message,
        channel=channel,
        class_id=shape.class_id,
        method_id=shape.method_id,
    )
