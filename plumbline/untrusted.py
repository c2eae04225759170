"""Files that a user names, and JSON and TOML that somebody else wrote: a server, a client, a file.

Whatever is wrong with it, one exception says so: it is not JSON, not UTF-8, nested too deeply, has a number
that is too long, or is not of the expected shape.
"""

from __future__ import annotations

import errno
import gzip
import re
import tomllib
import zlib
from pathlib import Path
from typing import TypeVar

import msgspec

from plumbline.bounds import TEXT_FILE_BYTES
from plumbline.errors import UNDECODABLE

Shape = TypeVar("Shape")
_UNKNOWN_KEY = re.compile(r"Object contains unknown field `([^`]*)`(?: - at `\$\.?([^`]*)`)?")  # msgspec


class BadInputError(ValueError):
    """Text that cannot be used; the message says what is wrong with it."""


def read_file(path: Path, most: int = TEXT_FILE_BYTES) -> bytes:
    """The bytes of a file that may be anything, such as ``/dev/zero``.

    Raises ``OSError``, also if it has more than ``most`` bytes.
    """
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return data


def read_gzip(path: Path, most: int = TEXT_FILE_BYTES) -> bytes:
    """The same of a file that gzip made; ``most`` counts what is in it. Raises ``BadInputError``, too."""
    try:
        with gzip.open(path) as file:
            data = file.read(most + 1)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise BadInputError(f"it is not whole or not gzip: {error}") from None
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes, uncompressed", str(path))
    return data


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
        case msgspec.ValidationError() if unknown := _UNKNOWN_KEY.fullmatch(str(error)):
            return f"there is no key {unknown[1]!r}{f' in {unknown[2]}' if unknown[2] else ''}"
    return str(error)
