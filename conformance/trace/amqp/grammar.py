"""AMQP 0-9-1 as traces write it: a method with its arguments, and for those that carry one its content.

    > basic.publish exchange="" routing_key=ORDERS mandatory=true body="m1" delivery_mode=2
    < [2] basic.deliver delivery_tag={tag} redelivered=false body="m1"

Names are the specification's (``wire.amqp.methods``). ``[2]`` is the channel: 0 for class connection, else 1
if it is not written. What is not written is 0, false or empty when sent, and anything when expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from plumbline.conformance.amqp.connection import ALARMS, Alarm
from plumbline.conformance.trace.amqp import stage as amqp_stage
from plumbline.conformance.trace.amqp.values import (
    BODY,
    BODY_SIZE,
    PROPERTY,
    Field,
    read_fields,
    show_fields,
    values,
)
from plumbline.conformance.trace.language import (
    FollowingLines,
    Mismatch,
    ObjectState,
    Outgoing,
    Pattern,
    Prerequisite,
)
from plumbline.conformance.trace.reader import TraceReader, Use
from plumbline.conformance.trace.template import TraceScope
from plumbline.conformance.trace.text import Text, TraceLineError, near
from plumbline.wire.amqp import SHAPES, Heartbeat, Method, MethodSpec, Operation, ProtocolHeader

_CHANNEL = re.compile(r"\[([0-9]{1,5})\]")
_RAW_HELP = 'what no client would write is sent with > raw "..."'
PLAIN: dict[str, Callable[[], Operation]] = {
    "heartbeat": Heartbeat.make,
    "protocol-header": ProtocolHeader.make,
}


class SendPlain(Struct, frozen=True):
    """``heartbeat`` and ``protocol-header``"""

    name: str

    def operation(self, scope: TraceScope) -> Operation:
        return PLAIN[self.name]()


class SendMethod(Struct, frozen=True):
    """``basic.publish exchange="" ...``"""

    method: str
    channel: int
    fields: tuple[Field, ...]

    def operation(self, scope: TraceScope) -> Operation:
        arguments: dict[str, Any] = {}
        properties: dict[str, Any] = {}
        body = b""
        for field, value in values(self.fields, scope):
            if field.kind == BODY:
                body = value
            elif field.kind == BODY_SIZE:
                body = b"x" * value
            elif field.place == PROPERTY:
                properties[field.name] = value
            else:
                arguments[field.name] = value
        return Method.make(self.method, self.channel, properties=properties or None, body=body, **arguments)


class PlainPattern(Struct, frozen=True):
    """``heartbeat`` and ``protocol-header``"""

    name: str

    @property
    def explicit_kinds(self) -> tuple[type[Operation], ...]:
        return (Heartbeat,) if self.name == "heartbeat" else ()

    @property
    def stream(self) -> int | None:
        return 0

    def show(self, scope: TraceScope) -> str:
        return self.name

    def differences(self, operation: Any, scope: TraceScope) -> list[Mismatch]:
        return [] if operation.method == self.name else [Mismatch("operation", self.name, operation.method)]


class MethodPattern(Struct, frozen=True):
    """A method with the arguments, properties and body that are written; all others may be anything."""

    method: str
    channel: int
    fields: tuple[Field, ...]

    @property
    def explicit_kinds(self) -> tuple[type[Operation], ...]:
        return (Alarm,) if self.method in ALARMS else ()

    @property
    def stream(self) -> int | None:
        return self.channel

    def show(self, scope: TraceScope) -> str:
        return " ".join([f"[{self.channel}]", self.method, *show_fields(self.fields, scope)])

    def differences(self, operation: Any, scope: TraceScope) -> list[Mismatch]:
        if operation.method != self.method or not isinstance(operation, Method):
            return [Mismatch("operation", self.method, operation.method)]
        if operation.channel != self.channel:
            return [Mismatch("channel", str(self.channel), str(operation.channel))]
        return [found for field in self.fields for found in field.differences(operation, scope)]


class AmqpTraceDialect:
    """AMQP 0-9-1 with RabbitMQ's extensions."""

    reserved: frozenset[str] = frozenset({"amq"})

    def read_send(self, text: Text, following: FollowingLines, reader: TraceReader) -> Outgoing:
        channel, verb, rest = _operation(text, _RAW_HELP)
        if verb.value in PLAIN:
            _require_end(rest)
            return SendPlain(verb.value)
        shape = SHAPES[verb.value]
        return SendMethod(shape.name, _channel(channel, shape), read_fields(rest, shape, reader, Use.SENT))

    def read_expect(self, text: Text, following: FollowingLines, reader: TraceReader) -> Pattern:
        channel, verb, rest = _operation(text, "or nothing, or closed")
        if verb.value in PLAIN:
            _require_end(rest)
            return PlainPattern(verb.value)
        shape = SHAPES[verb.value]
        return MethodPattern(
            shape.name, _channel(channel, shape), read_fields(rest, shape, reader, Use.EXPECTED)
        )

    def read_given(
        self, kind: Text, rest: Text, following: FollowingLines, reader: TraceReader
    ) -> Prerequisite:
        return amqp_stage.read_given(kind, rest, reader)

    def read_state(self, kind: Text, rest: Text, reader: TraceReader) -> ObjectState:
        return amqp_stage.read_state(kind, rest, reader)


def _operation(text: Text, advice: str) -> tuple[int | None, Text, Text]:
    """The channel if it is written, the method, and what follows it."""
    verb, rest = text.first_word()
    channel = None
    if verb.value.startswith("["):
        found = _CHANNEL.fullmatch(verb.value)
        if found is None or int(found[1]) > 65535:
            raise TraceLineError.at(verb, "a channel such as [2]")
        channel = int(found[1])
        verb, rest = rest.first_word()
    if verb.value not in SHAPES and verb.value not in PLAIN:
        known = (*SHAPES, *PLAIN)
        raise TraceLineError.at(verb, "a method such as basic.publish", near(verb.value, known) or advice)
    return channel, verb, rest


def _channel(written: int | None, shape: MethodSpec) -> int:
    if written is not None:
        return written
    return 0 if shape.name.startswith("connection.") else 1


def _require_end(rest: Text) -> None:
    if rest:
        raise TraceLineError.at(rest, "the end of the line")
