"""The header block of HPUB and HMSG: ``NATS/1.0[ status]``, then ``Name: value`` lines, then an empty line.

A block is kept byte for byte (a broker relays it unchanged); parsing only looks.
Source: ADR-4, "NATS Message Headers".
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from plumbline.wire.errors import ErrorKind, ProtocolError

VERSION = b"NATS/1.0"


class Status(Struct, frozen=True):
    """A status line: ``404`` and ``No Messages``; the description may be empty."""

    code: int
    description: str = ""

    def __str__(self) -> str:
        """As on the wire: three digits, then the description if there is one."""
        return f"{self.code:03} {self.description}" if self.description else f"{self.code:03}"


class Headers(Struct, frozen=True):
    """A parsed header block. ``fields`` keeps order, duplicates and case as sent."""

    status: Status | None
    fields: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str | None:
        """The first value of ``name``, compared with its case (ADR-4, "Reading Values")."""
        return next((value for key, value in self.fields if key == name), None)

    def values(self, name: str) -> list[str]:
        """All values of ``name``, in order, compared with its case (ADR-4, "Reading Values")."""
        return [value for key, value in self.fields if key == name]

    @classmethod
    def parse(cls, block: bytes) -> Headers:
        """Read a block. Text is UTF-8; other bytes survive as surrogate escapes (PEP 383).

        Blanks and tabs around a value are not part of it (ADR-4, "As with HTTP headers").
        Raises ``ProtocolError`` (``HEADERS``): no version line, no empty line at the end, a status that is
        not three digits, a line without name and colon.
        """
        lines = block.split(b"\r\n")
        if not block.startswith(VERSION) or lines[-2:] != [b"", b""]:
            raise _malformed("a header block starts with NATS/1.0 and ends with an empty line", block)
        return cls(_status(lines[0][len(VERSION) :], block), tuple(_fields(lines[1:-2], block)))

    def encode(self) -> bytes:
        """These headers in the canonical spelling."""
        return encode_headers(self.fields, self.status)


def encode_headers(fields: Iterable[tuple[str, str]] = (), status: Status | None = None) -> bytes:
    """A header block in the canonical spelling, ``Name: value``; nothing is checked."""
    first = VERSION.decode() + (f" {status}" if status else "")
    lines = [first, *(f"{name}: {value}" for name, value in fields), "", ""]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")


def append_headers(block: bytes, fields: Iterable[tuple[str, str]]) -> bytes:
    """``block``, which is as it was, with ``fields`` behind what it has; an empty block begins. Nothing is
    checked."""
    return (block[:-2] or VERSION + b"\r\n") + encode_headers(fields).split(b"\r\n", 1)[1]


def remove_headers(block: bytes, *names: str) -> bytes:
    """``block`` without the headers of these names, written as here, and otherwise as it was."""
    prefixes = tuple(name.encode() + b":" for name in names)
    return b"\r\n".join(line for line in block.split(b"\r\n") if not line.startswith(prefixes))


def replace_header(block: bytes, name: str, value: str) -> bytes:
    """``block`` with another value of the header ``name``, in its old place."""
    prefix, line = name.encode() + b":", encode_headers([(name, value)]).split(b"\r\n")[1]
    return b"\r\n".join(line if each.startswith(prefix) else each for each in block.split(b"\r\n"))


def _status(rest: bytes, block: bytes) -> Status | None:
    text = rest.decode("utf-8", "surrogateescape").strip(" \t")
    if not text:
        return None
    code, _, description = text.partition(" ")
    # isascii keeps other scripts' digits out of int().
    if not (len(code) == 3 and code.isascii() and code.isdigit()):
        raise _malformed(f"status code {code!r} is not 3 digits", block)
    return Status(int(code), description.strip(" \t"))


def _fields(lines: Iterable[bytes], block: bytes) -> Iterable[tuple[str, str]]:
    for line in lines:
        name, colon, value = line.decode("utf-8", "surrogateescape").partition(":")
        if not colon or not name:
            raise _malformed(f"header line {line!r} has no name with a colon", block)
        yield name, value.strip(" \t")


def _malformed(message: str, block: bytes) -> ProtocolError:
    return ProtocolError(ErrorKind.HEADERS, message, excerpt=block)
