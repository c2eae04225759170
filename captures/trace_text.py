"""Shared by the trace writers of both protocols: the header, and escaping of text."""

from __future__ import annotations

import re

from msgspec import Struct

from plumbline.visible import one_line

_SPECIAL = re.compile(r'[\\{}|*"]')
_WINDOW = re.compile(r"(within|after|and)[ \t]+(?=[0-9]\S*$)")  # would be read as a time limit


class TraceHeader(Struct, frozen=True):
    """What the trace says of itself."""

    title: str
    source: str
    verifies: tuple[str, ...] = ()

    def header(self, otherwise: str) -> list[str]:
        """The lines at the top; ``otherwise`` is what it verifies by default."""
        return [
            f"title     {one_line(self.title)}",
            f"source    {one_line(self.source)}",
            f"verifies  {' '.join(self.verifies) or otherwise}",
        ]


def without_limit(line: str) -> str:
    """A line whose end cannot be taken for a time limit."""
    return _WINDOW.sub(r"\1\\x20", line)


def escaped(text: str) -> str:
    """What a trace reads as exactly this text."""
    text = _SPECIAL.sub(r"\\\g<0>", text)
    result = without_control(text)
    bare = result.strip(" ")
    if not bare:
        return r"\x20" * len(result)
    before, after = len(result) - len(result.lstrip(" ")), len(result) - len(result.rstrip(" "))
    return r"\x20" * before + bare + r"\x20" * after


def without_control(text: str) -> str:
    """``text`` with an escape for each byte of what is not printable."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return char if char.isprintable() else "".join(f"\\x{byte:02x}" for byte in char.encode())
