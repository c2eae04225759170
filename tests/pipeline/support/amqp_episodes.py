"""AMQP: sound traffic of one channel, and episodes that break one rule each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from plumbline.wire.amqp import PROTOCOL_HEADER, Method
from tests.pipeline.support.episodes import Episode, Names, Step, client_sends, server_sends, wrong


def amqp_opening() -> Iterator[Step]:
    """A connection with channel 1."""
    yield Step(by_client=True, data=PROTOCOL_HEADER)
    yield server_sends(
        Method.make("connection.start", mechanisms=b"PLAIN", locales=b"en_US", version_minor=9)
    )
    properties = {"product": "pika", "version": "1.3.2"}
    yield client_sends(
        Method.make(
            "connection.start-ok",
            client_properties=properties,
            mechanism="PLAIN",
            response=b"",
            locale="en_US",
        )
    )
    yield server_sends(Method.make("connection.tune", frame_max=131072))
    yield client_sends(Method.make("connection.tune-ok", frame_max=131072))
    yield client_sends(Method.make("connection.open", virtual_host="/"))
    yield server_sends(Method.make("connection.open-ok"))
    yield client_sends(Method.make("channel.open", 1))
    yield server_sends(Method.make("channel.open-ok", 1))


def _consume(names: Names, **arguments: Any) -> Iterator[Step]:
    """Consumer "c" on a queue of its own."""
    yield client_sends(
        Method.make("basic.consume", 1, queue=f"q{names.new()}", consumer_tag="c", **arguments)
    )
    yield server_sends(Method.make("basic.consume-ok", 1, consumer_tag="c"))


def _deliver(delivery_tag: int, consumer_tag: str = "c", body: bytes = b"m", message_id: str = "") -> Step:
    properties = {"message_id": message_id} if message_id else {}
    return server_sends(
        Method.make(
            "basic.deliver", 1, consumer_tag=consumer_tag, delivery_tag=delivery_tag, routing_key="orders",
            properties=properties, body=body,
        )
    )  # fmt: skip


def _ack(delivery_tag: int, *, multiple: bool = False) -> Method:
    return Method.make("basic.ack", 1, delivery_tag=delivery_tag, multiple=multiple)


def _publish(body: bytes = b"m", *, mandatory: bool = False) -> Step:
    return client_sends(Method.make("basic.publish", 1, routing_key="orders", mandatory=mandatory, body=body))


def _selected() -> Iterator[Step]:
    yield client_sends(Method.make("confirm.select", 1))
    yield server_sends(Method.make("confirm.select-ok", 1))


def sound_amqp(names: Names, payload: bytes) -> Iterator[Step]:
    """For ever: publishes with confirms, deliveries acknowledged by tens."""
    yield from _selected()
    yield client_sends(Method.make("basic.qos", 1, prefetch_count=20))
    yield server_sends(Method.make("basic.qos-ok", 1))
    yield from _consume(names)
    for tag in itertools.count(1):
        yield _publish(payload)
        yield server_sends(_ack(tag))
        yield _deliver(tag, body=payload)
        if tag % 10 == 0:
            yield client_sends(_ack(tag, multiple=True))


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
    yield client_sends(Method.make("basic.qos", 1, prefetch_count=2))
    yield server_sends(Method.make("basic.qos-ok", 1))
    yield from _consume(names)
    yield _deliver(1)
    yield _deliver(2)
    yield client_sends(_ack(1))
    yield _deliver(3)
    yield wrong(_deliver(4))


def beyond_shared_prefetch(names: Names) -> Iterator[Step]:
    yield client_sends(Method.make("basic.qos", 1, prefetch_count=1, global_=True))
    yield server_sends(Method.make("basic.qos-ok", 1))
    yield from _consume(names)
    yield _deliver(1)
    yield wrong(_deliver(2))


def unknown_tag(names: Names) -> Iterator[Step]:
    yield from _consume(names)
    yield _deliver(1)
    yield wrong(client_sends(_ack(7)))


def tag_acked_twice(names: Names) -> Iterator[Step]:
    yield from _consume(names)
    yield _deliver(1)
    yield _deliver(2)
    yield client_sends(_ack(2, multiple=True))
    yield wrong(client_sends(_ack(1)))


def after_cancel(names: Names) -> Iterator[Step]:
    yield from _consume(names, no_ack=True)
    yield _deliver(1)
    yield client_sends(Method.make("basic.cancel", 1, consumer_tag="c"))
    yield server_sends(Method.make("basic.cancel-ok", 1, consumer_tag="c"))
    yield wrong(_deliver(2))


def unknown_consumer(names: Names) -> Iterator[Step]:
    yield from _consume(names)
    yield wrong(_deliver(1, "another"))


def not_redelivered(names: Names) -> Iterator[Step]:
    yield from _consume(names)
    yield _deliver(1, message_id="one")
    yield client_sends(Method.make("basic.nack", 1, delivery_tag=1, requeue=True))
    yield wrong(_deliver(2, message_id="one"))


def confirmed_twice(_: Names) -> Iterator[Step]:
    yield from _selected()
    yield _publish()
    yield _publish()
    yield server_sends(_ack(2, multiple=True))
    yield wrong(server_sends(_ack(1)))


def confirm_of_nothing(_: Names) -> Iterator[Step]:
    yield from _selected()
    yield _publish()
    yield wrong(server_sends(_ack(9)))


def return_too_late(_: Names) -> Iterator[Step]:
    yield from _selected()
    yield _publish(mandatory=True)
    yield server_sends(_ack(1))
    returned = Method.make(
        "basic.return", 1, reply_code=312, reply_text="NO_ROUTE", routing_key="orders", body=b"m"
    )
    yield wrong(server_sends(returned))


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
