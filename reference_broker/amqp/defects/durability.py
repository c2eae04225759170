"""Defects in what survives a restart, and in limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import before_handling, with_arguments
from plumbline.reference_broker.amqp.messages import Entry, Message
from plumbline.reference_broker.amqp.queues import Queue
from plumbline.reference_broker.amqp.storage.restoring import Restored
from plumbline.wire.amqp import Method


def _when_restored(broker: Broker, change: Any) -> None:
    """What a journal told is changed before the broker takes it up."""
    original = broker.recovery.restore

    def restore(restored: Restored, now: int) -> None:
        change(restored)
        original(restored, now)

    replace(broker.recovery, "restore", restore)


@defect(
    "durable-queues-are-lost",
    breaks=("AMQP-DURABILITY-001",),
    summary="Durable queues do not survive a restart.",
)
def _(broker: Broker) -> None:
    def change(restored: Restored) -> None:
        restored.queues.clear()
        restored.bindings = {key: one for key, one in restored.bindings.items() if not one.to_queue}

    _when_restored(broker, change)


@defect(
    "durable-bindings-are-lost",
    breaks=("AMQP-DURABILITY-002",),
    summary="Bindings between durable exchanges and queues do not survive a restart.",
)
def _(broker: Broker) -> None:
    _when_restored(broker, lambda restored: restored.bindings.clear())


@defect(
    "transient-exchanges-survive",
    breaks=("AMQP-DURABILITY-003",),
    summary="Transient exchanges survive a restart.",
)
def _(broker: Broker) -> None:
    original = broker.store.exchange_declared

    def exchange_declared(vhost: str, exchange: Any) -> None:
        durable, exchange.durable = exchange.durable, True
        original(vhost, exchange)
        exchange.durable = durable

    replace(broker.store, "exchange_declared", exchange_declared)


@defect(
    "confirmed-messages-are-lost",
    breaks=("AMQP-DURABILITY-004",),
    summary="Of the messages of a queue a restart gives only the first one back.",
)
def _(broker: Broker) -> None:
    def change(restored: Restored) -> None:
        for kept in restored.queues.values():
            for position in sorted(kept.messages)[1:]:
                del kept.messages[position]

    _when_restored(broker, change)


@defect(
    "transient-messages-survive",
    breaks=("AMQP-DURABILITY-007",),
    summary="Messages without a delivery_mode survive a restart.",
)
def _(broker: Broker) -> None:
    original = broker.store.keeps

    def keeps(queue: Queue, message: Message) -> bool:
        return original(queue, message) or (queue.number != 0 and "delivery_mode" not in message.properties)

    replace(broker.store, "keeps", keeps)


@defect(
    "acknowledged-messages-come-back",
    breaks=("AMQP-DURABILITY-008",),
    summary="After a restart acknowledged messages are there again.",
)
def _(broker: Broker) -> None:
    replace(broker.store, "removed", lambda queue, entry: None)


@defect(
    "restarts-turn-queues-round",
    breaks=("AMQP-DURABILITY-011",),
    summary="After a restart the newest message of a queue comes first.",
)
def _(broker: Broker) -> None:
    def change(restored: Restored) -> None:
        original = restored.entries

        def entries(number: int) -> Iterator[Entry]:
            found = list(original(number))
            places = [entry.position for entry in found]
            for entry, place in zip(reversed(found), places, strict=True):
                entry.position = place
            return reversed(found)

        replace(restored, "entries", entries)

    _when_restored(broker, change)


# Limits


@defect(
    "long-consumer-tags-are-cut",
    breaks=("AMQP-LIMITS-003",),
    summary="A consumer tag of more than 127 characters is cut.",
)
def _(broker: Broker) -> None:
    before_handling(
        broker,
        "basic.consume",
        lambda channel, operation: with_arguments(
            operation, consumer_tag=operation.arguments["consumer_tag"][:127]
        ),
    )


@defect(
    "large-messages-are-cut",
    breaks=("AMQP-LIMITS-004",),
    summary="Of a message that came in several frames only the first one is kept.",
)
def _(broker: Broker) -> None:
    original = broker.publishing.message

    def message(operation: Method) -> Message:
        made = original(operation)
        first = operation.body[: 131072 - 8]
        if first == operation.body:
            return made
        return Message.make(made.exchange, made.routing_key, made.properties, operation.raw_properties, first)

    replace(broker.publishing, "message", message)
