"""A JetStream service on a workbench: a host that remembers what was sent, a clock that is moved by hand."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from plumbline.reference_broker.nats.jetstream.service import JetStream, JetStreamConfig
from plumbline.reference_broker.nats.levels import NEWEST, Level
from plumbline.wire.nats.headers import Headers
from plumbline.wire.nats.subjects import covers
from plumbline.wire.units import SECOND

START = 1_795_245_184_000_000_000  # nanoseconds since the epoch
INBOX = b"_INBOX.pull"
OLDEST: Level = (2, 9)
LEVELS = (OLDEST, NEWEST)


class Sent(Struct, frozen=True):
    """One message that reached a subscriber. ``target`` is what it was routed by."""

    target: bytes
    subject: bytes
    reply: bytes | None
    header_block: bytes
    payload: bytes
    at: float  # seconds since the start

    @property
    def status(self) -> str:
        """``404 No Messages``; empty for a message."""
        if not self.header_block:
            return ""
        status = Headers.parse(self.header_block).status
        return "" if status is None else str(status)

    def __str__(self) -> str:
        """``subject payload``, or the status with its headers."""
        if self.status:
            fields = Headers.parse(self.header_block).fields
            return " ".join([self.status, *(f"{name}={value}" for name, value in fields)])
        return f"{self.subject.decode()} {self.payload.decode()}"


class Bench:
    """One service, one client."""

    def __init__(self, level: Level = NEWEST) -> None:
        self.now = START
        self.sent: list[Sent] = []
        self.subscriptions: list[bytes] = [b"_INBOX.>"]
        self.jetstream = JetStream(JetStreamConfig(level=level, random=Random(7)), self)

    # Host

    def publish(self, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes) -> int:
        return self.deliver(subject, subject, reply, header_block, payload)

    def deliver(
        self, target: bytes, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes
    ) -> int:
        count = sum(covers(pattern, target) for pattern in self.subscriptions)
        if count:
            at = (self.now - START) / SECOND
            self.sent.append(Sent(target, subject, reply, header_block, payload, at))
        return count

    def has_interest(self, subject: bytes) -> bool:
        return any(covers(pattern, subject) for pattern in self.subscriptions)

    def requester(self) -> dict[str, Any]:
        return {"acc": "$G", "server": "bench"}

    def has_subscriber(self, subject: bytes, queue: bytes | None) -> bool:
        return queue is None and subject in self.subscriptions

    def forget_routes(self) -> None:
        """Nothing is remembered here."""

    # The client

    def subscribe(self, subject: bytes) -> None:
        self.subscriptions.append(subject)
        self.jetstream.on_subscribed(subject, self.now)

    def unsubscribe(self, subject: bytes) -> None:
        self.subscriptions.remove(subject)
        self.jetstream.on_unsubscribed(subject, self.now)

    def send(
        self, subject: str | bytes, payload: bytes = b"", reply: bytes | None = None, headers: bytes = b""
    ) -> bool:
        target = subject.encode() if isinstance(subject, str) else subject
        return self.jetstream.on_message(target, reply, headers, payload, self.now)

    def request(self, subject: str, body: Any = b"", headers: bytes = b"") -> dict[str, Any]:
        """An API request or a publish, and the one reply to it, decoded."""
        payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
        before = len(self.sent)
        self.send(subject, payload, b"_INBOX.api", headers)
        replies = [sent for sent in self.sent[before:] if sent.target == b"_INBOX.api"]
        assert len(replies) == 1, f"{subject}: {len(replies)} replies"
        self.sent.remove(replies[0])
        answer: dict[str, Any] = msgspec.json.decode(replies[0].payload)
        return answer

    def api(self, verb: str, body: Any = b"") -> dict[str, Any]:
        answer = self.request(f"$JS.API.{verb}", body)
        assert "error" not in answer, answer["error"]
        return answer

    def error(self, verb: str, body: Any = b"") -> str:
        """``10059 stream not found``."""
        error = self.request(f"$JS.API.{verb}", body)["error"]
        return f"{error['err_code']} {error['description']}"

    def stream(self, name: str, **config: Any) -> dict[str, Any]:
        return self.api(f"STREAM.CREATE.{name}", {"name": name, "storage": "memory", **config})

    def consumer(self, stream: str, name: str, **config: Any) -> dict[str, Any]:
        body = {
            "stream_name": stream,
            "config": {"durable_name": name, "ack_policy": "explicit", **config},
        }
        return self.api(f"CONSUMER.DURABLE.CREATE.{stream}.{name}", body)

    def pull(self, stream: str, consumer: str, body: Any = b"", inbox: bytes = INBOX) -> list[Sent]:
        """What the inbox gets at once."""
        payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
        before = len(self.sent)
        self.send(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", payload, inbox)
        return self.sent[before:]

    def advance(self, seconds: float) -> list[Sent]:
        """Let time pass, and run what falls due meanwhile at its moment; what was sent."""
        end = self.now + round(seconds * SECOND)
        before = len(self.sent)
        while (due := self.jetstream.next_wake()) is not None and due <= end:
            self.now = max(due, self.now)
            self.jetstream.wake(self.now)
        self.now = end
        return self.sent[before:]

    def state(self, stream: str, consumer: str) -> str:
        """``delivered 1/1 ack_floor 0/0 ack_pending 1 redelivered 0 waiting 0 pending 0``."""
        info = self.api(f"CONSUMER.INFO.{stream}.{consumer}")
        delivered, floor = info["delivered"], info["ack_floor"]
        return (
            f"delivered {delivered['consumer_seq']}/{delivered['stream_seq']} "
            f"ack_floor {floor['consumer_seq']}/{floor['stream_seq']} ack_pending {info['num_ack_pending']} "
            f"redelivered {info['num_redelivered']} waiting {info['num_waiting']} "
            f"pending {info['num_pending']}"
        )

    def stream_state(self, stream: str) -> str:
        """``msgs 1 bytes 53 first 1 last 1``."""
        state = self.api(f"STREAM.INFO.{stream}")["state"]
        held = f"msgs {state['messages']} bytes {state['bytes']}"
        return f"{held} first {state['first_seq']} last {state['last_seq']}"


def shown(messages: list[Sent]) -> list[str]:
    return [str(message) for message in messages]
