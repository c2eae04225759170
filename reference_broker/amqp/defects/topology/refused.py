"""Defects in what is refused, and changed all the same; and in what queues count."""

from __future__ import annotations

from typing import Any

from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import handling
from plumbline.reference_broker.amqp.errors import AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.message import QueueEntry
from plumbline.reference_broker.amqp.topology.arguments import configure
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import Method


@defect("AMQP-TOPO-003")
def refused_declares_change_queues(broker: Broker) -> None:
    """queue.declare with other arguments is refused, and the queue has them from then on."""
    original = broker.queue_methods.check_same_queue

    def check_same_queue(queue: Queue, channel: Channel, arguments: Any) -> None:
        try:
            original(queue, channel, arguments)
        finally:
            configure(queue, arguments["arguments"])

    replace(broker.queue_methods, "check_same_queue", check_same_queue)


@defect("AMQP-TOPO-003")
def refused_declares_make_queues_temporary(broker: Broker) -> None:
    """queue.declare with another auto_delete is refused, and the queue has it from then on."""
    original = broker.queue_methods.check_same_queue

    def check_same_queue(queue: Queue, channel: Channel, arguments: Any) -> None:
        try:
            original(queue, channel, arguments)
        finally:
            queue.auto_delete = arguments["auto_delete"]

    replace(broker.queue_methods, "check_same_queue", check_same_queue)


@defect("AMQP-TOPO-034", "AMQP-TOPO-004")
def refused_declares_make_queues(broker: Broker) -> None:
    """queue.declare that is refused makes a queue without arguments."""

    @handling(broker, "queue.declare")
    def declared(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        try:
            original(channel, operation, now)
        except AmqpReplyError:
            name = operation.arguments["queue"]
            vhost = broker.vhosts[channel.connection.vhost]
            if name and name not in vhost.queues:
                vhost.queues[name] = Queue(vhost.name, name, durable=True, auto_delete=False)
            raise


@defect("AMQP-TOPO-029")
def refused_passive_declares_make_exchanges(broker: Broker) -> None:
    """A passive exchange.declare of a missing exchange is refused, and makes it."""

    @handling(broker, "exchange.declare")
    def declared(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        try:
            original(channel, operation, now)
        finally:
            name = operation.arguments["exchange"]
            vhost = broker.vhosts[channel.connection.vhost]
            if operation.arguments["passive"] and name not in vhost.exchanges:
                broker.exchange_methods.make_exchange(vhost, name, operation.arguments)


@defect("AMQP-TOPO-016")
def refused_binds_wait_for_the_exchange(broker: Broker) -> None:
    """queue.bind to a missing exchange is refused, and takes effect once the exchange is declared."""
    waiting: dict[str, Method] = {}

    @handling(broker, "queue.bind")
    def bound(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        try:
            original(channel, operation, now)
        except AmqpReplyError:
            waiting[operation.arguments["exchange"]] = operation
            raise

    @handling(broker, "exchange.declare")
    def declared(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        original(channel, operation, now)
        bind = waiting.pop(operation.arguments["exchange"], None)
        if bind is not None:
            vhost = broker.vhosts[channel.connection.vhost]
            exchange = vhost.exchanges[operation.arguments["exchange"]]
            arguments = bind.arguments
            broker.queue_methods.on_queue_bind(
                channel, Method.make("queue.bind", channel.number, **{**arguments, "no_wait": True}), now
            )
            assert exchange.bindings


@defect("AMQP-TOPO-026")
def purge_empties_all_queues(broker: Broker) -> None:
    """queue.purge purges the other queues, too."""
    original = broker.queue_methods.purge

    def purge(queue: Queue) -> list[QueueEntry]:
        for other in broker.vhosts[queue.vhost].queues.values():
            if other is not queue and other.name.startswith(queue.name[:4]):
                other.clear()
        return original(queue)

    replace(broker.queue_methods, "purge", purge)


@defect("AMQP-TOPO-025")
def purge_counts_what_is_delivered(broker: Broker) -> None:
    """queue.purge-ok counts what is delivered and not acknowledged, too."""
    original = broker.outbox.send

    def send(connection: Any, number: int, name: str, *values: Any) -> None:
        if name == "queue.purge-ok":
            channels = [one for each in broker.connections.values() for one in each.channels.values()]
            values = (values[0] + sum(len(one.outstanding) for one in channels),)
        original(connection, number, name, *values)

    replace(broker.outbox, "send", send)


@defect("AMQP-TOPO-025")
def delete_counts_nothing(broker: Broker) -> None:
    """queue.delete-ok says 0."""
    original = broker.outbox.send

    def send(connection: Any, number: int, name: str, *values: Any) -> None:
        original(connection, number, name, *((0,) if name == "queue.delete-ok" else values))

    replace(broker.outbox, "send", send)


def _keeps(broker: Broker, condition: str) -> None:
    """queue.delete with this condition is answered, and nothing is deleted."""

    @handling(broker, "queue.delete")
    def deleted(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        queue = broker.vhosts[channel.connection.vhost].queues.get(operation.arguments["queue"])
        if queue is not None and operation.arguments[condition] and not queue.consumers:
            broker.outbox.answer(channel, "queue.delete-ok", len(queue.ready))
        else:
            original(channel, operation, now)


@defect("AMQP-TOPO-037")
def unused_queues_are_not_deleted(broker: Broker) -> None:
    """queue.delete with if_unused is answered, and nothing is deleted."""
    _keeps(broker, "if_unused")


@defect("AMQP-TOPO-037")
def empty_queues_are_not_deleted(broker: Broker) -> None:
    """queue.delete with if_empty is answered, and nothing is deleted."""
    _keeps(broker, "if_empty")


@defect("AMQP-TOPO-024", "AMQP-TOPO-023")
def one_condition_is_enough(broker: Broker) -> None:
    """queue.delete with if_unused and if_empty deletes a queue that is one of both."""

    @handling(broker, "queue.delete")
    def deleted(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        try:
            original(channel, operation, now)
        except AmqpReplyError:
            queue = broker.vhosts[channel.connection.vhost].queues[operation.arguments["queue"]]
            conditions = operation.arguments["if_unused"] and operation.arguments["if_empty"]
            if not conditions or (queue.consumers and len(queue.ready)):
                raise
            broker.outbox.answer(channel, "queue.delete-ok", len(queue.ready))
            broker.topology.remove_queue(queue)


@defect("AMQP-TOPO-024")
def refused_deletes_purge(broker: Broker) -> None:
    """queue.delete with if_empty of a queue with messages is refused, and purges it."""

    @handling(broker, "queue.delete")
    def deleted(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        try:
            original(channel, operation, now)
        except AmqpReplyError:
            if operation.arguments["if_empty"]:
                broker.vhosts[channel.connection.vhost].queues[operation.arguments["queue"]].clear()
            raise


@defect("AMQP-TOPO-023")
def refused_deletes_end_consumers(broker: Broker) -> None:
    """queue.delete with if_unused of a queue with consumers is refused, and they get no more."""

    @handling(broker, "queue.delete")
    def deleted(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        try:
            original(channel, operation, now)
        except AmqpReplyError:
            if operation.arguments["if_unused"]:
                queue = broker.vhosts[channel.connection.vhost].queues[operation.arguments["queue"]]
                for consumer in queue.consumers:
                    queue.leave_turn(consumer)
            raise


@defect("AMQP-TOPO-006")
def consumers_are_counted_by_connection(broker: Broker) -> None:
    """queue.declare-ok counts the connections that consume."""
    original = broker.outbox.send

    def send(connection: Any, number: int, name: str, *values: Any) -> None:
        if name == "queue.declare-ok":
            queue = broker.vhosts[connection.vhost].queues[values[0]]
            values = (*values[:2], len({one.channel.connection for one in queue.consumers}))
        original(connection, number, name, *values)

    replace(broker.outbox, "send", send)


@defect("AMQP-TOPO-006")
def cancelled_consumers_are_counted(broker: Broker) -> None:
    """queue.declare-ok counts consumers that were cancelled, too."""
    original = broker.outbox.send
    most: dict[str, int] = {}

    def send(connection: Any, number: int, name: str, *values: Any) -> None:
        if name == "queue.declare-ok":
            most[values[0]] = max(values[2], most.get(values[0], 0))
            values = (*values[:2], most[values[0]])
        original(connection, number, name, *values)

    replace(broker.outbox, "send", send)


@defect("AMQP-TOPO-010")
def refused_purges_purge(broker: Broker) -> None:
    """queue.purge of another connection's exclusive queue is refused, and purges it."""

    @handling(broker, "queue.purge")
    def purged(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        try:
            original(channel, operation, now)
        except AmqpReplyError:
            broker.vhosts[channel.connection.vhost].queues[operation.arguments["queue"]].clear()
            raise
