"""What clients and servers say, one operation a step: sound traffic, and episodes with one wrong step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from wire import nats
from wire.amqp import PROTOCOL_HEADER, Method

STORED_NS = 1_789_999_999_000_000_000


class Step(Struct, frozen=True):
    """One operation. ``is_wrong``: it is what breaks the rule."""

    by_client: bool
    data: bytes
    is_wrong: bool = False


class Names:
    """Names that nobody used before."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def new(self) -> int:
        return next(self._numbers)


Episode = Callable[[Names], Iterator[Step]]


def says(operation: nats.Operation | Method) -> Step:
    """By the client."""
    return Step(by_client=True, data=operation.raw)


def hears(operation: nats.Operation | Method) -> Step:
    """By the server."""
    return Step(by_client=False, data=operation.raw)


def wrong(step: Step) -> Step:
    """The same, and it breaks the rule."""
    return Step(step.by_client, step.data, is_wrong=True)


# -- NATS ------------------------------------------------------------------------------------


def nats_opening() -> Iterator[Step]:
    yield hears(nats.Info.make({"server_id": "S", "version": "2.10.0", "max_payload": 1048576}))
    yield says(nats.Connect.make({"verbose": False, "lang": "python3", "version": "2.10.0"}))
    yield says(nats.Ping.make())
    yield hears(nats.Pong.make())


class Consumer:
    """A JetStream consumer of its own stream, read through one subscription."""

    def __init__(self, names: Names) -> None:
        self.number = names.new()
        self.sid = str(self.number)
        self.stream, self.inbox = f"S{self.number}", f"_INBOX.{self.number}"

    def subscribe(self) -> Step:
        return says(nats.Sub.make(f"{self.inbox}.*", self.sid))

    def pull(self, request: int, batch: int) -> Step:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.C"
        return says(nats.Pub.make(subject, b'{"batch":%d}' % batch, f"{self.inbox}.{request}"))

    def ack_subject(self, stream_seq: int, consumer_seq: int, delivered: int = 1) -> str:
        stored = STORED_NS + stream_seq
        return f"$JS.ACK.{self.stream}.C.{delivered}.{stream_seq}.{consumer_seq}.{stored}.0"

    def deliver(self, stream_seq: int, consumer_seq: int, delivered: int = 1, payload: bytes = b"m") -> Step:
        reply = self.ack_subject(stream_seq, consumer_seq, delivered)
        return hears(nats.Msg.make(f"orders.{stream_seq % 7}", self.sid, payload, reply))

    def ack(
        self, stream_seq: int, consumer_seq: int, kind: bytes = b"+ACK", reply: str | None = None
    ) -> Step:
        return says(nats.Pub.make(self.ack_subject(stream_seq, consumer_seq), kind, reply))

    def status(self, request: int, line: bytes) -> Step:
        headers = b"NATS/1.0 " + line + b"\r\n\r\n"
        return hears(nats.HMsg.make(f"{self.inbox}.{request}", self.sid, headers))


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
        yield says(nats.Pub.make("orders.new", payload, reply))
        answer = b'{"stream":"%s","seq":%d}' % (consumer.stream.encode(), request)
        yield hears(nats.Msg.make(reply, consumer.sid, answer))


def unsubscribed(names: Names) -> Iterator[Step]:
    sid = str(names.new())
    yield says(nats.Sub.make("a.*", sid))
    yield hears(nats.Msg.make("a.b", sid, b"m"))
    yield says(nats.Unsub.make(sid))
    yield hears(nats.Msg.make("a.b", sid, b"still on its way"))
    yield says(nats.Ping.make())
    yield hears(nats.Pong.make())
    yield wrong(hears(nats.Msg.make("a.b", sid, b"m")))


def unknown_sid(names: Names) -> Iterator[Step]:
    yield wrong(hears(nats.Msg.make("a.b", str(names.new()), b"m")))


def more_than_max(names: Names) -> Iterator[Step]:
    sid = str(names.new())
    yield says(nats.Sub.make("a.*", sid))
    yield says(nats.Unsub.make(sid, 2))
    yield says(nats.Ping.make())
    yield hears(nats.Pong.make())
    yield hears(nats.Msg.make("a.b", sid, b"m"))
    yield hears(nats.Msg.make("a.b", sid, b"m"))
    yield wrong(hears(nats.Msg.make("a.b", sid, b"m")))


def other_subject(names: Names) -> Iterator[Step]:
    sid = str(names.new())
    yield says(nats.Sub.make("a.*", sid))
    yield wrong(hears(nats.Msg.make("a.b.c", sid, b"m")))


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
    yield hears(nats.Msg.make(f"{consumer.inbox}.a", consumer.sid, b""))
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
    yield says(nats.Sub.make(f"{inbox}.*", sid))
    for request, sequence in enumerate((7, 8, 7)):
        yield says(nats.Pub.make("orders.new", b"m", f"{inbox}.{request}"))
        answer = b'{"stream":"P%d","seq":%d}' % (number, sequence)
        step = hears(nats.Msg.make(f"{inbox}.{request}", sid, answer))
        yield wrong(step) if request == 2 else step


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
)


# -- AMQP ------------------------------------------------------------------------------------


def amqp_opening() -> Iterator[Step]:
    """A connection with channel 1."""
    yield Step(by_client=True, data=PROTOCOL_HEADER)
    yield hears(Method.make("connection.start", mechanisms=b"PLAIN", locales=b"en_US", version_minor=9))
    told = {"product": "pika", "version": "1.3.2"}
    yield says(
        Method.make(
            "connection.start-ok", client_properties=told, mechanism="PLAIN", response=b"", locale="en_US"
        )
    )
    yield hears(Method.make("connection.tune", frame_max=131072))
    yield says(Method.make("connection.tune-ok", frame_max=131072))
    yield says(Method.make("connection.open", virtual_host="/"))
    yield hears(Method.make("connection.open-ok"))
    yield says(Method.make("channel.open", 1))
    yield hears(Method.make("channel.open-ok", 1))


def _consume(names: Names, **arguments: Any) -> Iterator[Step]:
    """Consumer "c" on a queue of its own."""
    yield says(Method.make("basic.consume", 1, queue=f"q{names.new()}", consumer_tag="c", **arguments))
    yield hears(Method.make("basic.consume-ok", 1, consumer_tag="c"))


def _deliver(delivery_tag: int, consumer_tag: str = "c", body: bytes = b"m", message_id: str = "") -> Step:
    properties = {"message_id": message_id} if message_id else {}
    return hears(
        Method.make(
            "basic.deliver", 1, consumer_tag=consumer_tag, delivery_tag=delivery_tag, routing_key="orders",
            properties=properties, body=body,
        )
    )  # fmt: skip


def _ack(delivery_tag: int, *, multiple: bool = False) -> Method:
    return Method.make("basic.ack", 1, delivery_tag=delivery_tag, multiple=multiple)


def _publish(body: bytes = b"m", *, mandatory: bool = False) -> Step:
    return says(Method.make("basic.publish", 1, routing_key="orders", mandatory=mandatory, body=body))


def _selected() -> Iterator[Step]:
    yield says(Method.make("confirm.select", 1))
    yield hears(Method.make("confirm.select-ok", 1))


def sound_amqp(names: Names, payload: bytes) -> Iterator[Step]:
    """For ever: publishes with confirms, deliveries acknowledged by tens."""
    yield from _selected()
    yield says(Method.make("basic.qos", 1, prefetch_count=20))
    yield hears(Method.make("basic.qos-ok", 1))
    yield from _consume(names)
    for tag in itertools.count(1):
        yield _publish(payload)
        yield hears(_ack(tag))
        yield _deliver(tag, body=payload)
        if tag % 10 == 0:
            yield says(_ack(tag, multiple=True))


def tag_skipped(names: Names) -> Iterator[Step]:
    yield from _consume(names)
    yield _deliver(1)
    yield wrong(_deliver(3))


def tag_again(names: Names) -> Iterator[Step]:
    yield from _consume(names)
    yield _deliver(1)
    yield _deliver(2)
    yield wrong(_deliver(2))


def beyond_prefetch(names: Names) -> Iterator[Step]:
    yield says(Method.make("basic.qos", 1, prefetch_count=2))
    yield hears(Method.make("basic.qos-ok", 1))
    yield from _consume(names)
    yield _deliver(1)
    yield _deliver(2)
    yield says(_ack(1))
    yield _deliver(3)
    yield wrong(_deliver(4))


def beyond_shared_prefetch(names: Names) -> Iterator[Step]:
    yield says(Method.make("basic.qos", 1, prefetch_count=1, global_=True))
    yield hears(Method.make("basic.qos-ok", 1))
    yield from _consume(names)
    yield _deliver(1)
    yield wrong(_deliver(2))


def unknown_tag(names: Names) -> Iterator[Step]:
    yield from _consume(names)
    yield _deliver(1)
    yield wrong(says(_ack(7)))


def tag_acked_twice(names: Names) -> Iterator[Step]:
    yield from _consume(names)
    yield _deliver(1)
    yield _deliver(2)
    yield says(_ack(2, multiple=True))
    yield wrong(says(_ack(1)))


def after_cancel(names: Names) -> Iterator[Step]:
    yield from _consume(names, no_ack=True)
    yield _deliver(1)
    yield says(Method.make("basic.cancel", 1, consumer_tag="c"))
    yield hears(Method.make("basic.cancel-ok", 1, consumer_tag="c"))
    yield wrong(_deliver(2))


def unknown_consumer(names: Names) -> Iterator[Step]:
    yield from _consume(names)
    yield wrong(_deliver(1, "another"))


def not_redelivered(names: Names) -> Iterator[Step]:
    yield from _consume(names)
    yield _deliver(1, message_id="one")
    yield says(Method.make("basic.nack", 1, delivery_tag=1, requeue=True))
    yield wrong(_deliver(2, message_id="one"))


def confirmed_twice(_: Names) -> Iterator[Step]:
    yield from _selected()
    yield _publish()
    yield _publish()
    yield hears(_ack(2, multiple=True))
    yield wrong(hears(_ack(1)))


def confirm_of_nothing(_: Names) -> Iterator[Step]:
    yield from _selected()
    yield _publish()
    yield wrong(hears(_ack(9)))


def return_too_late(_: Names) -> Iterator[Step]:
    yield from _selected()
    yield _publish(mandatory=True)
    yield hears(_ack(1))
    returned = Method.make(
        "basic.return", 1, reply_code=312, reply_text="NO_ROUTE", routing_key="orders", body=b"m"
    )
    yield wrong(hears(returned))


AMQP: tuple[tuple[str, Episode], ...] = (
    ("delivery-tag", tag_skipped),
    ("delivery-tag", tag_again),
    ("prefetch", beyond_prefetch),
    ("prefetch", beyond_shared_prefetch),
    ("known-delivery-tag", unknown_tag),
    ("known-delivery-tag", tag_acked_twice),
    ("live-consumer", after_cancel),
    ("live-consumer", unknown_consumer),
    ("redelivered", not_redelivered),
    ("one-confirm", confirmed_twice),
    ("one-confirm", confirm_of_nothing),
    ("return-first", return_too_late),
)
