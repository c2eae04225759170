"""JSON and TOML that somebody else wrote: a server, a client, a user's file.

Whatever is wrong with it, one exception says so: it is not JSON, not UTF-8, nested too deeply, has a number
that is too long, or is not of the expected shape.
"""

from __future__ import annotations

import tomllib
from typing import TypeVar

import msgspec

from plumbline.errors import UNDECODABLE

Shape = TypeVar("Shape")


class BadInputError(ValueError):
    """Text that cannot be used; the message says what is wrong with it."""


def parse_json(data: bytes | str, shape: type[Shape]) -> Shape:
    """The value of a JSON text, as a ``shape`` that msgspec knows. Raises ``BadInputError``."""
    try:
        return msgspec.json.decode(data, type=shape)
    except UNDECODABLE as error:
        raise BadInputError(_what_is_wrong(error)) from None


def parse_toml(data: bytes, shape: type[Shape]) -> Shape:
    """The same of a TOML document."""
    try:
        return msgspec.convert(tomllib.loads(data.decode()), shape)
    except UNDECODABLE as error:
        raise BadInputError(_what_is_wrong(error)) from None


def _what_is_wrong(error: Exception) -> str:
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case UnicodeDecodeError():
            return f"it is not UTF-8: {error}"
        case tomllib.TOMLDecodeError():
            return f"it is not TOML: {error}"
    return str(error)
