"""The recorded operations of a server, translated to the names that the present client chose.

A name that the client chose (an inbox, a sid, a consumer tag, a queue, a correlation id) is learnt from the
operation that has the place of the recorded one. PING and heartbeats are answered as they come.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from plumbline.captures.amqp import dialect as amqp_dialect
from plumbline.captures.dialects import StreamDecoder
from plumbline.captures.nats import dialect as nats_dialect
from plumbline.proxy.replay.renaming import renamed
from plumbline.wire import amqp, nats
from plumbline.wire.errors import ProtocolError

LONG = 8  # characters of a name that is looked for in payloads, too


class ServerReplay(ABC):
    """The server's side of one connection."""

    def __init__(self, decoder: StreamDecoder) -> None:
        self._decoder = decoder
        self._unmatched: list[Any] = []  # and not yet paired with what was recorded
        self._names: dict[str, str] = {}  # then -> now

    def receive(self, data: bytes) -> bytes:
        """Takes what the client sent; what is to be answered at once."""
        operations: Iterable[Any]
        try:
            operations = self._decoder.feed(data)
        except ProtocolError as error:
            operations = error.operations
        answers = b""
        for operation in operations:
            if self.is_recorded_traffic(operation):
                self._unmatched.append(operation)
            else:
                answers += self._answer(operation)
        return answers

    def has_received(self, recorded: Any) -> bool:
        """Whether the client has sent one like it; if so, its names are learnt."""
        now = next((one for one in self._unmatched if self._is_same_operation(recorded, one)), None)
        if now is None:
            return False
        self._unmatched.remove(now)
        for then, new in self._names_of(recorded, now):
            if then and then != new:
                self._names[then] = new
        return True

    def may_send(self, operation: Any) -> bool:
        """Whether the client is ready for it."""
        return operation is not None

    def keep_alive(self) -> bytes:
        """What a client wants to hear from time to time."""
        return b""

    @abstractmethod
    def is_recorded_traffic(self, operation: Any) -> bool:
        """Whether it has a place in the recording, and not its own time."""

    @abstractmethod
    def is_delivery(self, operation: Any) -> bool:
        """Whether another client may have caused it."""

    @abstractmethod
    def translated(self, operation: Any) -> bytes:
        """What the server sent then, for now."""

    @abstractmethod
    def _is_same_operation(self, recorded: Any, now: Any) -> bool: ...

    @abstractmethod
    def _names_of(self, recorded: Any, now: Any) -> Iterator[tuple[str, str]]: ...

    def _answer(self, operation: Any) -> bytes:
        return b""


class NatsServerReplay(ServerReplay):
    """NATS."""

    def __init__(self) -> None:
        super().__init__(nats.Decoder(nats.Sender.CLIENT, nats_dialect.LIMITS))
        self._sids: dict[str, str] = {}
        self._info_sent = False
        self._has_answered = False

    def is_recorded_traffic(self, operation: Any) -> bool:
        return not isinstance(operation, nats.Ping | nats.Pong)

    def is_delivery(self, operation: Any) -> bool:
        return isinstance(operation, nats.Msg | nats.HMsg)

    def may_send(self, operation: Any) -> bool:
        """A second INFO comes after the PONG of the handshake, for which clients wait."""
        return not isinstance(operation, nats.Info) or self._has_answered or not self._info_sent

    def translated(self, operation: Any) -> bytes:
        match operation:
            case nats.Info():
                self._info_sent = True
                return nats.Info.make(_without_connect_urls(operation.fields)).raw
            case nats.Msg() | nats.HMsg():
                return self._message(operation)
        return bytes(operation.raw)

    def _message(self, operation: nats.Msg | nats.HMsg) -> bytes:
        subject, reply = self._renamed(operation.subject), operation.reply and self._renamed(operation.reply)
        sid = self._sids.get(operation.sid, operation.sid)
        payload = operation.payload
        for then, now in self._names.items():
            if len(then) >= LONG:
                payload = payload.replace(then.encode(), now.encode())
        if isinstance(operation, nats.HMsg):
            return nats.HMsg.make(subject, sid, operation.header_block, payload, reply).raw
        return nats.Msg.make(subject, sid, payload, reply).raw

    def _renamed(self, subject: str) -> str:
        """A subject that the client gave, or one below it."""
        if subject in self._names:
            return self._names[subject]
        above, dot, last = subject.rpartition(".")
        return f"{self._names[above]}{dot}{last}" if above in self._names else subject

    def _is_same_operation(self, recorded: Any, now: Any) -> bool:
        if type(recorded) is not type(now):
            return False
        if isinstance(recorded, nats.Pub | nats.HPub):
            return self._first(recorded.subject) == self._first(now.subject)
        return True

    def _first(self, subject: str) -> str:
        return "" if subject in self._names or subject.startswith("_INBOX.") else subject.partition(".")[0]

    def _names_of(self, recorded: Any, now: Any) -> Iterator[tuple[str, str]]:
        match recorded:
            case nats.Sub():
                self._sids[recorded.sid] = now.sid
                yield recorded.subject.removesuffix(".*"), now.subject.removesuffix(".*")
            case nats.Pub() | nats.HPub():
                yield recorded.subject, now.subject
                if recorded.reply and now.reply:
                    yield recorded.reply, now.reply

    def _answer(self, operation: Any) -> bytes:
        if not isinstance(operation, nats.Ping):
            return b""
        self._has_answered = True
        return nats.Pong.make().raw


def _without_connect_urls(fields: Mapping[str, Any]) -> dict[str, Any]:
    """INFO that sends no client elsewhere, and requires nothing that the replay does not do."""
    left_out = ("connect_urls", "ws_connect_urls", "tls_required", "tls_available", "tls_verify")
    return {name: value for name, value in fields.items() if name not in left_out}


class AmqpServerReplay(ServerReplay):
    """AMQP 0-9-1."""

    def __init__(self) -> None:
        super().__init__(amqp.Decoder(amqp.Sender.CLIENT, amqp_dialect.LIMITS))
        self._heartbeat_s = 0.0
        self._sent_at = 0.0

    def is_recorded_traffic(self, operation: Any) -> bool:
        return not isinstance(operation, amqp.Heartbeat)

    def is_delivery(self, operation: Any) -> bool:
        return operation.method in ("basic.deliver", "basic.get-ok")

    def keep_alive(self) -> bytes:
        if not self._heartbeat_s or time.monotonic() < self._sent_at + self._heartbeat_s / 2:
            return b""
        self._sent_at = time.monotonic()
        return amqp.Heartbeat.make().raw

    def translated(self, operation: Any) -> bytes:
        if not isinstance(operation, amqp.Method):
            return bytes(operation.raw)
        arguments = {name: renamed(value, self._names) for name, value in operation.arguments.items()}
        properties = operation.properties and renamed(operation.properties, self._names)
        if arguments == operation.arguments and properties == operation.properties:
            return operation.raw
        return amqp.Method.make(
            operation.method, operation.channel, properties=properties, body=operation.body, **arguments
        ).raw

    def _is_same_operation(self, recorded: Any, now: Any) -> bool:
        if recorded.method != now.method or recorded.channel != now.channel:
            return False
        if now.method == "connection.tune-ok":
            self._heartbeat_s = now.arguments["heartbeat"]
        return True

    def _names_of(self, recorded: Any, now: Any) -> Iterator[tuple[str, str]]:
        if not isinstance(recorded, amqp.Method) or recorded.channel == 0:
            return
        pairs = [(recorded.arguments, now.arguments), (recorded.properties or {}, now.properties or {})]
        for then, new in pairs:
            for name, value in then.items():
                if isinstance(value, str) and isinstance(new.get(name), str):
                    yield value, new[name]
