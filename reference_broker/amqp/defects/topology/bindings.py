"""Defects in bindings: those that stay or go, and those between exchanges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import before_handling, handling, with_arguments
from plumbline.reference_broker.amqp.defects.topology.routing import Step, Stops, leads
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.message import PublishedMessage
from plumbline.reference_broker.amqp.topology.exchanges import (
    Binding,
    Exchange,
    VirtualHost,
)
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import Method


def _unbinds(broker: Broker, same: Callable[[Binding, Binding], bool]) -> None:
    """Unbinding removes every binding that is the ``same`` as the one that is named."""

    def drop_binding(channel: Channel, binding: Binding) -> None:
        vhost = broker.vhosts[channel.connection.vhost]
        exchange = vhost.exchanges.get(binding.source)
        for other in list(exchange.bindings.values()) if exchange is not None else ():
            if other.to_queue is binding.to_queue and same(other, binding):
                broker.topology.remove_binding(vhost, other)

    replace(broker.topology, "drop_binding", drop_binding)


@defect("AMQP-ROUTE-013", "AMQP-ROUTE-016")
def unbind_does_nothing(broker: Broker) -> None:
    """queue.unbind and exchange.unbind are answered, and the binding stays."""
    _unbinds(broker, lambda other, named: False)


@defect("AMQP-ROUTE-013", "AMQP-ROUTE-016")
def unbind_ignores_the_key(broker: Broker) -> None:
    """Unbinding removes all bindings between the two, whatever their keys."""
    _unbinds(broker, lambda other, named: other.destination == named.destination)


@defect("AMQP-ROUTE-013")
def unbind_removes_other_queues(broker: Broker) -> None:
    """queue.unbind removes the bindings of all queues with that key."""
    _unbinds(broker, lambda other, named: other.routing_key == named.routing_key)


@defect("AMQP-ROUTE-014")
def unbind_ignores_arguments(broker: Broker) -> None:
    """queue.unbind removes bindings with any arguments."""
    _unbinds(
        broker,
        lambda other, named: (other.destination, other.routing_key) == (named.destination, named.routing_key),
    )


@defect("AMQP-ROUTE-014")
def bindings_differ_by_key_alone(broker: Broker) -> None:
    """A binding with other arguments takes the place of the one before."""
    original = broker.topology.add_binding

    def add_binding(vhost: VirtualHost, binding: Binding) -> None:
        bindings = vhost.exchanges[binding.source].bindings
        for other in list(bindings.values()):
            if (other.destination, other.routing_key) == (binding.destination, binding.routing_key):
                del bindings[other.key]
        original(vhost, binding)

    replace(broker.topology, "add_binding", add_binding)


@defect("AMQP-ROUTE-021")
def deleted_exchanges_keep_bindings(broker: Broker) -> None:
    """An exchange that is declared again has the bindings that it had before it was deleted."""
    old: dict[str, dict[Any, Binding]] = {}
    original_make = broker.exchange_methods.make_exchange

    @handling(broker, "exchange.delete")
    def deleted(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        name = operation.arguments["exchange"]
        exchange = broker.vhosts[channel.connection.vhost].exchanges.get(name)
        if exchange is not None:
            old[name] = dict(exchange.bindings)
        original(channel, operation, now)

    def make_exchange(vhost: VirtualHost, name: str, arguments: Any) -> None:
        original_make(vhost, name, arguments)
        vhost.exchanges[name].bindings.update(old.pop(name, {}))

    replace(broker.exchange_methods, "make_exchange", make_exchange)


@defect("AMQP-ROUTE-021")
def deleted_exchanges_swallow(broker: Broker) -> None:
    """What is published to an exchange that was deleted is dropped silently."""
    deleted: set[str] = set()

    @handling(broker, "exchange.delete")
    def delete(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        original(channel, operation, now)
        deleted.add(operation.arguments["exchange"])

    before_handling(
        broker,
        "basic.publish",
        lambda channel, operation: (
            None
            if operation.arguments["exchange"] in deleted
            and operation.arguments["exchange"] not in broker.vhosts[channel.connection.vhost].exchanges
            else operation
        ),
    )


@defect("AMQP-ROUTE-022")
def deleted_queues_keep_bindings(broker: Broker) -> None:
    """A queue that is declared again has the bindings that it had before it was deleted."""
    old: dict[str, list[Binding]] = {}
    original_remove, original_make = broker.topology.remove_queue, broker.queue_methods.make_queue

    def remove_queue(queue: Queue) -> None:
        if not queue.deleted:
            old[queue.name] = broker.vhosts[queue.vhost].bound_to(queue.name, is_queue=True)
        original_remove(queue)

    def make_queue(vhost: VirtualHost, name: str, channel: Channel, arguments: Any) -> Queue:
        queue = original_make(vhost, name, channel, arguments)
        for binding in old.pop(name, []):
            if binding.source in vhost.exchanges:
                vhost.bind(binding)
        return queue

    replace(broker.topology, "remove_queue", remove_queue)
    replace(broker.queue_methods, "make_queue", make_queue)


# Exchange to exchange


@defect("AMQP-ROUTE-015")
def exchange_bindings_lead_back(broker: Broker) -> None:
    """exchange.bind leads messages from the destination to the source, too."""
    original = broker.exchange_methods.exchange_binding

    def exchange_binding(vhost: VirtualHost, arguments: Any) -> Binding:
        there = original(vhost, arguments)
        back = Binding(there.destination, False, there.source, "x.y", there.arguments)
        broker.topology.add_binding(vhost, back)
        return there

    replace(broker.exchange_methods, "exchange_binding", exchange_binding)


@defect("AMQP-ROUTE-015", "AMQP-ROUTE-016")
def exchange_bindings_take_every_key(broker: Broker) -> None:
    """A binding between exchanges takes every message."""

    def lead(step: Step) -> Stops:
        yield from step.right
        if step.exchange.kind in ("direct", "topic"):
            yield from (one.destination for one in step.exchange.bindings.values() if not one.to_queue)

    leads(broker, lead)


@defect("AMQP-ROUTE-015")
def exchange_bindings_skip_the_second_key(broker: Broker) -> None:
    """What comes from another exchange goes to every queue of the destination."""

    def lead(step: Step) -> Stops:
        for name in step.right:
            yield name
            if name is not None:
                bindings = step.vhost.exchanges[name].bindings.values()
                yield from (step.along(one) for one in bindings if one.to_queue)

    leads(broker, lead)


@defect("AMQP-ROUTE-015", "AMQP-ROUTE-016")
def bindings_between_exchanges_have_no_arguments(broker: Broker) -> None:
    """exchange.bind and exchange.unbind do not look at arguments."""
    for method in ("exchange.bind", "exchange.unbind"):
        before_handling(broker, method, lambda channel, operation: with_arguments(operation, arguments={}))


@defect("AMQP-ROUTE-027")
def internal_exchanges_take_nothing(broker: Broker) -> None:
    """An internal exchange takes no messages from other exchanges either."""
    leads(broker, lambda step: iter(()) if step.exchange.internal else step.right)


def _each_way(broker: Broker) -> None:
    """A queue gets a copy for each way, of at most four exchanges."""

    def found(vhost: VirtualHost, exchange: Exchange, message: PublishedMessage, depth: int) -> list[Queue]:
        queues: dict[str, Queue] = {}
        names = list(vhost.next_stops(exchange, message.routing_key, message.headers, queues))
        ways = list(queues.values())
        for name in names:
            if name is not None and depth:
                ways += found(vhost, vhost.exchanges[name], message, depth - 1)
        return ways

    def route(channel: Channel, exchange: Exchange, message: PublishedMessage) -> list[Queue]:
        return found(broker.vhosts[channel.connection.vhost], exchange, message, 3)

    replace(broker.publishing, "route", route)


@defect("AMQP-ROUTE-017")
def each_way_delivers(broker: Broker) -> None:
    """A queue gets one copy for each way through exchanges."""
    _each_way(broker)


@defect("AMQP-ROUTE-002")
def routes_are_found_once(broker: Broker) -> None:
    """Once a key has been published with, later bindings do not count for it."""
    for vhost in broker.vhosts.values():
        replace(vhost, "forget_routes", lambda: None)
