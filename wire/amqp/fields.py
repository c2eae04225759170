"""Field tables of AMQP 0-9-1 with the value types that RabbitMQ uses: bytes <-> Python values.

| type | on the wire | in Python |
| --- | --- | --- |
| t | boolean | bool |
| b B s u I i l | integers of 8, 8, 16, 16, 32, 32, 64 bits; B u i unsigned | int or ``Integer``, see below |
| f d | float, double | ``Float`` for f, float for d |
| D | decimal | ``Decimal`` |
| T | seconds since 1970 | ``Timestamp`` |
| S x | text, bytes | str, bytes |
| A F V | array, table, void | list, dict, None |

A plain int is written as I if it fits and as l otherwise; every other integer comes back as ``Integer``,
which equals its number and is written with its own type. So what is read is written as it was. Two things are
not kept by the values: a name that stands twice (the last value counts) and a boolean octet other than 0 and
1. Text is UTF-8; other bytes survive as surrogate escapes (PEP 383).
Sources: AMQP 0-9-1, section 4.2.5.5; RabbitMQ, "AMQP 0-9-1 Errata", section 3.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from plumbline.wire.amqp.errors import AmqpError
from plumbline.wire.errors import ErrorKind

Table = Mapping[str, Any]
MAX_DEPTH = 64  # tables and arrays within each other
_SHORT = 255


class Integer(int):
    """An integer with its wire type: ``Integer(5, "s")``. Equal to the plain number."""

    type: str

    def __new__(cls, value: int, type_: str) -> Integer:
        self = super().__new__(cls, value)
        self.type = type_
        return self


class Timestamp(int):
    """Seconds since 1970, 64 bits unsigned."""


class Float(float):
    """A number of 32 bits; a plain float has 64."""


class Decimal(NamedTuple):
    """``value / 10 ** scale``; both unsigned, of 8 and 32 bits."""

    scale: int
    value: int


_FIXED = {
    code: struct.Struct(">" + form)
    for code, form in {
        "t": "B", "b": "b", "B": "B", "s": "h", "u": "H", "I": "i", "i": "I", "l": "q",
        "f": "f", "d": "d", "D": "BI", "T": "Q",
    }.items()
}  # fmt: skip
_LENGTH = struct.Struct(">I")
_INT32 = range(-(2**31), 2**31)


def text(data: bytes) -> str:
    """Bytes of a string as text."""
    return data.decode("utf-8", "surrogateescape")


def to_bytes(value: str | bytes) -> bytes:
    """Text as bytes; bytes are given back."""
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


def encode_short(value: str | bytes) -> bytes:
    """A short string: at most 255 bytes. Raises ``ValueError`` for more."""
    data = to_bytes(value)
    if len(data) > _SHORT:
        raise ValueError(f"a short string holds {_SHORT} bytes, not {len(data)}")
    return bytes((len(data),)) + data


def encode_long(value: str | bytes) -> bytes:
    """A long string."""
    data = to_bytes(value)
    return _LENGTH.pack(len(data)) + data


def encode_table(table: Table) -> bytes:
    """A table with its length. Raises ``ValueError`` for what no type holds."""
    return encode_long(encode_entries(table))


def encode_entries(table: Table) -> bytes:
    """The entries of a table without its length, as AMQPLAIN sends them."""
    return b"".join(encode_short(name) + encode_value(value) for name, value in table.items())


def encode_value(value: Any) -> bytes:
    """A value with its type. Raises ``ValueError`` for what no type holds."""
    try:
        return _encode_value(value)
    except struct.error as error:
        raise ValueError(f"{value!r}: {error}") from None


def _encode_value(value: Any) -> bytes:
    match value:
        case None:
            return b"V"
        case bool():
            return b"t\x01" if value else b"t\x00"
        case Integer():
            return value.type.encode() + _FIXED[value.type].pack(value)
        case Timestamp():
            return b"T" + _FIXED["T"].pack(value)
        case int():
            code = "I" if value in _INT32 else "l"
            return code.encode() + _FIXED[code].pack(value)
        case Float():
            return b"f" + _FIXED["f"].pack(value)
        case float():
            return b"d" + _FIXED["d"].pack(value)
        case Decimal():
            return b"D" + _FIXED["D"].pack(*value)
        case str():
            return b"S" + encode_long(value)
        case bytes() | bytearray():
            return b"x" + encode_long(bytes(value))
        case Mapping():
            return b"F" + encode_table(value)
        case Sequence():
            return b"A" + encode_long(b"".join(encode_value(item) for item in value))
    raise ValueError(f"no field type holds {value!r}")


def decode_short(data: bytes, at: int) -> tuple[str, int]:
    """The short string at ``at`` and the place behind it. Raises ``AmqpError``."""
    if at >= len(data):
        raise _cut("a short string")
    end = at + 1 + data[at]
    if end > len(data):
        raise _cut("a short string")
    return data[at + 1 : end].decode("utf-8", "surrogateescape"), end


def decode_long(data: bytes, at: int) -> tuple[bytes, int]:
    """The long string at ``at`` and the place behind it. Raises ``AmqpError``."""
    if at + 4 > len(data):
        raise _cut("a length")
    end = at + 4 + _LENGTH.unpack_from(data, at)[0]
    if end > len(data):
        raise _cut("a long string")
    return data[at + 4 : end], end


def decode_table(data: bytes, at: int, depth: int = MAX_DEPTH) -> tuple[dict[str, Any], int]:
    """The table at ``at`` and the place behind it. Raises ``AmqpError``."""
    entries, end = decode_long(data, at)
    return decode_entries(entries, depth), end


def decode_entries(data: bytes, depth: int = MAX_DEPTH) -> dict[str, Any]:
    """A table without its length. Raises ``AmqpError`` (``TABLE``)."""
    _descend(depth)
    table: dict[str, Any] = {}
    at = 0
    while at < len(data):
        name, at = decode_short(data, at)
        table[name], at = decode_value(data, at, depth)
    return table


def decode_value(data: bytes, at: int, depth: int = MAX_DEPTH) -> tuple[Any, int]:
    """The value at ``at``, its type before it, and the place behind it. Raises ``AmqpError`` (``TABLE``)."""
    code = chr(data[at]) if at < len(data) else ""
    at += 1
    fixed = _FIXED.get(code)
    if fixed is not None:
        if at + fixed.size > len(data):
            raise _cut(f"a value of type {code}")
        return _READ[code](*fixed.unpack_from(data, at)), at + fixed.size
    match code:
        case "S":
            value, end = decode_long(data, at)
            return text(value), end
        case "x":
            return decode_long(data, at)
        case "F":
            return decode_table(data, at, depth - 1)
        case "A":
            items, end = decode_long(data, at)
            return _decode_array(items, depth - 1), end
        case "V":
            return None, at
    raise AmqpError(ErrorKind.TABLE, f"no value type {code!r}" if code else "a name without a value")


def _decode_array(data: bytes, depth: int) -> list[Any]:
    _descend(depth)
    items = []
    at = 0
    while at < len(data):
        item, at = decode_value(data, at, depth)
        items.append(item)
    return items


def _typed(code: str) -> Callable[[int], int]:
    return lambda value: Integer(value, code)


_READ: dict[str, Callable[..., Any]] = {
    "t": bool,
    "I": int,
    "l": lambda value: Integer(value, "l") if value in _INT32 else value,
    "f": Float,
    "d": float,
    "D": Decimal,
    "T": Timestamp,
    **{code: _typed(code) for code in "bBsui"},
}


def _descend(depth: int) -> None:
    if depth < 1:
        raise AmqpError(ErrorKind.TABLE, "tables nested too deep")


def _cut(what: str) -> AmqpError:
    return AmqpError(ErrorKind.ARGUMENTS, f"{what} reaches beyond its frame")
