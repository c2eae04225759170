"""Defects in queues."""

from __future__ import annotations

from typing import Any

from plumbline.reference_broker.amqp.arguments import configure
from plumbline.reference_broker.amqp.connection import Channel, Connection
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import (
    Values,
    before_handling,
    before_sending,
    with_arguments,
)
from plumbline.reference_broker.amqp.errors import NOT_FOUND, PRECONDITION_FAILED, AmqpFault
from plumbline.reference_broker.amqp.exchanges import Exchange
from plumbline.reference_broker.amqp.messages import Entry, Message
from plumbline.reference_broker.amqp.queues import Queue
from plumbline.wire.amqp import Method


@defect(
    "server-names-are-all-alike",
    breaks=("AMQP-TOPO-001",),
    summary="Every queue that is declared without a name gets the same one.",
)
def _(broker: Broker) -> None:
    replace(broker.queue_methods, "unique", lambda prefix: f"{prefix}AAAAAAAAAAAAAAAAAAAAAA")


@defect(
    "equal-queues-are-refused",
    breaks=("AMQP-TOPO-002",),
    summary="Declaring a queue again is refused, however equal.",
)
def _(broker: Broker) -> None:
    def check_same_queue(queue: Queue, channel: Channel, arguments: Any) -> None:
        raise AmqpFault(PRECONDITION_FAILED, f"queue '{queue.name}' exists")

    replace(broker.queue_methods, "check_same_queue", check_same_queue)


@defect(
    "unequal-queues-are-accepted",
    breaks=("AMQP-TOPO-003",),
    summary="Declaring a queue again with other properties is answered as if they were the same.",
)
def _(broker: Broker) -> None:
    def check_same_queue(queue: Queue, channel: Channel, arguments: Any) -> None:
        broker.topology.check_owner(queue, channel)

    replace(broker.queue_methods, "check_same_queue", check_same_queue)


@defect(
    "passive-declares-make-queues",
    breaks=("AMQP-TOPO-004",),
    summary="A passive queue.declare of a missing queue makes it.",
)
def _(broker: Broker) -> None:
    def change(channel: Channel, operation: Method) -> Method:
        vhost = broker.vhosts[channel.connection.vhost]
        if operation.arguments["passive"] and operation.arguments["queue"] not in vhost.queues:
            return with_arguments(operation, passive=False)
        return operation

    before_handling(broker, "queue.declare", change)


@defect(
    "passive-declares-compare",
    breaks=("AMQP-TOPO-005",),
    summary="A passive queue.declare with other properties than the queue's is refused.",
)
def _(broker: Broker) -> None:
    def change(channel: Channel, operation: Method) -> Method:
        vhost = broker.vhosts[channel.connection.vhost]
        known = operation.arguments["queue"] in vhost.queues
        return with_arguments(operation, passive=False) if known else operation

    before_handling(broker, "queue.declare", change)


@defect(
    "delivered-messages-are-counted",
    breaks=("AMQP-TOPO-006",),
    summary="queue.declare-ok counts messages that are delivered and not acknowledged.",
)
def _(broker: Broker) -> None:
    def message_count(queue: Queue) -> int:
        channels = (one for each in broker.connections.values() for one in each.channels.values())
        held = sum(one.queue is queue for channel in channels for one in channel.outstanding.values())
        return len(queue.ready) + held

    replace(broker.queue_methods, "message_count", message_count)


@defect(
    "no-wait-is-answered",
    breaks=("AMQP-TOPO-007",),
    summary="queue.declare with no_wait is answered all the same.",
)
def _(broker: Broker) -> None:
    before_handling(
        broker, "queue.declare", lambda channel, operation: with_arguments(operation, no_wait=False)
    )


@defect(
    "reserved-queue-names-are-free",
    breaks=("AMQP-TOPO-008",),
    summary="Clients can declare queues whose names begin with amq.",
)
def _(broker: Broker) -> None:
    original = broker.topology.check_name

    def check_name(kind: str, name: str) -> None:
        if kind != "queue":
            original(kind, name)

    replace(broker.topology, "check_name", check_name)


@defect(
    "long-names-are-cut",
    breaks=("AMQP-TOPO-009",),
    summary="A queue name of more than 127 characters is cut.",
)
def _(broker: Broker) -> None:
    before_handling(
        broker,
        "queue.declare",
        lambda channel, operation: with_arguments(operation, queue=operation.arguments["queue"][:127]),
    )


@defect(
    "exclusive-queues-are-everybodys",
    breaks=("AMQP-TOPO-010",),
    summary="Other connections can use an exclusive queue.",
)
def _(broker: Broker) -> None:
    replace(broker.topology, "refuse_locked", lambda queue: None)


@defect(
    "exclusive-queues-take-no-strangers",
    breaks=("AMQP-TOPO-012",),
    summary="What another connection publishes never reaches an exclusive queue.",
)
def _(broker: Broker) -> None:
    original = broker.publishing.route

    def route(channel: Channel, exchange: Exchange, message: Message) -> list[Queue]:
        return [
            queue
            for queue in original(channel, exchange, message)
            if queue.owner in (None, channel.connection)
        ]

    replace(broker.publishing, "route", route)


@defect(
    "exclusive-queues-outlive-their-connection",
    breaks=("AMQP-TOPO-013",),
    summary="An exclusive queue is there for everybody after its connection's end.",
)
def _(broker: Broker) -> None:
    original = broker.channels.leave_all

    def leave_channels(connection: Connection, now: int) -> None:
        for queue in connection.exclusive_queues:
            queue.owner = None
        connection.exclusive_queues.clear()
        original(connection, now)

    replace(broker.channels, "leave_all", leave_channels)


@defect(
    "auto-delete-does-nothing",
    breaks=("AMQP-TOPO-014",),
    summary="An auto-delete queue stays when its last consumer leaves.",
)
def _(broker: Broker) -> None:
    replace(broker.topology, "consumer_left", lambda queue, now: None)


@defect(
    "empty-queue-name-means-nothing",
    breaks=("AMQP-TOPO-019",),
    summary="An empty queue name never means the last queue declared.",
)
def _(broker: Broker) -> None:
    def last_declared(channel: Channel) -> str:
        raise AmqpFault(NOT_FOUND, "no queue ''")

    replace(broker.topology, "last_declared", last_declared)


@defect(
    "queues-in-use-are-deleted",
    breaks=("AMQP-TOPO-023",),
    summary="queue.delete ignores if_unused.",
)
def _(broker: Broker) -> None:
    before_handling(
        broker, "queue.delete", lambda channel, operation: with_arguments(operation, if_unused=False)
    )


@defect(
    "queues-with-messages-are-deleted",
    breaks=("AMQP-TOPO-024",),
    summary="queue.delete ignores if_empty.",
)
def _(broker: Broker) -> None:
    before_handling(
        broker, "queue.delete", lambda channel, operation: with_arguments(operation, if_empty=False)
    )


@defect(
    "nobody-counts-what-is-deleted",
    breaks=("AMQP-TOPO-025",),
    summary="queue.delete-ok and queue.purge-ok say 0.",
)
def _(broker: Broker) -> None:
    def change(connection: Connection, number: int, values: Values) -> Values:
        return (0,)

    before_sending(broker, "queue.delete-ok", change)
    before_sending(broker, "queue.purge-ok", change)


@defect(
    "purge-takes-what-was-delivered",
    breaks=("AMQP-TOPO-026",),
    summary="queue.purge drops what is delivered and not acknowledged, too.",
)
def _(broker: Broker) -> None:
    original_purge, original_put_back = broker.queue_methods.purge, broker.deliveries.put_back
    purged: dict[Queue, int] = {}

    def purge(queue: Queue) -> list[Entry]:
        purged[queue] = queue.last_position
        return original_purge(queue)

    def put_back(queue: Queue, entry: Entry) -> None:
        if entry.position > purged.get(queue, 0):
            original_put_back(queue, entry)

    replace(broker.queue_methods, "purge", purge)
    replace(broker.deliveries, "put_back", put_back)


@defect(
    "wrong-queue-arguments-are-dropped",
    breaks=("AMQP-TOPO-034",),
    summary="Optional arguments that make no sense are ignored.",
)
def _(broker: Broker) -> None:
    def change(channel: Channel, operation: Method) -> Method:
        try:
            configure(Queue("/", "", durable=False, auto_delete=False), operation.arguments["arguments"])
        except AmqpFault:
            return with_arguments(operation, arguments={})
        return operation

    before_handling(broker, "queue.declare", change)
