"""Defects in what survives a restart, and in limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import before_handling, with_arguments
from plumbline.reference_broker.amqp.messages.message import PublishedMessage, QueueEntry
from plumbline.reference_broker.amqp.storage.restoring import RestoredState
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import Method


def when_restored(broker: Broker, change: Any) -> None:
    """What was read from a journal is changed before the broker takes it up."""
    original = broker.recovery.restore

    def restore(restored: RestoredState, now: int) -> None:
        change(restored)
        original(restored, now)

    replace(broker.recovery, "restore", restore)


@defect("AMQP-DURABILITY-001")
def durable_queues_are_lost(broker: Broker) -> None:
    """Durable queues do not survive a restart."""

    def change(restored: RestoredState) -> None:
        restored.queues.clear()
        restored.bindings = {key: one for key, one in restored.bindings.items() if not one.to_queue}

    when_restored(broker, change)


@defect("AMQP-DURABILITY-002")
def durable_bindings_are_lost(broker: Broker) -> None:
    """Bindings between durable exchanges and queues do not survive a restart."""
    when_restored(broker, lambda restored: restored.bindings.clear())


@defect("AMQP-DURABILITY-003")
def transient_exchanges_survive(broker: Broker) -> None:
    """Transient exchanges survive a restart."""
    original = broker.store.record_exchange_declared

    def exchange_declared(vhost: str, exchange: Any) -> None:
        durable, exchange.durable = exchange.durable, True
        original(vhost, exchange)
        exchange.durable = durable

    replace(broker.store, "record_exchange_declared", exchange_declared)


@defect("AMQP-DURABILITY-010", "AMQP-DURABILITY-013")
def transient_queues_survive(broker: Broker) -> None:
    """Transient queues survive a restart."""
    original = broker.store.record_queue_declared

    def queue_declared(queue: Queue) -> None:
        durable, queue.durable = queue.durable, True
        original(queue)
        queue.durable = durable

    replace(broker.store, "record_queue_declared", queue_declared)


@defect("AMQP-DURABILITY-004")
def confirmed_messages_are_lost(broker: Broker) -> None:
    """Of the messages of a queue a restart gives only the first one back."""

    def change(restored: RestoredState) -> None:
        for kept in restored.queues.values():
            for position in sorted(kept.messages)[1:]:
                del kept.messages[position]

    when_restored(broker, change)


@defect("AMQP-DURABILITY-006")
def mode_1_messages_survive(broker: Broker) -> None:
    """Messages with delivery_mode 1 survive a restart."""
    original = broker.store.is_durable_message

    def keeps(queue: Queue, message: PublishedMessage) -> bool:
        transient = message.properties.get("delivery_mode") == 1
        return original(queue, message) or (queue.number != 0 and transient)

    replace(broker.store, "is_durable_message", keeps)


@defect("AMQP-DURABILITY-007")
def transient_messages_survive(broker: Broker) -> None:
    """Messages without a delivery_mode survive a restart."""
    original = broker.store.is_durable_message

    def keeps(queue: Queue, message: PublishedMessage) -> bool:
        return original(queue, message) or (queue.number != 0 and "delivery_mode" not in message.properties)

    replace(broker.store, "is_durable_message", keeps)


@defect("AMQP-DURABILITY-009")
def nothing_is_redelivered_after_a_restart(broker: Broker) -> None:
    """After a restart no message has redelivered set."""

    def change(restored: RestoredState) -> None:
        original = restored.entries

        def entries(number: int) -> Iterator[QueueEntry]:
            for entry in original(number):
                entry.redelivered = False
                yield entry

        replace(restored, "entries", entries)

    when_restored(broker, change)


@defect("AMQP-DURABILITY-008")
def acknowledged_messages_come_back(broker: Broker) -> None:
    """After a restart acknowledged messages are there again."""
    replace(broker.store, "record_message_removed", lambda queue, entry: None)


@defect("AMQP-DURABILITY-011")
def restarts_turn_queues_round(broker: Broker) -> None:
    """After a restart the newest message of a queue comes first."""

    def change(restored: RestoredState) -> None:
        original = restored.entries

        def entries(number: int) -> Iterator[QueueEntry]:
            found = list(original(number))
            places = [entry.position for entry in found]
            for entry, place in zip(reversed(found), places, strict=True):
                entry.position = place
            return reversed(found)

        replace(restored, "entries", entries)

    when_restored(broker, change)


# Limits


@defect("AMQP-LIMITS-003")
def long_consumer_tags_are_cut(broker: Broker) -> None:
    """A consumer tag of more than 127 characters is cut."""
    before_handling(
        broker,
        "basic.consume",
        lambda channel, operation: with_arguments(
            operation, consumer_tag=operation.arguments["consumer_tag"][:127]
        ),
    )


@defect("AMQP-LIMITS-004")
def large_messages_are_cut(broker: Broker) -> None:
    """Of a message that came in several frames only the first one is kept."""
    original = broker.publishing.message

    def message(operation: Method) -> PublishedMessage:
        made = original(operation)
        first = operation.body[: 131072 - 8]
        if first == operation.body:
            return made
        return PublishedMessage.make(
            made.exchange, made.routing_key, made.properties, operation.raw_properties, first
        )

    replace(broker.publishing, "message", message)
