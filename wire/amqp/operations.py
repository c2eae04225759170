"""The operations of AMQP 0-9-1: what a decoder returns and ``make`` writes.

An operation is one method with its content (method frame, content header and body frames), a heartbeat, or a
protocol header. It keeps its exact bytes (``raw``); where frames of other channels stood between its own,
they are left out. Arguments and properties are read-only by contract: equal frames share them.
Source: AMQP 0-9-1, sections 2.3 and 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from plumbline.wire.amqp.fields import Table
from plumbline.wire.amqp.frames import (
    CONTENT_HEAD,
    DEFAULT_FRAME_MAX,
    FRAME_HEAD,
    FRAME_OVERHEAD,
    PROTOCOL_HEADER,
    FrameType,
    content_frames,
    frame,
)
from plumbline.wire.amqp.methods import SHAPES, MethodSpec, SentBy
from plumbline.wire.amqp.properties import PROPERTIES, encode_properties
from plumbline.wire.escapes import escaped, escaped_bytes

ELIDE_AFTER = 1000  # bytes of a body that a log line shows


class Operation(Struct, frozen=True, gc=False):
    """One protocol unit, of one channel; 0 is the connection itself."""

    raw: bytes
    channel: int

    @property
    def method(self) -> str:
        """``basic.publish``; for what is no method ``heartbeat``, ``protocol-header`` or ``raw``."""
        return ""

    def __hash__(self) -> int:
        return hash(self.raw)


class ProtocolHeader(Operation, frozen=True, gc=False):
    """The eight bytes that open a connection; a server sends them to refuse a client's."""

    @property
    def method(self) -> str:
        return "protocol-header"

    @property
    def supported(self) -> bool:
        """Whether it asks for AMQP 0-9-1."""
        return self.raw == PROTOCOL_HEADER

    @classmethod
    def make(cls, raw: bytes = PROTOCOL_HEADER) -> ProtocolHeader:
        return cls(raw, 0)

    def __str__(self) -> str:
        return f"protocol-header {self.raw!r}"


class Heartbeat(Operation, frozen=True, gc=False):
    """Eight bytes that say: still here."""

    @property
    def method(self) -> str:
        return "heartbeat"

    @classmethod
    def make(cls) -> Heartbeat:
        return cls(frame(FrameType.HEARTBEAT, 0, b""), 0)

    def __str__(self) -> str:
        return "heartbeat"


class Raw(Operation, frozen=True, gc=False):
    """Bytes sent on purpose, right or wrong; no decoder returns it."""

    @property
    def method(self) -> str:
        return "raw"

    @classmethod
    def make(cls, raw: bytes, channel: int = 0) -> Raw:
        return cls(raw, channel)

    def __str__(self) -> str:
        return f"raw {_elided(self.raw)}"


class Method(Operation, frozen=True, gc=False):
    """A method and, for those that carry one, its content."""

    shape: MethodSpec
    arguments: Mapping[str, Any]
    properties: Table | None  # those that are set; None without a content
    head: int  # size in bytes of the method's own frame

    @property
    def method(self) -> str:
        return self.shape.name

    @property
    def sent_by(self) -> SentBy:
        """Which peer may send it."""
        return self.shape.sent_by

    @property
    def raw_properties(self) -> bytes:
        """Flags and values of the content header, as sent; empty without a content."""
        if self.properties is None:
            return b""
        start = self.head + FRAME_HEAD.size
        size = FRAME_HEAD.unpack_from(self.raw, self.head)[2]
        return self.raw[start + CONTENT_HEAD.size : start + size]

    @property
    def body(self) -> bytes:
        """The message; empty without a content."""
        if self.properties is None:
            return b""
        at = self.head + FRAME_OVERHEAD + FRAME_HEAD.unpack_from(self.raw, self.head)[2]
        size = len(self.raw) - at
        if size == 0:
            return b""
        if FRAME_HEAD.unpack_from(self.raw, at)[2] + FRAME_OVERHEAD == size:
            return self.raw[at + FRAME_HEAD.size : -1]
        return b"".join(payload for kind, payload in self.frames() if kind == FrameType.BODY)

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Type and payload of each of its frames."""
        at = 0
        while at < len(self.raw):
            kind, _, size = FRAME_HEAD.unpack_from(self.raw, at)
            yield kind, self.raw[at + FRAME_HEAD.size : at + FRAME_HEAD.size + size]
            at += size + FRAME_OVERHEAD

    @classmethod
    def make(
        cls,
        method: str,
        channel: int = 0,
        /,
        *,
        properties: Table | None = None,
        body: bytes = b"",
        max_frame: int = DEFAULT_FRAME_MAX,
        **arguments: Any,
    ) -> Method:
        """``make("basic.publish", 1, routing_key="q", body=b"x")``; ``global_`` is the argument ``global``.

        Arguments not given are 0, false or empty; frames of the body have ``max_frame`` octets at most. A
        method that carries a content always gets one. Raises ``KeyError`` for an unknown method,
        ``ValueError`` for an unknown name or a value that does not fit.
        """
        shape = SHAPES[method]
        named = {name.rstrip("_"): value for name, value in arguments.items()}
        raw = frame(FrameType.METHOD, channel, shape.encode(named))
        head = len(raw)
        if shape.has_content:
            given_properties = properties or {}
            raw += content_frames(channel, encode_properties(given_properties), body, frame_max=max_frame)
            properties = {name: given_properties[name] for name in PROPERTIES if name in given_properties}
        elif properties is not None or body:
            raise ValueError(f"{method} carries no content")
        return cls(raw, channel, shape, shape.defaults | named, properties, head)

    def __str__(self) -> str:
        return self.line if self.properties is None else self.line_with_body(_elided(self.body))

    @property
    def line(self) -> str:
        """Channel, method and arguments."""
        fields = [
            f"{name}={_shown(value)}" for name, value in self.arguments.items() if _is_printed(name, value)
        ]
        return " ".join([f"[{self.channel}]", self.method, *fields])

    def line_with_body(self, body: str) -> str:
        """Also the properties, and ``body`` in the place of the body."""
        fields = [f"{name}={_shown(value)}" for name, value in (self.properties or {}).items()]
        return " ".join([self.line, "|", *fields, f"body={body}"])


def _is_printed(name: str, value: Any) -> bool:
    """Reserved arguments are shown only where they are not what everybody sends."""
    return bool(value) or not name.startswith("reserved_")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = value.replace('"', '\\"')
        return f'"{escaped(text)}"'
    return str(value)


def _elided(data: bytes) -> str:
    more = f"... ({len(data)} bytes)" if len(data) > ELIDE_AFTER else ""
    text = escaped_bytes(data[:ELIDE_AFTER].replace(b'"', b'\\"'))
    return f'"{text}"{more}'
