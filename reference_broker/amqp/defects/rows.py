"""Defects that are rows of TOML: other arguments of a method that comes in or goes out, another refusal.

Every ``*.toml`` below this folder has a table for each defect; its key is the name of the defect::

    [consume-no-wait-is-answered]
    breaks = ["AMQP-CONSUME-008"]
    summary = "basic.consume with no_wait is answered all the same."
    kind = "received"
    method = "basic.consume"
    set = { no_wait = false }
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection, Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import Defect, add, replace
from plumbline.reference_broker.amqp.defects.alterations import (
    before_handling,
    forgives,
    handling,
    on_faults,
    with_arguments,
)
from plumbline.reference_broker.amqp.errors import AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.wire.amqp import SHAPES, Method
from plumbline.wire.errors import ErrorKind

Arguments = Mapping[str, Any]


class Row(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """A defect, and the arguments with which it shows: all values of ``when``, and none of ``unless``."""

    breaks: tuple[str, ...]
    summary: str
    when: dict[str, Any] = {}
    unless: dict[str, Any] = {}

    def applies(self, arguments: Arguments) -> bool:
        """Whether the defect shows with these arguments."""
        return all(arguments[name] == value for name, value in self.when.items()) and not any(
            arguments[name] == value for name, value in self.unless.items()
        )

    def alter(self, broker: Broker) -> None:
        """Give the broker this defect."""
        raise NotImplementedError


class OnReceived(Row, tag="received", kw_only=True, frozen=True):
    """``method`` of a client comes with other arguments, on an open channel."""

    method: str
    set: dict[str, Any]

    def alter(self, broker: Broker) -> None:
        def change(channel: Channel, operation: Method) -> Method:
            changes = self.applies(operation.arguments)
            return with_arguments(operation, **self.set) if changes else operation

        before_handling(broker, self.method, change)


class OnSent(Row, tag="sent", kw_only=True, frozen=True):
    """``methods`` without content are sent with other arguments, or (``drop``) not at all.

    ``channel`` is an argument here, too: the number of the channel.
    """

    methods: tuple[str, ...]
    set: dict[str, Any] = {}
    drop: bool = False

    def alter(self, broker: Broker) -> None:
        original = broker.outbox.send

        def send(connection: AmqpClientConnection, number: int, method: str, *values: Any) -> None:
            if method not in self.methods:
                original(connection, number, method, *values)
                return
            arguments = dict(zip(SHAPES[method].defaults, values, strict=True), channel=number)
            if not self.applies(arguments):
                original(connection, number, method, *values)
            elif not self.drop:
                arguments |= self.set
                number = arguments.pop("channel")
                original(connection, number, method, *arguments.values())

        replace(broker.outbox, "send", send)


class Change(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Another reply code, or another method to name: its class and number."""

    code: int | None = None
    cause: tuple[int, int] | None = None


class OnRefusal(Row, tag="refusal", kw_only=True, frozen=True):
    """A refusal with ``code`` (0: any) and ``text`` in its reason, of these methods (globs).

    It has another code or cause (``set``), or is none (``drop``), or the broker sends ``answer`` instead.
    """

    code: int = 0
    text: str = ""
    methods: tuple[str, ...] = ("*",)
    except_: tuple[str, ...] = msgspec.field(name="except", default=())
    set: Change = Change()
    drop: bool = False
    answer: str = ""

    def alter(self, broker: Broker) -> None:
        def change(
            connection: AmqpClientConnection, operation: Method, fault: AmqpReplyError
        ) -> AmqpReplyError | None:
            if not self._is_of(operation.method) or not self.applies(operation.arguments):
                return fault
            if self.answer:
                defaults = SHAPES[self.answer].defaults.values()
                broker.outbox.send(connection, operation.channel, self.answer, *defaults)
            if self.answer or self.drop:
                return None
            return AmqpReplyError(self.set.code or fault.code, fault.detail, self.set.cause or fault.cause)

        on_faults(broker, change, code=self.code, text=self.text)

    def _is_of(self, method: str) -> bool:
        return _matches(method, self.methods) and not _matches(method, self.except_)


class OnMalformed(Row, tag="malformed", kw_only=True, frozen=True):
    """Frames with this error are dropped, with all that came with them.

    Its message has one of ``texts`` in it, and names ``cause``: a class and a method.
    """

    error: ErrorKind
    texts: tuple[str, ...] = ("",)
    cause: tuple[int, int] | None = None

    def alter(self, broker: Broker) -> None:
        for text in self.texts:
            forgives(broker, self.error, cause=self.cause, words=text)


class OnPermission(Row, tag="permission", kw_only=True, frozen=True):
    """While ``method`` is handled, another permission is looked for in the place of ``right``: ``instead``,
    or none. ``of`` is the kind of object it is for, exchange or queue; "": either. With ``also``, that
    permission for the default exchange is needed, too."""

    method: str
    right: str = ""
    of: str = ""
    instead: str = ""
    also: str = ""

    def alter(self, broker: Broker) -> None:
        original = broker.access.check
        handled: list[Method] = []

        @handling(broker, self.method)
        def handle(handler: Handler, channel: Channel, operation: Method, now: int) -> None:
            if self.also and self.applies(operation.arguments):
                original(channel.connection, self.also, "exchange", "")
            handled.append(operation)
            try:
                handler(channel, operation, now)
            finally:
                handled.clear()

        def check(connection: AmqpClientConnection, right: str, kind: str, name: str) -> None:
            is_meant = right == self.right and self.of in ("", kind)
            if not handled or not is_meant or not self.applies(handled[0].arguments):
                original(connection, right, kind, name)
            elif self.instead:
                original(connection, self.instead, kind, name)

        replace(broker.access, "check", check)


AnyRow = OnReceived | OnSent | OnRefusal | OnMalformed | OnPermission


def read(text: str) -> list[Defect]:
    """The defects of one file. Raises ``tomllib.TOMLDecodeError`` or ``msgspec.ValidationError``."""
    rows = msgspec.convert(tomllib.loads(text), dict[str, AnyRow])
    return [Defect(name, row.breaks, row.summary, row.alter) for name, row in rows.items()]


def _matches(method: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(method, pattern) for pattern in patterns)


for _file in sorted(Path(__file__).parent.rglob("*.toml")):
    for _defect in read(_file.read_text("utf-8")):
        add(_defect)
