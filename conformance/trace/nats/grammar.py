"""NATS as traces write it: the operations of the client protocol, to send and to expect.

Sizes may be left out; they are then the true ones. A size that is right for what the file says stays
right when names are rewritten; any other is sent as it is, on purpose.
Source: docs.nats.io, "Client Protocol"; ADR-4 for HPUB and HMSG.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from plumbline.conformance.trace.json_text import JsonText, read_json, starts_json
from plumbline.conformance.trace.language import FollowingLines, ObjectState, Outgoing, Pattern, Prerequisite
from plumbline.conformance.trace.nats import stage as nats_stage
from plumbline.conformance.trace.nats.keys import RESERVED
from plumbline.conformance.trace.nats.patterns import DeliveryPattern, ErrPattern, FixedPattern, InfoPattern
from plumbline.conformance.trace.reader import TraceReader, Use
from plumbline.conformance.trace.segments import (
    NO_PAYLOAD,
    HeaderBlock,
    PayloadText,
    read_payload,
    read_segments,
)
from plumbline.conformance.trace.template import Hole, Subject, Template, TraceScope, as_bytes, fill
from plumbline.conformance.trace.text import Text, TraceLineError, near
from plumbline.wire.nats import Connect, HPub, Operation, Ping, Pong, Pub, Sub, Unsub

SENT = ("PUB", "HPUB", "SUB", "UNSUB", "PING", "PONG", "CONNECT")
EXPECTED = ("MSG", "HMSG", "+OK", "-ERR", "PING", "PONG", "INFO")
_SIZE = re.compile(r"-?[0-9]{1,19}")
_SIZE_PATTERN = re.compile(r"[0-9]{1,19}|\{[A-Za-z0-9_]*:int\}")
_RAW_HELP = 'what no client would write is sent with > raw "..."'


class SendSubscribe(Struct, frozen=True):
    """``SUB subject [queue] sid``"""

    subject: Subject
    queue: Subject | None
    sid: Template

    def operation(self, scope: TraceScope) -> Operation:
        queue = None if self.queue is None else fill(self.queue.template(scope), scope)
        return Sub.make(fill(self.subject.template(scope), scope), fill(self.sid, scope), queue)


class SendUnsubscribe(Struct, frozen=True):
    """``UNSUB sid [max]``"""

    sid: Template
    max_msgs: Template | None

    def operation(self, scope: TraceScope) -> Operation:
        args = [fill(part, scope) for part in (self.sid, self.max_msgs) if part is not None]
        raw = as_bytes(f"UNSUB {' '.join(args)}\r\n")
        return Unsub(raw, raw.split()[1:], len(raw))


class SendPublish(Struct, frozen=True):
    """``PUB`` and ``HPUB``. A size of None is the true one."""

    subject: Subject
    reply: Subject | None
    block: HeaderBlock | None
    payload: PayloadText
    header_size: str | None
    size: str | None

    def operation(self, scope: TraceScope) -> Operation:
        written = fill(self.subject.template(scope), scope)
        subject = scope.received.get(written, written)
        reply = None if self.reply is None else fill(self.reply.template(scope), scope)
        payload = self.payload.fill(scope)
        if self.block is None:
            return Pub.make(subject, payload, reply, size=self.size)
        block = self.block.fill(scope)
        return HPub.make(subject, block, payload, reply, header_size=self.header_size, size=self.size)


class SendConnect(Struct, frozen=True):
    """``CONNECT {...}``, byte for byte."""

    json: JsonText

    def operation(self, scope: TraceScope) -> Operation:
        raw = b"CONNECT " + as_bytes(self.json.fill(scope)) + b"\r\n"
        return Connect(raw, raw.split()[1:], len(raw))


class SendFixed(Struct, frozen=True):
    """``PING`` and ``PONG``"""

    make: Callable[[], Operation]

    def operation(self, scope: TraceScope) -> Operation:
        return self.make()


class NatsTraceDialect:
    """The NATS client protocol and JetStream."""

    reserved = RESERVED

    def read_send(self, text: Text, following: FollowingLines, reader: TraceReader) -> Outgoing:
        verb, rest = text.first_word()
        if verb.value not in SENT:
            advice = "; ".join(filter(None, (near(verb.value, SENT), _RAW_HELP)))
            raise TraceLineError.at(verb, f"an operation to send ({', '.join(SENT)}, raw)", advice)
        if verb.value == "CONNECT":
            if not starts_json(rest.value):
                raise TraceLineError.at(rest, "a JSON object", _RAW_HELP)
            return SendConnect(read_json(rest, reader, Use.SENT))
        fields, behind = _split_fields(rest)
        if verb.value in ("PUB", "HPUB"):
            return _publish(verb, fields, behind, following, reader)
        if behind:
            raise TraceLineError.at(behind, "the end of the line", _RAW_HELP)
        if verb.value == "SUB":
            _count(verb, fields, 2, 3, "subject [queue] sid")
            queue = reader.word(fields[1], Use.SENT) if len(fields) == 3 else None
            if queue is not None and queue.plain[0] is not None:
                reader.label(fields[1])
            return SendSubscribe(
                reader.subject(fields[0], Use.SENT), queue, reader.template(fields[-1], Use.SENT)
            )
        if verb.value == "UNSUB":
            _count(verb, fields, 1, 2, "sid [max]")
            rest_of = [reader.template(word, Use.SENT) for word in fields]
            return SendUnsubscribe(rest_of[0], rest_of[1] if len(rest_of) == 2 else None)
        _count(verb, fields, 0, 0, "nothing more")
        return SendFixed(Ping.make if verb.value == "PING" else Pong.make)

    def read_expect(self, text: Text, following: FollowingLines, reader: TraceReader) -> Pattern:
        verb, rest = text.first_word()
        if verb.value not in EXPECTED:
            words = (*EXPECTED, "nothing", "closed")
            raise TraceLineError.at(
                verb, f"an operation to expect ({', '.join(words)})", near(verb.value, words)
            )
        if verb.value in ("MSG", "HMSG"):
            return _delivery(verb, rest, following, reader)
        if verb.value == "-ERR":
            return ErrPattern(reader.template(_unquoted(rest), Use.EXPECTED) if rest else None)
        if verb.value == "INFO" and rest:
            return InfoPattern(read_json(rest, reader, Use.EXPECTED))
        if rest:
            raise TraceLineError.at(rest, "the end of the line")
        return FixedPattern(verb.value)

    def read_given(
        self, kind: Text, rest: Text, following: FollowingLines, reader: TraceReader
    ) -> Prerequisite:
        return nats_stage.read_given(kind, rest, following, reader)

    def read_state(self, kind: Text, rest: Text, reader: TraceReader) -> ObjectState:
        return nats_stage.read_state(kind, rest, reader)


def _publish(
    verb: Text, words: list[Text], behind: Text, following: FollowingLines, reader: TraceReader
) -> SendPublish:
    sizes = _take_sizes(words, 2 if verb.value == "HPUB" else 1, _SIZE)
    layout = "subject [reply] [header_size total_size]" if verb.value == "HPUB" else "subject [reply] [size]"
    _count(verb, words, 1, 2, layout)
    subject = reader.subject(words[0], Use.SENT)
    reply = reader.subject(words[1], Use.SENT) if len(words) == 2 else None
    numbers = [int(size.value) for size in sizes]
    if verb.value == "PUB":
        payload = read_payload(behind, following, reader, Use.SENT, numbers[0] if numbers else 0)
        if payload is None and numbers and numbers[0] > 0:
            raise TraceLineError.at(behind, "the payload, after | or on the line below")
        payload = payload or NO_PAYLOAD
        size = _size(sizes[0].value, payload.written) if sizes else None
        return SendPublish(subject, reply, None, payload, None, size)
    if len(sizes) == 1:
        raise TraceLineError.at(sizes[0], "two sizes, of the headers and of all, or none")
    of_payload = numbers[1] - numbers[0] if numbers else 0
    block, body = read_segments(behind, following, reader, Use.SENT, of_payload)
    block, body = block or HeaderBlock((), ()), body or NO_PAYLOAD
    if not sizes:
        return SendPublish(subject, reply, block, body, None, None)
    head, rest = block.written, body.written
    total = None if head is None or rest is None else head + rest
    return SendPublish(subject, reply, block, body, _size(sizes[0].value, head), _size(sizes[1].value, total))


def _size(written: str, content: bytes | None) -> str | None:
    return None if content is not None and written == str(len(content)) else written


def _delivery(verb: Text, rest: Text, following: FollowingLines, reader: TraceReader) -> DeliveryPattern:
    fields, behind = _split_fields(rest)
    size_count = 2 if verb.value == "HMSG" else 1
    sizes = _take_sizes(fields, size_count, _SIZE_PATTERN) if len(fields) > 2 else []
    if sizes and len(sizes) < size_count:
        raise TraceLineError.at(sizes[0], "two sizes, of the headers and of all, or none")
    layout = (
        "subject sid [reply] [header_size total_size]" if size_count == 2 else "subject sid [reply] [size]"
    )
    _count(verb, fields, 2, 3, layout)
    subject = reader.subject(fields[0], Use.EXPECTED)
    sid = (Hole("*"),) if fields[1].value == "*" else reader.template(fields[1], Use.EXPECTED)
    reply = reader.subject(fields[2], Use.EXPECTED) if len(fields) == 3 else None
    templates = tuple(reader.template(size, Use.EXPECTED) for size in sizes)
    numbers = [int(size.value) if size.value.isdigit() else 0 for size in sizes]
    if verb.value == "MSG":
        payload = read_payload(behind, following, reader, Use.EXPECTED, numbers[0] if numbers else 0)
        return DeliveryPattern("MSG", subject, sid, reply, templates, None, payload)
    of_payload = numbers[1] - numbers[0] if numbers else 0
    block, body = read_segments(behind, following, reader, Use.EXPECTED, of_payload)
    if body is None and block is not None and block.status:
        body = NO_PAYLOAD  # a status is no message: it carries nothing, unless the trace says so
    return DeliveryPattern("HMSG", subject, sid, reply, templates, block, body)


def _split_fields(rest: Text) -> tuple[list[Text], Text]:
    """The fields of an operation, and what follows them: a bar or a JSON text, and all after it."""
    fields: list[Text] = []
    position, value = 0, rest.value
    field = re.compile(r"(?:\{[^{}]*\}|[^ \t|])+")
    while position < len(value):
        if value[position] in " \t":
            position += 1
            continue
        found = field.match(value, position)
        if found is None or starts_json(value[position:]):
            return fields, rest.cut(position)
        fields.append(rest.cut(position, found.end()))
        position = found.end()
    return fields, rest.cut(len(value))


def _take_sizes(words: list[Text], limit: int, shape: re.Pattern[str]) -> list[Text]:
    """Takes the sizes off the end of ``words``; the first word is never one."""
    sizes: list[Text] = []
    while len(words) > 1 and len(sizes) < limit and shape.fullmatch(words[-1].value):
        sizes.insert(0, words.pop())
    return sizes


def _count(verb: Text, words: list[Text], minimum: int, maximum: int, layout: str) -> None:
    if len(words) < minimum:
        end = words[-1] if words else verb
        raise TraceLineError.at(end, f"{verb.value} {layout}", offset=len(end.value))
    if len(words) > maximum:
        raise TraceLineError.at(words[maximum], f"{verb.value} {layout}", _RAW_HELP)


def _unquoted(text: Text) -> Text:
    value = text.value
    return text.cut(1, len(value) - 1) if len(value) > 1 and value[0] == value[-1] == "'" else text
