"""The operations of the NATS client protocol, both directions: what a decoder returns and ``make`` writes.

An operation keeps its exact bytes (``raw``) and the fields of its control line (``args``); all else is
read from those two when asked for. So nothing is "fixed", and decoding stays cheap. ``make`` writes the
canonical spelling; a size or JSON text given to it is written as given, since checks send wrong ones too.
An operation knows neither who sent it nor what it means.
Sources: docs.nats.io, "Client Protocol"; ADR-4 for HPUB and HMSG.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from plumbline.wire.errors import ErrorKind, ProtocolError
from plumbline.wire.escapes import escaped_bytes
from plumbline.wire.json_text import json_object
from plumbline.wire.nats.headers import Headers, encode_headers

CRLF = b"\r\n"
ELIDE_AFTER = 1000  # bytes of a payload that a log line shows: a whole consumer info fits
# nats-server's parseSize: a number of more digits is no size, even with leading zeros.
SIZE_DIGITS = 9


def split_fields(line: bytes) -> list[bytes]:
    """The fields of a control line: blanks and tabs, one or several, separate them, and nothing else does."""
    return [field for field in line.replace(b"\t", b" ").split(b" ") if field]


def parse_size(field: bytes) -> int | None:
    """A number as control lines carry it: 1 to 9 ASCII digits, no sign; None for anything else."""
    return int(field) if field.isdigit() and len(field) <= SIZE_DIGITS else None


def printable(data: bytes) -> str:
    r"""``data`` as a line for logs: text stays, all else is escaped (``\r``, ``\x00``), ``\`` is doubled."""
    return escaped_bytes(data.replace(b"\\", rb"\\"))


def _text(field: bytes) -> str:
    return field.decode("utf-8", "surrogateescape")


def _bytes(field: str | int) -> bytes:
    return str(field).encode("utf-8", "surrogateescape")


class Operation(Struct, frozen=True, gc=False):
    """One protocol unit. Text read from it is UTF-8; other bytes survive as surrogate escapes (PEP 383)."""

    raw: bytes
    args: list[bytes]  # the control line's fields after the verb, as sent
    head: int  # size in bytes of the control line with its line end

    verb: ClassVar[str] = ""

    @property
    def line(self) -> str:
        """The control line without its line end."""
        return _text(self.raw[: self.head].removesuffix(b"\n").removesuffix(b"\r"))

    @property
    def body(self) -> bytes:
        """What follows the control line, without the closing CRLF; empty for most operations."""
        return self.raw[self.head : -len(CRLF)]

    def __hash__(self) -> int:
        return hash(self.raw)

    def __str__(self) -> str:
        line = printable(self.raw[: self.head].rstrip(CRLF))
        return f"{line} | {_elided(self.body)}" if self.body else line


def _elided(data: bytes) -> str:
    more = f"... ({len(data)} bytes)" if len(data) > ELIDE_AFTER else ""
    return printable(data[:ELIDE_AFTER]) + more


class Ping(Operation, frozen=True, gc=False):
    """``PING``."""

    verb = "PING"

    @classmethod
    def make(cls) -> Ping:
        return cls(b"PING\r\n", [], 6)


class Pong(Operation, frozen=True, gc=False):
    """``PONG``."""

    verb = "PONG"

    @classmethod
    def make(cls) -> Pong:
        return cls(b"PONG\r\n", [], 6)


class Ok(Operation, frozen=True, gc=False):
    """``+OK``: a verbose server took an operation."""

    verb = "+OK"

    @classmethod
    def make(cls) -> Ok:
        return cls(b"+OK\r\n", [], 5)


class Err(Operation, frozen=True, gc=False):
    """``-ERR 'reason'``."""

    verb = "-ERR"

    @property
    def message(self) -> str:
        """The reason, without the single quotes around it."""
        text = self.line[len(self.verb) :].strip(" \t")
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text

    @classmethod
    def make(cls, message: str) -> Err:
        return cls(*_control_line(b"-ERR", b"'" + _bytes(message) + b"'"))


class JsonOperation(Operation, frozen=True, gc=False):
    """What INFO and CONNECT share: a verb and one JSON object. ``args`` are its blank-separated pieces."""

    @property
    def fields(self) -> dict[str, Any]:
        """The JSON object. Raises ``ProtocolError`` (``JSON``) if it is not one."""
        return json_object(self.raw[len(self.verb) : self.head])


class Info(JsonOperation, frozen=True, gc=False):
    """``INFO {...}``: what the server is and asks for."""

    verb = "INFO"

    @classmethod
    def make(cls, fields: dict[str, Any] | bytes) -> Info:
        """``fields`` as values, or as ready text, right or wrong."""
        return cls(*_control_line(b"INFO", _json_text(fields)))


class Connect(JsonOperation, frozen=True, gc=False):
    """``CONNECT {...}``: what the client is and asks for."""

    verb = "CONNECT"

    @classmethod
    def make(cls, fields: dict[str, Any] | bytes) -> Connect:
        """``fields`` as values, or as ready text, right or wrong."""
        return cls(*_control_line(b"CONNECT", _json_text(fields)))


class Sub(Operation, frozen=True, gc=False):
    """``SUB <subject> [queue group] <sid>``."""

    verb = "SUB"

    @property
    def subject(self) -> str:
        return _text(self.args[0])

    @property
    def queue(self) -> str | None:
        """The queue group, or None."""
        return _text(self.args[1]) if len(self.args) == 3 else None

    @property
    def sid(self) -> str:
        return _text(self.args[-1])

    @classmethod
    def make(cls, subject: str, sid: str | int, queue: str | None = None) -> Sub:
        args = [_bytes(part) for part in (subject, queue, sid) if part is not None]
        raw = b" ".join([b"SUB", *args]) + CRLF
        return cls(raw, args, len(raw))


class Unsub(Operation, frozen=True, gc=False):
    """``UNSUB <sid> [max_msgs]``."""

    verb = "UNSUB"

    @property
    def sid(self) -> str:
        return _text(self.args[0])

    @property
    def max_msgs(self) -> int | None:
        """After how many messages, counted since SUB. None: at once.

        Servers read a maximum that is no number (``-1``, ``x``) as no maximum, and so does this.
        """
        return parse_size(self.args[1]) if len(self.args) == 2 else None

    @classmethod
    def make(cls, sid: str | int, max_msgs: str | int | None = None) -> Unsub:
        args = [_bytes(part) for part in (sid, max_msgs) if part is not None]
        raw = b" ".join([b"UNSUB", *args]) + CRLF
        return cls(raw, args, len(raw))


class Payload(Operation, frozen=True, gc=False):
    """What PUB, HPUB, MSG and HMSG share: names, perhaps a reply subject, sizes, then as many bytes."""

    names: ClassVar[int]  # fields before the reply subject
    sizes: ClassVar[int]  # fields after it

    @property
    def subject(self) -> str:
        return _text(self.args[0])

    @property
    def reply(self) -> str | None:
        """The reply subject, or None."""
        return _text(self.args[self.names]) if len(self.args) > self.names + self.sizes else None

    @property
    def header_block(self) -> bytes:
        """The header bytes as sent, from ``NATS/1.0`` to the empty line; empty for PUB and MSG."""
        return b""

    @property
    def headers(self) -> Headers | None:
        """The header block, parsed, or None. Raises ``ProtocolError`` (``HEADERS``) if malformed."""
        return Headers.parse(self.header_block) if self.header_block else None

    @property
    def payload(self) -> bytes:
        """The bytes after the headers, without the closing CRLF."""
        return self.raw[self.head : -len(CRLF)]


class HeaderPayload(Payload, frozen=True, gc=False):
    """HPUB and HMSG: two sizes, of the headers alone and of headers and payload together."""

    sizes = 2

    @property
    def header_block(self) -> bytes:
        return self.raw[self.head : self._header_end]

    @property
    def payload(self) -> bytes:
        return self.raw[self._header_end : -len(CRLF)]

    @property
    def _header_end(self) -> int:
        """Where the headers end in ``raw``. Only an operation written wrong on purpose raises here."""
        size = parse_size(self.args[-2])
        if size is None:
            raise ProtocolError(
                ErrorKind.SIZE, f"{self.verb} header size {self.args[-2]!r}", excerpt=self.raw
            )
        return self.head + size


class Pub(Payload, frozen=True, gc=False):
    """``PUB <subject> [reply] <size>``, then the payload."""

    verb = "PUB"
    names, sizes = 1, 1

    @classmethod
    def make(
        cls, subject: str, payload: bytes = b"", reply: str | None = None, *, size: int | str | None = None
    ) -> Pub:
        """``size`` is announced instead of the true one."""
        return cls(*_with_payload(b"PUB", [subject, reply], [size], b"", payload))


class HPub(HeaderPayload, frozen=True, gc=False):
    """``HPUB <subject> [reply] <header size> <total size>``, then headers and payload."""

    verb = "HPUB"
    names = 1

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
        """``headers`` as fields or as a ready block; the sizes are announced instead of the true ones."""
        block = headers if isinstance(headers, bytes) else encode_headers(headers)
        return cls(*_with_payload(b"HPUB", [subject, reply], [header_size, size], block, payload))


class Msg(Payload, frozen=True, gc=False):
    """``MSG <subject> <sid> [reply] <size>``, then the payload."""

    verb = "MSG"
    names, sizes = 2, 1

    @property
    def sid(self) -> str:
        return _text(self.args[1])

    @classmethod
    def make(
        cls,
        subject: str,
        sid: str | int,
        payload: bytes = b"",
        reply: str | None = None,
        *,
        size: int | str | None = None,
    ) -> Msg:
        """``size`` is announced instead of the true one."""
        return cls(*_with_payload(b"MSG", [subject, sid, reply], [size], b"", payload))


class HMsg(HeaderPayload, frozen=True, gc=False):
    """``HMSG <subject> <sid> [reply] <header size> <total size>``, then headers and payload."""

    verb = "HMSG"
    names = 2

    @property
    def sid(self) -> str:
        return _text(self.args[1])

    @classmethod
    def make(
        cls,
        subject: str,
        sid: str | int,
        headers: bytes | Iterable[tuple[str, str]],
        payload: bytes = b"",
        reply: str | None = None,
        *,
        header_size: int | str | None = None,
        size: int | str | None = None,
    ) -> HMsg:
        """``headers`` as fields or as a ready block; the sizes are announced instead of the true ones."""
        block = headers if isinstance(headers, bytes) else encode_headers(headers)
        return cls(*_with_payload(b"HMSG", [subject, sid, reply], [header_size, size], block, payload))


class Raw(Operation, frozen=True, gc=False):
    """Any bytes at all, for checks that must send what no codec would write. No decoder returns it."""

    verb = "RAW"

    def __str__(self) -> str:
        return _elided(self.raw)

    @classmethod
    def make(cls, data: bytes) -> Raw:
        return cls(data, [], len(data))


def _json_text(fields: dict[str, Any] | bytes) -> bytes:
    return fields if isinstance(fields, bytes) else msgspec.json.encode(fields)


def _control_line(verb: bytes, rest: bytes) -> tuple[bytes, list[bytes], int]:
    """Raw bytes, args and head size of an operation whose control line ends in free text."""
    raw = verb + b" " + rest + CRLF
    return raw, split_fields(rest), len(raw)


def _with_payload(
    verb: bytes, names: list[str | int | None], sizes: list[int | str | None], block: bytes, payload: bytes
) -> tuple[bytes, list[bytes], int]:
    """Raw bytes, args and head size of an operation with a payload; a size of None is the true one."""
    true_sizes = [len(block), len(block) + len(payload)][-len(sizes) :]
    announced = [true if given is None else given for true, given in zip(true_sizes, sizes, strict=True)]
    args = [_bytes(field) for field in (*names, *announced) if field is not None]
    line = b" ".join([verb, *args]) + CRLF
    return line + block + payload + CRLF, args, len(line)
