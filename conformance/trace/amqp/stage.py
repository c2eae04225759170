"""AMQP in traces: objects of ``given``, and the state in ``await`` and ``expect``.

    given queue ORDERS arguments={"x-max-length":2}
    given exchange EVENTS type=topic
    given binding EVENTS ORDERS routing_key=orders.*
    given message ORDERS body="m1" delivery_mode=2
    expect queue ORDERS message_count=1 consumer_count=0

The keys are the arguments of queue.declare, exchange.declare, queue.bind, basic.publish and queue.declare-ok.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from plumbline.conformance.amqp.stage import COUNTS, EXISTS, AmqpStage
from plumbline.conformance.trace.amqp.values import (
    BODY,
    BODY_SIZE,
    PROPERTY,
    Field,
    read_fields,
    read_node,
    values,
)
from plumbline.conformance.trace.json_text import Node, evaluate
from plumbline.conformance.trace.language import ObjectState, Prerequisite, StateWindow
from plumbline.conformance.trace.reader import TraceReader, Use
from plumbline.conformance.trace.settings import pairs
from plumbline.conformance.trace.template import Template, TraceScope, as_bytes, fill
from plumbline.conformance.trace.text import Text, TraceLineError, near
from plumbline.wire.amqp import SHAPES

if TYPE_CHECKING:
    from plumbline.conformance.sessions.session import BaseSession

KINDS = ("queue", "exchange", "binding", "message", "messages", "connection")


class GivenObject(Struct, frozen=True):
    """``given queue LABEL key=value``, ``given exchange LABEL ...``: durable if not written otherwise."""

    kind: str
    label: str
    fields: tuple[Field, ...]

    def set(self, session: BaseSession, scope: TraceScope) -> None:
        arguments = {field.name: value for field, value in values(self.fields, scope)}
        stage = _stage(session)
        (stage.queue if self.kind == "queue" else stage.exchange)(self.label, **arguments)


class GivenBinding(Struct, frozen=True):
    """``given binding EXCHANGE QUEUE key=value``"""

    exchange: str
    queue: str
    fields: tuple[Field, ...]

    def set(self, session: BaseSession, scope: TraceScope) -> None:
        arguments = {field.name: value for field, value in values(self.fields, scope)}
        exchange = self.exchange if self.exchange.startswith("amq.") else scope.names.label(self.exchange)
        _stage(session).bind(scope.names.label(self.queue), exchange, **arguments)


class GivenMessage(Struct, frozen=True):
    """``given message QUEUE body="m1" key=value``: published, and its confirm awaited."""

    queue: str
    fields: tuple[Field, ...]

    def set(self, session: BaseSession, scope: TraceScope) -> None:
        found = list(values(self.fields, scope))
        properties = {field.name: value for field, value in found if field.place == PROPERTY}
        body = b"".join(value for field, value in found if field.kind == BODY)
        body += b"".join(b"x" * value for field, value in found if field.kind == BODY_SIZE)
        _stage(session).publish(scope.names.label(self.queue), body, properties)


class GivenMessages(Struct, frozen=True):
    """``given messages QUEUE m1 m2 m3``: one for each word, which is its body."""

    queue: str
    bodies: tuple[Template, ...]

    def set(self, session: BaseSession, scope: TraceScope) -> None:
        for body in self.bodies:
            _stage(session).publish(scope.names.label(self.queue), as_bytes(fill(body, scope)))


class ExpectedQueueState(Struct, frozen=True):
    """Fields of queue.declare-ok, and ``exists``."""

    queue: str
    fields: tuple[tuple[str, Node], ...]

    def wait(self, session: BaseSession, scope: TraceScope, within: float) -> None:
        _stage(session).await_queue(scope.names.label(self.queue), within, **self._expected_fields(scope))

    def expect(self, session: BaseSession, scope: TraceScope, window: StateWindow) -> None:
        _stage(session).expect_queue(
            scope.names.label(self.queue),
            window.within,
            after=window.after,
            stays=window.stays,
            **self._expected_fields(scope),
        )

    def _expected_fields(self, scope: TraceScope) -> dict[str, Any]:
        return {name: evaluate(node, scope) for name, node in self.fields}


def _stage(session: BaseSession) -> AmqpStage:
    """An AMQP trace is played in an AMQP session."""
    stage = session.stage
    assert isinstance(stage, AmqpStage)
    return stage


def read_given(kind: Text, rest: Text, reader: TraceReader) -> Prerequisite:
    """What follows ``given``."""
    first, behind = rest.first_word()
    match kind.value:
        case "queue" | "exchange":
            return GivenObject(
                kind.value, reader.label(first), _fields(behind, f"{kind.value}.declare", kind.value, reader)
            )
        case "binding":
            second, behind = behind.first_word()
            if not first.value.startswith("amq."):
                _require_known_label(first, reader)
            return GivenBinding(
                first.value,
                _require_known_label(second, reader),
                _fields(behind, "queue.bind", "queue", reader),
            )
        case "message":
            return GivenMessage(
                _require_known_label(first, reader), _fields(behind, "basic.publish", "routing_key", reader)
            )
        case "messages":
            if not behind:
                raise TraceLineError.at(behind, "the body of a message")
            bodies = tuple(reader.template(word, Use.SENT) for word in behind.words())
            return GivenMessages(_require_known_label(first, reader), bodies)
    raise TraceLineError.at(
        kind, "queue, exchange, binding, message, messages or connection", near(kind.value, KINDS)
    )


def read_state(kind: Text, rest: Text, reader: TraceReader) -> ObjectState:
    """What follows ``await`` and ``expect``, without a time limit."""
    if kind.value != "queue":
        raise TraceLineError.at(kind, "queue", near(kind.value, ("queue",)))
    label, behind = rest.first_word()
    fields: list[tuple[str, Node]] = []
    for key, value in pairs(behind):
        if key.value not in (*COUNTS, EXISTS):
            raise TraceLineError.at(
                key, f"one of {', '.join((*COUNTS, EXISTS))}", near(key.value, (*COUNTS, EXISTS))
            )
        kind_of = "bit" if key.value == EXISTS else "long"
        fields.append((key.value, read_node(key.value, kind_of, value, reader, Use.SENT)))
    if not fields:
        raise TraceLineError.at(
            rest, "a field and its value, such as message_count=1", offset=len(rest.value)
        )
    return ExpectedQueueState(_require_known_label(label, reader), tuple(fields))


def _fields(text: Text, method: str, taken: str, reader: TraceReader) -> tuple[Field, ...]:
    fields = read_fields(text, SHAPES[method], reader, Use.SENT)
    if any(field.name == taken for field in fields):
        raise TraceLineError.at(text, f"no {taken}: it is the name before the fields")
    return fields


def _require_known_label(label: Text, reader: TraceReader) -> str:
    if label.value not in reader.labels:
        advice = near(label.value, reader.labels) or '"given", or "names", introduces it'
        raise TraceLineError.at(label, "a name this trace has introduced", advice)
    return label.value
