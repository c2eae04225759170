"""Which queues, exchanges and bindings there are, who may use them, and when they go.

Sources: AMQP 0-9-1 XML, classes queue and exchange; RabbitMQ, "Queues", "AMQP 0-9-1 Errata", "Time-To-Live
and Expiration", "Consumer Cancel Notification".
"""

from __future__ import annotations

from typing import Any

from plumbline.reference_broker.amqp.access import READ, WRITE, Access
from plumbline.reference_broker.amqp.alarms import Alarms, AmqpTimer
from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.errors import (
    ACCESS_REFUSED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
    AmqpReplyError,
    quoted,
)
from plumbline.reference_broker.amqp.messages.delivery import Deliveries
from plumbline.reference_broker.amqp.outbox import Outbox
from plumbline.reference_broker.amqp.storage.store import AmqpRecordStore
from plumbline.reference_broker.amqp.topology.arguments import check_x_match
from plumbline.reference_broker.amqp.topology.exchanges import Binding, Exchange, VirtualHost
from plumbline.reference_broker.amqp.topology.queues import Queue, QueueConsumer

MILLISECOND = 1_000_000
RESERVED = "amq."


def strip_line_ends(name: str) -> str:
    """Servers: line ends are no part of a name."""
    return name.replace("\r", "").replace("\n", "")


def default_exchange_refused() -> AmqpReplyError:
    """Clients cannot declare, delete or bind the default exchange (403)."""
    return AmqpReplyError(ACCESS_REFUSED, "operation not permitted on the default exchange")


def check_same(name: str, what: str, received: Any, current: Any) -> None:
    """An argument of a second declaration. AMQP 0-9-1 XML, rule "equivalent". Raises
    ``AmqpReplyError`` (406)."""
    if received != current:
        shown = [str(one).lower() if isinstance(one, bool) else one for one in (received, current)]
        text = f"inequivalent arg '{name}' for {what}: received '{shown[0]}' but current is '{shown[1]}'"
        raise AmqpReplyError(PRECONDITION_FAILED, text)


class Topology:
    """The queues, exchanges and bindings of every virtual host."""

    def __init__(
        self,
        vhosts: dict[str, VirtualHost],
        deliveries: Deliveries,
        access: Access,
        store: AmqpRecordStore,
        alarms: Alarms,
        outbox: Outbox,
    ) -> None:
        self.vhosts = vhosts
        self.deliveries = deliveries
        self.access = access
        self.store = store
        self.alarms = alarms
        self.outbox = outbox

    def check_access(self, channel: Channel, right: str, kind: str, name: str) -> None:
        """``kind`` is exchange or queue. Raises ``AmqpReplyError`` (403)."""
        self.access.check(channel.connection, right, kind, name)

    def check_name(self, kind: str, name: str) -> None:
        """Only the broker makes names with the reserved prefix. Raises ``AmqpReplyError`` (403)."""
        if name.startswith(RESERVED):
            raise AmqpReplyError(ACCESS_REFUSED, f"{kind} name '{name}' contains reserved prefix 'amq.*'")

    def named_queue(self, channel: Channel, name: str) -> Queue:
        """The queue of that name, or the last one declared on the channel. Raises ``AmqpReplyError``."""
        if not name:
            name = self.last_declared(channel)
        queue = self.vhosts[channel.connection.vhost].queues.get(name)
        if queue is None:
            raise AmqpReplyError(NOT_FOUND, f"no {quoted('queue', name, channel.connection.vhost)}")
        return queue

    def last_declared(self, channel: Channel) -> str:
        if not channel.last_queue:
            raise AmqpReplyError(NOT_FOUND, "no previously declared queue")
        return channel.last_queue

    def usable_queue(self, channel: Channel, name: str) -> Queue:
        """The same, if the client may touch it."""
        queue = self.named_queue(channel, name)
        self.check_owner(queue, channel)
        return queue

    def check_owner(self, queue: Queue, channel: Channel) -> None:
        """An exclusive queue is its connection's alone. Raises ``AmqpReplyError`` (405)."""
        if queue.owner is not None and queue.owner is not channel.connection:
            self.refuse_locked(queue)

    def refuse_locked(self, queue: Queue) -> None:
        what = quoted("queue", queue.name, queue.vhost)
        text = (
            f"cannot obtain exclusive access to locked {what}. It could be originally declared on another "
            "connection or the exclusive property value does not match that of the original declaration."
        )
        raise AmqpReplyError(RESOURCE_LOCKED, text)

    def check_topic(self, channel: Channel, source: str, routing_key: str) -> None:
        """Of a binding to ``source``, if there is such an exchange. Raises ``AmqpReplyError`` (403)."""
        exchange = self.vhosts[channel.connection.vhost].exchanges.get(source)
        if exchange is not None:
            self.access.check_topic(channel.connection, READ, source, exchange.kind, routing_key)

    def check_binding(self, channel: Channel, kind: str, destination: str, source: str) -> None:
        """Who may bind or unbind an exchange or queue (``kind``), in the order in which RabbitMQ asks.
        Raises ``AmqpReplyError`` (403)."""
        self.check_access(channel, WRITE, kind, destination)
        if not source or (kind == "exchange" and not destination):
            raise default_exchange_refused()
        self.check_access(channel, READ, "exchange", source)

    def bindable(self, vhost: VirtualHost, name: str) -> Exchange:
        """An exchange that takes bindings. Raises ``AmqpReplyError``."""
        if name not in vhost.exchanges:
            raise AmqpReplyError(NOT_FOUND, f"no {quoted('exchange', name, vhost.name)}")
        return vhost.exchanges[name]

    def add_binding(self, vhost: VirtualHost, binding: Binding) -> None:
        """Unless it is there already. Raises ``AmqpReplyError`` (406) for its arguments."""
        if vhost.exchanges[binding.source].kind == "headers":
            check_x_match(binding.arguments)
        if vhost.bind(binding):
            self.store.record_binding_added(vhost, binding)

    def drop_binding(self, channel: Channel, binding: Binding) -> None:
        vhost = self.vhosts[channel.connection.vhost]
        exchange = vhost.exchanges.get(binding.source)
        found = exchange.bindings.get(binding.key) if exchange is not None else None
        if found is not None:
            self.remove_binding(vhost, found)

    def remove_binding(self, vhost: VirtualHost, binding: Binding) -> None:
        """An exchange that should go with its last binding goes."""
        self.store.record_binding_removed(vhost, binding)
        exchange = vhost.exchanges[binding.source]
        del exchange.bindings[binding.key]
        vhost.forget_routes()
        if exchange.auto_delete and not exchange.bindings:
            self.remove_exchange(vhost, exchange)

    def remove_exchange(self, vhost: VirtualHost, exchange: Exchange) -> None:
        """The exchange and all its bindings."""
        if vhost.exchanges.pop(exchange.name, None) is None:
            return
        self.store.record_exchange_deleted(vhost.name, exchange)
        vhost.forget_routes()
        vhost.exchanges[exchange.name] = exchange  # while its bindings are reported
        for binding in vhost.bound_to(exchange.name, is_queue=False):
            self.remove_binding(vhost, binding)
        del vhost.exchanges[exchange.name]

    def remove_queue(self, queue: Queue) -> None:
        """The queue, its messages and bindings; its consumers learn of it."""
        if queue.deleted:
            return
        vhost = self.vhosts[queue.vhost]
        for binding in vhost.bound_to(queue.name, is_queue=True):
            self.remove_binding(vhost, binding)
        queue.deleted = True
        vhost.queues.pop(queue.name, None)
        vhost.forget_routes()
        self.store.record_queue_deleted(queue)
        self.alarms.clear((AmqpTimer.HEAD, queue))
        self.alarms.clear((AmqpTimer.UNUSED, queue))
        if queue.owner is not None:
            queue.owner.exclusive_queues.discard(queue)
        consumers, queue.consumers = queue.consumers, []
        queue.turn.clear()
        queue.clear()
        for consumer in consumers:
            self.notify_cancel(consumer)

    def notify_cancel(self, consumer: QueueConsumer) -> None:
        """Its queue went away. Sent only to clients with the capability for it."""
        channel = consumer.channel
        channel.consumers.pop(consumer.tag, None)
        if channel.connection.capabilities.get("consumer_cancel_notify") is True and not channel.closing:
            self.outbox.answer(channel, "basic.cancel", consumer.tag, True)

    def queue_used(self, queue: Queue, now: int) -> None:
        """A queue with ``x-expires`` lasts that long after its last use, and while it has consumers."""
        if queue.expires is None or queue.deleted:
            return
        if queue.consumers:
            self.alarms.clear((AmqpTimer.UNUSED, queue))
        else:
            self.alarms.set((AmqpTimer.UNUSED, queue), now + queue.expires * MILLISECOND)

    def consumer_gone(self, queue: Queue, now: int) -> None:
        """An auto-delete queue goes with its last consumer."""
        if queue.auto_delete and not queue.consumers:
            self.remove_queue(queue)
        else:
            self.queue_used(queue, now)
            self.deliveries.deliver_ready(queue, now)  # for the one whose turn it is now
