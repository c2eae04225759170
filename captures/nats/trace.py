"""Recorded NATS traffic as a trace: a text that ``plumbline verify URL --trace`` plays again.

The handshake, PING and PONG outside the exchange, and sizes are left out, since the player does without.
What differs from run to run becomes a hole: times, and the parts of ack subjects, which the client gives back
as it got them. Of JetStream's answers only the fields below are kept: those that say what happened, not when
and to whom. Inboxes get short names.
The language: conformance/trace/README.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from plumbline.captures.operations import OperationRow
from plumbline.captures.plain import parsed_json
from plumbline.captures.trace_text import TraceHeader, escaped, without_limit
from plumbline.visible import visible_json
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats import (
    Connect,
    Err,
    HMsg,
    HPub,
    Info,
    Msg,
    Ok,
    Operation,
    Payload,
    Ping,
    Pong,
    Pub,
    Sub,
    Unsub,
)
from plumbline.wire.sender import Direction

# The state of a stream or consumer is not among them: right after an acknowledgement it may be the old one.
STABLE_FIELDS = frozenset({
    "type", "error", "code", "err_code", "stream", "seq", "duplicate", "success", "did_create", "name",
    "stream_name", "config", "subjects", "durable_name", "ack_policy", "deliver_policy", "max_deliver",
    "purged",
})  # fmt: skip
VERIFIES = "CORE-001"
CONNECT_FIELDS = ("verbose", "pedantic", "echo", "no_responders", "headers")  # that change what a server does
API, ACK, INBOX = "$JS.API.", "$JS.ACK.", "_INBOX."
_MEANING_SOMETHING = re.compile(r"[\\{}]")  # in a string of JSON that is sent
_MATCHING_SOMETHING = re.compile(r"[\\{}*]")  # in one that is expected
_NAMED = re.compile(r"[A-Za-z0-9_=-]+")
# Where a request says which stream and consumer it is about: JetStream's API reference.
_ABOUT = (
    re.compile(r"\$JS\.API\.STREAM\.\w+(?:\.\w+)?\.(?P<stream>[^.]+)$"),
    re.compile(r"\$JS\.API\.STREAM\.MSG\.\w+\.(?P<stream>[^.]+)$"),
    re.compile(r"\$JS\.API\.DIRECT\.GET\.(?P<stream>[^.]+)"),
    re.compile(r"\$JS\.API\.CONSUMER\.(?:NAMES|LIST)\.(?P<stream>[^.]+)$"),
    re.compile(r"\$JS\.API\.CONSUMER\.(?:DURABLE\.CREATE|MSG\.NEXT)\.(?P<stream>[^.]+)\.(?P<consumer>[^.]+)"),
    re.compile(r"\$JS\.API\.CONSUMER\.(?:CREATE|INFO|DELETE)\.(?P<stream>[^.]+)(?:\.(?P<consumer>[^.]+))?"),
    re.compile(r"\$JS\.ACK\.(?P<stream>[^.]+)\.(?P<consumer>[^.]+)\.\d+\.\d+\.\d+\.\d{19}\.\d+$"),
)


def write(rows: Iterable[OperationRow], about: TraceHeader) -> str:
    """The trace of these connections; with several, each has a name: ``c1`` for number 1.

    Raises ``ValueError`` if there is nothing that a trace could expect.
    """
    taken = [row for row in rows if isinstance(row.operation, Operation)]
    return _NatsTraceWriter(taken, about).text()


class _NatsTraceWriter:
    def __init__(self, rows: list[OperationRow], about: TraceHeader) -> None:
        self._rows = rows
        self._header = about
        self._numbers = sorted({row.connection.number for row in rows})
        self._inboxes: dict[str, str] = {}
        self._tails: dict[str, str] = {}  # what follows an inbox's name
        self._acks: dict[str, str] = {}  # an ack subject as it came, and with its holes
        self._greeted: set[int] = set()  # connections past the handshake: the client has asked for something
        self._subscribed: dict[
            int, str
        ] = {}  # connections whose last word was a subscription, and their prefix
        self._pings: dict[int, list[bool]] = {}  # PINGs of the client without their PONG: are they shown

    def text(self) -> str:
        steps = [line for row in self._rows for line in self._lines(row)]
        if not any("< " in line.partition("|")[0] for line in steps):
            raise ValueError(
                "the server sent no operation after the handshake, so the trace would expect nothing"
            )
        return "\n".join([*self._header.header(VERIFIES), *self._stage(), "", *steps, ""])

    # -- above the steps ---------------------------------------------------------------------

    def _stage(self) -> list[str]:
        lines = []
        streams, consumers, made = self._objects()
        names = sorted(streams | {consumer for _, consumer in consumers})
        if names:
            lines.append(f"names     {' '.join(names)}")
        for stream in sorted(streams - made):
            lines.append("# It existed before the recording; its configuration is a guess.")
            lines.append(f"given     stream {stream} subjects={','.join(self._subjects_of(stream))}")
        for stream, consumer in sorted(consumers):
            if consumer not in made and stream not in made:
                lines.append(f"given     consumer {stream} {consumer} ack=explicit")
        lines += [
            f"given     connection {self._name(row)} {options}"
            for row in self._rows
            if isinstance(row.operation, Connect) and (options := _options(row.operation))
        ]
        return list(dict.fromkeys(lines))

    def _objects(self) -> tuple[set[str], set[tuple[str, str]], set[str]]:
        """Streams, consumers with their streams, and the names of those that the recording creates."""
        streams: set[str] = set()
        consumers: set[tuple[str, str]] = set()
        made: set[str] = set()
        for subject in self._subjects():
            found = next(filter(None, (about.match(subject) for about in _ABOUT)), None)
            if found is None or not _NAMED.fullmatch(found["stream"]):
                continue
            streams.add(found["stream"])
            consumer = found.groupdict().get("consumer")
            if consumer and _NAMED.fullmatch(consumer):
                consumers.add((found["stream"], consumer))
            if subject.startswith(f"{API}STREAM.CREATE."):
                made.add(found["stream"])
            elif consumer and "CREATE." in subject:
                made.add(consumer)
        return streams, consumers, made

    def _subjects(self) -> Iterable[str]:
        for row in self._rows:
            if isinstance(row.operation, Payload):
                yield row.operation.subject
                yield row.operation.reply or ""

    def _subjects_of(self, stream: str) -> list[str]:
        """Under which subjects the stream's messages came."""
        marked = f"{ACK}{stream}."
        first = {
            row.operation.subject.partition(".")[0]
            for row in self._rows
            if isinstance(row.operation, Payload) and (row.operation.reply or "").startswith(marked)
        }
        return [part for token in sorted(first or {stream}) for part in (token, f"{token}.>")]

    # -- steps -------------------------------------------------------------------------------

    def _name(self, row: OperationRow) -> str:
        return "client" if len(self._numbers) == 1 else f"c{row.connection.number}"

    def _lines(self, row: OperationRow) -> list[str]:
        by_client = row.direction is Direction.TO_SERVER
        text = self._sent(row) if by_client else self._received(row)
        if text is None:
            return []
        lines = self._settled(row) if by_client else []
        return [*lines, without_limit(f"{self._prefix(row)}{'>' if by_client else '<'} {text}")]

    def _prefix(self, row: OperationRow) -> str:
        return "" if len(self._numbers) == 1 else self._name(row)

    def _settled(self, row: OperationRow) -> list[str]:
        """A round trip for other connections whose last word was a subscription: the server has it by now."""
        number = row.connection.number
        others = {other: prefix for other, prefix in self._subscribed.items() if other != number}
        for other in others:
            del self._subscribed[other]
        if isinstance(row.operation, Sub | Unsub):
            self._subscribed[number] = self._prefix(row)
        else:
            self._subscribed.pop(number, None)
        return [line for prefix in others.values() for line in (f"{prefix}> PING", f"{prefix}< PONG")]

    def _sent(self, row: OperationRow) -> str | None:
        operation, number = row.operation, row.connection.number
        match operation:
            case Connect() | Pong():
                return None
            case Ping():
                self._pings.setdefault(number, []).append(number in self._greeted)
                return "PING" if number in self._greeted else None
        self._greeted.add(number)
        match operation:
            case Sub():
                subject = self._subject(operation.subject)
                return " ".join(filter(None, ("SUB", subject, operation.queue, operation.sid)))
            case Unsub():
                return " ".join(
                    ["UNSUB", *(arg.decode("utf-8", "surrogateescape") for arg in operation.args)]
                )
            case Pub() | HPub():
                fields = [self._subject(operation.subject), self._subject(operation.reply)]
                return self._payload(operation, fields, self._request(operation))
        return None

    def _received(self, row: OperationRow) -> str | None:
        operation, number = row.operation, row.connection.number
        match operation:
            case Info() | Ping():
                return None
            case Pong():
                waiting = self._pings.get(number) or [False]
                return "PONG" if waiting.pop(0) else None
            case Ok():
                return "+OK" if number in self._greeted else None
            case Err():
                return f"-ERR '{escaped(operation.message)}'"
            case Msg() | HMsg():
                fields = [
                    self._subject(operation.subject),
                    operation.sid,
                    self._reply_pattern(operation.reply),
                ]
                return self._payload(operation, fields, self._answer(operation))
        return None

    def _subject(self, subject: Any) -> Any:
        """A subject with short names for inboxes, or an ack subject with what was captured of it."""
        if not isinstance(subject, str) or not subject.startswith(INBOX):
            return self._acks.get(subject, subject)
        name, *tail = subject.removeprefix(INBOX).split(".")
        if name in ("*", ">", ""):
            return subject
        number = len(self._inboxes) + 1
        short = self._inboxes.setdefault(name, f"$inbox{number if number > 1 else ''}")
        for token in tail:
            if token not in ("*", ">"):
                self._tails.setdefault(token, f"r{len(self._tails) + 1}")
        return ".".join([short, *(self._tails.get(token, token) for token in tail)])

    def _renamed(self, value: Any) -> Any:
        """JSON with those short names."""
        match value:
            case dict():
                return {name: self._renamed(held) for name, held in value.items()}
            case list():
                return [self._renamed(held) for held in value]
            case str() if value.startswith(INBOX):
                return self._subject(value)
        return value

    def _reply_pattern(self, reply: str | None) -> str | None:
        """A reply subject; in an ack subject the time and the number pending become holes."""
        tokens = (reply or "").split(".")
        if reply is None:
            return None
        if not reply.startswith(ACK) or not re.fullmatch(r"\d{19}", tokens[-2]):
            return str(self._subject(reply))
        number = len(self._acks) + 1
        if reply in self._acks:
            return str(self._acks[reply])
        self._acks[reply] = ".".join([*tokens[:-2], f"{{t{number}}}", f"{{p{number}}}"])
        return ".".join([*tokens[:-2], f"{{t{number}:ns}}", f"{{p{number}:int}}"])

    def _payload(self, operation: Payload, fields: list[str | None], body: str) -> str:
        line = " ".join([operation.verb, *(field for field in fields if field)])
        if not isinstance(operation, HPub | HMsg):
            return f"{line} {body}"
        headers = " | ".join(escaped(text) for text in _header_lines(operation))
        payload = body.removeprefix("| ") if body != "|" else ""
        return f"{line} | {headers} || {payload}".rstrip() if payload else f"{line} | {headers}"

    def _request(self, operation: Payload) -> str:
        body = parsed_json(operation.payload) if operation.subject.startswith(API) else None
        if isinstance(body, dict) and _has_no(_MEANING_SOMETHING, body):
            return visible_json(json.dumps(self._renamed(body), separators=(",", ":"), ensure_ascii=False))
        return _text(operation.payload)

    def _answer(self, operation: Payload) -> str:
        body = parsed_json(operation.payload)
        if isinstance(body, dict) and ("type" in body or {"stream", "seq"} <= body.keys() or "error" in body):
            return visible_json(json.dumps(_stable_fields(body), separators=(",", ":"), ensure_ascii=False))
        return _text(operation.payload)


def _options(connect: Connect) -> str:
    try:
        fields = connect.fields
    except ProtocolError:
        return ""
    usual = {"verbose": False, "pedantic": False, "echo": True}
    options = {
        name: fields[name] for name in CONNECT_FIELDS if name in fields and fields[name] != usual.get(name)
    }
    return " ".join(f"{name}={json.dumps(value)}" for name, value in options.items())


def _header_lines(operation: Payload) -> list[str]:
    text = operation.header_block.decode("utf-8", "surrogateescape")
    return [line for line in text.split("\r\n") if line]


def _has_no(special: re.Pattern[str], value: Any) -> bool:
    """Whether no string in it has such a character."""
    match value:
        case dict():
            return all(_has_no(special, part) for pair in value.items() for part in pair)
        case list():
            return all(_has_no(special, part) for part in value)
        case str():
            return special.search(value) is None
    return True


def _stable_fields(value: dict[str, Any]) -> dict[str, Any]:
    """The fields of an answer that are the same in every run."""
    stable: dict[str, Any] = {}
    for name in value.keys() & STABLE_FIELDS:
        held = _stable_fields(value[name]) if isinstance(value[name], dict) else value[name]
        is_plain = not isinstance(held, list) or all(isinstance(part, str | int) for part in held)
        if is_plain and _has_no(_MATCHING_SOMETHING, held):
            stable[name] = held
    return {name: stable[name] for name in value if name in stable}


def _text(payload: bytes) -> str:
    """A payload behind its bar."""
    return f"| {escaped(payload.decode('utf-8', 'surrogateescape'))}" if payload else "|"
