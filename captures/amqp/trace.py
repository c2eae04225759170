"""Recorded AMQP traffic as a trace: a text that ``plumbline verify URL --trace`` plays again.

The handshake, heartbeats and the first opening of a channel are left out, since the player does them. What
the server made up becomes a capture: names of queues and consumer tags. Counts of queues are not kept, since
they may be late, nor what a broker writes into a dead letter's history. Confirms and what else comes may
cross each other. A confirm of several messages may come as several: such a trace needs an editor.
The language: conformance/trace/README.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from plumbline.captures.amqp.objects import RecordedObjects
from plumbline.captures.operations import OperationRow
from plumbline.captures.trace_text import TraceHeader, escaped, without_limit
from plumbline.visible import visible_json
from plumbline.wire.amqp import OBJECT_ARGUMENTS, SHAPES, Decimal, Method
from plumbline.wire.sender import Direction

VERIFIES = "AMQP-CONN-001"
HANDSHAKE = frozenset(
    f"connection.{name}" for name in ("start", "start-ok", "secure", "secure-ok", "tune", "tune-ok", "open")
) | {"connection.open-ok"}
DELIVERIES = frozenset({"basic.deliver", "basic.get-ok", "basic.return"})
CONFIRMS = frozenset({"basic.ack", "basic.nack"})
# Arguments of the server's answers that are the same in every run.
STABLE_FIELDS: dict[str, tuple[str, ...]] = {
    "queue.declare-ok": ("queue",),
    "basic.consume-ok": ("consumer_tag",),
    "basic.cancel": ("consumer_tag",),
    "basic.cancel-ok": ("consumer_tag",),
    "basic.deliver": ("consumer_tag", "delivery_tag", "redelivered", "exchange", "routing_key"),
    "basic.get-ok": ("delivery_tag", "redelivered", "exchange", "routing_key"),
    "basic.return": ("reply_code", "exchange", "routing_key"),
    "basic.ack": ("delivery_tag",),
    "basic.nack": ("delivery_tag",),
    "channel.close": ("reply_code", "class_id", "method_id"),
    "connection.close": ("reply_code", "class_id", "method_id"),
    "channel.flow": ("active",),
}
HISTORY = frozenset({"x-death"})  # with times
LONG_BODY = 1000  # bytes of a message of which only the size is expected
_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_MEANING_SOMETHING = re.compile(r"[{}*]")


def write(rows: Iterable[OperationRow], about: TraceHeader) -> str:
    """See ``trace_writer.write``."""
    taken = [row for row in rows if isinstance(row.operation, Method)]
    return _AmqpTraceWriter(taken, about).text()


class _AmqpTraceWriter:
    def __init__(self, rows: list[OperationRow], about: TraceHeader) -> None:
        self._rows = rows
        self._header = about
        self._several = len({row.connection.number for row in rows}) > 1
        self._objects = RecordedObjects(rows)
        self._expects = 0  # lines
        self._opened: set[tuple[int, int]] = set()
        self._passed_over: set[tuple[int, int]] = set()  # channels whose open-ok goes without saying
        self._made_up: dict[str, str] = {}  # what the server named, and its capture
        self._taken: set[str] = set()  # names of captures
        self._labels: dict[str, str] = {}  # names that no trace can have, and what it calls them

    def text(self) -> str:
        steps: list[str] = []
        for _, group in groupby(self._rows, self._place):
            lines = [(row, line) for row in group if (line := self._line(row)) is not None]
            crossing = {row.operation.method in CONFIRMS for row, _ in lines} == {True, False}
            is_group = crossing and lines[0][0].direction is Direction.TO_CLIENT
            written = [line for _, line in lines]
            steps += ["in any order", *written, "end"] if is_group else written
        if not self._expects:
            raise ValueError(
                "the server sent no operation after the handshake, so the trace would expect nothing"
            )
        header = [*self._header.header(VERIFIES), "protocol  amqp", *self._stage()]
        return "\n".join([*header, "", *steps, ""])

    def _place(self, row: OperationRow) -> tuple[int, Any, int]:
        return row.connection.number, row.direction, row.operation.channel

    # -- above the steps ---------------------------------------------------------------------

    def _stage(self) -> Iterator[str]:
        objects = self._objects
        if objects.existing_queues or objects.existing_exchanges:
            yield "# It existed before the recording; its arguments are a guess."
        for name in objects.existing_exchanges:
            yield f"given     exchange {self._label(name)} type=topic"
        for name in objects.existing_queues:
            yield f"given     queue {self._label(name)}"
        for queue, message in objects.existing_messages:
            fields = " ".join(self._content(message, expected=False))
            yield f"given     message {self._label(queue)} {fields}".rstrip()

    # -- steps -------------------------------------------------------------------------------

    def _line(self, row: OperationRow) -> str | None:
        method: Method = row.operation
        if method.method in HANDSHAKE:
            return None
        channel = row.connection.number, method.channel
        if method.method == "channel.open" and channel not in self._opened:
            self._opened.add(channel)
            self._passed_over.add(channel)
            return None
        if method.method == "channel.open-ok" and channel in self._passed_over:
            self._passed_over.discard(channel)
            return None
        by_client = row.direction is Direction.TO_SERVER
        fields = self._sent(method) if by_client else self._received(row)
        self._expects += not by_client
        usual = 0 if method.method.startswith("connection.") else 1
        where = [f"[{method.channel}]"] if method.channel != usual else []
        named = f"c{row.connection.number}" if self._several else ""
        words = [f"{named}{'>' if by_client else '<'}", *where, method.method, *fields]
        return without_limit(" ".join(words))

    def _sent(self, method: Method) -> list[str]:
        fields = [
            self._argument(method, name)
            for name, value in method.arguments.items()
            if not name.startswith("reserved_") and value != SHAPES[method.method].defaults[name]
        ]
        return [*fields, *self._content(method, expected=False)]

    def _received(self, row: OperationRow) -> list[str]:
        method: Method = row.operation
        is_older = self._objects.is_first_existing_delivery(row)
        names = [
            name for name in STABLE_FIELDS.get(method.method, ()) if not (is_older and name == "redelivered")
        ]
        if is_older and method.arguments["exchange"]:
            names = [name for name in names if name not in ("exchange", "routing_key")]
        fields = [self._argument(method, name, expected=True) for name in names]
        return [*fields, *self._content(method, expected=True)]

    def _argument(self, method: Method, name: str, *, expected: bool = False) -> str:
        value = method.arguments[name]
        if expected and isinstance(value, str) and self._is_server_named(method, name, value):
            return f"{name}={self._capture(name, value)}"
        return f"{name}={self._shown(name, value)}"

    def _is_server_named(self, method: Method, name: str, value: str) -> bool:
        """Whether the server chose this name: the client had left it empty."""
        chosen = self._objects.chosen_by_server
        return value not in self._made_up and (method.method, name) in NAMED_BY_SERVER and value in chosen

    def _capture(self, name: str, value: str) -> str:
        word = {"queue": "queue", "consumer_tag": "tag"}[name]
        capture = next(found for n in range(1, 10**9) if (found := f"{word}{n}") not in self._taken)
        self._taken.add(capture)
        self._made_up[value] = f"{{{capture}}}"
        return self._made_up[value]

    def _content(self, method: Method, *, expected: bool) -> list[str]:
        if method.properties is None:
            return []
        properties = dict(method.properties)
        if expected and isinstance(headers := properties.get("headers"), Mapping):
            properties["headers"] = {name: value for name, value in headers.items() if name not in HISTORY}
        fields = [f"{name}={self._shown(name, value)}" for name, value in properties.items()]
        if expected and len(method.body) > LONG_BODY:
            return [*fields, f"body_size={len(method.body)}"]
        body = method.body.decode("utf-8", "surrogateescape")
        return [*fields, f'body="{escaped(body)}"'] if body or expected else fields

    # -- values ------------------------------------------------------------------------------

    def _shown(self, name: str, value: Any) -> str:
        if isinstance(value, Mapping):
            return _json(value)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int):
            return str(int(value))
        text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
        if text in self._made_up:
            return self._made_up[text]
        if name in OBJECT_ARGUMENTS or (name == "routing_key" and text in self._objects.names):
            text = self._label(text)
        return text if re.fullmatch(r"[\w.#/-]+", text, re.ASCII) else f'"{escaped(text)}"'

    def _label(self, name: str) -> str:
        """What the trace calls a queue or an exchange: a word."""
        if not name or name.startswith("amq.") or _LABEL.fullmatch(name):
            return name
        if name not in self._labels:
            word = re.sub(r"[^A-Za-z0-9_-]", "_", name)
            self._labels[name] = word if word[0].isalpha() else f"n{word}"
        return self._labels[name]


NAMED_BY_SERVER = frozenset({("queue.declare-ok", "queue"), ("basic.consume-ok", "consumer_tag")})


def _json(value: Any) -> str:
    """A table; texts that would mean something in a trace are written with escapes of JSON."""
    text = visible_json(json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False))
    strings = re.compile(r'"(?:[^"\\]|\\.)*"')
    return strings.sub(
        lambda found: _MEANING_SOMETHING.sub(lambda mark: f"\\u{ord(mark[0]):04x}", found[0]), text
    )


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {str(name): _plain(held) for name, held in value.items()}
        case Decimal():
            return value.value / 10**value.scale
        case list() | tuple():
            return [_plain(held) for held in value]
        case bytes():
            return value.decode("utf-8", "backslashreplace")
    return value
