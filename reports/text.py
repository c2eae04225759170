"""How much of a text is shown, and bytes as numbers. This module knows no format.

What strangers wrote becomes safe to look at in ``plumbline.visible``.
"""

from __future__ import annotations

import re

HEX_WIDTH = 16


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
