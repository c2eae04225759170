"""JSON with holes: a body as it is sent, or the fields that an answer must have.

``{"seq":{seq},"stream":"ORDERS"}``: holes stand for values or inside strings; strings that are names or
subjects of the trace stand for what is on the wire. What is sent keeps every other byte as written.
What is expected is compared field by field: objects may have more fields, arrays more elements
only where ``...`` ends the pattern.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from plumbline.conformance.trace.reader import TraceReader, Use
from plumbline.conformance.trace.template import (
    CaptureKind,
    Hole,
    NameOrText,
    Template,
    TraceScope,
    as_bytes,
    as_text,
    fill,
    match,
    plain,
    show,
)
from plumbline.conformance.trace.text import Text, TraceLineError
from plumbline.untrusted import BadInputError, parse_json
from plumbline.wire.nats.jetstream.times import parse_time

DEEPEST = 50
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?")
_LITERALS = {"true": True, "false": False, "null": None}
_SPACE = " \t\r\n"
# Fields whose values are words of the protocol, never names of a trace, even if a subject is called "all".
WORDS_OF_THE_PROTOCOL = frozenset({
    "type", "description", "storage", "retention", "discard", "compression", "persist_mode",
    "ack_policy", "deliver_policy", "replay_policy", "priority_policy",
})  # fmt: skip


class Constant(Struct, frozen=True):
    """A number, true, false or null."""

    value: int | float | bool | None


class OpenValue(Struct, frozen=True):
    """A hole in the place of a value."""

    hole: Hole

    def resolved(self, scope: TraceScope) -> Template:
        return (self.hole,)


class Object(Struct, frozen=True):
    """Fields in the order written."""

    fields: tuple[tuple[str, Node], ...]


class Array(Struct, frozen=True):
    """Elements; ``open_ended`` if more may follow."""

    items: tuple[Node, ...]
    open_ended: bool


Node = Constant | NameOrText | OpenValue | Object | Array


class JsonText(Struct, frozen=True):
    """A whole JSON text. ``spans`` are the strings and holes of ``source``, which rendering replaces."""

    source: str
    root: Node
    spans: tuple[tuple[int, int, NameOrText | OpenValue], ...]

    def fill(self, scope: TraceScope) -> str:
        """What is sent."""
        return self._replaced(lambda node: fill(node.resolved(scope), scope))

    def show(self, scope: TraceScope) -> str:
        """What is expected, for reports: on one line."""
        text = self._replaced(lambda node: show(node.resolved(scope), scope))
        return re.sub(r"\s*\n\s*", " ", text)

    def differences(self, payload: bytes, scope: TraceScope) -> Iterator[tuple[str, str, str]]:
        """Where ``payload`` is not what the fields ask for: (path, expected, found)."""
        try:
            actual = parse_json(payload, object)
        except BadInputError:
            yield "payload", f"JSON {self.show(scope)}", as_text(payload) or "nothing"
            return
        yield from node_differences(self.root, actual, "payload", scope)

    def _replaced(self, replace: Callable[[NameOrText | OpenValue], str]) -> str:
        pieces, position = list[str](), 0
        for start, end, node in self.spans:
            written, text = self.source[start:end], replace(node)
            if isinstance(node, NameOrText):
                text = written if json.loads(written) == text else _quote(text)
            pieces += [self.source[position:start], text]
            position = end
        return "".join(pieces) + self.source[position:]


def evaluate(node: Node, scope: TraceScope) -> Any:
    """The value of a node, in what is sent."""
    if isinstance(node, Object):
        return {key: evaluate(child, scope) for key, child in node.fields}
    if isinstance(node, Array):
        return [evaluate(item, scope) for item in node.items]
    if isinstance(node, Constant):
        return node.value
    text = fill(node.resolved(scope), scope)
    return _decoded_capture(text) if isinstance(node, OpenValue) else text


def _decoded_capture(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def starts_json(value: str) -> bool:
    """Whether a word begins a JSON text; a brace before a letter or a colon begins a hole."""
    return value.startswith("[") or (value.startswith("{") and not re.match(r"\{[ ]*[A-Za-z_:]", value))


def ends_at(value: str) -> int:
    """Where the brackets of a JSON text are balanced; -1 if its end is not there yet."""
    depth, position = 0, 0
    while position < len(value):
        if value[position] == '"':
            string = _STRING.match(value, position)
            if string is None:
                return -1
            position = string.end()
            continue
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(value[position], 0)
        position += 1
        if depth == 0:
            return position
    return -1


def read_json(text: Text, reader: TraceReader, use: Use) -> JsonText:
    """The whole of ``text``. Raises ``TraceLineError``."""
    return _JsonReader(text, reader, use).whole()


class _JsonReader:
    """One JSON text being read, from left to right."""

    def __init__(self, text: Text, reader: TraceReader, use: Use) -> None:
        self._text = text
        self._reader = reader
        self._use = use
        self._at = 0
        self._spans: list[tuple[int, int, NameOrText | OpenValue]] = []

    def whole(self) -> JsonText:
        root = self._value("", 0)
        self._skip()
        if self._at < len(self._text.value):
            raise self._problem("the end of the JSON text")
        return JsonText(self._text.value, root, tuple(self._spans))

    def _value(self, key: str, depth: int) -> Node:
        self._skip()
        rest = self._text.value[self._at : self._at + 1]
        if depth > DEEPEST:
            raise self._problem(f"JSON of at most {DEEPEST} levels")
        if rest == '"':
            return self._string(key)
        if rest == "[":
            return self._array(depth)
        if rest == "{":
            return self._hole() if not starts_json(self._text.value[self._at :]) else self._object(depth)
        number = _NUMBER.match(self._text.value, self._at)
        if number is not None:
            self._at = number.end()
            return Constant(json.loads(number[0]))
        for word, value in _LITERALS.items():
            if self._text.value.startswith(word, self._at):
                self._at += len(word)
                return Constant(value)
        raise self._problem("a JSON value or a capture such as {seq:int}")

    def _object(self, depth: int) -> Object:
        fields: list[tuple[str, Node]] = []
        self._take("{")
        while not self._try_take("}"):
            if fields:
                self._take(",")
            self._skip()
            key = self._key()
            self._take(":")
            fields.append((key, self._value(key, depth + 1)))
        return Object(tuple(fields))

    def _array(self, depth: int) -> Array:
        items: list[Node] = []
        self._take("[")
        while not self._try_take("]"):
            if items:
                self._take(",")
            self._skip()
            if self._use is Use.EXPECTED and self._text.value.startswith("...", self._at):
                self._at += 3
                self._take("]")
                return Array(tuple(items), open_ended=True)
            items.append(self._value("", depth + 1))
        return Array(tuple(items), open_ended=False)

    def _key(self) -> str:
        found = _STRING.match(self._text.value, self._at)
        if found is None:
            raise self._problem('a field name in double quotes or "}"')
        self._at = found.end()
        return self._decoded(self._text.cut(found.start() + 1, found.end() - 1))

    def _string(self, key: str) -> NameOrText:
        found = _STRING.match(self._text.value, self._at)
        if found is None:
            raise self._problem("a JSON string that ends on its line")
        start, self._at = self._at, found.end()
        node = self._inside(self._text.cut(start + 1, found.end() - 1), key)
        self._spans.append((start, self._at, node))
        return node

    def _inside(self, inside: Text, key: str) -> NameOrText:
        if "\\" in inside.value:
            # JSON's own escapes: such a string is no name and has no holes.
            return NameOrText((self._decoded(inside),))
        kind = CaptureKind.TEXT if re.fullmatch(r"\{[^{}]*\}", inside.value) else CaptureKind.TOKEN
        if key in WORDS_OF_THE_PROTOCOL:
            return NameOrText(self._reader.template(inside, self._use, kind))
        return self._reader.value(inside, self._use, kind)

    def _decoded(self, inside: Text) -> str:
        try:
            decoded = str(json.loads(f'"{inside.value}"'))
            as_bytes(decoded)
        except ValueError:
            raise TraceLineError.at(inside, "a JSON string") from None
        return decoded

    def _hole(self) -> OpenValue:
        end = self._text.value.find("}", self._at) + 1
        if not end:
            raise self._problem("a capture such as {seq:int}")
        template = self._reader.template(self._text.cut(self._at, end), self._use, CaptureKind.ANY)
        hole = template[0] if template else None
        if len(template) != 1 or not isinstance(hole, Hole):
            raise self._problem("a JSON value or a capture such as {seq:int}")
        node = OpenValue(hole)
        self._spans.append((self._at, end, node))
        self._at = end
        return node

    def _skip(self) -> None:
        while self._text.value[self._at : self._at + 1] and self._text.value[self._at] in _SPACE:
            self._at += 1

    def _try_take(self, mark: str) -> bool:
        self._skip()
        if not self._text.value.startswith(mark, self._at):
            return False
        self._at += 1
        return True

    def _take(self, mark: str) -> None:
        if not self._try_take(mark):
            raise self._problem(f'"{mark}"')

    def _problem(self, expected: str) -> TraceLineError:
        return TraceLineError.at(self._text, expected, offset=self._at)


def _quote(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:197] + "..."


def _as_captured(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def node_differences(node: Node, actual: Any, path: str, scope: TraceScope) -> Iterator[tuple[str, str, str]]:
    """Where a JSON value is not what ``node`` asks for: (path, expected, found)."""
    if isinstance(node, Object):
        if not isinstance(actual, dict):
            yield path, "an object", _shown(actual)
            return
        for key, child in node.fields:
            yield from _field(child, actual, key, f"{path}.{key}", scope)
    elif isinstance(node, Array):
        if not isinstance(actual, list):
            yield path, "an array", _shown(actual)
            return
        if len(actual) < len(node.items) or (len(actual) > len(node.items) and not node.open_ended):
            expected = f"{len(node.items)} elements" + (" or more" if node.open_ended else "")
            yield path, expected, f"{len(actual)}: {_shown(actual)}"
        for position, (child, element) in enumerate(zip(node.items, actual, strict=False)):
            yield from node_differences(child, element, f"{path}[{position}]", scope)
    elif isinstance(node, Constant):
        if not _same(node.value, actual):
            yield path, _shown(node.value), _shown(actual)
    elif isinstance(node, NameOrText):
        template = node.resolved(scope)
        if not isinstance(actual, str) or not (match(template, actual, scope) or _is_same_time(node, actual)):
            yield path, _quote(show(template, scope)), _shown(actual)
    elif not _fits(node.hole, actual, scope):
        yield path, show((node.hole,), scope), _shown(actual)


def _field(
    child: Node, actual: dict[str, Any], key: str, path: str, scope: TraceScope
) -> Iterator[tuple[str, str, str]]:
    if not isinstance(child, OpenValue) or child.hole.kind is not CaptureKind.ABSENT:
        if key in actual:
            yield from node_differences(child, actual[key], path, scope)
        else:
            yield path, _expected_value(child, scope), "no such field"
    elif key in actual and json.dumps(actual[key]) not in child.hole.choices:
        yield path, " or ".join(("no such field", *child.hole.choices)), _shown(actual[key])


def shown_node(node: Node, scope: TraceScope) -> str:
    """A value as it is expected, for reports."""
    if isinstance(node, Object):
        fields = (f"{_quote(key)}:{shown_node(child, scope)}" for key, child in node.fields)
        return "{" + ",".join(fields) + "}"
    if isinstance(node, Array):
        items = [shown_node(item, scope) for item in node.items] + ["..."] * node.open_ended
        return "[" + ",".join(items) + "]"
    return _expected_value(node, scope)


def _expected_value(node: Node, scope: TraceScope) -> str:
    if isinstance(node, Constant):
        return _shown(node.value)
    if isinstance(node, NameOrText):
        return _quote(show(node.resolved(scope), scope))
    return show((node.hole,), scope) if isinstance(node, OpenValue) else "it"


def _same(expected: Any, actual: Any) -> bool:
    # In Python True == 1; in JSON it is not.
    return isinstance(expected, bool) == isinstance(actual, bool) and bool(expected == actual)


def _is_same_time(node: NameOrText, actual: str) -> bool:
    """RFC 3339 has several texts for one moment."""
    moment = parse_time(plain(node.template) or "")
    return moment is not None and moment == parse_time(actual)


def _fits(hole: Hole, actual: Any, scope: TraceScope) -> bool:
    known = hole.value(scope)
    text = _as_captured(actual)
    if known is not None:
        return text == known
    number = isinstance(actual, int) and not isinstance(actual, bool)
    if hole.kind in (CaptureKind.INT, CaptureKind.NS) and not number:
        return False
    if hole.kind in (CaptureKind.TEXT, CaptureKind.TIME, CaptureKind.WORD) and not isinstance(actual, str):
        return False
    if hole.kind is not CaptureKind.ANY and not re.fullmatch(hole.shape(), text, re.DOTALL):
        return False
    if hole.name and not hole.sign:
        scope.captures[hole.name] = text
    return True
