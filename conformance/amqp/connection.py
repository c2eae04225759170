"""One AMQP connection of a check to the target. What connections share: ``base_connection``.

Its streams are its channels: who waits on one hears what comes on it, and what comes on channel 0. A channel
is opened when it is first used, unless the check opens its channels itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from plumbline.bounds import OPERATION_BYTES
from plumbline.conformance.amqp.handshake import open_, start_ok, tune_ok
from plumbline.conformance.limits import DEFAULT_WITHIN_S
from plumbline.conformance.outcomes import Failed
from plumbline.conformance.sessions.connection import BaseConnection, ConnectionContext
from plumbline.conformance.targets.links import Link
from plumbline.conformance.targets.urls import AmqpUrl
from plumbline.wire.amqp import (
    DEFAULT_FRAME_MAX,
    Decoder,
    FrameType,
    Heartbeat,
    Limits,
    Method,
    Operation,
    ProtocolHeader,
    Raw,
    Sender,
    content_frames,
    frame,
)
from plumbline.wire.amqp.secrets import SECRETS

HANDSHAKE_S = 5.0
FLUSH_S = 2.0
QUEUE_TYPE = "x-queue-type"
CLASSIC, QUORUM = "classic", "quorum"
CLASSIC_ONLY = ("x-max-priority", "x-queue-mode")  # arguments
ALARMS = ("connection.blocked", "connection.unblocked")
# A refusal for what the login may not do, in the words of RabbitMQ and LavinMQ. Not so an exclusive queue or
# a reserved name, which are refused with the same code.
ACCESS_REFUSED = 403
_NO_PERMISSION = re.compile(r"\b(user|permissions?)\b", re.IGNORECASE)
# A check may see what a server sends too large; the decoder must not be what refuses it.
LIMITS = Limits(frame_max=OPERATION_BYTES, max_body=OPERATION_BYTES)


class Alarm(Method, frozen=True, gc=False):
    """connection.blocked or connection.unblocked: a server short of memory or disk sends them at any time."""


class _AlarmDecoder(Decoder):
    """As ``Decoder``; alarms are of a type of their own, so that they can be skipped."""

    def feed(self, data: bytes) -> list[Operation]:
        return [_as_alarm(operation) for operation in super().feed(data)]


def _as_alarm(operation: Operation) -> Operation:
    if not isinstance(operation, Method) or operation.method not in ALARMS:
        return operation
    return Alarm(
        operation.raw,
        operation.channel,
        operation.shape,
        operation.arguments,
        operation.properties,
        operation.head,
    )


class AmqpConnection(BaseConnection):
    """An AMQP client under the check's full control."""

    unsolicited = (Heartbeat, Alarm)
    liveness_request = "channel.open"

    def __init__(self, name: str, link: Link, wiring: ConnectionContext) -> None:
        self._flows_due: Counter[int] = Counter()  # channel.flow-ok, by channel
        super().__init__(name, link, _AlarmDecoder(Sender.SERVER, LIMITS), wiring)
        self.start: Method | None = None  # connection.start, if a handshake took it
        self.tuned: dict[str, Any] = {}  # the arguments of our connection.tune-ok
        self.opens_channels = True
        self._used: set[int] = set()  # channels that are not opened by themselves any more
        self._open_channels: set[int] = set()  # channels that are open, as far as we know
        self.declared: set[str] = set()  # queues that the server has named: it may make up a name
        self.missing_permission = ""  # the server's refusal, if the login lacked a permission
        self.queue_type: Callable[[], str] | None = None  # what queues are declared as: queue_types
        self.blocked = ""  # why the server makes publishers wait, while it does
        self._spare = 0  # the channel that channel.open has asked whether the server is alive
        self._asked = 0  # the channel that channel.flow has
        self._is_raw = False  # a check wrote bytes of its own: a content may be unfinished

    # -- out ---------------------------------------------------------------------------------

    def send(self, *operations: Operation) -> None:
        """As the base; opens channels that are used for the first time."""
        for operation in operations:
            if isinstance(operation, Method) and operation.channel and operation.channel not in self._used:
                self._used.add(operation.channel)
                if self.opens_channels and operation.method != "channel.open":
                    self._open_channel(operation.channel)
        if self.queue_type is not None and any(map(_declares_queue, operations)):
            queue_type = self.queue_type()
            if queue_type:
                operations = tuple(with_queue_type(operation, queue_type) for operation in operations)
        self._is_raw |= any(isinstance(operation, Raw) for operation in operations)
        super().send(*map(self._split_body, operations))
        for operation in operations:
            self._follow(operation)
            self._flows_due[operation.channel] += operation.method == "channel.flow"

    def _split_body(self, operation: Operation) -> Operation:
        """With body frames as small as was agreed."""
        frame_max = self.tuned.get("frame_max") or DEFAULT_FRAME_MAX
        if (
            not isinstance(operation, Method)
            or operation.properties is None
            or len(operation.raw) <= frame_max
        ):
            return operation
        head = operation.raw[: operation.head]
        content = content_frames(
            operation.channel, operation.raw_properties, operation.body, frame_max=frame_max
        )
        return Method(
            head + content,
            operation.channel,
            operation.shape,
            operation.arguments,
            operation.properties,
            operation.head,
        )

    def send_bytes(self, data: bytes) -> None:
        """Write any bytes at all."""
        self.send(Raw.make(data))

    def call(self, method: str, channel: int = 1, *, within: float = FLUSH_S, **arguments: Any) -> Method:
        """Send a method and expect its ``-ok``. Raises as ``expect``."""
        self.send(Method.make(method, channel, **arguments))
        return self.expect(f"{method}-ok", channel, within=within)

    def _open_channel(self, channel: int) -> None:
        super().send(Method.make("channel.open", channel))
        self._next(channel, "channel.open-ok", f"channel {channel} was refused")
        self._open_channels.add(channel)

    def _follow(self, operation: Operation) -> None:
        """Which channels are open now."""
        match operation.method:
            case "channel.close":
                self._open_channels.discard(operation.channel)
            case "channel.open-ok":
                self._open_channels.add(operation.channel)
            case "connection.close":
                self._open_channels.clear()
                self.may_end = True

    def _journal_text(self, operation: Operation) -> tuple[str, bytes]:
        return str(redacted(operation)), redacted(operation).raw

    def _auto_reply(self, operation: Operation) -> None:
        if operation.method == "channel.flow-ok":
            self._flows_due[operation.channel] = max(self._flows_due[operation.channel] - 1, 0)
        if operation.channel != self._spare or not self._spare:
            self._follow(operation)
        if not isinstance(operation, Method):
            return
        match operation.method:
            case "queue.declare-ok":
                self.declared.add(operation.arguments["queue"])
            case "connection.blocked":
                self.blocked = operation.arguments["reason"] or "no reason given"
            case "connection.unblocked":
                self.blocked = ""
            case "channel.close" if operation.arguments["reply_code"] == ACCESS_REFUSED:
                text = operation.arguments["reply_text"]
                if _NO_PERMISSION.search(text):
                    self.missing_permission = text

    @property
    def is_blocked(self) -> bool:
        return bool(self.blocked)

    def _send_liveness_request(self, stream: int | None) -> bool:
        """On an open channel, where a server answers in order: what it is still busy with comes first."""
        if not self.tuned or self.may_end:
            return False
        self.asked_on_stream = stream in self._open_channels and not self._is_raw
        if stream is not None and self.asked_on_stream:
            self._asked = stream
            self.liveness_request = "channel.flow"
            super().send(Method.make("channel.flow", stream, active=True))
            return True
        self.liveness_request = type(self).liveness_request
        channel_max = self.tuned.get("channel_max") or 65535
        self._spare = next(
            (number for number in range(channel_max, 65536) if number not in self._open_channels), channel_max
        )
        super().send(Method.make("channel.open", self._spare))
        return True

    def _is_liveness_reply(self, operation: Operation) -> bool:
        if operation.method == "channel.flow-ok":
            return operation.channel == self._asked
        return operation.channel == self._spare and operation.method == "channel.open-ok"

    def _liveness_replies_due(self, stream: int | None) -> int:
        return 0 if stream is None else self._flows_due[stream]

    def _is_on_stream(self, operation: Operation, stream: int | None) -> bool:
        return stream is None or operation.channel in (stream, 0)

    # -- evidence ----------------------------------------------------------------------------

    def expect(
        self,
        method: str,
        channel: int | None = None,
        *,
        within: float = DEFAULT_WITHIN_S,
        body: bytes | None = None,
        properties: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> Method:
        """The next operation on ``channel`` (0 for class connection, else 1), which must be ``method``.

        It must have these arguments, this body, these properties among others. Raises ``Failed`` or
        ``Inconclusive``.
        """
        number = (0 if method.startswith("connection.") else 1) if channel is None else channel
        given = {name.rstrip("_"): value for name, value in arguments.items()}
        fields = {**given, **(properties or {}), **({} if body is None else {"body": body})}
        expected = " ".join([f"[{number}]", method, *(f"{name}={value!r}" for name, value in fields.items())])

        def judge(operation: Operation) -> None:
            different = _differences(operation, method, number, given, body, properties or {})
            if different:
                self.mark_offending(operation)
                raise Failed(f"{self.name}: {'; '.join(different)}", expected=expected, actual=str(operation))

        operation = self.arrival(within, expected, stream=number, judge=judge).operation
        self._on_evidence()
        assert isinstance(operation, Method)
        return operation

    def flush(self, within: float = FLUSH_S) -> list[Operation]:
        """channel.flow on every open channel, and what comes before its answers. Raises as ``arrival``."""
        waiting = set(self._open_channels)
        before: list[Operation] = []
        for channel in sorted(waiting):
            self.send(Method.make("channel.flow", channel, active=True))
        while waiting:
            operation = self.arrival(within, "channel.flow-ok").operation
            if operation.method == "channel.flow-ok":
                waiting.discard(operation.channel)
            else:
                before.append(operation)
                waiting &= self._open_channels
        return before

    # -- handshake ---------------------------------------------------------------------------

    def handshake(self, url: AmqpUrl, options: dict[str, Any]) -> None:
        """Protocol header to connection.open-ok. Raises ``Failed`` if the target does not keep to it."""
        self.send(ProtocolHeader.make())
        self.start = self._next(0, "connection.start", "the protocol header was refused")
        self.send(start_ok(url, options))
        tune = self._next(0, "connection.tune", "the login was refused")
        answer = tune_ok(tune, options)
        self.send(answer, open_(url, options))
        self._next(0, "connection.open-ok", "the connection was refused")
        self.tuned = dict(answer.arguments)

    def _next(self, channel: int, method: str, failure: str) -> Method:
        """A step of ours, which is no evidence."""

        def judge(operation: Operation) -> None:
            if operation.method != method:
                self.mark_offending(operation)
                raise Failed(f"{self.name}: {failure}", expected=method, actual=str(operation))

        operation = self.arrival(HANDSHAKE_S, method, stream=channel, judge=judge).operation
        assert isinstance(operation, Method)
        return operation


def _declares_queue(operation: Operation) -> bool:
    return isinstance(operation, Method) and operation.method == "queue.declare"


def with_queue_type(operation: Operation, queue_type: str) -> Operation:
    """queue.declare with ``queue_type``, unless it names a type, only asks for the queue, or asks for what
    only classic queues are: RabbitMQ makes a classic queue of it, whatever its default type is."""
    if not isinstance(operation, Method) or not _declares_queue(operation):
        return operation
    table = operation.arguments["arguments"]
    if QUEUE_TYPE in table or operation.arguments["passive"]:
        return operation
    if queue_type == QUORUM and _is_classic(operation):
        return operation
    arguments = {**operation.arguments, "arguments": {**table, QUEUE_TYPE: queue_type}}
    return Method.make(operation.method, operation.channel, **arguments)


def _is_classic(operation: Method) -> bool:
    """Quorum queues are durable, and neither exclusive nor temporary: RabbitMQ, "Quorum Queues"."""
    asked = operation.arguments
    is_lasting = asked["durable"] and not asked["exclusive"] and not asked["auto_delete"]
    return not is_lasting or any(name in asked["arguments"] for name in CLASSIC_ONLY)


def redacted(operation: Operation) -> Operation:
    """``operation``, or a copy whose secrets are asterisks, at equal length."""
    if not isinstance(operation, Method) or operation.method not in SECRETS:
        return operation
    name = SECRETS[operation.method]
    secret = str(operation.arguments[name]).encode("utf-8", "surrogateescape")
    masked = {**operation.arguments, name: "*" * len(secret)}
    raw = frame(FrameType.METHOD, operation.channel, operation.shape.encode(masked))
    return Method(raw, operation.channel, operation.shape, masked, operation.properties, operation.head)


def _differences(
    operation: Operation,
    method: str,
    channel: int,
    arguments: dict[str, Any],
    body: bytes | None,
    properties: dict[str, Any],
) -> list[str]:
    if operation.method != method:
        return [f"expected {method}, got {operation.method}"]
    assert isinstance(operation, Method)
    found = [f"channel: expected {channel}, got {operation.channel}"] if operation.channel != channel else []
    for expected, actual in ((arguments, operation.arguments), (properties, operation.properties or {})):
        found += [
            f"{name}: expected {value!r}, got {actual.get(name)!r}"
            for name, value in expected.items()
            if actual.get(name) != value
        ]
    if body is not None and operation.body != body:
        found.append(f"body: expected {body[:100]!r}, got {operation.body[:100]!r}")
    return found
