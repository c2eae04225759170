"""Defects in deaths: who dies of several, what its letter keeps, and what it says of the death."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.amqp.connections.connection import UnackedDelivery
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.messages.dead_letters import EXPIRED, MAXLEN
from plumbline.reference_broker.amqp.messages.message import PublishedMessage, altered
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import Timestamp

MILLISECONDS = 1000  # of a second
Concerns = Callable[[list[UnackedDelivery], UnackedDelivery], bool]


def _rejects(broker: Broker, dies: Concerns) -> None:
    """Of the deliveries that are rejected together only these die: ``dies(all, one)``. Others are dropped."""
    original = broker.acknowledging.apply_settlement

    def apply_settlement(deliveries: dict[int, UnackedDelivery], settlement: str, now: int) -> None:
        every = list(deliveries.values())
        if settlement != "discard":
            original(deliveries, settlement, now)
            return
        for tag, one in deliveries.items():
            original({tag: one}, settlement if dies(every, one) else "ack", now)

    replace(broker.acknowledging, "apply_settlement", apply_settlement)


@defect("AMQP-DLX-001")
def of_several_rejected_the_last_dies(broker: Broker) -> None:
    """Of several messages that are rejected together the last alone is dead-lettered."""
    _rejects(broker, lambda every, one: one is every[-1])


@defect("AMQP-DLX-001")
def of_several_rejected_one_queue_has_dead_letters(broker: Broker) -> None:
    """Of several messages that are rejected together those of one queue are dead-lettered."""
    _rejects(broker, lambda every, one: one.queue is every[0].queue)


@defect("AMQP-DLX-001")
def rejects_of_consumers_are_not_dead(broker: Broker) -> None:
    """What a consumer rejects is dropped; what was got and rejected is dead-lettered."""
    _rejects(broker, lambda every, one: one.consumer is None)


def _arriving(broker: Broker, change: Callable[[PublishedMessage], dict[str, Any]]) -> None:
    """A dead letter has other properties."""
    original = broker.deliveries.enqueue

    def enqueue(queue: Queue, message: PublishedMessage, now: int) -> bool:
        if "x-death" in message.headers:
            message = altered(message, message.exchange, message.routing_key, change(message))
        return original(queue, message, now)

    replace(broker.deliveries, "enqueue", enqueue)


def _without(message: PublishedMessage, *names: str) -> dict[str, Any]:
    return {name: value for name, value in message.properties.items() if name not in names}


@defect("AMQP-DLX-010")
def dead_letters_have_no_priority(broker: Broker) -> None:
    """A dead letter loses its priority."""
    _arriving(broker, lambda message: _without(message, "priority"))


@defect("AMQP-DLX-010")
def dead_letters_have_no_content_type(broker: Broker) -> None:
    """A dead letter loses what its body is, and what application it is of."""
    _arriving(broker, lambda message: _without(message, "content_type", "content_encoding", "type", "app_id"))


@defect("AMQP-DLX-010")
def dead_letters_have_no_reply_to(broker: Broker) -> None:
    """A dead letter loses where its answer should go, and when it was made."""
    _arriving(broker, lambda message: _without(message, "reply_to", "timestamp"))


def _keep_expiration(broker: Broker, reason: str) -> None:
    """A dead letter of this reason keeps its expiration."""
    original, original_enqueue = broker.deliveries.dead_letter, broker.deliveries.enqueue
    kept: list[str | None] = [None]

    def dead_letter(queue: Queue, message: PublishedMessage, why: str, now: int) -> None:
        kept[0] = message.properties.get("expiration") if why == reason else None
        original(queue, message, why, now)
        kept[0] = None

    def enqueue(queue: Queue, message: PublishedMessage, now: int) -> bool:
        if kept[0] is not None:
            properties = {**message.properties, "expiration": kept[0]}
            message = altered(message, message.exchange, message.routing_key, properties)
        return original_enqueue(queue, message, now)

    replace(broker.deliveries, "dead_letter", dead_letter)
    replace(broker.deliveries, "enqueue", enqueue)


@defect("AMQP-DLX-017")
def rejected_messages_keep_their_expiration(broker: Broker) -> None:
    """A message that is rejected keeps its expiration as a dead letter."""
    _keep_expiration(broker, "rejected")


@defect("AMQP-DLX-017")
def dropped_messages_keep_their_expiration(broker: Broker) -> None:
    """A message that a full queue drops keeps its expiration as a dead letter."""
    _keep_expiration(broker, MAXLEN)


@defect("AMQP-DLX-017")
def expired_messages_keep_their_expiration(broker: Broker) -> None:
    """A message that expires keeps its expiration as a dead letter."""
    _keep_expiration(broker, EXPIRED)


def _times(broker: Broker, change: Callable[[int], int]) -> None:
    def changed(message: PublishedMessage) -> dict[str, Any]:
        first, *rest = message.headers["x-death"]
        deaths = [{**first, "time": change(first["time"])}, *rest]
        return {**message.properties, "headers": {**message.headers, "x-death": deaths}}

    _arriving(broker, changed)


@defect("AMQP-DLX-018")
def deaths_are_in_milliseconds(broker: Broker) -> None:
    """The time of a death is a timestamp of milliseconds."""
    _times(broker, lambda seconds: Timestamp(seconds * MILLISECONDS))


@defect("AMQP-DLX-018")
def deaths_are_at_0(broker: Broker) -> None:
    """The time of a death is a timestamp of 0."""
    _times(broker, lambda seconds: Timestamp(0))


@defect("AMQP-DLX-018")
def deaths_are_at_an_integer(broker: Broker) -> None:
    """The time of a death has an integer type."""
    _times(broker, int)


@defect("AMQP-DLX-009")
def deaths_have_no_keys_of_cc(broker: Broker) -> None:
    """The routing keys of a death are without those of CC."""

    def changed(message: PublishedMessage) -> dict[str, Any]:
        first, *rest = message.headers["x-death"]
        deaths = [{**first, "routing-keys": first["routing-keys"][:1]}, *rest]
        return {**message.properties, "headers": {**message.headers, "x-death": deaths}}

    _arriving(broker, changed)


@defect("AMQP-TTL-001")
def dead_letters_outlive_x_message_ttl(broker: Broker) -> None:
    """A dead letter does not expire in a queue with x-message-ttl."""
    original = broker.deliveries.expiry

    def expiry(queue: Queue, message: PublishedMessage, now: int) -> int | None:
        return None if "x-death" in message.headers else original(queue, message, now)

    replace(broker.deliveries, "expiry", expiry)


@defect("AMQP-DLX-002")
def what_bytes_push_out_is_not_dead(broker: Broker) -> None:
    """What a queue with x-max-length-bytes drops is not dead-lettered."""
    original = broker.deliveries.dead_letter

    def dead_letter(queue: Queue, message: PublishedMessage, reason: str, now: int) -> None:
        if reason != MAXLEN or queue.max_length_bytes is None:
            original(queue, message, reason, now)

    replace(broker.deliveries, "dead_letter", dead_letter)
