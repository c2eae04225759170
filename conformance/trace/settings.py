"""``key=value`` pairs: a value is JSON, a capture, a number, true, false, null, or a bare word."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from plumbline.conformance.trace.json_text import Constant, Node, ends_at, read_json, starts_json
from plumbline.conformance.trace.reader import TraceReader, Use
from plumbline.conformance.trace.text import Text, TraceLineError

_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_]+)?)=")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_CONSTANT = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,9})?")


def pairs(text: Text) -> Iterator[tuple[Text, Text]]:
    """Keys and values, each once. Raises ``TraceLineError``."""
    seen: set[str] = set()
    rest = text.strip()
    while rest:
        found = _KEY.match(rest.value)
        if found is None:
            raise TraceLineError.at(rest, "key=value")
        key = rest.cut(0, len(found[1]))
        if key.value in seen:
            raise TraceLineError.at(key, f"{key.value} only once")
        seen.add(key.value)
        value = _extent(rest.cut(found.end()))
        if not value:
            raise TraceLineError.at(value, f"a value for {key.value}")
        yield key, value
        rest = rest.cut(found.end() + len(value.value)).strip()


def read_value(text: Text, reader: TraceReader) -> Node:
    """What a value means, if nothing is known of its key."""
    if starts_json(text.value) or text.value.startswith('"') or re.fullmatch(r"\{[^{}]*\}", text.value):
        return read_json(text, reader, Use.SENT).root
    if _CONSTANT.fullmatch(text.value):
        return Constant(json.loads(text.value))
    return reader.value(text, Use.SENT)


def _extent(rest: Text) -> Text:
    """The value at the start of ``rest``: blanks end it, unless it is JSON."""
    if starts_json(rest.value):
        end = ends_at(rest.value)
        return rest.cut(0, end) if end > 0 else rest
    shape = _STRING if rest.value.startswith('"') else re.compile(r"(?:\{[^{}]*\}|[^ \t])*")
    found = shape.match(rest.value)
    return rest.cut(0, found.end()) if found else rest
