r"""Text and JSON of the wire for files and terminals: what is no UTF-8 is escaped, what is too deep is cut.

Bytes that are no UTF-8 are lone surrogates in text (PEP 383), which nothing can write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from plumbline import bounds

_SURROGATES = re.compile("[\ud800-\udfff]")
_LEAST_LONG, _LONG_LIMIT = -(2**63), 2**64
CUT = "..."


def plain_text(text: str) -> str:
    r"""``text`` that can be written as UTF-8: surrogates become ``\xff`` (of a byte) or ``\ud800``."""
    return text if text.isascii() else _SURROGATES.sub(_escaped, text)


def one_line(text: str) -> str:
    """The same without line ends and control characters."""
    text = plain_text(text)
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def plain(value: Any, depth: int = bounds.JSON_DEPTH) -> Any:
    """A value such that every writer of JSON takes it."""
    if depth < 0:
        return CUT
    match value:
        case str():
            return plain_text(value)
        case Mapping():
            return {plain_text(str(name)): plain(held, depth - 1) for name, held in value.items()}
        case list() | tuple():
            return [plain(held, depth - 1) for held in value]
        case bool():
            return value
        case int():
            return (
                value if _LEAST_LONG <= value < _LONG_LIMIT else str(value) if abs(value) < 10**4000 else CUT
            )
    return value


def parsed_json(text: str | bytes) -> Any:
    """What JSON means; None if it is none, or is deeper than ``bounds.JSON_DEPTH``."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if _is_shallow(value) else None


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(bounds.JSON_DEPTH):
        level = [
            held
            for part in level
            if isinstance(part, dict | list)
            for held in (part.values() if isinstance(part, dict) else part)
            if isinstance(held, dict | list)
        ]
        if not level:
            return True
    return False
