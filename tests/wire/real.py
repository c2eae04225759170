"""A bare TCP conversation with a real server: bytes out, bytes in, recorded, until a PONG or the end.

It judges nothing. The bytes of the server are kept, so that several decoders can be compared with each other.
"""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from plumbline.wire.nats import Connect, Decoder, HMsg, Limits, Msg, Operation, Ping, Pong, Pub, Sender, Sub
from plumbline.wire.nats.jetstream import ConsumerInfo, api_subject
from plumbline.wire.units import SECOND
from tests.patience import HANGS_AFTER_S

CONNECT = Connect.make({"verbose": False, "headers": True, "no_responders": True, "protocol": 1, "lang": "x"})


class Conversation:
    """One connection. ``heard`` is all that the server sent, as bytes; ``operations`` the same, decoded."""

    def __init__(self, url: str, connect: bytes = CONNECT.raw) -> None:
        host, _, port = url.removeprefix("nats://").rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=HANGS_AFTER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = Decoder(Sender.SERVER, Limits(max_payload=64 * 1024 * 1024))
        self._waiting: list[Operation] = []
        self.heard = b""
        self.operations: list[Operation] = []
        self.next()
        self._socket.sendall(connect)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def say(self, data: bytes | Operation) -> None:
        self._socket.sendall(data.raw if isinstance(data, Operation) else data)

    def next(self) -> Operation | None:
        """The next operation of the server; None at the end of the stream."""
        while not self._waiting:
            if not self._hear():
                return None
        return self._waiting.pop(0)

    def until_pong(self) -> list[Operation]:
        """Sends PING; what came before its PONG."""
        self.say(Ping.make())
        before: list[Operation] = []
        while not isinstance(operation := self.next(), Pong):
            assert operation is not None, f"the server closed: {self.heard[-200:]!r}"
            before.append(operation)
        return before

    def until_end(self) -> list[Operation]:
        """Ends the sending direction; all that the server sends until it closes."""
        with suppress(OSError):  # the server may have closed already
            self._socket.shutdown(socket.SHUT_WR)
        while self._hear():
            pass
        rest, self._waiting = self._waiting, []
        return rest

    def _hear(self) -> bool:
        try:
            data = self._socket.recv(65536)
        except ConnectionResetError:
            return False
        self.heard += data
        decoded = self._decoder.feed(data)
        self.operations += decoded
        self._waiting += decoded
        return bool(data)


class JetStreamConversation(Conversation):
    """Requests and replies on one inbox, and consumers of one stream."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.say(Sub.make("_INBOX.api", 1))

    def request(self, subject: str, payload: bytes = b"") -> bytes:
        """The payload of the first reply."""
        self.say(Pub.make(subject, payload, "_INBOX.api"))
        while (operation := self.next()) is not None:
            if isinstance(operation, Msg | HMsg) and operation.sid == "1":
                return operation.payload
        raise AssertionError(f"no reply to {subject}: {self.heard[-200:]!r}")

    def api(self, verb: str, *names: str, **body: Any) -> dict[str, Any]:
        payload = json.dumps(body).encode() if body else b""
        reply: dict[str, Any] = json.loads(self.request(api_subject(verb, *names), payload))
        assert "error" not in reply, reply
        return reply

    def stream(self, name: str, messages: int) -> None:
        """A stream in memory on the subject of its name, with so many messages in it."""
        self.api("STREAM.CREATE", name, name=name, subjects=[name], storage="memory")
        for _ in range(messages):
            self.request(name)

    def consumer(self, stream: str, name: str, **config: Any) -> None:
        whole = {"durable_name": name, "ack_wait": 3600 * SECOND, **config}
        self.api("CONSUMER.DURABLE.CREATE", stream, name, stream_name=stream, config=whole)

    def info(self, stream: str, name: str) -> ConsumerInfo:
        return ConsumerInfo.of(self.api("CONSUMER.INFO", stream, name))

    def on(self, subject: str) -> list[Msg | HMsg]:
        """What came so far for a subscription with the sid ``subject``, or on that subject."""
        received = (op for op in self.operations if isinstance(op, Msg | HMsg))
        return [op for op in received if subject in (op.subject, op.sid)]
