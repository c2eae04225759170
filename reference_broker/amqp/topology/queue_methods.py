"""queue.declare, bind, unbind, purge and delete.

Sources: AMQP 0-9-1 XML, class queue; RabbitMQ, "Queues", "AMQP 0-9-1 Errata".
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from plumbline.reference_broker.amqp.access import CONFIGURE, READ, WRITE
from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.errors import (
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    AmqpReplyError,
    quoted,
)
from plumbline.reference_broker.amqp.messages.delivery import Deliveries
from plumbline.reference_broker.amqp.messages.direct_replies import DirectReplies, is_reply_name
from plumbline.reference_broker.amqp.messages.message import QueueEntry
from plumbline.reference_broker.amqp.outbox import Outbox
from plumbline.reference_broker.amqp.storage.store import AmqpRecordStore
from plumbline.reference_broker.amqp.topology.arguments import (
    check_equivalent,
    check_may_be_unnamed,
    check_quorum,
    configure,
)
from plumbline.reference_broker.amqp.topology.exchanges import Binding, VirtualHost
from plumbline.reference_broker.amqp.topology.queues import QUORUM, Queue
from plumbline.reference_broker.amqp.topology.topology import (
    Topology,
    check_same,
    strip_line_ends,
)
from plumbline.wire.amqp import Method


class QueueMethods:
    """What clients may do with queues."""

    def __init__(
        self,
        topology: Topology,
        deliveries: Deliveries,
        store: AmqpRecordStore,
        replies: DirectReplies,
        outbox: Outbox,
        unique: Callable[[str], str],
        types: Container[str],
    ) -> None:
        self.topology = topology
        self.deliveries = deliveries
        self.store = store
        self.replies = replies
        self.outbox = outbox
        self.types = types  # that a queue may have
        self.unique = unique  # a name that begins with what it is given

    def on_queue_declare(self, channel: Channel, operation: Method, now: int) -> None:
        """queue.declare."""
        arguments = operation.arguments
        name = strip_line_ends(arguments["queue"])
        vhost = self.topology.vhosts[channel.connection.vhost]
        if is_reply_name(name):
            self.replies.declare(channel, operation)
            return
        if arguments["passive"]:
            queue = self.topology.usable_queue(channel, name)
        elif (existing := vhost.queues.get(name)) is not None and name:
            self.topology.check_access(channel, CONFIGURE, "queue", name)
            self.check_same_queue(existing, channel, arguments)
            queue = existing
        else:
            if not name and not arguments["queue"]:
                check_may_be_unnamed(arguments["arguments"])
                name = self.unique("amq.gen-")
            else:
                self.topology.check_name("queue", name)
            self.topology.check_access(channel, CONFIGURE, "queue", name)
            self.check_dead_letter_access(channel, name, arguments["arguments"])
            queue = self.make_queue(vhost, name, channel, arguments)
        channel.last_queue = queue.name
        self.topology.queue_used(queue, now)
        if not arguments["no_wait"]:
            self.outbox.answer(
                channel, "queue.declare-ok", queue.name, self.message_count(queue), len(queue.consumers)
            )

    def check_dead_letter_access(self, channel: Channel, name: str, optional: Any) -> None:
        """Who makes dead letters must be allowed to move messages so. Raises ``AmqpReplyError`` (403)."""
        exchange = optional.get("x-dead-letter-exchange")
        if isinstance(exchange, str):
            self.topology.check_access(channel, READ, "queue", name)
            self.topology.check_access(channel, WRITE, "exchange", exchange)

    def make_queue(self, vhost: VirtualHost, name: str, channel: Channel, arguments: Any) -> Queue:
        queue = Queue(vhost.name, name, durable=arguments["durable"], auto_delete=arguments["auto_delete"])
        configure(queue, arguments["arguments"], self.types)
        if queue.kind == QUORUM:
            check_quorum(queue, exclusive=arguments["exclusive"])
        if arguments["exclusive"]:
            queue.owner = channel.connection
            channel.connection.exclusive_queues.add(queue)
        vhost.queues[name] = queue
        vhost.forget_routes()
        self.store.record_queue_declared(queue)
        return queue

    def check_same_queue(self, queue: Queue, channel: Channel, arguments: Any) -> None:
        """A second declaration must say the same. AMQP 0-9-1 XML, queue.declare, "equivalent"."""
        owner = channel.connection if arguments["exclusive"] else None
        if queue.owner is not owner and queue.owner is not channel.connection:
            self.topology.refuse_locked(queue)
        if queue.owner is not None and owner is None:
            self.topology.refuse_locked(queue)
        what = quoted("queue", queue.name, queue.vhost)
        check_same("durable", what, arguments["durable"], queue.durable)
        check_same("auto_delete", what, arguments["auto_delete"], queue.auto_delete)
        check_equivalent(queue, arguments["arguments"])

    def message_count(self, queue: Queue) -> int:
        """Those that are ready; what is delivered does not count."""
        return len(queue.ready)

    def on_queue_bind(self, channel: Channel, operation: Method, now: int) -> None:
        """queue.bind. Without queue name and key, the key is the name of the last queue too."""
        arguments = operation.arguments
        name = strip_line_ends(arguments["queue"] or self.topology.last_declared(channel))
        source = strip_line_ends(arguments["exchange"])
        self.topology.check_binding(channel, "queue", name, source)
        key = arguments["routing_key"]
        if not arguments["queue"] and not key:
            key = name
        self.topology.check_topic(channel, source, key)
        vhost = self.topology.vhosts[channel.connection.vhost]
        exchange = self.topology.bindable(vhost, source)
        queue = self.topology.usable_queue(channel, name)
        self.topology.add_binding(
            vhost, Binding(exchange.name, True, queue.name, key, arguments["arguments"])
        )
        if not arguments["no_wait"]:
            self.outbox.answer(channel, "queue.bind-ok")

    def on_queue_unbind(self, channel: Channel, operation: Method, now: int) -> None:
        """queue.unbind. What is not bound needs no unbinding."""
        arguments = operation.arguments
        name, key = arguments["queue"], arguments["routing_key"]
        if not name:
            name = self.topology.last_declared(channel)
            key = key or name
        name, source = strip_line_ends(name), strip_line_ends(arguments["exchange"])
        self.topology.check_binding(channel, "queue", name, source)
        self.topology.check_topic(channel, source, key)
        self.topology.drop_binding(channel, Binding(source, True, name, key, arguments["arguments"]))
        self.outbox.answer(channel, "queue.unbind-ok")

    def on_queue_purge(self, channel: Channel, operation: Method, now: int) -> None:
        """queue.purge: what was delivered stays."""
        name = operation.arguments["queue"] or self.topology.last_declared(channel)
        self.topology.check_access(channel, READ, "queue", name)
        queue = self.topology.usable_queue(channel, name)
        entries = self.purge(queue)
        for entry in entries:
            self.deliveries.discard(queue, entry)
        if not operation.arguments["no_wait"]:
            self.outbox.answer(channel, "queue.purge-ok", len(entries))

    def purge(self, queue: Queue) -> list[QueueEntry]:
        return queue.clear()

    def on_queue_delete(self, channel: Channel, operation: Method, now: int) -> None:
        """queue.delete. What does not exist is deleted already."""
        arguments = operation.arguments
        name = strip_line_ends(arguments["queue"] or self.topology.last_declared(channel))
        self.topology.check_access(channel, CONFIGURE, "queue", name)
        vhost = self.topology.vhosts[channel.connection.vhost]
        count = 0
        if (queue := vhost.queues.get(name)) is not None:
            self.topology.check_owner(queue, channel)
            what = quoted("queue", queue.name, queue.vhost)
            for flag in ("if_unused", "if_empty"):
                if queue.kind == QUORUM and arguments[flag]:
                    text = (
                        f"cannot delete {what}. queue.delete operations with {flag.replace('_', '-')} flag "
                        "set are not supported by quorum queues"
                    )
                    raise AmqpReplyError(NOT_IMPLEMENTED, text)
            if arguments["if_unused"] and queue.consumers:
                raise AmqpReplyError(PRECONDITION_FAILED, f"{what} in use")
            if arguments["if_empty"] and len(queue.ready):
                raise AmqpReplyError(PRECONDITION_FAILED, f"{what} not empty")
            count = len(queue.ready)
        if not arguments["no_wait"]:
            self.outbox.answer(channel, "queue.delete-ok", count)
        if queue is not None:
            self.topology.remove_queue(queue)
