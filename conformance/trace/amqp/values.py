"""``key=value`` pairs of an AMQP method (arguments, properties, body): their values and patterns.

The method table says what type a value has. Texts stand bare or in quotes, tables are JSON objects. A name of
the trace is rewritten where a name stands: in the arguments that name queues and exchanges, in routing keys,
and in tables. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from plumbline.conformance.trace.json_text import (
    Constant,
    Node,
    OpenValue,
    evaluate,
    node_differences,
    read_json,
    shown_node,
)
from plumbline.conformance.trace.language import Mismatch
from plumbline.conformance.trace.reader import TraceReader, Use
from plumbline.conformance.trace.settings import pairs
from plumbline.conformance.trace.template import (
    CaptureKind,
    Hole,
    NameOrText,
    TraceScope,
    as_bytes,
    as_text,
    is_absent,
    match,
    show,
)
from plumbline.conformance.trace.text import Text, TraceLineError, near
from plumbline.wire.amqp import OBJECT_ARGUMENTS, PROPERTIES, Method, MethodSpec

ARGUMENT, PROPERTY, CONTENT = "argument", "property", "content"
BODY, BODY_SIZE = "body", "body_size"
TEXTS = ("shortstr", "longstr", BODY)
# Arguments whose value is a name of the run's own.
NAMES = OBJECT_ARGUMENTS | {"routing_key"}


class Field(Struct, frozen=True):
    """One pair. ``kind`` is the type of the method table, ``body`` or ``body_size``."""

    name: str
    kind: str
    place: str
    node: Node

    def value(self, scope: TraceScope) -> Any:
        """What is sent."""
        value = evaluate(self.node, scope)
        if self.kind == BODY:
            return as_bytes(value)
        return str(value) if self.kind in TEXTS else value

    def show(self, scope: TraceScope) -> str:
        return f"{self.name}={shown_node(self.node, scope)}"

    def differences(self, operation: Method, scope: TraceScope) -> Iterator[Mismatch]:
        """In what the operation is not this."""
        if self.kind == BODY_SIZE:
            found: Any = len(operation.body)
        elif self.kind == BODY:
            found = as_text(operation.body)
        elif self.place == PROPERTY:
            if self.name not in (operation.properties or {}):
                if not _is_absent(self.node):
                    yield Mismatch(self.name, shown_node(self.node, scope), "no such property")
                return
            found = (operation.properties or {})[self.name]
        else:
            found = operation.arguments[self.name]
        if self.kind in TEXTS:
            # As texts, not as JSON: "1" and 1 are alike.
            template = self.node.resolved(scope) if isinstance(self.node, NameOrText | OpenValue) else ()
            if not match(template, found, scope):
                yield Mismatch(self.name, show(template, scope), found[:200])
            return
        for path, expected, actual in node_differences(self.node, _plain(found), self.name, scope):
            yield Mismatch(path, expected, actual)


def read_fields(text: Text, shape: MethodSpec, reader: TraceReader, use: Use) -> tuple[Field, ...]:
    """All pairs of a line. Raises ``TraceLineError``."""
    return tuple(_field(key, value, shape, reader, use) for key, value in pairs(text))


def values(fields: tuple[Field, ...], scope: TraceScope) -> Iterator[tuple[Field, Any]]:
    """What is sent, field by field."""
    return ((field, field.value(scope)) for field in fields)


def show_fields(fields: tuple[Field, ...], scope: TraceScope) -> list[str]:
    """For reports."""
    return [field.show(scope) for field in fields]


def _field(key: Text, value: Text, shape: MethodSpec, reader: TraceReader, use: Use) -> Field:
    name = key.value
    if name in shape.arguments:
        kind, place = shape.arguments[name], ARGUMENT
    elif shape.has_content and name in PROPERTIES:
        kind, place = PROPERTIES[name], PROPERTY
    elif shape.has_content and name in (BODY, BODY_SIZE):
        kind, place = name, CONTENT
    else:
        known = [*shape.arguments, *([*PROPERTIES, BODY, BODY_SIZE] if shape.has_content else [])]
        raise TraceLineError.at(key, f"an argument of {shape.name} ({', '.join(known)})", near(name, known))
    return Field(name, kind, place, read_node(name, kind, value, reader, use))


def read_node(name: str, kind: str, value: Text, reader: TraceReader, use: Use) -> Node:
    """The value of an argument of this type. Raises ``TraceLineError``."""
    if kind in TEXTS:
        return _text(name, value, reader, use)
    if value.value == "*" and use is Use.EXPECTED:
        return OpenValue(Hole("*", kind=CaptureKind.ANY))
    node = read_json(value, reader, use).root
    if isinstance(node, OpenValue):
        return node
    expected = {"bit": "true or false", "table": "a JSON object"}.get(kind, "a number")
    right = {
        "bit": isinstance(node, Constant) and isinstance(node.value, bool),
        "table": not isinstance(node, Constant | NameOrText),
    }.get(kind, isinstance(node, Constant) and type(node.value) is int)
    if not right:
        raise TraceLineError.at(value, expected)
    return node


def _text(name: str, value: Text, reader: TraceReader, use: Use) -> NameOrText:
    quoted = len(value.value) > 1 and value.value[0] == value.value[-1] == '"'
    inside = value.cut(1, len(value.value) - 1) if quoted else value
    if inside.value == "*" and use is Use.EXPECTED and not quoted:
        return NameOrText((Hole("*", kind=CaptureKind.TEXT),))
    if name not in NAMES or not inside:
        return NameOrText(reader.template(inside, use, CaptureKind.TEXT))
    found = reader.value(inside, use, CaptureKind.WORD)
    if name in OBJECT_ARGUMENTS and found.subject is not None and _is_label(found.subject.plain):
        reader.label(inside)
    return found


def _is_label(tokens: list[str | None]) -> bool:
    first = tokens[0]
    return first is not None and not first.startswith("$") and first != "amq"


def _is_absent(node: Node) -> bool:
    template = (
        node.template if isinstance(node, NameOrText) else (node.hole,) if isinstance(node, OpenValue) else ()
    )
    return is_absent(template)


def _plain(value: Any) -> Any:
    """A value of the wire as JSON has it."""
    return json.loads(json.dumps(value, default=_otherwise))


def _otherwise(value: Any) -> Any:
    return as_text(bytes(value)) if isinstance(value, bytes | bytearray) else str(value)
