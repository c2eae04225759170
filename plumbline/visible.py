"""Text that strangers wrote (subjects, payloads, server names), made safe to look at.

What has no glyph of its own (control and bidi characters, bytes that are no UTF-8, blanks that are
not a space) is written as an escape, so a reader sees what is there and nothing acts on a terminal,
a browser or an XML parser. The same goes for what a CI runner takes for a command in a log. Escaping
markup is left to each format. This module knows no format, and imports nothing of Plumbline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, TextIO

LAYOUT = "\n\t"  # kept as they are where several lines are allowed
# Source: GitHub Actions, "Workflow commands"; the runner also knows the old form, anywhere in a line.
_COMMANDS = (
    "add-mask|add-matcher|add-path|debug|echo|endgroup|error|group|notice|remove-matcher|save-state|set-env"
    "|set-output|stop-commands|warning"
)
_NOT_ASCII = re.compile("[^ -~\n]")  # what ASCII prints is most of it
_COMMAND = re.compile(rf"::(?=(?:{_COMMANDS})(?:::| ))|##\[(?=(?:{_COMMANDS})[ \]])", re.IGNORECASE)


class TextSegment(NamedTuple):
    """A stretch of text; ``hidden`` if it replaces characters that could not be shown."""

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
    """``text`` with every character that has no glyph written as an escape, and no command for a CI runner:
    ``::error::`` becomes ``\\x3a:error::``."""
    if not text.isprintable():
        text = "".join(segment.text for segment in segments(text, keep=keep))
    return _COMMAND.sub(lambda found: escape(found[0][0]) + found[0][1:], text)


def indented_line(text: str) -> str:
    """``visible``, with line ends and tabs escaped too."""
    return visible(text, keep="").replace("\\x0a", "\\n").replace("\\x09", "\\t")


def one_line(text: str) -> str:
    """``indented_line`` without blanks at the beginning and the end."""
    return indented_line(text.strip())


def visible_json(text: str) -> str:
    """JSON text with ``\\u`` escapes for the same characters, which are in strings only: it means the same.
    Line ends stay."""
    text = _NOT_ASCII.sub(lambda found: found[0] if found[0].isprintable() else _json_escape(found[0]), text)
    return _COMMAND.sub(lambda found: _json_escape(found[0][0]) + found[0][1:], text)


def visible_toml(text: str) -> str:
    """The same for text of TOML, which has no pairs of surrogates, but ``\\U`` with eight digits."""
    text = _NOT_ASCII.sub(lambda found: found[0] if found[0].isprintable() else _toml_escape(found[0]), text)
    return _COMMAND.sub(lambda found: _toml_escape(found[0][0]) + found[0][1:], text)


def _toml_escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def write_line(out: TextIO, text: str) -> None:
    """Writes ``text`` as exactly one line."""
    out.write(f"{indented_line(text)}\n")
