"""A small client library for NATS, its connection: the whole twin of what ``nats_defects`` alters.

It waits in the main thread, reads in another, and has an inbox for each request. The thread that reads also
connects again.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import secrets
import socket
import ssl
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats import (
    Connect,
    Decoder,
    Err,
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
from tests.mutation.clients.nats_tls import EncryptedSocket

NS = 1_000_000_000
BUFFER_BYTES = 8 * 1024 * 1024  # of publishes without a connection, unless the user sets a limit
CONNECT_WITHIN_S = 5.0
FLUSH_WITHIN_S = 10.0  # unless the command has less
Came = Msg | HMsg
Link = socket.socket | EncryptedSocket


class LibraryError(Exception):
    """An error that this library reports to its user."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.handed: dict[str, Any] | None = None  # what it hands over although there is an error


class Subscription:
    """What is subscribed: where its messages go, how many may come, how many came."""

    def __init__(self, take: Callable[[Came], None], subject: str, group: str) -> None:
        self.take = take
        self.subject = subject
        self.group = group
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


def first_info(link: socket.socket) -> Info:
    """The first line of a server, and nothing behind it. Raises ``OSError``."""
    line = b""
    while not line.endswith(b"\n"):
        byte = link.recv(1)
        if not byte:
            raise ConnectionError("the server closed the connection before INFO")
        line += byte
    (info,) = Decoder(Sender.SERVER).feed(line)
    assert isinstance(info, Info)
    return info


class Client:
    """One connection, made again when it is lost if the user wants that."""

    def __init__(self) -> None:
        self.socket: Link | None = None
        self.authority = ""  # a file
        self.wants_tls = False
        self.subscriptions: dict[int, Subscription] = {}
        self.waiting: dict[str, queue.SimpleQueue[Came]] = {}
        self.pongs = threading.Semaphore(0)
        self.flush_within_s = FLUSH_WITHIN_S
        self.own_pings: deque[bool] = deque()  # of each PING without PONG: whether no flush waits for it
        self.lock = threading.RLock()
        self.sids = itertools.count(1)
        self.is_lost = False  # for good
        self.is_down = False  # until it is connected again
        self.reconnects = False
        self.reconnect_wait_s = 0.1
        self.reconnected = 0  # how often
        self.servers: list[tuple[str, int]] = []
        self.buffer: list[Operation] = []
        self.buffer_bytes = BUFFER_BYTES
        self.ping_s = 0.0
        self.pings_out = 2
        self.unanswered = 0  # PINGs
        self.over = threading.Event()
        self.info: dict[str, Any] = {}
        self.has_info = threading.Event()
        self.after_reconnect: list[Callable[[], None]] = []

    def inbox(self) -> str:
        """A subject with no other user."""
        return f"_INBOX.{secrets.token_hex(8)}"

    # -- the connection ----------------------------------------------------------------------

    def greeting(self) -> list[Operation]:
        """What is sent first."""
        fields = {"lang": "twin", "version": "1.0.0", "protocol": 1, "verbose": False, "pedantic": False}
        return [Connect.make({**fields, "headers": True, "no_responders": True}), Ping.make()]

    def connect(self, url: str) -> None:
        """INFO, CONNECT, PING, PONG; then a thread reads."""
        parts = urlsplit(url)
        self.wants_tls = parts.scheme == "tls"
        self.servers = [(parts.hostname or "", parts.port or 4222)]
        plain = socket.create_connection(self.servers[0], CONNECT_WITHIN_S)
        try:
            info = first_info(plain)
            self.socket = self.secure(plain, info, self.servers[0][0])
        except OSError as error:
            plain.close()
            raise LibraryError(str(error)) from None
        plain.settimeout(None)
        self.came(info)
        threading.Thread(target=self.read, args=(self.socket,), daemon=True).start()
        self.send(*self.greeting())
        self.await_pong()
        if self.ping_s:
            threading.Thread(target=self.keep_alive, daemon=True).start()

    def secure(self, plain: socket.socket, info: Info, host: str) -> Link:
        """TLS, if the server or the user asks for it. Raises ``OSError``."""
        if not self.wants_tls and not info.fields.get("tls_required"):
            return plain
        return EncryptedSocket(plain, self.tls_context(), host)

    def tls_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority or None)

    def send(self, *operations: Operation) -> None:
        """Raises ``LibraryError`` once the connection is lost for good, or while nothing but publishes can
        wait."""
        if self.socket is None or self.is_lost:
            raise LibraryError("connection closed")
        with self.lock:
            if self.is_down:
                self.keep(operations)
                return
            try:
                self.socket.sendall(b"".join(operation.raw for operation in operations))
            except OSError:
                if not self.reconnects:
                    raise LibraryError("connection closed") from None

    def keep(self, operations: tuple[Operation, ...]) -> None:
        """Until there is a connection; subscriptions come back anyway. Raises ``LibraryError``."""
        publishes = [one for one in operations if isinstance(one, Pub | HPub)]
        if any(isinstance(one, Ping) for one in operations):
            raise LibraryError("no connection")
        if sum(len(one.raw) for one in (*self.buffer, *publishes)) > self.buffer_bytes:
            self.buffer_is_full()
        self.buffer += publishes

    def buffer_is_full(self) -> None:
        raise LibraryError("the buffer is full")

    def flush(self) -> None:
        """Once the server has read all that was sent."""
        with self.lock:
            self.own_pings.append(False)  # first: its PONG may come before ``send`` has returned
            self.send(Ping.make())
        self.await_pong()

    def await_pong(self) -> None:
        if not self.pongs.acquire(timeout=self.flush_within_s):
            raise LibraryError("no PONG")

    def close(self) -> None:
        """Nothing comes any more."""
        if self.socket is not None:
            self.is_lost = True
            self.over.set()
            self.cut()
            self.socket.close()

    def cut(self) -> None:
        """End the connection; the thread that reads sees its end."""
        assert self.socket is not None
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def drain(self) -> None:
        """End the subscriptions, hand over what is on its way, then close."""
        for sid in list(self.subscriptions):
            self.end_subscription(sid)
        self.flush()
        self.subscriptions.clear()
        self.close()
        say(event="closed")

    def end_subscription(self, sid: int) -> None:
        """On the wire; what is on its way is still handed over."""
        self.send(Unsub.make(sid))

    # -- a connection that is lost -----------------------------------------------------------

    def read(self, link: Link) -> None:
        """Until the connection ends, and is not made again."""
        self.read_all(link)
        while self.reconnects and not self.is_lost:
            self.lost()
            again = self.connect_again()
            if again is None:
                break
            self.read_all(again)
        if not self.is_lost:
            self.is_lost = True
            say(event="closed")

    def read_all(self, link: Link) -> None:
        """Until this connection ends."""
        decoder = Decoder(Sender.SERVER)
        try:
            while data := link.recv(65536):
                for operation in decoder.feed(data):
                    self.came(operation)
        except (OSError, ProtocolError):
            pass

    def lost(self) -> None:
        """The connection is no more, and will be made again."""
        with self.lock:
            self.is_down = True
            self.own_pings.clear()
            self.unanswered = 0
        say(event="disconnected")

    def connect_again(self) -> Link | None:
        """Tries one server after the other, for as long as the user wants a connection."""
        for number in itertools.count():
            if self.is_lost:
                return None
            host = self.servers[number % len(self.servers)]
            try:
                plain = socket.create_connection(host, CONNECT_WITHIN_S)
                link = self.secure(plain, first_info(plain), host[0])
                plain.settimeout(None)
                self.resume(link)
                return link
            except OSError:
                pass
            self.wait_before_retry()
        return None

    def wait_before_retry(self) -> None:
        self.over.wait(self.reconnect_wait_s)

    def resume(self, link: Link) -> None:
        """Greets, subscribes again, sends what has waited."""
        with self.lock:
            operations = self.greeting()
            for sid, subscription in self.subscriptions.items():
                operations += self.subscribe_again(sid, subscription)
            operations += self.buffer
            self.buffer = []
            self.own_pings.appendleft(True)  # of the greeting, before one that has waited
            link.sendall(b"".join(operation.raw for operation in operations))
            self.socket = link
            self.is_down = False
            self.reconnected += 1
        say(event="reconnected")
        for act in self.after_reconnect:
            act()

    def subscribe_again(self, sid: int, subscription: Subscription) -> list[Operation]:
        """SUB, and UNSUB with the rest of its maximum."""
        found: list[Operation] = [Sub.make(subscription.subject, sid, subscription.group or None)]
        if subscription.most:
            found.append(Unsub.make(sid, subscription.most - subscription.received))
        return found

    def keep_alive(self) -> None:
        """PING at each interval; too many without PONG end the connection."""
        while not self.over.wait(self.ping_s):
            with self.lock:
                if self.is_down:
                    continue
                if self.unanswered >= self.pings_out:
                    self.stale()
                    continue
                self.unanswered += 1
                self.own_pings.append(True)
                self.send(Ping.make())

    def stale(self) -> None:
        self.unanswered = 0
        self.cut()

    # -- what comes --------------------------------------------------------------------------

    def came(self, operation: Operation) -> None:
        match operation:
            case Ping():
                self.answer_ping()
            case Pong():
                self.answered()
            case Info():
                self.informed(operation.fields)
            case Err():
                self.refused(operation.message)
            case Msg() | HMsg():
                self.route(operation)

    def answered(self) -> None:
        """PONG: for a flush, or for this library."""
        self.unanswered = 0
        if not (self.own_pings.popleft() if self.own_pings else False):
            self.pongs.release()

    def informed(self, info: dict[str, Any]) -> None:
        """INFO: the first one, and each that follows."""
        self.info = info
        self.has_info.set()
        self.learn(info)
        if info.get("ldm"):
            self.lame_duck()

    def learn(self, info: dict[str, Any]) -> None:
        """Servers to go to."""
        for url in info.get("connect_urls") or ():
            host, _, port = url.rpartition(":")
            if (host, int(port)) not in self.servers:
                self.servers.append((host, int(port)))

    def lame_duck(self) -> None:
        say(event="lame-duck")

    def refused(self, message: str) -> None:
        """-ERR: the server closes the connection if it has to."""
        say(event="error", text=message, type="server")

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
        """For no subscription, or none any more."""

    # -- subjects ----------------------------------------------------------------------------

    def subscribe(self, subject: str, take: Callable[[Came], None], group: str = "") -> int:
        sid = next(self.sids)
        self.subscriptions[sid] = Subscription(take, subject, group)
        self.send(Sub.make(subject, sid, group or None))
        return sid

    def unsubscribe(self, sid: int, most: int = 0) -> None:
        """At once, or after so many messages in all."""
        if most and sid in self.subscriptions:
            self.subscriptions[sid].most = most
        else:
            self.forget(sid)
        self.send(Unsub.make(sid, most or None))

    def unsubscribe_later(self, *sids: int) -> None:
        """Once what is on its way has been handed over. A defect of ``drain`` is none of this."""
        for sid in sids:
            self.send(Unsub.make(sid))
        self.flush()
        for sid in sids:
            self.forget(sid)

    def forget(self, sid: int) -> None:
        self.subscriptions.pop(sid, None)

    def publish(self, subject: str, data: bytes, headers: Mapping[str, str], reply: str = "") -> None:
        fields = list(headers.items())
        self.check_size(len(data))
        self.send(
            HPub.make(subject, fields, data, reply or None)
            if fields
            else Pub.make(subject, data, reply or None)
        )

    def check_size(self, size: int) -> None:
        """Raises ``LibraryError`` for more than the server takes."""
        if self.has_info.wait(CONNECT_WITHIN_S) and size > self.info["max_payload"]:
            raise LibraryError("maximum payload exceeded")

    def request(
        self, subject: str, data: bytes = b"", headers: Mapping[str, str] | None = None, timeout: float = 1.0
    ) -> Came:
        """The answer. Raises ``LibraryError`` if none comes, or there is no subscriber."""
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
