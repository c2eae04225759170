"""Defects in queues that are declared again, by their own or another connection, and in names left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import before_handling, handling, with_arguments
from plumbline.reference_broker.amqp.errors import NOT_FOUND, AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import Method

# Exclusive queues


def _declares_again(broker: Broker, change: Callable[[Queue, Channel, Any], Any]) -> None:
    """The arguments of a declaration of a queue that exists are changed; None: nothing is compared."""
    original = broker.queue_methods.check_same_queue

    def check_same_queue(queue: Queue, channel: Channel, arguments: Any) -> None:
        changed = change(queue, channel, arguments)
        if changed is not None:
            original(queue, channel, changed)

    replace(broker.queue_methods, "check_same_queue", check_same_queue)


@defect("AMQP-TOPO-042")
def queues_for_all_are_exclusive_enough(broker: Broker) -> None:
    """A queue for all can be declared again as exclusive."""

    def change(queue: Queue, channel: Channel, arguments: Any) -> Any:
        return {**arguments, "exclusive": False} if queue.owner is None else arguments

    _declares_again(broker, change)


@defect("AMQP-TOPO-042")
def exclusive_queues_are_for_all_to_their_owner(broker: Broker) -> None:
    """A connection can declare its exclusive queue again as one for all."""

    def change(queue: Queue, channel: Channel, arguments: Any) -> Any:
        return {**arguments, "exclusive": True} if queue.owner is channel.connection else arguments

    _declares_again(broker, change)


@defect("AMQP-TOPO-010")
def exclusive_declares_are_let_in(broker: Broker) -> None:
    """Another connection can declare an exclusive queue if it declares it as exclusive, too."""

    def change(queue: Queue, channel: Channel, arguments: Any) -> Any:
        is_anothers = queue.owner not in (None, channel.connection)
        return None if is_anothers and arguments["exclusive"] else arguments

    _declares_again(broker, change)


@defect("AMQP-TOPO-002")
def exclusive_queues_are_declared_once(broker: Broker) -> None:
    """A connection that declares its exclusive queue again gets 405."""

    def change(queue: Queue, channel: Channel, arguments: Any) -> Any:
        if queue.owner is channel.connection:
            broker.topology.refuse_locked(queue)
        return arguments

    _declares_again(broker, change)


def _same_again(broker: Broker, change: Callable[[Queue], None]) -> None:
    """What happens to a queue that is declared again as it is."""
    original = broker.queue_methods.check_same_queue

    def check_same_queue(queue: Queue, channel: Channel, arguments: Any) -> None:
        original(queue, channel, arguments)
        change(queue)

    replace(broker.queue_methods, "check_same_queue", check_same_queue)


@defect("AMQP-TOPO-002")
def equal_queues_are_emptied(broker: Broker) -> None:
    """A queue that is declared again as it is has no messages then."""
    _same_again(broker, lambda queue: queue.ready.clear())


@defect("AMQP-TOPO-002")
def equal_queues_lose_their_bindings(broker: Broker) -> None:
    """A queue that is declared again as it is has no bindings then but that to the default exchange."""

    def change(queue: Queue) -> None:
        vhost = broker.vhosts[queue.vhost]
        for exchange in vhost.exchanges.values():
            kept = {key: one for key, one in exchange.bindings.items() if one.destination != queue.name}
            exchange.bindings.clear()
            exchange.bindings.update(kept)
        vhost.forget_routes()

    _same_again(broker, change)


@defect("AMQP-TOPO-002")
def equal_queues_lose_their_consumers(broker: Broker) -> None:
    """Nothing is delivered any more to a consumer of a queue that is declared again as it is."""

    def change(queue: Queue) -> None:
        for consumer in queue.consumers:
            queue.leave_turn(consumer)

    _same_again(broker, change)


@defect("AMQP-TOPO-002")
def equal_queues_lose_what_is_unacknowledged(broker: Broker) -> None:
    """What is delivered of a queue that is declared again as it is cannot be requeued."""

    def change(queue: Queue) -> None:
        for connection in broker.connections.values():
            for channel in connection.channels.values():
                for delivery in channel.outstanding.values():
                    if delivery.queue is queue:
                        delivery.queue = Queue(queue.vhost, queue.name, durable=True, auto_delete=False)

    _same_again(broker, change)


@defect("AMQP-TOPO-034")
def booleans_are_numbers(broker: Broker) -> None:
    """A queue argument that has to be a number may be true, which is 1."""

    def change(channel: Channel, operation: Method) -> Method:
        table = operation.arguments["arguments"]
        numbers = {
            name: int(value)
            for name, value in table.items()
            if isinstance(value, bool) and name != "x-single-active-consumer"
        }
        return with_arguments(operation, arguments={**table, **numbers})

    before_handling(broker, "queue.declare", change)


# Names that are left out


@defect("AMQP-TOPO-040")
def unnamed_bindings_have_an_empty_key(broker: Broker) -> None:
    """queue.bind with neither queue name nor routing key binds by the empty key."""

    def change(channel: Channel, operation: Method) -> Method:
        arguments = operation.arguments
        is_meant = not arguments["queue"] and not arguments["routing_key"] and channel.last_queue
        return with_arguments(operation, queue=channel.last_queue) if is_meant else operation

    before_handling(broker, "queue.bind", change)


@defect("AMQP-TOPO-040")
def empty_keys_are_names(broker: Broker) -> None:
    """queue.bind with a queue name and no routing key binds by that name."""

    def change(channel: Channel, operation: Method) -> Method:
        arguments = operation.arguments
        is_meant = arguments["queue"] and not arguments["routing_key"]
        return with_arguments(operation, routing_key=arguments["queue"]) if is_meant else operation

    before_handling(broker, "queue.bind", change)


@defect("AMQP-TOPO-021")
def unbinding_needs_an_exchange(broker: Broker) -> None:
    """queue.unbind of an exchange that does not exist is a channel error."""

    @handling(broker, "queue.unbind")
    def unbind(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        name = operation.arguments["exchange"]
        if name not in broker.vhosts[channel.connection.vhost].exchanges:
            raise AmqpReplyError(NOT_FOUND, f"no exchange '{name}'")
        original(channel, operation, now)
