"""The properties of a content: the part of a content header behind its body size.

Source: AMQP 0-9-1, section 4.2.6.1 ("The Content Header"); XML, class basic.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from plumbline.wire.amqp.errors import AmqpError
from plumbline.wire.amqp.fields import (
    MAX_DEPTH,
    Timestamp,
    decode_short,
    decode_table,
    encode_short,
    encode_table,
)
from plumbline.wire.errors import ErrorKind

# In the order of the wire; the first has the highest flag bit.
PROPERTIES = {
    "content_type": "shortstr",
    "content_encoding": "shortstr",
    "headers": "table",
    "delivery_mode": "octet",
    "priority": "octet",
    "correlation_id": "shortstr",
    "reply_to": "shortstr",
    "expiration": "shortstr",
    "message_id": "shortstr",
    "timestamp": "timestamp",
    "type": "shortstr",
    "user_id": "shortstr",
    "app_id": "shortstr",
    "cluster_id": "shortstr",
}
_TOP_BIT = 15
_FLAGS = [(name, kind, 1 << _TOP_BIT - place) for place, (name, kind) in enumerate(PROPERTIES.items())]
_KNOWN = sum(flag for _, _, flag in _FLAGS)
NO_PROPERTIES = b"\0\0"


def encode_properties(properties: Mapping[str, Any]) -> bytes:
    """Flags and values. Raises ``ValueError`` for a name or value that basic does not have."""
    if unknown := properties.keys() - PROPERTIES.keys():
        raise ValueError(f"no property {', '.join(sorted(unknown))}")
    flags = 0
    parts = []
    for name, kind, flag in _FLAGS:
        if name in properties:
            flags |= flag
            parts.append(_encode(name, kind, properties[name]))
    return struct.pack(">H", flags) + b"".join(parts)


def _encode(name: str, kind: str, value: Any) -> bytes:
    if kind == "shortstr":
        return encode_short(value)
    if kind == "table":
        return encode_table(value)
    try:
        return struct.pack(">B" if kind == "octet" else ">Q", value)
    except struct.error as error:
        raise ValueError(f"{name} {value!r}: {error}") from None


def decode_properties(data: bytes, table_depth: int = MAX_DEPTH) -> dict[str, Any]:
    """Flags and values to the properties that are set. Raises ``AmqpError`` (``PROPERTIES``)."""
    if data == NO_PROPERTIES:
        return {}
    try:
        return _decode(data, table_depth)
    except AmqpError as error:
        raise AmqpError(ErrorKind.PROPERTIES, error.message) from None


def _decode(data: bytes, table_depth: int) -> dict[str, Any]:
    if len(data) < len(NO_PROPERTIES):
        raise _malformed("no flags")
    flags = int.from_bytes(data[:2], "big")
    if flags & ~_KNOWN:
        raise _malformed(f"flags {flags:#06x} for properties that basic does not have")
    properties: dict[str, Any] = {}
    at = 2
    for name, kind, flag in _FLAGS:
        if not flags & flag:
            continue
        if kind == "shortstr":
            properties[name], at = decode_short(data, at)
        elif kind == "table":
            properties[name], at = decode_table(data, at, table_depth)
        else:
            end = at + (1 if kind == "octet" else 8)
            if end > len(data):
                raise _malformed(f"{name} is cut short")
            number = int.from_bytes(data[at:end], "big")
            properties[name] = number if kind == "octet" else Timestamp(number)
            at = end
    if at != len(data):
        raise _malformed(f"{len(data) - at} bytes behind the last property")
    return properties


def _malformed(message: str) -> AmqpError:
    return AmqpError(ErrorKind.PROPERTIES, message)
