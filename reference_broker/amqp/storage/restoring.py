"""Restores topology and messages from the records of a journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

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
    decode_frames,
)
from plumbline.reference_broker.amqp.topology.exchanges import Binding, Exchange
from plumbline.wire.amqp import decode_entries, decode_properties


def read_journal(files: Mapping[str, bytes], restored: RestoredState) -> list[str]:
    """Fill ``restored``; gives a sentence for what was damaged and is cut off."""
    data = files.get(JOURNAL, b"")
    frames, end = decode_frames(data)
    for records in frames:
        for record in records:
            restored.apply_record(record)
    if end == len(data):
        return []
    return [f"{JOURNAL} is damaged from byte {end} on: its last {len(data) - end} bytes are left out"]


class _RestoredQueue(Struct):
    """A queue while it is being restored."""

    declared: QueueDeclared
    messages: dict[int, MessageStored]
    delivered: set[int]


class RestoredState:
    """What the records of a journal come to."""

    def __init__(self) -> None:
        self.exchanges: dict[tuple[str, str], ExchangeDeclared] = {}
        self.queues: dict[int, _RestoredQueue] = {}
        self.bindings: dict[tuple[Any, ...], BindingAdded] = {}
        self.in_order = False  # the last one was that of an orderly end

    def apply_record(self, record: Record) -> None:
        """The next record."""
        self.in_order = False
        match record:
            case ExchangeDeclared():
                self.exchanges[record.vhost, record.name] = record
            case ExchangeDeleted():
                self.exchanges.pop((record.vhost, record.name), None)
                self._forget(record.vhost, record.name, is_queue=False)
            case QueueDeclared():
                self.queues[record.number] = _RestoredQueue(record, {}, set())
            case QueueDeleted():
                queue = self.queues.pop(record.number, None)
                if queue is not None:
                    self._forget(queue.declared.vhost, queue.declared.name, is_queue=True)
            case BindingAdded():
                self.bindings[msgspec.structs.astuple(record)] = record
            case BindingRemoved():
                self.bindings.pop(msgspec.structs.astuple(record), None)
            case MessageStored():
                if (queue := self.queues.get(record.queue)) is not None:
                    queue.messages[record.position] = record
            case MessageRemoved():
                if (queue := self.queues.get(record.queue)) is not None:
                    queue.messages.pop(record.position, None)
            case MessagesDelivered():
                if (queue := self.queues.get(record.queue)) is not None:
                    queue.delivered.update(record.positions)
            case CleanShutdown():
                self.in_order = True

    def _forget(self, vhost: str, name: str, *, is_queue: bool) -> None:
        self.bindings = {
            key: one
            for key, one in self.bindings.items()
            if one.vhost != vhost
            or (
                not (one.destination == name and one.to_queue is is_queue)
                and (is_queue or one.source != name)
            )
        }

    def vhost_names(self) -> set[str]:
        named = {vhost for vhost, _ in self.exchanges} | {one.vhost for one in self.bindings.values()}
        return named | {queue.declared.vhost for queue in self.queues.values()}

    def exchanges_of(self, vhost: str) -> Iterator[Exchange]:
        for one in self.exchanges.values():
            if one.vhost == vhost:
                yield Exchange(
                    one.name,
                    one.kind,
                    auto_delete=one.auto_delete,
                    internal=one.internal,
                    arguments=decode_entries(one.arguments),
                )

    def bindings_of(self, vhost: str) -> Iterator[Binding]:
        for one in self.bindings.values():
            if one.vhost == vhost:
                yield Binding(
                    one.source, one.to_queue, one.destination, one.routing_key, decode_entries(one.arguments)
                )

    def declared(self) -> Iterator[tuple[int, QueueDeclared]]:
        """The queues that are left, by number."""
        return ((number, queue.declared) for number, queue in sorted(self.queues.items()))

    def entries(self, number: int) -> Iterator[QueueEntry]:
        """The messages of a queue, in order. After a crash any of them may have been delivered before."""
        queue = self.queues[number]
        for position, one in sorted(queue.messages.items()):
            message = PublishedMessage.make(
                one.exchange, one.routing_key, decode_properties(one.properties), one.properties, one.body
            )
            entry = QueueEntry(message, position, one.expires)
            entry.redelivered = not self.in_order or position in queue.delivered
            yield entry
