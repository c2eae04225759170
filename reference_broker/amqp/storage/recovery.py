"""A broker takes up what a journal holds.

Source: RabbitMQ, "Queues" (durability).
"""

from __future__ import annotations

from collections.abc import Mapping

from plumbline.reference_broker.amqp.messages.delivery import Deliveries
from plumbline.reference_broker.amqp.storage.restoring import RestoredState, read_journal
from plumbline.reference_broker.amqp.storage.store import AmqpRecordStore
from plumbline.reference_broker.amqp.topology.arguments import configure
from plumbline.reference_broker.amqp.topology.exchanges import VirtualHost
from plumbline.reference_broker.amqp.topology.queues import CLASSIC, QUORUM, Queue
from plumbline.reference_broker.amqp.topology.topology import Topology
from plumbline.wire.amqp import decode_entries


class Recovery:
    """What happens before any client connects."""

    def __init__(self, topology: Topology, deliveries: Deliveries, store: AmqpRecordStore) -> None:
        self.topology = topology
        self.deliveries = deliveries
        self.store = store

    def recover(self, files: Mapping[str, bytes], now: int) -> list[str]:
        """Restore what ``files`` hold, by path; returns a sentence for each thing that was damaged."""
        restored = RestoredState()
        warnings = read_journal(files, restored)
        self.restore(restored, now)
        self.store.rewrite(self.topology.vhosts.values())
        return warnings

    def restore(self, restored: RestoredState, now: int) -> None:
        vhosts = self.topology.vhosts
        for name in sorted(restored.vhost_names()):
            vhost = vhosts.setdefault(name, VirtualHost(name))
            for exchange in restored.exchanges_of(name):
                vhost.exchanges[exchange.name] = exchange
        queues = self.restore_queues(restored)
        for name, vhost in vhosts.items():
            for binding in restored.bindings_of(name):
                vhost.bind(binding)
        for queue in queues:  # not before: dead letters go to other queues, by exchanges and bindings
            self.deliveries.drop_expired(queue, now)
            self.deliveries.drop_overflow(queue, now)
            self.topology.queue_used(queue, now)

    def restore_queues(self, restored: RestoredState) -> list[Queue]:
        """The queues of a journal, their messages in their places."""
        queues = []
        for number, declared in restored.declared():
            queue = Queue(declared.vhost, declared.name, durable=True, auto_delete=declared.auto_delete)
            configure(queue, decode_entries(declared.arguments), (CLASSIC, QUORUM))
            queue.number = number
            for entry in restored.entries(number):
                queue.append(entry)
                queue.durable_entries[entry.position] = entry
                queue.last_position = entry.position
            self.store.queues = max(self.store.queues, number)
            self.topology.vhosts[declared.vhost].queues[queue.name] = queue
            queues.append(queue)
        return queues
