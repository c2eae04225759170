"""Defects in what goes by itself: exclusive, auto_delete and expiring queues, and auto_delete exchanges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import (
    before_connection_errors,
    before_handling,
    handling,
    on_reopening,
    with_arguments,
)
from plumbline.reference_broker.amqp.errors import PRECONDITION_FAILED, AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.topology.exchanges import Binding, VirtualHost
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import Method


@defect("AMQP-TOPO-014")
def auto_delete_goes_with_the_last_consumer_of_a_connection(broker: Broker) -> None:
    """An auto-delete queue goes when a connection has no consumer left, though another one has."""
    original = broker.channels.leave

    def leave(channel: Channel, now: int) -> None:
        used = [consumer.queue for consumer in channel.consumers.values()]
        original(channel, now)
        for queue in used:
            others = {consumer.channel.connection for consumer in queue.consumers}
            if queue.auto_delete and channel.connection not in others:
                broker.topology.remove_queue(queue)

    replace(broker.channels, "leave", leave)


@defect("AMQP-TOPO-023")
def queues_in_use_elsewhere_are_unused(broker: Broker) -> None:
    """queue.delete with if_unused looks at the consumers of its own connection."""

    def change(channel: Channel, operation: Method) -> Method:
        queue = broker.vhosts[channel.connection.vhost].queues.get(operation.arguments["queue"])
        consumers = queue.consumers if queue is not None else []
        is_used = any(consumer.channel.connection is channel.connection for consumer in consumers)
        return operation if is_used else with_arguments(operation, if_unused=False)

    before_handling(broker, "queue.delete", change)


@defect("AMQP-ROUTE-024")
def destinations_are_in_use(broker: Broker) -> None:
    """exchange.delete with if_unused refuses an exchange to which another leads."""

    @handling(broker, "exchange.delete")
    def delete(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        name = operation.arguments["exchange"]
        vhost = broker.vhosts[channel.connection.vhost]
        if operation.arguments["if_unused"] and vhost.bound_to(name, is_queue=False):
            raise AmqpReplyError(PRECONDITION_FAILED, f"exchange '{name}' in use")
        original(channel, operation, now)


# The bindings of queues that go


def _keeps_bindings(broker: Broker, when: Callable[[Queue], object]) -> None:
    """A queue that is declared again has the bindings that such a queue of its name had."""
    kept: dict[str, list[Binding]] = {}
    original_remove, original_make = broker.topology.remove_queue, broker.queue_methods.make_queue

    def remove_queue(queue: Queue) -> None:
        if when(queue):
            kept[queue.name] = broker.vhosts[queue.vhost].bound_to(queue.name, is_queue=True)
        original_remove(queue)

    def make_queue(vhost: VirtualHost, name: str, channel: Channel, arguments: Any) -> Queue:
        queue = original_make(vhost, name, channel, arguments)
        for binding in kept.pop(name, ()):
            if binding.source in vhost.exchanges:
                vhost.bind(binding)
        return queue

    replace(broker.topology, "remove_queue", remove_queue)
    replace(broker.queue_methods, "make_queue", make_queue)


@defect("AMQP-ROUTE-038")
def exclusive_queues_leave_their_bindings(broker: Broker) -> None:
    """The bindings of an exclusive queue stay when it goes with its connection."""
    _keeps_bindings(broker, lambda queue: queue.owner is not None)


@defect("AMQP-ROUTE-038")
def auto_delete_queues_leave_their_bindings(broker: Broker) -> None:
    """The bindings of an auto-delete queue stay when it goes with its last consumer."""
    _keeps_bindings(broker, lambda queue: queue.auto_delete)


@defect("AMQP-ROUTE-038")
def expired_queues_leave_their_bindings(broker: Broker) -> None:
    """The bindings of a queue with x-expires stay when it expires."""
    _keeps_bindings(broker, lambda queue: queue.expires is not None)


def _is_no_last_binding(broker: Broker, when: Callable[[Queue], object]) -> None:
    """An auto-delete exchange stays when its last binding ends with such a queue."""
    original = broker.topology.remove_queue

    def remove_queue(queue: Queue) -> None:
        exchanges = broker.vhosts[queue.vhost].exchanges.values() if when(queue) else ()
        kept = [exchange for exchange in exchanges if exchange.auto_delete]
        for exchange in kept:
            exchange.auto_delete = False
        original(queue)
        for exchange in kept:
            exchange.auto_delete = True

    replace(broker.topology, "remove_queue", remove_queue)


@defect("AMQP-ROUTE-023")
def exclusive_queues_are_no_last_binding(broker: Broker) -> None:
    """An auto-delete exchange stays when its last binding goes with an exclusive queue."""
    _is_no_last_binding(broker, lambda queue: queue.owner is not None)


@defect("AMQP-ROUTE-023")
def auto_delete_queues_are_no_last_binding(broker: Broker) -> None:
    """An auto-delete exchange stays when its last binding goes with an auto-delete queue."""
    _is_no_last_binding(broker, lambda queue: queue.auto_delete)


@defect("AMQP-TOPO-044")
def queues_remember_their_arguments(broker: Broker) -> None:
    """A queue that is declared again after its end has the arguments of before, too."""
    had: dict[str, Mapping[str, Any]] = {}
    original_remove, original_make = broker.topology.remove_queue, broker.queue_methods.make_queue

    def remove_queue(queue: Queue) -> None:
        had[queue.name] = queue.arguments
        original_remove(queue)

    def make_queue(vhost: VirtualHost, name: str, channel: Channel, arguments: Any) -> Queue:
        table = {**had.get(name, {}), **arguments["arguments"]}
        return original_make(vhost, name, channel, {**arguments, "arguments": table})

    replace(broker.topology, "remove_queue", remove_queue)
    replace(broker.queue_methods, "make_queue", make_queue)


@defect("AMQP-CONSUME-021")
def temporary_queues_end_without_a_word(broker: Broker) -> None:
    """The consumers of an exclusive or auto-delete queue do not learn that it was deleted."""
    original = broker.topology.remove_queue

    def remove_queue(queue: Queue) -> None:
        if queue.auto_delete or queue.owner is not None:
            for consumer in queue.consumers:
                consumer.channel.consumers.pop(consumer.tag, None)
            queue.consumers = []
        original(queue)

    replace(broker.topology, "remove_queue", remove_queue)


@defect("AMQP-TOPO-045")
def errors_leave_exclusive_queues(broker: Broker) -> None:
    """The exclusive queues of a connection stay when it ends by an error."""
    before_connection_errors(broker, lambda connection: connection.exclusive_queues.clear())


@defect("AMQP-TOPO-019")
def reopened_channels_know_the_last_queue(broker: Broker) -> None:
    """On a channel that is opened again the queue counts that was declared last before."""

    def change(before: Channel, channel: Channel) -> None:
        channel.last_queue = before.last_queue

    on_reopening(broker, change)
