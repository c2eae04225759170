"""The NATS client protocol, both directions: bytes <-> operations.

An operation keeps its exact bytes (``raw``) and the fields of its control line (``args``); all
else is read from those two when asked for. So nothing is "fixed", and decoding stays cheap.
This module does not know who is at the other end: ``Decoder`` is told which side sent the bytes.
Source: docs.nats.io, "Client Protocol"; ADR-4 for HPUB and HMSG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from wire.errors import ErrorKind, ProtocolError
from wire.headers import Headers, encode_headers

CRLF = b"\r\n"
ELIDE_PAYLOAD_AFTER = 120


class Sender(StrEnum):
    """Which side sent the bytes: it decides which operations are legal."""

    CLIENT = "client"
    SERVER = "server"


class Limits(Struct, frozen=True):
    """The most a decoder holds, in bytes; larger input is a ``ProtocolError``."""

    max_control_line: int = 4096
    max_payload: int = 1024 * 1024
    max_info_line: int = 64 * 1024


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


class Operation(Struct, frozen=True, gc=False):
    """One protocol unit. ``args`` are the control line's fields after the verb, as sent."""

    raw: bytes
    args: list[bytes]
    head: int  # size in bytes of the control line with its line end

    verb: ClassVar[str] = ""

    @property
    def line(self) -> str:
        """The control line without its line end."""
        return _text(self.raw[: self.head].rstrip(b"\r\n"))

    @property
    def body(self) -> bytes:
        """What follows the control line, without the closing CRLF; empty for most operations."""
        return self.raw[self.head : -2]

    def __str__(self) -> str:
        body = self.body
        if not body:
            return self.line
        shown = _text(body[:ELIDE_PAYLOAD_AFTER]).encode("unicode_escape").decode()
        more = f"... ({len(body)} bytes)" if len(body) > ELIDE_PAYLOAD_AFTER else ""
        return f"{self.line} | {shown}{more}"


class Ping(Operation, frozen=True, gc=False):
    verb = "PING"

    @classmethod
    def make(cls) -> Ping:
        return cls(b"PING\r\n", [], 6)


class Pong(Operation, frozen=True, gc=False):
    verb = "PONG"

    @classmethod
    def make(cls) -> Pong:
        return cls(b"PONG\r\n", [], 6)


class Ok(Operation, frozen=True, gc=False):
    verb = "+OK"

    @classmethod
    def make(cls) -> Ok:
        return cls(b"+OK\r\n", [], 5)


class Err(Operation, frozen=True, gc=False):
    verb = "-ERR"

    @property
    def message(self) -> str:
        """The reason, without the single quotes around it."""
        text = self.line[len(self.verb) :].strip()
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text

    @classmethod
    def make(cls, message: str) -> Err:
        raw = b"-ERR '" + _bytes(message) + b"'\r\n"
        return cls(raw, raw.split()[1:], len(raw))


class _Json(Operation, frozen=True, gc=False):
    """INFO and CONNECT: a verb and one JSON object."""

    @property
    def fields(self) -> dict[str, Any]:
        """The JSON object. Raises ``ProtocolError`` (``JSON``) if it is not one."""
        return _json_object(self.raw[len(self.verb) : self.head])


class Info(_Json, frozen=True, gc=False):
    verb = "INFO"

    @classmethod
    def make(cls, fields: dict[str, Any]) -> Info:
        raw = b"INFO " + msgspec.json.encode(fields) + CRLF
        return cls(raw, raw.split()[1:], len(raw))


class Connect(_Json, frozen=True, gc=False):
    verb = "CONNECT"

    @classmethod
    def make(cls, fields: dict[str, Any]) -> Connect:
        raw = b"CONNECT " + msgspec.json.encode(fields) + CRLF
        return cls(raw, raw.split()[1:], len(raw))


class Sub(Operation, frozen=True, gc=False):
    verb = "SUB"

    @property
    def subject(self) -> str:
        return _text(self.args[0])

    @property
    def queue(self) -> str | None:
        return _text(self.args[1]) if len(self.args) == 3 else None

    @property
    def sid(self) -> str:
        return _text(self.args[-1])

    @classmethod
    def make(cls, subject: str, sid: str | int, queue: str | None = None) -> Sub:
        args = [_bytes(part) for part in (subject, queue, str(sid)) if part is not None]
        raw = b"SUB " + b" ".join(args) + CRLF
        return cls(raw, args, len(raw))


class Unsub(Operation, frozen=True, gc=False):
    verb = "UNSUB"

    @property
    def sid(self) -> str:
        return _text(self.args[0])

    @property
    def max_msgs(self) -> int | None:
        return int(self.args[1]) if len(self.args) == 2 else None

    @classmethod
    def make(cls, sid: str | int, max_msgs: int | None = None) -> Unsub:
        args = [_bytes(str(part)) for part in (sid, max_msgs) if part is not None]
        raw = b"UNSUB " + b" ".join(args) + CRLF
        return cls(raw, args, len(raw))


class Payload(Operation, frozen=True, gc=False):
    """What PUB, HPUB, MSG and HMSG share: a subject and a payload of announced size."""

    @property
    def subject(self) -> str:
        return _text(self.args[0])

    @property
    def reply(self) -> str | None:
        raise NotImplementedError

    @property
    def header_block(self) -> bytes:
        """The header bytes as sent; empty for PUB and MSG."""
        return b""

    @property
    def headers(self) -> Headers | None:
        """The header block, parsed. Raises ``ProtocolError`` (``HEADERS``) if malformed."""
        return Headers.parse(self.header_block) if self.header_block else None

    @property
    def payload(self) -> bytes:
        return self.raw[self.head : -2]


class Pub(Payload, frozen=True, gc=False):
    verb = "PUB"

    @property
    def reply(self) -> str | None:
        return _text(self.args[1]) if len(self.args) == 3 else None

    @classmethod
    def make(
        cls, subject: str, payload: bytes = b"", reply: str | None = None, *, size: int | str | None = None
    ) -> Pub:
        """``size`` overrides the announced size, to write a malformed operation on purpose."""
        return cls(*_with_payload(b"PUB", [subject, reply], [size], b"", payload))


class HPub(Payload, frozen=True, gc=False):
    verb = "HPUB"

    @property
    def reply(self) -> str | None:
        return _text(self.args[1]) if len(self.args) == 4 else None

    @property
    def header_block(self) -> bytes:
        return self.raw[self.head : self.head + int(self.args[-2])]

    @property
    def payload(self) -> bytes:
        return self.raw[self.head + int(self.args[-2]) : -2]

    @classmethod
    def make(
        cls,
        subject: str,
        headers: bytes | Iterable[tuple[str, str]],
        payload: bytes = b"",
        reply: str | None = None,
        *,
        header_size: int | str | None = None,
        size: int | str | None = None,
    ) -> HPub:
        """``headers`` as fields or as a ready block; the sizes can be overridden to be wrong."""
        block = headers if isinstance(headers, bytes) else encode_headers(headers)
        return cls(*_with_payload(b"HPUB", [subject, reply], [header_size, size], block, payload))


class Msg(Payload, frozen=True, gc=False):
    verb = "MSG"

    @property
    def sid(self) -> str:
        return _text(self.args[1])

    @property
    def reply(self) -> str | None:
        return _text(self.args[2]) if len(self.args) == 4 else None

    @classmethod
    def make(cls, subject: str, sid: str | int, payload: bytes = b"", reply: str | None = None) -> Msg:
        return cls(*_with_payload(b"MSG", [subject, str(sid), reply], [None], b"", payload))


class HMsg(Payload, frozen=True, gc=False):
    verb = "HMSG"

    @property
    def sid(self) -> str:
        return _text(self.args[1])

    @property
    def reply(self) -> str | None:
        return _text(self.args[2]) if len(self.args) == 5 else None

    @property
    def header_block(self) -> bytes:
        return self.raw[self.head : self.head + int(self.args[-2])]

    @property
    def payload(self) -> bytes:
        return self.raw[self.head + int(self.args[-2]) : -2]

    @classmethod
    def make(
        cls,
        subject: str,
        sid: str | int,
        headers: bytes | Iterable[tuple[str, str]],
        payload: bytes = b"",
        reply: str | None = None,
    ) -> HMsg:
        block = headers if isinstance(headers, bytes) else encode_headers(headers)
        return cls(*_with_payload(b"HMSG", [subject, str(sid), reply], [None, None], block, payload))


class Raw(Operation, frozen=True, gc=False):
    """Any bytes at all, for checks that must send what no codec would write."""

    verb = "RAW"

    @classmethod
    def make(cls, data: bytes) -> Raw:
        return cls(data, [], len(data))


def _with_payload(
    verb: bytes,
    names: list[str | None],
    sizes: list[int | str | None],
    block: bytes,
    payload: bytes,
) -> tuple[bytes, list[bytes], int]:
    """Raw bytes, args and head size of an operation; a size of None is the true one."""
    true_sizes = [len(block) + len(payload)] if len(sizes) == 1 else [len(block), len(block) + len(payload)]
    announced = [true if given is None else given for true, given in zip(true_sizes, sizes, strict=True)]
    args = [_bytes(name) for name in names if name is not None] + [_bytes(str(size)) for size in announced]
    line = b" ".join([verb, *args]) + CRLF
    return line + block + payload + CRLF, args, len(line)


def _json_object(text: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(ErrorKind.JSON, str(error), excerpt=text) from None
    if not isinstance(value, dict):
        raise ProtocolError(ErrorKind.JSON, "expected a JSON object", excerpt=text)
    return value


# What each side may send: verb -> (class, fewest args, most args, sizes at the end of the args).
# docs.nats.io, "Client Protocol", table "Protocol Messages".
_Shape = tuple[type[Operation], int, int, int]
_SHAPES: dict[Sender, dict[bytes, _Shape]] = {
    Sender.CLIENT: {
        b"PUB": (Pub, 2, 3, 1),
        b"HPUB": (HPub, 3, 4, 2),
        b"SUB": (Sub, 2, 3, 0),
        b"UNSUB": (Unsub, 1, 2, 0),
        b"PING": (Ping, 0, 0, 0),
        b"PONG": (Pong, 0, 0, 0),
        b"CONNECT": (Connect, 1, 1 << 30, 0),
    },
    Sender.SERVER: {
        b"MSG": (Msg, 3, 4, 1),
        b"HMSG": (HMsg, 4, 5, 2),
        b"PING": (Ping, 0, 0, 0),
        b"PONG": (Pong, 0, 0, 0),
        b"+OK": (Ok, 0, 0, 0),
        b"-ERR": (Err, 0, 1 << 30, 0),
        b"INFO": (Info, 1, 1 << 30, 0),
    },
}
_LONGEST_VERB = 7  # CONNECT


def _split(line: bytes) -> list[bytes]:
    """The fields of a control line: runs of blanks and tabs separate them, nothing else does."""
    return [field for field in line.replace(b"\t", b" ").rstrip(b"\r").split(b" ") if field]


class Decoder:
    """Bytes from one side of one connection, in any segmentation, to operations.

    Holds at most one unfinished operation, within ``limits``. After a ``ProtocolError`` the
    position in the stream is lost: every later ``feed`` raises the same error again.
    """

    def __init__(self, sender: Sender, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.offset = 0  # of the first byte not yet returned inside an operation
        self._shapes = _SHAPES[sender]
        self._long_line = b"INFO" if sender is Sender.SERVER else b""
        self._held = bytearray()
        self._need = 1
        self._error: ProtocolError | None = None

    @property
    def held(self) -> int:
        """How many bytes of an unfinished operation are waiting for the rest."""
        return len(self._held)

    @property
    def unfinished(self) -> bytes:
        """Those bytes."""
        return bytes(self._held)

    def feed(self, data: bytes) -> list[Operation]:
        """The operations that ``data`` completes.

        Raises ``ProtocolError``; its ``operations`` are those completed before the error.
        """
        if self._error is not None:
            raise self._failed(self._error.kind, self._error.message, self._error.excerpt, [])
        if self._held:
            self._held += data
            if len(self._held) < self._need:
                return []
            data = bytes(self._held)
            self._held.clear()
        operations: list[Operation] = []
        used = self._decode(data, operations)
        self.offset += used
        if used < len(data):
            self._held += data[used:] if used else data
        return operations

    def finish(self) -> None:
        """The stream has ended. Raises ``ProtocolError`` (``TRUNCATED``) inside an operation."""
        if self._held:
            raise self._failed(
                ErrorKind.TRUNCATED, "the stream ended inside an operation", bytes(self._held), []
            )

    def _decode(self, data: bytes, operations: list[Operation]) -> int:
        """Append what is complete in ``data``; return how many bytes that took."""
        find, append, shapes = data.find, operations.append, self._shapes
        max_line, max_payload = self.limits.max_control_line, self.limits.max_payload
        split: Callable[[bytes], list[bytes]] = bytes.split
        if b"\x0b" in data or b"\x0c" in data:  # bytes.split() would take these for blanks
            split = _split
        start, total = 0, len(data)
        while start < total:
            end = find(b"\n", start, start + max_line + 2)
            if end < 0:
                end = self._line_end(data, start, operations)
                if end < 0:
                    break
            args = split(data[start:end])
            verb = args.pop(0) if args else b""
            shape = shapes.get(verb) or shapes.get(verb.upper())
            if shape is None or data[start] <= 32:  # a verb stands at the very start of its line
                raise self._at(ErrorKind.UNKNOWN_OPERATION, f"{verb!r}", data, start, operations)
            kind, fewest, most, sizes = shape
            if not fewest <= len(args) <= most:
                raise self._at(
                    ErrorKind.ARGUMENTS, f"{kind.verb} with {len(args)} fields", data, start, operations
                )
            stop = end + 1
            if sizes:
                size = args[-1]
                if not size.isdigit() or len(size) > 19:
                    raise self._at(ErrorKind.SIZE, f"{kind.verb} size {size!r}", data, start, operations)
                length = int(size)
                if length > max_payload:
                    message = f"{length} bytes announced, {max_payload} allowed"
                    raise self._at(ErrorKind.PAYLOAD_SIZE, message, data, start, operations)
                if sizes == 2 and not (args[-2].isdigit() and len(args[-2]) <= 19 and int(args[-2]) <= length):
                    message = f"{kind.verb} header size {args[-2]!r} of {length}"
                    raise self._at(ErrorKind.SIZE, message, data, start, operations)
                stop += length + 2
                if stop > total:
                    self._need = stop - start
                    break
                if data[stop - 2 : stop] != CRLF:
                    message = f"{length} bytes announced, then {data[stop - 2 : stop]!r}"
                    raise self._at(ErrorKind.PAYLOAD_END, message, data, start, operations)
            elif kind is Unsub or kind is Info or kind is Connect:
                self._validate(kind, data, start, end, args, operations)
            append(kind(data[start:stop], args, end + 1 - start))
            start = stop
        return start

    def _line_end(self, data: bytes, start: int, operations: list[Operation]) -> int:
        """Where a line ends that has no line feed within ``max_control_line``; -1 to wait for more."""
        self._need = len(data) - start + 1
        first = data[start : start + _LONGEST_VERB + 1].upper().split(None, 1)
        verb = first[0] if first and not data[start : start + 1].isspace() else b""
        complete = len(first) > 1 or len(verb) > _LONGEST_VERB or data[start + len(verb) :][:1].isspace()
        if not any(known == verb if complete else known.startswith(verb) for known in self._shapes) or not verb:
            raise self._at(ErrorKind.UNKNOWN_OPERATION, f"{verb!r}", data, start, operations)
        limit = self.limits.max_info_line if verb == self._long_line else self.limits.max_control_line
        end = data.find(b"\n", start, start + limit + 2)
        if end < 0 and len(data) - start > limit + 1:
            raise self._at(ErrorKind.CONTROL_LINE, f"more than {limit} bytes", data, start, operations)
        return end

    def _validate(
        self,
        kind: type[Operation],
        data: bytes,
        start: int,
        end: int,
        args: list[bytes],
        operations: list[Operation],
    ) -> None:
        """What shapes cannot say: the JSON of INFO and CONNECT, the number of UNSUB."""
        if kind is Unsub:
            if len(args) == 2 and not args[1].removeprefix(b"-").isdigit():
                raise self._at(ErrorKind.ARGUMENTS, f"UNSUB max {args[1]!r}", data, start, operations)
            return
        try:
            _json_object(data[start + len(kind.verb) : end])
        except ProtocolError as error:
            raise self._at(error.kind, error.message, data, start, operations) from None

    def _at(
        self, kind: ErrorKind, message: str, data: bytes, start: int, operations: list[Operation]
    ) -> ProtocolError:
        self.offset += start
        return self._failed(kind, message, data[start : start + 64], operations)

    def _failed(
        self, kind: ErrorKind, message: str, excerpt: bytes, operations: list[Operation]
    ) -> ProtocolError:
        self._held.clear()
        self._error = ProtocolError(
            kind, message, offset=self.offset, excerpt=excerpt, operations=tuple(operations)
        )
        return self._error
