"""A small client library for NATS with its adapter, as ADR-13 and the deep dive want it: the whole twin.

``nats_defects`` alters one method or one value of it. It waits in the main thread, reads in another, and has
one inbox for each fetch. ``python -m tests.mutation.clients [DEFECT]`` runs it.
"""

from __future__ import annotations

import itertools
import json
import queue
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from wire.errors import ProtocolError
from wire.jetstream import PullRequest, api_subject, next_subject
from wire.nats import Connect, Decoder, HMsg, HPub, Info, Msg, Operation, Ping, Pong, Pub, Sender, Sub, Unsub

FEATURES = [
    "publish", "request", "subscribe", "unsubscribe.after", "js.publish", "fetch", "fetch.no_wait",
    "fetch.heartbeat", "consume", "push", "ack", "ack.nak", "ack.nak.delay", "ack.progress", "ack.term",
    "ack.term.reason", "ack.next", "ack.next.batch", "ack.sync",
]  # fmt: skip
EARLIER_S = 0.1  # ADR-13: a request expires so much before the client gives up
NS = 1_000_000_000
Came = Msg | HMsg


class LibraryError(Exception):
    """What this library tells its user."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class Subscription:
    """What is subscribed: where its messages go, how many may come, how many came."""

    def __init__(self, take: Callable[[Came], None]) -> None:
        self.take = take
        self.most = 0
        self.received = 0


class Pull:
    """One fetch: its inbox, and what came for it."""

    def __init__(self, inbox: str, sid: int, arrived: queue.SimpleQueue[Came]) -> None:
        self.inbox = inbox
        self.sid = sid
        self.arrived = arrived


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
            say(event="disconnected")

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


class JetStream:
    """Streams and consumers over a client."""

    PAYLOADS: Mapping[str, bytes] = {
        "ack": b"+ACK", "nak": b"-NAK", "progress": b"+WPI", "term": b"+TERM", "next": b"+NXT",
    }  # fmt: skip

    def __init__(self, client: Client) -> None:
        self.client = client
        self.payloads = dict(self.PAYLOADS)
        self.acknowledged: set[str] = set()

    def publish(
        self, subject: str, data: bytes, headers: Mapping[str, str], timeout: float
    ) -> dict[str, Any]:
        """The PubAck."""
        answer = self.client.request(subject, data, headers, timeout)
        return self.pub_ack(json.loads(answer.payload))

    def pub_ack(self, told: dict[str, Any]) -> dict[str, Any]:
        if error := told.get("error"):
            raise LibraryError(error["description"], error["err_code"])
        return {"stream": told["stream"], "seq": told["seq"], "duplicate": bool(told.get("duplicate"))}

    def id_header(self, msg_id: str) -> dict[str, str]:
        return {"Nats-Msg-Id": msg_id} if msg_id else {}

    # -- fetching ----------------------------------------------------------------------------

    def open_pull(self) -> Pull:
        """An inbox of its own for one fetch."""
        arrived: queue.SimpleQueue[Came] = queue.SimpleQueue()
        inbox = self.client.inbox()
        return Pull(inbox, self.client.subscribe(inbox, arrived.put), arrived)

    def close_pull(self, pull: Pull) -> None:
        if pull.sid in self.client.subscriptions:
            self.client.unsubscribe(pull.sid)

    def ask(self, pull: Pull, stream: str, consumer: str, request: PullRequest) -> None:
        self.client.publish(next_subject(stream, consumer), request.encode(), {}, pull.inbox)

    def first_request(self, batch: int, timeout: float, heartbeat: float) -> PullRequest:
        return PullRequest(batch=batch, no_wait=True)

    def lingering_request(self, batch: int, left: float, heartbeat: float) -> PullRequest:
        expires = int((left - EARLIER_S) * NS)
        return PullRequest(batch=batch, expires=expires, idle_heartbeat=int(heartbeat * NS))

    def unsubscribe_max(self, batch: int) -> int:
        """ADR-13: the batch, and the status that has come already. It knows of no heartbeats."""
        return batch + 1

    def fetch(
        self, stream: str, consumer: str, batch: int, timeout: float, *, no_wait: bool, heartbeat: float
    ) -> tuple[list[Came], LibraryError | None]:
        """What came, and the error that ended it."""
        deadline = time.monotonic() + timeout
        pull = self.open_pull()
        found: list[Came] = []
        try:
            self.ask(pull, stream, consumer, self.first_request(batch, timeout, heartbeat))
            may_linger = not no_wait
            while len(found) < batch:
                operation = self.next_of(pull, deadline)
                status = status_of(operation)
                if status is None or self.is_handed_over(status[0]):
                    found.append(operation)
                    continue
                if status[0] == 404 and may_linger and not found:
                    may_linger = False
                    if not heartbeat:
                        self.client.unsubscribe(pull.sid, self.unsubscribe_max(batch))
                    left = deadline - time.monotonic()
                    self.ask(pull, stream, consumer, self.lingering_request(batch, left, heartbeat))
                elif status[0] != 100:
                    return self.ended(found, status)
        except LibraryError as error:
            return found, None if found else error
        finally:
            self.close_pull(pull)
        return found, None

    def next_of(self, pull: Pull, deadline: float) -> Came:
        try:
            return pull.arrived.get(timeout=max(0, deadline - time.monotonic()))
        except queue.Empty:
            raise LibraryError("timeout") from None

    def is_handed_over(self, status: int) -> bool:
        """Whether a status of that code is given to the user as if it were a message."""
        return False

    def ended(self, found: list[Came], status: tuple[int, str]) -> tuple[list[Came], LibraryError | None]:
        """A status has ended the request."""
        code, description = status
        return found, None if found and code in (404, 408) else LibraryError(description or "status", code)

    # -- acknowledging -----------------------------------------------------------------------

    def acknowledge(self, message: Came, kind: str, command: Mapping[str, Any]) -> None:
        if kind != "progress":
            self.refuse_second(message)
        payload, reply = self.payloads[kind], ""
        if kind == "nak" and "delay_ms" in command:
            payload += b" " + self.delay(command["delay_ms"])
        if kind == "term" and "reason" in command:
            payload += b" " + self.reason(command["reason"])
        if kind == "next":
            reply = self.next_reply()
            payload += b" " + self.next_batch(command["batch"]) if "batch" in command else b""
        self.client.publish(self.ack_subject(message), payload, {}, reply)

    def delay(self, milliseconds: int) -> bytes:
        return json.dumps({"delay": milliseconds * 1_000_000}).encode()

    def reason(self, text: str) -> bytes:
        return text.encode()

    def next_reply(self) -> str:
        return self.client.inbox()

    def next_batch(self, batch: int) -> bytes:
        return str(batch).encode()

    def ack_subject(self, message: Came) -> str:
        return message.reply or ""

    def refuse_second(self, message: Came) -> None:
        """Raises ``LibraryError`` if it is acknowledged already."""
        if message.reply in self.acknowledged:
            raise LibraryError("message was already acknowledged")
        self.acknowledged.add(message.reply or "")

    def acknowledge_twice(self, message: Came, timeout: float) -> None:
        """A double ack: done when the server has confirmed it."""
        self.refuse_second(message)
        self.client.request(self.ack_subject(message), self.payloads["ack"], None, timeout)


class Consuming:
    """Requests that follow each other; in the thread that reads, but for the watch over heartbeats."""

    def __init__(
        self, stream: JetStream, name: str, command: Mapping[str, Any], hand: Callable[[Came], Any]
    ) -> None:
        self.js = stream
        self.name = name
        self.stream, self.consumer = command["stream"], command["consumer"]
        heartbeat_ms = command.get("heartbeat_ms", 15_000)
        self.heartbeat = heartbeat_ms / 1000
        self.request = PullRequest(
            batch=command.get("batch", 100),
            expires=command.get("expires_ms", 30_000) * 1_000_000,
            idle_heartbeat=heartbeat_ms * 1_000_000,
        )
        self.hand = hand
        self.heard = time.monotonic()
        self.over = threading.Event()
        self.inbox = stream.client.inbox()
        self.sid = stream.client.subscribe(self.inbox, self.take)
        self.ask()
        threading.Thread(target=self.watch, daemon=True).start()

    def ask(self) -> None:
        subject = next_subject(self.stream, self.consumer)
        self.js.client.publish(subject, self.request.encode(), {}, self.inbox)

    def take(self, operation: Came) -> None:
        self.heard = time.monotonic()
        status = status_of(operation)
        if status is None:
            self.hand(operation)
        elif status[1] == "Consumer Deleted" or status[0] == 503:
            self.deleted()
        elif status[0] != 100:
            self.request_ended()

    def request_ended(self) -> None:
        if not self.over.is_set():
            self.ask()

    def deleted(self) -> None:
        self.over.set()
        say(event="ended", subscription=self.name, text="Consumer Deleted")

    def watch(self) -> None:
        """ADR-37: twice the interval without anything is told."""
        while not self.over.wait(self.heartbeat / 2):
            if time.monotonic() - self.heard > 2 * self.heartbeat:
                self.missed()
                self.heard = time.monotonic()

    def missed(self) -> None:
        say(event="error", subscription=self.name, text="no heartbeat")

    def stop(self) -> None:
        self.over.set()
        self.js.client.unsubscribe(self.sid)


class Adapter:
    """Commands in, what the library gave and told out."""

    def __init__(self) -> None:
        self.alter: Callable[[Client, JetStream], None] = lambda client, js: None
        self.messages: dict[int, Came] = {}
        self.subscriptions: dict[str, int] = {}
        self.consuming: dict[str, Consuming] = {}
        self.numbers = itertools.count(1)
        self.client = Client()
        self.js = JetStream(self.client)

    def handed(self, operation: Came) -> dict[str, Any]:
        ref = next(self.numbers)
        self.messages[ref] = operation
        headers: dict[str, list[str]] = {}
        for name, value in operation.headers.fields if operation.headers is not None else ():
            headers.setdefault(name, []).append(value)
        return {
            "ref": ref,
            "subject": operation.subject,
            "reply": operation.reply or "",
            "data": operation.payload.decode("latin-1"),
            "headers": headers,
        }

    def into(self, name: str) -> Callable[[Came], None]:
        return lambda operation: say(event="message", subscription=name, message=self.handed(operation))

    def do(self, name: str, command: dict[str, Any]) -> dict[str, Any] | None:
        """One command. Raises ``LibraryError``."""
        data = command.get("data", "").encode("latin-1")
        timeout = command.get("timeout_ms", 1000) / 1000
        headers = command.get("headers", {})
        client, js = self.client, self.js
        match name:
            case "connect":
                self.client = Client()
                self.js = JetStream(self.client)
                self.alter(self.client, self.js)
                self.client.connect(command["url"])
            case "flush":
                client.flush()
            case "close":
                client.close()
            case "publish":
                client.publish(command["subject"], data, headers, command.get("reply", ""))
            case "request":
                return {"message": self.handed(client.request(command["subject"], data, headers, timeout))}
            case "subscribe":
                name = command["subscription"]
                take, group = self.into(name), command.get("queue", "")
                self.subscriptions[name] = client.subscribe(command["subject"], take, group)
            case "unsubscribe":
                client.unsubscribe(self.subscriptions[command["subscription"]], command.get("after", 0))
            case "js.publish":
                named = {**headers, **js.id_header(command.get("msg_id", ""))}
                return js.publish(command["subject"], data, named, timeout)
            case "fetch":
                return self.fetch(command)
            case "consume":
                name = command["subscription"]
                self.consuming[name] = Consuming(js, name, command, self.into(name))
            case "stop":
                self.consuming[command["subscription"]].stop()
            case "js.subscribe":
                self.push(command)
            case "ack":
                js.acknowledge(self.messages[command["ref"]], command.get("kind", "ack"), command)
            case "ack.sync":
                js.acknowledge_twice(self.messages[command["ref"]], timeout)
            case _:
                raise LibraryError("unknown command")
        return None

    def fetch(self, command: dict[str, Any]) -> dict[str, Any]:
        found, error = self.js.fetch(
            command["stream"],
            command["consumer"],
            command["batch"],
            command["expires_ms"] / 1000,
            no_wait=command.get("no_wait", False),
            heartbeat=command.get("heartbeat_ms", 0) / 1000,
        )
        if error is not None and not found:
            raise error
        return {"messages": [self.handed(operation) for operation in found]}

    def push(self, command: dict[str, Any]) -> None:
        info = self.client.request(api_subject("CONSUMER.INFO", command["stream"], command["consumer"]))
        subject = json.loads(info.payload)["config"]["deliver_subject"]
        hand = self.into(command["subscription"])
        self.client.subscribe(subject, lambda operation: self.pushed(operation, hand))

    def pushed(self, operation: Came, hand: Callable[[Came], None]) -> None:
        """A message for the user, or a status of the push consumer."""
        if status_of(operation) is None or self.js.is_handed_over(100):
            hand(operation)
        elif operation.reply:
            self.answer_flow_control(operation.reply)

    def answer_flow_control(self, reply: str) -> None:
        self.client.publish(reply, b"", {})


def serve(adapter: Adapter, version: str) -> None:
    """Until stdin ends."""
    say(hello="plumbline.adapter/1", protocol="nats", library="twin", version=version, features=FEATURES)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            say(id=command["id"], ok=adapter.do(command["do"], command) or {})
        except LibraryError as error:
            told = {"text": str(error), "type": "LibraryError"}
            say(id=command["id"], error=told if error.code is None else {**told, "code": error.code})
