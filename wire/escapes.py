"""What the wire carried as one line that can be read: what is not printable is escaped."""

from __future__ import annotations

import re

_ANYTHING_ELSE = re.compile("[^ -~]")  # than what ASCII prints
_LONGEST_CHAR = 4  # bytes of UTF-8
_ALONE = [ascii(chr(byte))[1:-1] for byte in range(256)]
_ALONE[ord("\\")] = "\\"  # doubled by callers, if at all


def escaped(text: str) -> str:
    r"""``text`` with ``\n``, ``\x00``, ``\u200b`` in place of what is not printable; all else stays."""
    return text if text.isprintable() else _ANYTHING_ELSE.sub(_escape, text)


def escaped_bytes(data: bytes) -> str:
    r"""``data`` as text, if it is UTF-8; else no byte above ASCII is taken for part of a character: ``\xc3``.

    What was cut inside its last character counts as UTF-8.
    """
    try:
        return escaped(data.decode())
    except UnicodeDecodeError as error:
        text = error.start if error.start > len(data) - _LONGEST_CHAR else 0
    return escaped(data[:text].decode()) + "".join([_ALONE[byte] for byte in data[text:]])


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    return char if char.isprintable() else ascii(char)[1:-1]
