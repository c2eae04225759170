"""Queues and their end: declare, bind, purge, delete, and what goes without being told.

Sources: AMQP 0-9-1 XML, class queue; RabbitMQ, "Queues", "AMQP 0-9-1 Errata", "Time-To-Live and Expiration".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from plumbline.reference_broker.amqp.arguments import check_equivalent, configure
from plumbline.reference_broker.amqp.connection import Channel, Connection
from plumbline.reference_broker.amqp.consuming import Consuming
from plumbline.reference_broker.amqp.errors import (
    ACCESS_REFUSED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    AmqpFault,
    quoted,
)
from plumbline.reference_broker.amqp.exchanges import Binding, Exchange, VirtualHost
from plumbline.reference_broker.amqp.messages import Entry
from plumbline.reference_broker.amqp.queues import Queue
from plumbline.reference_broker.amqp.state import Alarm
from plumbline.reference_broker.amqp.storage.restoring import Restored
from plumbline.wire.amqp import Method, decode_entries

MILLISECOND = 1_000_000
RESERVED = "amq."


def stripped(name: str) -> str:
    """Servers: line ends are no part of a name."""
    return name.replace("\r", "").replace("\n", "")


class Topology(Consuming):
    """Which queues there are, and what they are bound to."""

    def declares_queue(self, channel: Channel, operation: Method, now: int) -> None:
        """queue.declare."""
        arguments = operation.arguments
        name = stripped(arguments["queue"])
        vhost = self.vhosts[channel.connection.vhost]
        if arguments["passive"]:
            queue = self.usable_queue(channel, name)
        elif (existing := vhost.queues.get(name)) is not None and name:
            self.check_same_queue(existing, channel, arguments)
            queue = existing
        else:
            if not name and not arguments["queue"]:
                name = self.unique("amq.gen-")
            elif name.startswith(RESERVED):
                self.refuse_reserved("queue", name)
            queue = self.make_queue(vhost, name, channel, arguments)
        channel.last_queue = queue.name
        self.in_use(queue, now)
        if not arguments["no_wait"]:
            self.answer(
                channel, "queue.declare-ok", queue.name, self.message_count(queue), len(queue.consumers)
            )

    def make_queue(self, vhost: VirtualHost, name: str, channel: Channel, arguments: Any) -> Queue:
        queue = Queue(vhost.name, name, durable=arguments["durable"], auto_delete=arguments["auto_delete"])
        configure(queue, arguments["arguments"])
        if arguments["exclusive"]:
            queue.owner = channel.connection
            channel.connection.exclusive_queues.add(queue)
        vhost.queues[name] = queue
        vhost.changed()
        self.store.queue_declared(queue)
        return queue

    def refuse_reserved(self, kind: str, name: str) -> None:
        raise AmqpFault(ACCESS_REFUSED, f"{kind} name '{name}' contains reserved prefix 'amq.*'")

    def check_same_queue(self, queue: Queue, channel: Channel, arguments: Any) -> None:
        """A second declaration must say the same. AMQP 0-9-1 XML, queue.declare, "equivalent"."""
        owner = channel.connection if arguments["exclusive"] else None
        if queue.owner is not owner and queue.owner is not channel.connection:
            self.refuse_locked(queue)
        if queue.owner is not None and owner is None:
            self.refuse_locked(queue)
        what = quoted("queue", queue.name, queue.vhost)
        self.check_same("durable", what, arguments["durable"], queue.durable)
        self.check_same("auto_delete", what, arguments["auto_delete"], queue.auto_delete)
        check_equivalent(queue, arguments["arguments"])

    def check_same(self, name: str, what: str, received: Any, current: Any) -> None:
        if received != current:
            shown = [str(one).lower() if isinstance(one, bool) else one for one in (received, current)]
            text = f"inequivalent arg '{name}' for {what}: received '{shown[0]}' but current is '{shown[1]}'"
            raise AmqpFault(PRECONDITION_FAILED, text)

    def message_count(self, queue: Queue) -> int:
        """Those that are ready; what is delivered does not count."""
        return len(queue.ready)

    def binds_queue(self, channel: Channel, operation: Method, now: int) -> None:
        """queue.bind. Without queue name and key, the key is the name of the last queue too."""
        arguments = operation.arguments
        queue = self.usable_queue(channel, arguments["queue"])
        key = arguments["routing_key"]
        if not arguments["queue"] and not key:
            key = queue.name
        vhost = self.vhosts[channel.connection.vhost]
        exchange = self.bindable(vhost, arguments["exchange"])
        self.add_binding(vhost, Binding(exchange.name, True, queue.name, key, arguments["arguments"]))
        if not arguments["no_wait"]:
            self.answer(channel, "queue.bind-ok")

    def bindable(self, vhost: VirtualHost, name: str) -> Exchange:
        """An exchange that takes bindings. Raises ``AmqpFault``."""
        if not name:
            self.refuse_default_exchange()
        if name not in vhost.exchanges:
            raise AmqpFault(NOT_FOUND, f"no {quoted('exchange', name, vhost.name)}")
        return vhost.exchanges[name]

    def refuse_default_exchange(self) -> None:
        raise AmqpFault(ACCESS_REFUSED, "operation not permitted on the default exchange")

    def add_binding(self, vhost: VirtualHost, binding: Binding) -> None:
        if vhost.bind(binding):
            self.store.bound(vhost, binding)

    def unbinds_queue(self, channel: Channel, operation: Method, now: int) -> None:
        """queue.unbind. What is not bound needs no unbinding."""
        arguments = operation.arguments
        name, key = arguments["queue"], arguments["routing_key"]
        if not name:
            name = self.last_declared(channel)
            key = key or name
        if not arguments["exchange"]:
            self.refuse_default_exchange()
        self.drop_binding(channel, Binding(arguments["exchange"], True, name, key, arguments["arguments"]))
        self.answer(channel, "queue.unbind-ok")

    def drop_binding(self, channel: Channel, binding: Binding) -> None:
        vhost = self.vhosts[channel.connection.vhost]
        exchange = vhost.exchanges.get(binding.source)
        found = exchange.bindings.get(binding.key) if exchange is not None else None
        if found is not None:
            self.remove_binding(vhost, found)

    def remove_binding(self, vhost: VirtualHost, binding: Binding) -> None:
        """An exchange that should go with its last binding goes."""
        self.store.unbound(vhost, binding)
        exchange = vhost.exchanges[binding.source]
        del exchange.bindings[binding.key]
        vhost.changed()
        if exchange.auto_delete and not exchange.bindings:
            self.remove_exchange(vhost, exchange)

    def remove_exchange(self, vhost: VirtualHost, exchange: Exchange) -> None:
        """The exchange and all its bindings."""
        if vhost.exchanges.pop(exchange.name, None) is None:
            return
        self.store.exchange_deleted(vhost.name, exchange)
        vhost.changed()
        vhost.exchanges[exchange.name] = exchange  # while its bindings are told
        for binding in vhost.bound_to(exchange.name, is_queue=False):
            self.remove_binding(vhost, binding)
        del vhost.exchanges[exchange.name]

    def purges(self, channel: Channel, operation: Method, now: int) -> None:
        """queue.purge: what was delivered stays."""
        queue = self.usable_queue(channel, operation.arguments["queue"])
        entries = self.purge(queue)
        for entry in entries:
            self.discard(queue, entry, now)
        if not operation.arguments["no_wait"]:
            self.answer(channel, "queue.purge-ok", len(entries))

    def purge(self, queue: Queue) -> list[Entry]:
        return queue.clear()

    def deletes_queue(self, channel: Channel, operation: Method, now: int) -> None:
        """queue.delete. What does not exist is deleted already."""
        arguments = operation.arguments
        name = arguments["queue"] or self.last_declared(channel)
        vhost = self.vhosts[channel.connection.vhost]
        count = 0
        if (queue := vhost.queues.get(name)) is not None:
            self.check_owner(queue, channel)
            what = quoted("queue", queue.name, queue.vhost)
            if arguments["if_unused"] and queue.consumers:
                raise AmqpFault(PRECONDITION_FAILED, f"{what} in use")
            if arguments["if_empty"] and len(queue.ready):
                raise AmqpFault(PRECONDITION_FAILED, f"{what} not empty")
            count = len(queue.ready)
        if not arguments["no_wait"]:
            self.answer(channel, "queue.delete-ok", count)
        if queue is not None:
            self.remove_queue(queue)

    def remove_queue(self, queue: Queue) -> None:
        """The queue, its messages and bindings; its consumers hear of it."""
        if queue.deleted:
            return
        vhost = self.vhosts[queue.vhost]
        for binding in vhost.bound_to(queue.name, is_queue=True):
            self.remove_binding(vhost, binding)
        queue.deleted = True
        vhost.queues.pop(queue.name, None)
        vhost.changed()
        self.store.queue_deleted(queue)
        self.timers.clear((Alarm.HEAD, queue))
        self.timers.clear((Alarm.UNUSED, queue))
        if queue.owner is not None:
            queue.owner.exclusive_queues.discard(queue)
        consumers, queue.consumers = queue.consumers, []
        queue.turn.clear()
        queue.clear()
        for consumer in consumers:
            self.notify_cancel(consumer)

    def restore_queues(self, restored: Restored, now: int) -> None:
        """The queues of a journal, their messages in their places."""
        for number, declared in restored.declared():
            queue = Queue(declared.vhost, declared.name, durable=True, auto_delete=declared.auto_delete)
            configure(queue, decode_entries(declared.arguments))
            queue.number = number
            for entry in restored.entries(number):
                queue.append(entry)
                queue.kept[entry.position] = entry
                queue.last_position = entry.position
            self.store.queues = max(self.store.queues, number)
            self.vhosts[declared.vhost].queues[queue.name] = queue
            self.drop_expired(queue, now)
            self.in_use(queue, now)

    # What a queue's end hangs on

    def in_use(self, queue: Queue, now: int) -> None:
        """A queue with ``x-expires`` lasts that long after its last use, and while it has consumers."""
        if queue.expires is None or queue.deleted:
            return
        if queue.consumers:
            self.timers.clear((Alarm.UNUSED, queue))
        else:
            self.timers.set((Alarm.UNUSED, queue), now + queue.expires * MILLISECOND)

    def consumer_left(self, queue: Queue, now: int) -> None:
        """An auto-delete queue goes with its last consumer."""
        if queue.auto_delete and not queue.consumers:
            self.remove_queue(queue)
        else:
            self.in_use(queue, now)
            self.pump(queue, now)  # for the one whose turn it is now

    def leave_channel(self, channel: Channel, now: int) -> None:
        """The channel ends: consumers go, and what is outstanding is requeued."""
        channel.closed = True
        if channel.transaction is not None:
            self.undo(channel, channel.transaction)
        consumers, channel.consumers = channel.consumers, {}
        left: list[Queue] = []
        for consumer in consumers.values():
            if not consumer.queue.deleted:
                consumer.queue.remove(consumer)
                left.append(consumer.queue)
        outstanding, channel.outstanding = channel.outstanding, {}
        queues = self.requeue(outstanding.values(), now)
        for queue in left:
            self.consumer_left(queue, now)
        self.pump_all(queues, now)

    def leave_channels(self, connection: Connection, now: int) -> None:
        """The connection ends, and with it its channels and exclusive queues."""
        channels = list(connection.channels.values())
        connection.channels.clear()
        self.silence(channels)
        for channel in channels:
            self.leave_channel(channel, now)
        for queue in sorted(connection.exclusive_queues, key=lambda queue: queue.name):
            self.remove_queue(queue)

    def silence(self, channels: Iterable[Channel]) -> None:
        """None of them gets what another gives back."""
        for channel in channels:
            channel.closing = True
            for consumer in channel.consumers.values():
                if not consumer.queue.deleted:
                    consumer.queue.step_aside(consumer)
