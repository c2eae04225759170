"""JetStream in traces: objects of ``given``, and the state in ``await`` and ``expect``.

    given stream ORDERS subjects=ORDERS.>
    given consumer ORDERS DISPATCH ack=explicit ack_wait=500ms
    given message ORDERS.new | Nats-Msg-Id: 1 || order 1
    expect consumer ORDERS DISPATCH delivered=1/1 num_ack_pending=1

The keys are those of the JetStream API (docs.nats.io, "JetStream wire API Reference").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from plumbline.conformance.nats.stage import JetStreamStage
from plumbline.conformance.trace.json_text import WORDS_OF_THE_PROTOCOL, Array, Constant, Node, evaluate
from plumbline.conformance.trace.language import FollowingLines, ObjectState, Prerequisite, StateWindow
from plumbline.conformance.trace.nats.keys import (
    CONSUMER_CONFIG,
    CONSUMER_STATE,
    LISTS,
    NANOSECONDS,
    SHORT_FOR,
    STREAM_CONFIG,
    STREAM_STATE,
    SUBJECTS,
)
from plumbline.conformance.trace.reader import TraceReader, Use
from plumbline.conformance.trace.segments import NO_PAYLOAD, HeaderBlock, PayloadText, read_segments
from plumbline.conformance.trace.settings import pairs, read_value
from plumbline.conformance.trace.template import NameOrText, Subject, TraceScope, fill
from plumbline.conformance.trace.text import Text, TraceLineError, near
from plumbline.wire.units import read_duration

if TYPE_CHECKING:
    from plumbline.conformance.sessions.session import BaseSession

Settings = tuple[tuple[str, Node], ...]


class GivenStream(Struct, frozen=True):
    """``given stream LABEL key=value``; without ``subjects`` it has the one of its name."""

    label: str
    settings: Settings

    def set(self, session: BaseSession, scope: TraceScope) -> None:
        config = _config(self.settings, scope)
        subjects = config.pop("subjects", None)
        if subjects is None and not config.keys() & {"mirror", "sources"}:
            subjects = [scope.names.label(self.label)]
        _stage(session).stream(self.label, subjects or [], **config)


class GivenConsumer(Struct, frozen=True):
    """``given consumer STREAM LABEL key=value``: durable."""

    stream: str
    label: str
    settings: Settings

    def set(self, session: BaseSession, scope: TraceScope) -> None:
        _stage(session).consumer(scope.names.label(self.stream), self.label, **_config(self.settings, scope))


class GivenMessage(Struct, frozen=True):
    """``given message SUBJECT | Header: value || payload``: published, and its PubAck awaited."""

    subject: Subject
    block: HeaderBlock | None
    payload: PayloadText

    def set(self, session: BaseSession, scope: TraceScope) -> None:
        headers = [] if self.block is None else self.block.pairs(scope)
        _stage(session).publish(fill(self.subject.template(scope), scope), self.payload.fill(scope), headers)


class ExpectedConsumerState(Struct, frozen=True):
    """Fields of CONSUMER.INFO; ``delivered=2/1`` is consumer_seq/stream_seq."""

    stream: str
    consumer: str
    fields: Settings

    def wait(self, session: BaseSession, scope: TraceScope, within: float) -> None:
        _stage(session).await_consumer(*self._names(scope), within, **_config(self.fields, scope))

    def expect(self, session: BaseSession, scope: TraceScope, window: StateWindow) -> None:
        _stage(session).expect_consumer(
            *self._names(scope),
            window.within,
            after=window.after,
            stays=window.stays,
            **_config(self.fields, scope),
        )

    def _names(self, scope: TraceScope) -> tuple[str, str]:
        return scope.names.label(self.stream), scope.names.label(self.consumer)


class ExpectedStreamState(Struct, frozen=True):
    """Fields of STREAM.INFO. ``bytes`` is the size under the subjects that the trace writes."""

    stream: str
    fields: Settings

    def wait(self, session: BaseSession, scope: TraceScope, within: float) -> None:
        _stage(session).await_stream(scope.names.label(self.stream), within, **self._on_the_wire(scope))

    def expect(self, session: BaseSession, scope: TraceScope, window: StateWindow) -> None:
        _stage(session).expect_stream(
            scope.names.label(self.stream),
            window.within,
            after=window.after,
            stays=window.stays,
            **self._on_the_wire(scope),
        )

    def _on_the_wire(self, scope: TraceScope) -> dict[str, Any]:
        fields = _config(self.fields, scope)
        if "bytes" in fields:
            # Every stored subject has one rewritten token, and all names grow by the same length.
            fields["bytes"] += fields["messages"] * (len(scope.names.label(self.stream)) - len(self.stream))
        return fields


def _stage(session: BaseSession) -> JetStreamStage:
    """A NATS trace is played in a NATS session."""
    stage = session.stage
    assert isinstance(stage, JetStreamStage)
    return stage


def read_given(kind: Text, rest: Text, following: FollowingLines, reader: TraceReader) -> Prerequisite:
    """What follows ``given``."""
    kinds = ("stream", "consumer", "message", "connection")
    if kind.value not in kinds:
        raise TraceLineError.at(kind, "stream, consumer, message or connection", near(kind.value, kinds))
    if kind.value == "message":
        word, behind = rest.first_word()
        block, payload = read_segments(behind, following, reader, Use.SENT, 0)
        return GivenMessage(reader.subject(word, Use.SENT), block, payload or NO_PAYLOAD)
    if reader.literal:
        raise TraceLineError.at(
            kind,
            "no stream or consumer",
            '"names literal" is for core subjects; objects need their own names',
        )
    if kind.value == "stream":
        (label,), settings = _names_and_settings(rest, 1, "stream LABEL key=value ...")
        return GivenStream(reader.label(label), read_settings(settings, reader, STREAM_CONFIG))
    (stream, label), settings = _names_and_settings(rest, 2, "consumer STREAM LABEL key=value ...")
    return GivenConsumer(
        _require_known_label(stream, reader),
        reader.label(label),
        read_settings(settings, reader, CONSUMER_CONFIG),
    )


def read_state(kind: Text, rest: Text, reader: TraceReader) -> ObjectState:
    """What follows ``await`` and ``expect``, without a time limit."""
    if kind.value == "consumer":
        (stream, consumer), settings = _names_and_settings(rest, 2, "consumer STREAM LABEL field=value ...")
        fields = read_settings(settings, reader, CONSUMER_STATE | CONSUMER_CONFIG)
        state: ObjectState = ExpectedConsumerState(
            _require_known_label(stream, reader), _require_known_label(consumer, reader), fields
        )
    elif kind.value == "stream":
        (stream,), settings = _names_and_settings(rest, 1, "stream LABEL field=value ...")
        fields = read_settings(settings, reader, STREAM_STATE | STREAM_CONFIG)
        sizes = [node for key, node in fields if key in ("bytes", "messages")]
        if "bytes" in dict(fields) and not (len(sizes) == 2 and all(map(_is_number, sizes))):
            advice = "names are longer on the wire, by as much for each message"
            raise TraceLineError.at(settings, "numbers for both bytes and messages", advice)
        state = ExpectedStreamState(_require_known_label(stream, reader), fields)
    else:
        raise TraceLineError.at(kind, "consumer or stream", near(kind.value, ("consumer", "stream")))
    if not fields:
        raise TraceLineError.at(rest, "a field and its value, such as num_pending=1", offset=len(rest.value))
    return state


def read_settings(text: Text, reader: TraceReader, known: frozenset[str]) -> Settings:
    """``key=value`` pairs, with the lists, subjects and durations that the API's keys have."""
    settings: dict[str, Node] = {}
    for written, value in pairs(text):
        key = SHORT_FOR.get(written.value, written.value)
        if key not in known:
            raise TraceLineError.at(written, "a field of this object", near(key, known))
        if key in settings:
            raise TraceLineError.at(written, f"{key} only once")
        settings[key] = _value(key, value, reader)
    return tuple(settings.items())


def _names_and_settings(rest: Text, count: int, layout: str) -> tuple[list[Text], Text]:
    names: list[Text] = []
    for _ in range(count):
        word, rest = rest.first_word()
        if not word or "=" in word.value:
            raise TraceLineError.at(word, layout)
        names.append(word)
    return names, rest


def _require_known_label(label: Text, reader: TraceReader) -> str:
    if label.value not in reader.labels:
        advice = near(label.value, reader.labels) or '"given", or "names", introduces it'
        raise TraceLineError.at(label, "a name this trace has introduced", advice)
    return label.value


def _value(key: str, text: Text, reader: TraceReader) -> Node:
    if key not in LISTS or text.value.startswith("["):
        return _word(key, text, reader)
    items, start = list[Node](), 0
    for part in text.value.split(","):
        items.append(_word(key, text.cut(start, start + len(part)), reader))
        start += len(part) + 1
    return Array(tuple(items), open_ended=False)


def _word(key: str, text: Text, reader: TraceReader) -> Node:
    if text.value.startswith(("[", "{", '"')):
        return read_value(text, reader)
    if key in SUBJECTS:
        return NameOrText((text.value,), reader.subject(text, Use.SENT))
    if key == "deliver_group":
        reader.label(text)
    if key in WORDS_OF_THE_PROTOCOL:
        return NameOrText((text.value,))
    duration = read_duration(text.value) if key in NANOSECONDS else None
    return read_value(text, reader) if duration is None else Constant(duration)


def _is_number(node: Node) -> bool:
    return isinstance(node, Constant) and isinstance(node.value, int) and not isinstance(node.value, bool)


def _config(settings: Settings, scope: TraceScope) -> dict[str, Any]:
    return {key: evaluate(node, scope) for key, node in settings}
