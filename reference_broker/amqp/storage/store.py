"""Writes durable topology and persistent messages as records.

Only records here; who keeps them on a disk is the shell. Every durable change is one record, in the order of
the changes. Source: RabbitMQ, "Queues" (durability), "Consumer Acknowledgements and Publisher Confirms".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from plumbline.reference_broker.amqp.messages.message import PublishedMessage, QueueEntry
from plumbline.reference_broker.amqp.storage.records import (
    JOURNAL,
    BindingAdded,
    BindingRemoved,
    CleanShutdown,
    ExchangeDeclared,
    ExchangeDeleted,
    MessageRemoved,
    MessagesDelivered,
    MessageStored,
    QueueDeclared,
    QueueDeleted,
    Record,
    encode_frame,
)
from plumbline.reference_broker.amqp.topology.exchanges import PREDECLARED, Binding, Exchange, VirtualHost
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.reference_broker.write_queue import Replace, WriteQueue
from plumbline.wire.amqp import encode_entries

GROWS_TO = 32 * 1024 * 1024  # bytes; beyond this, and
GROWS_BY = 4  # times what it had to be, the journal is rewritten


class AmqpRecordStore:
    """Records that are not in the write queue yet. Without a write queue it takes none."""

    def __init__(self, write_queue: WriteQueue | None) -> None:
        self.write_queue = write_queue
        self.enabled = write_queue is not None
        self.records: list[Record] = []
        self.queues = 0  # numbers given to queues
        self.size = 0  # bytes of the journal
        self.least = 0  # bytes of the journal when it was last rewritten

    def add(self, record: Record) -> None:
        self.records.append(record)

    def commit(self, vhosts: Iterable[VirtualHost]) -> None:
        """One event is over: a restart finds all of its records or none."""
        assert self.write_queue is not None
        frame = encode_frame(self.records)
        self.records.clear()
        self.size += len(frame)
        self.write_queue.append(JOURNAL, frame)
        if self.size > GROWS_TO + GROWS_BY * self.least:
            self.rewrite(vhosts)

    def rewrite(self, vhosts: Iterable[VirtualHost]) -> None:
        """A journal of the fewest records in the place of the one that has grown."""
        if self.write_queue is None:
            return
        data = b"".join(encode_frame([record]) for record in snapshot(vhosts))
        self.size = self.least = len(data)
        self.write_queue.enter(Replace(JOURNAL, data))

    def record_exchange_declared(self, vhost: str, exchange: Exchange) -> None:
        if self.enabled and exchange.durable:
            self.add(_exchange(vhost, exchange))

    def record_exchange_deleted(self, vhost: str, exchange: Exchange) -> None:
        if self.enabled and exchange.durable:
            self.add(ExchangeDeleted(vhost, exchange.name))

    def record_queue_declared(self, queue: Queue) -> None:
        """Exclusive queues end with their connection, so with the broker."""
        if self.enabled and queue.durable and not queue.exclusive:
            self.queues += 1
            queue.number = self.queues
            self.add(_queue(queue))

    def record_queue_deleted(self, queue: Queue) -> None:
        if queue.number:
            self.add(QueueDeleted(queue.number))

    def record_binding_added(self, vhost: VirtualHost, binding: Binding) -> None:
        if self.enabled and _is_durable(vhost, binding):
            self.add(BindingAdded(*_binding(vhost.name, binding)))

    def record_binding_removed(self, vhost: VirtualHost, binding: Binding) -> None:
        if self.enabled and _is_durable(vhost, binding):
            self.add(BindingRemoved(*_binding(vhost.name, binding)))

    def is_durable_message(self, queue: Queue, message: PublishedMessage) -> bool:
        """Whether the message has to survive in this queue."""
        return queue.number != 0 and message.persistent

    def record_message_stored(self, queue: Queue, entry: QueueEntry) -> None:
        queue.durable_entries[entry.position] = entry
        self.add(_stored(queue, entry))

    def record_message_removed(self, queue: Queue, entry: QueueEntry) -> None:
        """Whoever takes an entry out of a queue for good says so here."""
        if (
            queue.durable_entries
            and queue.durable_entries.pop(entry.position, None) is not None
            and not queue.deleted
        ):
            self.add(MessageRemoved(queue.number, entry.position))

    def record_shutdown(self, vhosts: Iterable[VirtualHost]) -> None:
        """Everything is requeued: remember what had been delivered."""
        if not self.enabled:
            return
        for queue in _durable_queues(vhosts):
            seen = [position for position, entry in queue.durable_entries.items() if entry.redelivered]
            if seen:
                self.add(MessagesDelivered(queue.number, seen))
        self.add(CleanShutdown())


def snapshot(vhosts: Iterable[VirtualHost]) -> Iterator[Record]:
    """The fewest records that make these virtual hosts."""
    known = list(vhosts)
    for vhost in known:
        for exchange in vhost.exchanges.values():
            if exchange.durable and exchange.name not in PREDECLARED:
                yield _exchange(vhost.name, exchange)
    for queue in _durable_queues(known):
        yield _queue(queue)
        yield from (_stored(queue, entry) for entry in queue.durable_entries.values())
    for vhost in known:
        for exchange in vhost.exchanges.values():
            for binding in exchange.bindings.values():
                if _is_durable(vhost, binding):
                    yield BindingAdded(*_binding(vhost.name, binding))


def _durable_queues(vhosts: Iterable[VirtualHost]) -> Iterator[Queue]:
    return (queue for vhost in vhosts for queue in vhost.queues.values() if queue.number)


def _is_durable(vhost: VirtualHost, binding: Binding) -> bool:
    """A binding lasts if both its ends do."""
    if not vhost.exchanges[binding.source].durable:
        return False
    if binding.to_queue:
        return vhost.queues[binding.destination].number != 0
    return vhost.exchanges[binding.destination].durable


def _exchange(vhost: str, one: Exchange) -> ExchangeDeclared:
    return ExchangeDeclared(
        vhost, one.name, one.kind, one.auto_delete, one.internal, encode_entries(one.arguments)
    )


def _queue(queue: Queue) -> QueueDeclared:
    return QueueDeclared(
        queue.vhost, queue.name, queue.number, queue.auto_delete, encode_entries(queue.arguments)
    )


def _binding(vhost: str, binding: Binding) -> tuple[str, str, bool, str, str, bytes]:
    return (
        vhost,
        binding.source,
        binding.to_queue,
        binding.destination,
        binding.routing_key,
        encode_entries(binding.arguments),
    )


def _stored(queue: Queue, entry: QueueEntry) -> MessageStored:
    message = entry.message
    return MessageStored(
        queue.number,
        entry.position,
        entry.expires,
        message.exchange,
        message.routing_key,
        message.operation.raw_properties,
        message.operation.body,
    )
