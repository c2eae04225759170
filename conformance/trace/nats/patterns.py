"""Patterns for NATS operations in traces, and their differences from received operations. Pure.

What a pattern does not write must not be there (a reply subject, a status), except sizes, further
headers and further JSON fields; a payload or header block that is not written at all may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from msgspec import Struct

from plumbline.conformance.trace.json_text import JsonText
from plumbline.conformance.trace.language import Mismatch
from plumbline.conformance.trace.segments import HeaderBlock, JsonPayload, PayloadText, printable
from plumbline.conformance.trace.template import (
    Subject,
    Template,
    TraceScope,
    is_absent,
    match,
    plain,
    show,
    token_difference,
)
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats import Err, HMsg, Info, Msg, Operation, Ping
from plumbline.wire.nats.headers import Headers
from plumbline.wire.nats.jetstream.acks import without_account

# ADR-15, "JS Ack": a trace writes the layout of nine tokens for the meaning of both layouts.
ACK_TOKENS = 9
STATUS_DIGITS = 3


class FixedPattern(Struct, frozen=True):
    """An operation without fields, or INFO with any."""

    stream: ClassVar[None] = None

    verb: str

    @property
    def explicit_kinds(self) -> tuple[type[Operation], ...]:
        return {"PING": (Ping,), "INFO": (Info,)}.get(self.verb, ())

    def show(self, scope: TraceScope) -> str:
        return self.verb

    def differences(self, operation: Any, scope: TraceScope) -> list[Mismatch]:
        return _verb(self.verb, operation)


class InfoPattern(Struct, frozen=True):
    """``INFO {...}``: the fields given."""

    stream: ClassVar[None] = None

    json: JsonText

    @property
    def explicit_kinds(self) -> tuple[type[Operation], ...]:
        return (Info,)

    def show(self, scope: TraceScope) -> str:
        return f"INFO {self.json.show(scope)}"

    def differences(self, operation: Any, scope: TraceScope) -> list[Mismatch]:
        if not isinstance(operation, Info):
            return _verb("INFO", operation)
        found = operation.raw[len("INFO") : operation.head]
        return [
            Mismatch(what.replace("payload", "INFO", 1), expected, actual)
            for what, expected, actual in self.json.differences(found, scope)
        ]


class ErrPattern(Struct, frozen=True):
    """``-ERR 'text'``; documents and servers differ in the case of the text, so case counts for nothing."""

    stream: ClassVar[None] = None

    message: Template | None

    @property
    def explicit_kinds(self) -> tuple[type[Operation], ...]:
        return ()

    def show(self, scope: TraceScope) -> str:
        return "-ERR" if self.message is None else f"-ERR '{show(self.message, scope)}'"

    def differences(self, operation: Any, scope: TraceScope) -> list[Mismatch]:
        if not isinstance(operation, Err):
            return _verb("-ERR", operation)
        expected = self.message
        if expected is None or match(expected, operation.message, scope, re.DOTALL | re.IGNORECASE):
            return []
        return [Mismatch("message", show(expected, scope), operation.message)]


class DeliveryPattern(Struct, frozen=True):
    """``MSG`` and ``HMSG``. A block or a payload of None may be anything; a reply of None must not come."""

    stream: ClassVar[None] = None

    verb: str
    subject: Subject
    sid: Template
    reply: Subject | None
    sizes: tuple[Template, ...]
    block: HeaderBlock | None
    payload: PayloadText | None

    @property
    def explicit_kinds(self) -> tuple[type[Operation], ...]:
        return ()

    def show(self, scope: TraceScope) -> str:
        fields = [self.verb, show(self.subject.template(scope), scope), show(self.sid, scope)]
        fields += [] if self.reply is None else [show(self.reply.template(scope), scope)]
        text = " ".join(fields + [show(size, scope) for size in self.sizes])
        if self.block is not None:
            text += f" | {self.block.show(scope)}"
        if self.payload is not None and (self.payload.show(scope) or self.block is None):
            bar = "" if self.verb == "MSG" and isinstance(self.payload, JsonPayload) else "| "
            text += f" {bar if self.block is None else '|| '}{self.payload.show(scope)}"
        return text.rstrip()

    def differences(self, operation: Any, scope: TraceScope) -> list[Mismatch]:
        if operation.verb != self.verb or not isinstance(operation, Msg | HMsg):
            return _verb(self.verb, operation)
        return [
            *self._line(operation, scope),
            *self._block(operation, scope),
            *self._payload(operation, scope),
        ]

    def _line(self, operation: Msg | HMsg, scope: TraceScope) -> Iterator[Mismatch]:
        yield from _dotted("subject", self.subject, operation.subject, scope)
        yield from _field("sid", self.sid, operation.sid, scope)
        if self.reply is not None:
            yield from _dotted("reply", self.reply, self._meaning(operation.reply, scope), scope)
        elif operation.reply is not None:
            yield Mismatch("reply", "none", operation.reply)
        names = ("size",) if len(self.sizes) == 1 else ("header size", "total size")
        found = [arg.decode() for arg in operation.args[-len(self.sizes) :]] if self.sizes else []
        for name, size, actual in zip(names, self.sizes, found, strict=False):
            yield from _field(name, size, actual, scope)

    def _meaning(self, reply: str | None, scope: TraceScope) -> str | None:
        """The reply subject; in the layout of nine tokens if the trace writes that one."""
        if reply is None or self.reply is None or len(self.reply.tokens) != ACK_TOKENS:
            return reply
        written = without_account(reply)
        if written != reply:
            scope.received[written] = reply
        return written

    def _block(self, operation: Msg | HMsg, scope: TraceScope) -> Iterator[Mismatch]:
        if self.block is None:
            return
        try:
            headers = operation.headers or Headers(None, ())
        except ProtocolError as error:
            yield Mismatch("headers", "a header block", str(error))
            return
        status = "" if headers.status is None else str(headers.status)
        if headers.status is not None and (plain(self.block.status) or "").isdigit():
            status = status[:STATUS_DIGITS]  # a code alone says nothing of the description
        if not match(self.block.status, status, scope):
            yield Mismatch("status", show(self.block.status, scope) or "none", status or "none")
        left = list(headers.fields)
        for header in self.block.fields:
            expected = header.value.resolved(scope)
            found = [value for name, value in left if name == header.name]
            if is_absent(expected):
                if found:
                    yield Mismatch(f"header {header.name}", "no such header", " and ".join(found))
                continue
            fitting = next(
                (field for field in left if field[0] == header.name and match(expected, field[1], scope)),
                None,
            )
            if fitting is not None:
                left.remove(fitting)
                continue
            yield Mismatch(
                f"header {header.name}", show(expected, scope), " and ".join(found) or "no such header"
            )

    def _payload(self, operation: Msg | HMsg, scope: TraceScope) -> Iterator[Mismatch]:
        if self.payload is not None:
            yield from self.payload.differences(operation.payload, scope)


def _verb(verb: str, operation: Any) -> list[Mismatch]:
    return [] if operation.verb == verb else [Mismatch("operation", verb, operation.verb)]


def _field(what: str, template: Template, actual: str, scope: TraceScope) -> Iterator[Mismatch]:
    if not match(template, actual, scope):
        yield Mismatch(what, show(template, scope), printable(actual))


def _dotted(what: str, subject: Subject, actual: str | None, scope: TraceScope) -> Iterator[Mismatch]:
    template = subject.template(scope)
    expected = show(template, scope)
    if actual is None:
        yield Mismatch(what, expected, "none")
    elif not match(template, actual, scope):
        apart = token_difference(expected, actual)
        yield Mismatch(what, expected, actual + (f" ({apart})" if apart else ""))
