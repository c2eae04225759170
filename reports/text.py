"""Text that strangers wrote (subjects, payloads, server names), made safe to look at.

What has no glyph of its own (control and bidi characters, bytes that are no UTF-8, blanks that are
not a space) is written as an escape, so a reader sees what is there and nothing acts on a terminal,
a browser or an XML parser. Escaping markup is left to each format. This module knows no format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

LAYOUT = "\n\t"  # kept as they are where several lines may stand
HEX_WIDTH = 16


class TextSegment(NamedTuple):
    """A stretch of text; ``hidden`` if it stands for characters that could not be shown."""

    hidden: bool
    text: str


def escape(char: str) -> str:
    """``\\x1b``, ``\\u202e``, ``\\U000e0001``; a byte that was no UTF-8 (surrogateescape) is ``\\xff``."""
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def segments(text: str, *, keep: str = LAYOUT) -> Iterator[TextSegment]:
    """``text`` in stretches that are shown as they are, and stretches of escapes."""
    hidden, start, position = False, 0, 0
    for position, char in enumerate(text):
        if hidden != (not char.isprintable() and char not in keep):
            if position > start:
                yield _segment(hidden, text[start:position])
            hidden, start = not hidden, position
    if text:
        yield _segment(hidden, text[start:])


def _segment(hidden: bool, text: str) -> TextSegment:  # noqa: FBT001 - what it says of itself
    return TextSegment(hidden, "".join(map(escape, text)) if hidden else text)


def visible(text: str, *, keep: str = LAYOUT) -> str:
    """``text`` with every character that has no glyph written as an escape."""
    if text.isprintable():
        return text
    return "".join(segment.text for segment in segments(text, keep=keep))


def one_line(text: str) -> str:
    """``visible``, with line ends and tabs escaped too."""
    return visible(text.strip(), keep="").replace("\\x0a", "\\n").replace("\\x09", "\\t")


def elide(text: str, limit: int) -> str:
    """``text``, cut after ``limit`` characters with a note of its whole size."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… [{len(text):,} characters in all]"


def is_binary(data: bytes) -> bool:
    """Whether ``data`` is better read as numbers: no UTF-8, or control bytes beyond line ends and tabs."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return True
    return re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", text) is not None


def hex_dump(data: bytes, limit: int) -> list[str]:
    """``00000010  48 4d 53 47 ...  |HMSG....|``, at most ``limit`` bytes of it, then the whole size."""
    lines = []
    for offset in range(0, min(len(data), limit), HEX_WIDTH):
        row = data[offset : min(offset + HEX_WIDTH, limit)]
        characters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        lines.append(f"{offset:08x}  {row.hex(' '):<{3 * HEX_WIDTH - 1}}  |{characters}|")
    if len(data) > limit:
        lines.append(f"… [{len(data):,} bytes in all]")
    return lines
