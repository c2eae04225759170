"""Defects in what a restart brings back: of what was removed, and of how things were declared."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace as with_fields

from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import handling
from plumbline.reference_broker.amqp.defects.storage.durability import when_restored
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.dead_letters import EXPIRED, MAXLEN
from plumbline.reference_broker.amqp.messages.message import PublishedMessage, QueueEntry
from plumbline.reference_broker.amqp.storage.restoring import RestoredState
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import encode_entries


def _keeps_no_record(broker: Broker, record: str) -> None:
    """What ``record`` would enter is not entered."""
    replace(broker.store, record, lambda *whatever: None)


@defect("AMQP-DURABILITY-014")
def deleted_queues_come_back(broker: Broker) -> None:
    """After a restart a deleted queue is there again."""
    _keeps_no_record(broker, "record_queue_deleted")


@defect("AMQP-DURABILITY-014")
def deleted_exchanges_come_back(broker: Broker) -> None:
    """After a restart a deleted exchange is there again."""
    _keeps_no_record(broker, "record_exchange_deleted")


@defect("AMQP-DURABILITY-014")
def removed_bindings_come_back(broker: Broker) -> None:
    """After a restart a binding that was removed is there again."""
    _keeps_no_record(broker, "record_binding_removed")


def _keeps_messages(broker: Broker, *methods: str) -> None:
    """What leaves its queue by these methods is not entered as gone."""

    @handling(broker, *methods)
    def handle(original: Handler, channel: Any, operation: Any, now: int) -> None:
        discard = broker.deliveries.discard
        broker.deliveries.discard = lambda queue, entry: None  # type: ignore[method-assign]
        try:
            original(channel, operation, now)
        finally:
            broker.deliveries.discard = discard  # type: ignore[method-assign]


@defect("AMQP-DURABILITY-015")
def what_was_got_comes_back(broker: Broker) -> None:
    """After a restart a message is there again that basic.get took with no_ack."""
    _keeps_messages(broker, "basic.get")


@defect("AMQP-DURABILITY-015")
def what_was_consumed_comes_back(broker: Broker) -> None:
    """After a restart a message is there again that a consumer with no_ack was sent."""
    _keeps_messages(broker, "basic.consume")


@defect("AMQP-DURABILITY-015")
def what_was_rejected_comes_back(broker: Broker) -> None:
    """After a restart a message is there again that was rejected."""
    _keeps_messages(broker, "basic.reject")


@defect("AMQP-DURABILITY-015")
def what_was_refused_comes_back(broker: Broker) -> None:
    """After a restart a message is there again that was refused by basic.nack."""
    _keeps_messages(broker, "basic.nack")


@defect("AMQP-DURABILITY-015")
def what_was_purged_comes_back(broker: Broker) -> None:
    """After a restart a message is there again that was purged."""
    _keeps_messages(broker, "queue.purge")


def _dies_again(broker: Broker, cause: str) -> None:
    """What dies for this reason is not entered as gone, and so it dies once more after a restart."""
    original = broker.deliveries.dead_letter

    def dead_letter(queue: Queue, message: PublishedMessage, reason: str, now: int) -> None:
        if reason == cause and queue.number and message.persistent:
            first = QueueEntry(message, 0, broker.deliveries.expiry(queue, message, now))
            broker.store.record_message_stored(queue, first)
        original(queue, message, reason, now)

    replace(broker.deliveries, "dead_letter", dead_letter)


@defect("AMQP-DURABILITY-015")
def what_expired_dies_again(broker: Broker) -> None:
    """After a restart a message that expired before is dead-lettered again."""
    _dies_again(broker, EXPIRED)


@defect("AMQP-DURABILITY-015")
def what_was_dropped_dies_again(broker: Broker) -> None:
    """After a restart a message that a full queue dropped before is dead-lettered again."""
    _dies_again(broker, MAXLEN)


@defect("AMQP-DURABILITY-016")
def restarts_forget_arguments_of_queues(broker: Broker) -> None:
    """After a restart queues have no arguments."""

    def change(restored: RestoredState) -> None:
        for queue in restored.queues.values():
            queue.declared = with_fields(queue.declared, arguments=encode_entries({}))

    when_restored(broker, change)


@defect("AMQP-DURABILITY-016")
def restarts_forget_arguments_of_exchanges(broker: Broker) -> None:
    """After a restart exchanges have no alternate exchange."""

    def change(restored: RestoredState) -> None:
        for name, one in restored.exchanges.items():
            restored.exchanges[name] = with_fields(one, arguments=encode_entries({}))

    when_restored(broker, change)


@defect("AMQP-DURABILITY-016")
def restarts_forget_arguments_of_bindings(broker: Broker) -> None:
    """After a restart bindings have no arguments, so one to a headers exchange takes every message."""

    def change(restored: RestoredState) -> None:
        for key, one in restored.bindings.items():
            restored.bindings[key] = with_fields(one, arguments=encode_entries({}))

    when_restored(broker, change)


@defect("AMQP-DURABILITY-016")
def restarts_forget_auto_delete_of_queues(broker: Broker) -> None:
    """After a restart a queue with auto_delete stays when its last consumer leaves."""

    def change(restored: RestoredState) -> None:
        for queue in restored.queues.values():
            queue.declared = with_fields(queue.declared, auto_delete=False)

    when_restored(broker, change)


@defect("AMQP-DURABILITY-016")
def restarts_forget_auto_delete_of_exchanges(broker: Broker) -> None:
    """After a restart an exchange with auto_delete stays when its last binding ends."""

    def change(restored: RestoredState) -> None:
        for name, one in restored.exchanges.items():
            restored.exchanges[name] = with_fields(one, auto_delete=False)

    when_restored(broker, change)


def _records_exclusive_queues(broker: Broker) -> None:
    """A durable queue is entered though it is exclusive."""
    original = broker.store.record_queue_declared

    def queue_declared(queue: Queue) -> None:
        owner, queue.owner = queue.owner, None
        original(queue)
        queue.owner = owner

    replace(broker.store, "record_queue_declared", queue_declared)


@defect("AMQP-DURABILITY-017")
def exclusive_queues_survive(broker: Broker) -> None:
    """After a restart a durable queue is there that was exclusive."""
    _records_exclusive_queues(broker)
    deleted = broker.store.record_queue_deleted

    def queue_deleted(queue: Queue) -> None:
        if queue.owner is None:
            deleted(queue)

    replace(broker.store, "record_queue_deleted", queue_deleted)


@defect("AMQP-DURABILITY-017")
def exclusive_queues_survive_a_crash(broker: Broker) -> None:
    """After kill -9 a durable queue is there that was exclusive."""
    _records_exclusive_queues(broker)
