"""NATS: sound traffic of a JetStream consumer, and episodes that break one rule each."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

from plumbline.wire import nats
from tests.pipeline.support.episodes import Episode, Names, Step, client_sends, server_sends, wrong

STORED_NS = 1_789_999_999_000_000_000


def nats_opening() -> Iterator[Step]:
    yield server_sends(nats.Info.make({"server_id": "S", "version": "2.10.0", "max_payload": 1048576}))
    yield client_sends(nats.Connect.make({"verbose": False, "lang": "python3", "version": "2.10.0"}))
    yield client_sends(nats.Ping.make())
    yield server_sends(nats.Pong.make())


class Consumer:
    """A JetStream consumer of its own stream, read through one subscription."""

    def __init__(self, names: Names) -> None:
        self.number = names.new()
        self.sid = str(self.number)
        self.stream, self.inbox = f"S{self.number}", f"_INBOX.{self.number}"

    def subscribe(self) -> Step:
        return client_sends(nats.Sub.make(f"{self.inbox}.*", self.sid))

    def pull(self, request: int, batch: int) -> Step:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.C"
        return client_sends(nats.Pub.make(subject, b'{"batch":%d}' % batch, f"{self.inbox}.{request}"))

    def ack_subject(self, stream_seq: int, consumer_seq: int, delivered: int = 1) -> str:
        stored = STORED_NS + stream_seq
        return f"$JS.ACK.{self.stream}.C.{delivered}.{stream_seq}.{consumer_seq}.{stored}.0"

    def deliver(self, stream_seq: int, consumer_seq: int, delivered: int = 1, payload: bytes = b"m") -> Step:
        reply = self.ack_subject(stream_seq, consumer_seq, delivered)
        return server_sends(nats.Msg.make(f"orders.{stream_seq % 7}", self.sid, payload, reply))

    def ack(
        self, stream_seq: int, consumer_seq: int, kind: bytes = b"+ACK", reply: str | None = None
    ) -> Step:
        return client_sends(nats.Pub.make(self.ack_subject(stream_seq, consumer_seq), kind, reply))

    def status(self, request: int, line: bytes) -> Step:
        headers = b"NATS/1.0 " + line + b"\r\n\r\n"
        return server_sends(nats.HMsg.make(f"{self.inbox}.{request}", self.sid, headers))


def sound_nats(names: Names, payload: bytes) -> Iterator[Step]:
    """For ever: pulls of ten, each message acknowledged, and a publish with its answer."""
    consumer = Consumer(names)
    yield consumer.subscribe()
    for request in itertools.count(1):
        yield consumer.pull(request, 10)
        for sequence in range(request * 10 - 9, request * 10 + 1):
            yield consumer.deliver(sequence, sequence, payload=payload)
            yield consumer.ack(sequence, sequence)
        reply = f"{consumer.inbox}.p{request}"
        yield client_sends(nats.Pub.make("orders.new", payload, reply))
        answer = b'{"stream":"%s","seq":%d}' % (consumer.stream.encode(), request)
        yield server_sends(nats.Msg.make(reply, consumer.sid, answer))


def unsubscribed(names: Names) -> Iterator[Step]:
    sid = str(names.new())
    yield client_sends(nats.Sub.make("a.*", sid))
    yield server_sends(nats.Msg.make("a.b", sid, b"m"))
    yield client_sends(nats.Unsub.make(sid))
    yield server_sends(nats.Msg.make("a.b", sid, b"still on its way"))
    yield client_sends(nats.Ping.make())
    yield server_sends(nats.Pong.make())
    yield wrong(server_sends(nats.Msg.make("a.b", sid, b"m")))


def unknown_sid(names: Names) -> Iterator[Step]:
    yield wrong(server_sends(nats.Msg.make("a.b", str(names.new()), b"m")))


def more_than_max(names: Names) -> Iterator[Step]:
    sid = str(names.new())
    yield client_sends(nats.Sub.make("a.*", sid))
    yield client_sends(nats.Unsub.make(sid, 2))
    yield client_sends(nats.Ping.make())
    yield server_sends(nats.Pong.make())
    yield server_sends(nats.Msg.make("a.b", sid, b"m"))
    yield server_sends(nats.Msg.make("a.b", sid, b"m"))
    yield wrong(server_sends(nats.Msg.make("a.b", sid, b"m")))


def other_subject(names: Names) -> Iterator[Step]:
    sid = str(names.new())
    yield client_sends(nats.Sub.make("a.*", sid))
    yield wrong(server_sends(nats.Msg.make("a.b.c", sid, b"m")))


def beyond_batch(names: Names) -> Iterator[Step]:
    consumer = Consumer(names)
    yield consumer.subscribe()
    yield consumer.pull(1, 2)
    yield consumer.deliver(1, 1)
    yield consumer.deliver(2, 2)
    yield wrong(consumer.deliver(3, 3))


def after_status(names: Names) -> Iterator[Step]:
    consumer = Consumer(names)
    yield consumer.subscribe()
    yield consumer.pull(1, 5)
    yield consumer.deliver(1, 1)
    yield consumer.status(1, b"408 Request Timeout")
    yield wrong(consumer.deliver(2, 2))


def sequence_again(names: Names) -> Iterator[Step]:
    consumer = Consumer(names)
    yield consumer.subscribe()
    yield consumer.pull(1, 9)
    yield consumer.deliver(1, 1)
    yield consumer.deliver(2, 2)
    yield wrong(consumer.deliver(3, 2))


def count_stays(names: Names) -> Iterator[Step]:
    consumer = Consumer(names)
    yield consumer.subscribe()
    yield consumer.pull(1, 9)
    yield consumer.deliver(1, 1)
    yield consumer.ack(1, 1, b"-NAK")
    yield wrong(consumer.deliver(1, 2, delivered=1))


def _after_the_end(names: Names, kind: bytes) -> Iterator[Step]:
    consumer = Consumer(names)
    yield consumer.subscribe()
    yield consumer.pull(1, 9)
    yield consumer.deliver(1, 1)
    yield consumer.ack(1, 1, kind, f"{consumer.inbox}.a")
    yield server_sends(nats.Msg.make(f"{consumer.inbox}.a", consumer.sid, b""))
    yield wrong(consumer.deliver(1, 2, delivered=2))


def after_ack(names: Names) -> Iterator[Step]:
    return _after_the_end(names, b"+ACK")


def after_term(names: Names) -> Iterator[Step]:
    return _after_the_end(names, b"+TERM")


def _two_acks(names: Names, first: bytes) -> Iterator[Step]:
    consumer = Consumer(names)
    yield consumer.subscribe()
    yield consumer.pull(1, 9)
    yield consumer.deliver(1, 1)
    yield consumer.ack(1, 1, b"+WPI")
    yield consumer.ack(1, 1, first)
    yield wrong(consumer.ack(1, 1))


def ack_twice(names: Names) -> Iterator[Step]:
    return _two_acks(names, b"+ACK")


def nak_then_ack(names: Names) -> Iterator[Step]:
    return _two_acks(names, b"-NAK")


def sequence_given_twice(names: Names) -> Iterator[Step]:
    number = names.new()
    sid, inbox = str(number), f"_INBOX.{number}"
    yield client_sends(nats.Sub.make(f"{inbox}.*", sid))
    for request, sequence in enumerate((7, 7)):
        yield client_sends(nats.Pub.make("orders.new", b"m", f"{inbox}.{request}"))
        answer = b'{"stream":"P%d","seq":%d}' % (number, sequence)
        step = server_sends(nats.Msg.make(f"{inbox}.{request}", sid, answer))
        yield wrong(step) if request == 1 else step


def _stored(consumer: Consumer, seq: int, payload: bytes = b"m") -> tuple[Step, Step]:
    reply = f"{consumer.inbox}.s{seq}"
    answer = b'{"stream":"%s","seq":%d}' % (consumer.stream.encode(), seq)
    return (
        client_sends(nats.Pub.make("orders.new", payload, reply)),
        server_sends(nats.Msg.make(reply, consumer.sid, answer)),
    )


def sequence_falls(names: Names) -> Iterator[Step]:
    consumer = Consumer(names)
    yield consumer.subscribe()
    yield from _stored(consumer, 8)
    publish, answer = _stored(consumer, 7)
    yield publish
    yield wrong(answer)


def payload_changes(names: Names) -> Iterator[Step]:
    consumer = Consumer(names)
    yield consumer.subscribe()
    yield from _stored(consumer, 1, b"as it was published")
    yield consumer.pull(1, 9)
    yield wrong(consumer.deliver(1, 1, payload=b"as it was not"))


def id_stored_twice(names: Names) -> Iterator[Step]:
    consumer = Consumer(names)
    yield consumer.subscribe()
    for seq in (1, 2):
        reply = f"{consumer.inbox}.s{seq}"
        yield client_sends(nats.HPub.make("orders.new", [("Nats-Msg-Id", "once")], b"m", reply))
        answer = b'{"stream":"%s","seq":%d}' % (consumer.stream.encode(), seq)
        step = server_sends(nats.Msg.make(reply, consumer.sid, answer))
        yield wrong(step) if seq == 2 else step


def floor_falls(names: Names) -> Iterator[Step]:
    consumer = Consumer(names)
    yield consumer.subscribe()
    for floor in (8, 7):
        reply = f"{consumer.inbox}.f{floor}"
        yield client_sends(nats.Pub.make(f"$JS.API.CONSUMER.INFO.{consumer.stream}.C", b"", reply))
        pair = {"consumer_seq": floor, "stream_seq": floor}
        info = {
            "stream_name": consumer.stream, "name": "C", "created": "2026-09-21T00:00:00Z", "delivered": pair,
            "ack_floor": pair, "num_ack_pending": 0, "num_redelivered": 0, "num_waiting": 0, "num_pending": 0,
        }  # fmt: skip
        step = server_sends(nats.Msg.make(reply, consumer.sid, json.dumps(info).encode()))
        yield wrong(step) if floor == 7 else step


NATS: tuple[tuple[str, Episode], ...] = (
    ("live-subscription", unsubscribed),
    ("live-subscription", unknown_sid),
    ("live-subscription", more_than_max),
    ("subject-matches", other_subject),
    ("batch-is-the-limit", beyond_batch),
    ("batch-is-the-limit", after_status),
    ("consumer-sequence", sequence_again),
    ("delivery-count", count_stays),
    ("nothing-after-the-end", after_ack),
    ("nothing-after-the-end", after_term),
    ("one-acknowledgement", ack_twice),
    ("one-acknowledgement", nak_then_ack),
    ("stream-sequence", sequence_given_twice),
    ("stream-order", sequence_falls),
    ("message-id", id_stored_twice),
    ("ack-floor", floor_falls),
    ("one-payload", payload_changes),
)
