"""JSON inside protocol units: one object, as the Go servers and clients of the field read it.

All that is wrong with such a text, or with the shape of what it holds, is a ``ProtocolError`` (``JSON``).
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from plumbline.wire.errors import ErrorKind, ProtocolError

Shape = TypeVar("Shape")


def json_object(text: bytes) -> dict[str, Any]:
    """The object that ``text`` holds, blanks around it allowed.

    Bytes that are not UTF-8 become U+FFFD, as in Go's encoding/json: servers take such a CONNECT.
    Raises ``ProtocolError`` (``JSON``): not JSON, not an object, or nested too deeply to be meant.
    """
    try:
        return _decode(text)
    except UnicodeDecodeError:
        return json_object(text.decode("utf-8", "replace").encode())
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProtocolError(ErrorKind.JSON, str(error), excerpt=text) from None


def _decode(text: bytes) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any])


def shaped(value: object, shape: type[Shape], what: str) -> Shape:
    """``value``, decoded from JSON, as a ``shape``; keys it does not know are ignored.

    Raises ``ProtocolError`` (``JSON``), its message beginning with ``what``: a key is missing or its value
    has another type.
    """
    try:
        return msgspec.convert(value, shape)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ProtocolError(ErrorKind.JSON, f"{what}: {error}") from None
