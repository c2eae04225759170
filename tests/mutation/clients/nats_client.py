"""A small client library for NATS, its connection: the whole twin of what ``nats_defects`` alters.

It waits in the main thread, reads in another, and has an inbox for each request.
"""

from __future__ import annotations

import itertools
import json
import queue
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats import (
    Connect,
    Decoder,
    HMsg,
    HPub,
    Info,
    Msg,
    Operation,
    Ping,
    Pong,
    Pub,
    Sender,
    Sub,
    Unsub,
)

NS = 1_000_000_000
Came = Msg | HMsg


class LibraryError(Exception):
    """What this library tells its user."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.handed: dict[str, Any] | None = None  # what it hands over although there is an error


class Subscription:
    """What is subscribed: where its messages go, how many may come, how many came."""

    def __init__(self, take: Callable[[Came], None]) -> None:
        self.take = take
        self.most = 0
        self.received = 0


def say(**line: Any) -> None:
    """One line to Plumbline; also from the thread that reads."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def status_of(operation: Came) -> tuple[int, str] | None:
    """Code and description of a status; None for a message."""
    headers = operation.headers
    status = headers.status if headers is not None else None
    return None if status is None else (status.code, status.description)


class Client:
    """One connection."""

    def __init__(self) -> None:
        self.socket: socket.socket | None = None
        self.subscriptions: dict[int, Subscription] = {}
        self.waiting: dict[str, queue.SimpleQueue[Came]] = {}
        self.pongs = threading.Semaphore(0)
        self.lock = threading.Lock()
        self.sids = itertools.count(1)
        self.is_lost = False

    def inbox(self) -> str:
        """A subject that nobody else uses."""
        return f"_INBOX.{secrets.token_hex(8)}"

    # -- the connection ----------------------------------------------------------------------

    def greeting(self) -> list[Operation]:
        """What is sent first."""
        told = {"lang": "twin", "version": "1.0.0", "protocol": 1, "verbose": False, "pedantic": False}
        return [Connect.make({**told, "headers": True, "no_responders": True}), Ping.make()]

    def connect(self, url: str) -> None:
        """INFO, CONNECT, PING, PONG; then a thread reads."""
        parts = urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port or 4222), 5)
        threading.Thread(target=self.read, args=(self.socket,), daemon=True).start()
        self.send(*self.greeting())
        self.await_pong()

    def send(self, *operations: Operation) -> None:
        """Raises ``LibraryError`` once the connection is lost."""
        if self.socket is None or self.is_lost:
            raise LibraryError("connection closed")
        with self.lock:
            self.socket.sendall(b"".join(operation.raw for operation in operations))

    def flush(self) -> None:
        """Once the server has read all that was sent."""
        self.send(Ping.make())
        self.await_pong()

    def await_pong(self) -> None:
        if not self.pongs.acquire(timeout=4):
            raise LibraryError("no PONG")

    def close(self) -> None:
        """Nothing comes any more."""
        if self.socket is not None:
            self.is_lost = True
            self.socket.shutdown(socket.SHUT_RDWR)
            self.socket.close()

    def read(self, link: socket.socket) -> None:
        """Until the connection ends."""
        decoder = Decoder(Sender.SERVER)
        try:
            while data := link.recv(65536):
                for operation in decoder.feed(data):
                    self.came(operation)
        except (OSError, ProtocolError):
            pass
        if not self.is_lost:
            self.is_lost = True
            say(event="closed")

    def came(self, operation: Operation) -> None:
        match operation:
            case Ping():
                self.answer_ping()
            case Pong():
                self.pongs.release()
            case Info():
                pass
            case Msg() | HMsg():
                self.route(operation)

    def answer_ping(self) -> None:
        self.send(Pong.make())

    def route(self, operation: Came) -> None:
        """To its subscription, if there is one that may have it."""
        subscription = self.subscriptions.get(int(operation.sid))
        if subscription is None:
            self.unwanted(operation)
            return
        subscription.received += 1
        if subscription.most and subscription.received >= subscription.most:
            del self.subscriptions[int(operation.sid)]
        subscription.take(operation)

    def unwanted(self, operation: Came) -> None:
        """For nobody, or nobody any more."""

    # -- subjects ----------------------------------------------------------------------------

    def subscribe(self, subject: str, take: Callable[[Came], None], group: str = "") -> int:
        sid = next(self.sids)
        self.subscriptions[sid] = Subscription(take)
        self.send(Sub.make(subject, sid, group or None))
        return sid

    def unsubscribe(self, sid: int, most: int = 0) -> None:
        """At once, or after so many messages in all."""
        if most and sid in self.subscriptions:
            self.subscriptions[sid].most = most
        else:
            self.subscriptions.pop(sid, None)
        self.send(Unsub.make(sid, most or None))

    def publish(self, subject: str, data: bytes, headers: Mapping[str, str], reply: str = "") -> None:
        fields = list(headers.items())
        self.send(
            HPub.make(subject, fields, data, reply or None)
            if fields
            else Pub.make(subject, data, reply or None)
        )

    def request(
        self, subject: str, data: bytes = b"", headers: Mapping[str, str] | None = None, timeout: float = 1.0
    ) -> Came:
        """The answer. Raises ``LibraryError`` if none comes, or nobody listens."""
        inbox = self.inbox()
        arrived: queue.SimpleQueue[Came] = queue.SimpleQueue()
        self.waiting[inbox] = arrived
        sid = self.subscribe(inbox, self.answer)
        try:
            self.publish(subject, data, headers or {}, inbox)
            answer = self.await_answer(arrived, timeout)
        finally:
            del self.waiting[inbox]
            self.end_request(sid)
        self.refuse_status(answer)
        return answer

    def answer(self, operation: Came) -> None:
        """To the request that it answers."""
        arrived = self.waiting.get(operation.subject)
        if arrived is not None:
            arrived.put(operation)

    def end_request(self, sid: int) -> None:
        if not self.is_lost:
            self.unsubscribe(sid)

    def await_answer(self, arrived: queue.SimpleQueue[Came], timeout: float) -> Came:
        try:
            return arrived.get(timeout=timeout)
        except queue.Empty:
            raise LibraryError("timeout") from None

    def refuse_status(self, operation: Came) -> None:
        status = status_of(operation)
        if status is not None:
            raise LibraryError(status[1] or "no responders", status[0])
