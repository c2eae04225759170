"""The header block of HPUB and HMSG: ``NATS/1.0[ status]``, then ``Name: value`` lines.

A block is kept byte for byte (a broker relays it unchanged); parsing only looks.
Source: ADR-4, "NATS Message Headers".
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from wire.errors import ErrorKind, ProtocolError

VERSION = b"NATS/1.0"


class Status(Struct, frozen=True):
    """A status line: ``404`` and ``No Messages``; the description may be empty."""

    code: int
    description: str = ""

    def __str__(self) -> str:
        return f"{self.code} {self.description}".rstrip()


class Headers(Struct, frozen=True):
    """A parsed header block. ``fields`` keeps order, duplicates and case as sent."""

    status: Status | None
    fields: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str | None:
        """The first value of ``name``, compared with its case (ADR-4: names are case-sensitive)."""
        return next((value for key, value in self.fields if key == name), None)

    @classmethod
    def parse(cls, block: bytes) -> Headers:
        """Read a block. Raises ``ProtocolError`` (``HEADERS``) if it is not one."""
        lines = block.split(b"\r\n")
        if not block.startswith(VERSION) or lines[-2:] != [b"", b""]:
            raise ProtocolError(
                ErrorKind.HEADERS,
                "a header block starts with NATS/1.0 and ends with an empty line",
                excerpt=block,
            )
        return cls(_status(lines[0][len(VERSION) :], block), tuple(_fields(lines[1:-2], block)))


def _status(rest: bytes, block: bytes) -> Status | None:
    text = rest.decode("utf-8", "surrogateescape").strip()
    if not text:
        return None
    code, _, description = text.partition(" ")
    # ADR-4: three digits; isascii keeps other scripts' digits out of int().
    if not (len(code) == 3 and code.isascii() and code.isdigit()):
        raise ProtocolError(ErrorKind.HEADERS, f"status code {code!r} is not 3 digits", excerpt=block)
    return Status(int(code), description.strip())


def _fields(lines: Iterable[bytes], block: bytes) -> Iterable[tuple[str, str]]:
    for line in lines:
        name, colon, value = line.decode("utf-8", "surrogateescape").partition(":")
        if not colon or not name:
            raise ProtocolError(ErrorKind.HEADERS, f"header line {line!r} has no name and colon", excerpt=block)
        yield name, value.strip(" \t")


def encode_headers(
    fields: Iterable[tuple[str, str]] = (), status: Status | None = None
) -> bytes:
    """A header block in the canonical spelling, ``Name: value``."""
    first = VERSION.decode() + (f" {status}" if status else "")
    lines = [first, *(f"{name}: {value}" for name, value in fields), "", ""]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")
