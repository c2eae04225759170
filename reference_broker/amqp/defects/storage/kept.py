"""Defects in what a restart gives back of messages, and in how queues treat them afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from plumbline.reference_broker.amqp.connections.connection import Channel, UnackedDelivery
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import handling
from plumbline.reference_broker.amqp.defects.storage.durability import when_restored
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.message import PublishedMessage, QueueEntry, altered
from plumbline.reference_broker.amqp.storage.restoring import RestoredState
from plumbline.reference_broker.amqp.topology.queues import EntryQueue, PriorityEntryQueue, Queue
from plumbline.wire.amqp import Method


@defect("AMQP-DURABILITY-018")
def one_copy_is_written(broker: Broker) -> None:
    """A message that several queues get is stored for the first of them alone."""
    original = broker.store.is_durable_message
    last: list[PublishedMessage] = []

    def is_durable_message(queue: Queue, message: PublishedMessage) -> bool:
        is_again = bool(last) and last[0] is message
        last[:] = [message]
        return original(queue, message) and not is_again

    replace(broker.store, "is_durable_message", is_durable_message)


def _entries(broker: Broker, change: Callable[[QueueEntry], None]) -> None:
    """Each entry of a journal is changed before the broker takes it up."""

    def changes(restored: RestoredState) -> None:
        original = restored.entries

        def entries(number: int) -> Iterator[QueueEntry]:
            for entry in original(number):
                change(entry)
                yield entry

        replace(restored, "entries", entries)

    when_restored(broker, changes)


@defect("AMQP-DURABILITY-018")
def restarts_lose_properties(broker: Broker) -> None:
    """After a restart messages have no property but delivery_mode."""

    def change(entry: QueueEntry) -> None:
        message = entry.message
        entry.message = altered(message, message.exchange, message.routing_key, {"delivery_mode": 2})

    _entries(broker, change)


@defect("AMQP-DURABILITY-018")
def restarts_lose_the_exchange(broker: Broker) -> None:
    """After a restart messages come from the default exchange."""

    def change(entry: QueueEntry) -> None:
        message = entry.message
        entry.message = altered(message, "", message.routing_key, message.properties)

    _entries(broker, change)


@defect("AMQP-DURABILITY-020")
def restarts_make_messages_immortal(broker: Broker) -> None:
    """After a restart messages do not expire."""

    def change(entry: QueueEntry) -> None:
        entry.expires = None

    _entries(broker, change)


@defect("AMQP-DURABILITY-019")
def commits_publish_what_is_transient(broker: Broker) -> None:
    """What a transaction publishes does not survive a restart."""

    @handling(broker, "tx.commit")
    def committed(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        for message, _, _ in channel.transaction.publishes if channel.transaction is not None else ():
            message.persistent = False
        original(channel, operation, now)


@defect("AMQP-DURABILITY-019")
def commits_write_no_settlement(broker: Broker) -> None:
    """What a transaction acknowledges comes back after a restart."""
    original_removed = broker.store.record_message_removed
    committing = [False]

    def record_message_removed(queue: Queue, entry: QueueEntry) -> None:
        if not committing[0]:
            original_removed(queue, entry)

    @handling(broker, "tx.commit")
    def committed(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        committing[0] = True
        try:
            original(channel, operation, now)
        finally:
            committing[0] = False

    replace(broker.store, "record_message_removed", record_message_removed)


@defect("AMQP-DURABILITY-008", "AMQP-DURABILITY-015")
def of_several_settled_one_is_written(broker: Broker) -> None:
    """Of several messages that are settled together all but the last come back after a restart."""
    original = broker.acknowledging.apply_settlement
    original_removed = broker.store.record_message_removed
    written: list[QueueEntry] = []

    def apply_settlement(deliveries: dict[int, UnackedDelivery], settlement: str, now: int) -> None:
        written[:] = [one.entry for one in deliveries.values()][:-1]
        original(deliveries, settlement, now)
        written.clear()

    def record_message_removed(queue: Queue, entry: QueueEntry) -> None:
        if entry not in written:
            original_removed(queue, entry)

    replace(broker.acknowledging, "apply_settlement", apply_settlement)
    replace(broker.store, "record_message_removed", record_message_removed)


def _queues(broker: Broker, change: Callable[[Queue], Any]) -> None:
    """Each queue of a journal is changed when it has been restored."""
    original = broker.recovery.restore_queues

    def restore_queues(restored: RestoredState) -> Sequence[Queue]:
        queues = original(restored)
        for queue in queues:
            change(queue)
        return queues

    replace(broker.recovery, "restore_queues", restore_queues)


@defect("AMQP-DURABILITY-016")
def restarts_end_dead_lettering(broker: Broker) -> None:
    """After a restart x-dead-letter-exchange means nothing."""

    def change(queue: Queue) -> None:
        queue.dead_letter_exchange = None

    _queues(broker, change)


@defect("AMQP-DURABILITY-016")
def restarts_end_message_ttl(broker: Broker) -> None:
    """After a restart x-message-ttl means nothing for what is published."""

    def change(queue: Queue) -> None:
        queue.message_ttl = None

    _queues(broker, change)


@defect("AMQP-DURABILITY-016")
def restarts_end_priorities(broker: Broker) -> None:
    """After a restart x-max-priority means nothing."""

    def change(queue: Queue) -> None:
        if isinstance(queue.ready, PriorityEntryQueue):
            entries, queue.ready = list(queue.ready), EntryQueue()
            for entry in sorted(entries, key=lambda one: one.position):
                queue.ready.append(entry)

    _queues(broker, change)


@defect("AMQP-DURABILITY-016")
def restarts_end_single_active_consumers(broker: Broker) -> None:
    """After a restart x-single-active-consumer means nothing."""

    def change(queue: Queue) -> None:
        queue.single_active = False

    _queues(broker, change)


@defect("AMQP-DURABILITY-021")
def restarts_make_queues_immortal(broker: Broker) -> None:
    """After a restart x-expires means nothing."""

    def change(queue: Queue) -> None:
        queue.expires = None

    _queues(broker, change)


@defect("AMQP-DURABILITY-021")
def restarts_end_leases(broker: Broker) -> None:
    """A queue with x-expires is gone after a restart."""
    original = broker.recovery.restore

    def restore(restored: RestoredState, now: int) -> None:
        original(restored, now)
        for vhost in broker.vhosts.values():
            for queue in [one for one in vhost.queues.values() if one.expires is not None]:
                broker.topology.remove_queue(queue)

    replace(broker.recovery, "restore", restore)
