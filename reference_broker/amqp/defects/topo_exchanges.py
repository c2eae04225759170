"""Defects in exchanges and bindings."""

from __future__ import annotations

from plumbline.reference_broker.amqp.connection import Channel, Connection
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import before_handling, with_arguments
from plumbline.reference_broker.amqp.errors import NOT_FOUND, AmqpFault
from plumbline.reference_broker.amqp.exchanges import TYPES, Binding, Exchange, VirtualHost
from plumbline.reference_broker.amqp.messages import Message
from plumbline.reference_broker.amqp.queues import Queue
from plumbline.wire.amqp import Method


@defect("AMQP-TOPO-015")
def exclusive_queues_miss_the_default_exchange(broker: Broker) -> None:
    """The default exchange does not know exclusive queues."""
    original = broker.publishing.route

    def route(channel: Channel, exchange: Exchange, message: Message) -> list[Queue]:
        return [
            queue for queue in original(channel, exchange, message) if exchange.name or queue.owner is None
        ]

    replace(broker.publishing, "route", route)


@defect("AMQP-TOPO-016")
def what_is_not_there_can_be_bound(broker: Broker) -> None:
    """queue.bind of an unknown queue or exchange is answered with bind-ok."""
    original = broker.closing.fail

    def fail(connection: Connection, operation: Method, fault: AmqpFault, now: int) -> None:
        if fault.code == NOT_FOUND and operation.method == "queue.bind" and operation.arguments["queue"]:
            broker.outbox.send(connection, operation.channel, "queue.bind-ok")
        else:
            original(connection, operation, fault, now)

    replace(broker.closing, "fail", fail)


def _copies(broker: Broker, *, same_key: bool) -> None:
    """A queue gets a message once more for each further binding, or bind of a binding."""
    binds: dict[tuple[str, str, str], int] = {}
    original_bind, original_route = broker.topology.add_binding, broker.publishing.route

    def add_binding(vhost: VirtualHost, binding: Binding) -> None:
        key = (binding.source, binding.destination, binding.routing_key if same_key else "")
        binds[key] = binds.get(key, 0) + 1
        original_bind(vhost, binding)

    def route(channel: Channel, exchange: Exchange, message: Message) -> list[Queue]:
        queues = []
        for queue in original_route(channel, exchange, message):
            key = (exchange.name, queue.name, message.routing_key if same_key else "")
            queues += [queue] * max(binds.get(key, 1), 1)
        return queues

    replace(broker.topology, "add_binding", add_binding)
    replace(broker.publishing, "route", route)


@defect("AMQP-TOPO-017")
def binding_twice_delivers_twice(broker: Broker) -> None:
    """A queue that was bound twice with the same key gets each message twice."""
    _copies(broker, same_key=True)


@defect("AMQP-TOPO-018")
def each_binding_delivers(broker: Broker) -> None:
    """A queue gets one copy for each of its bindings."""
    _copies(broker, same_key=False)


@defect("AMQP-TOPO-027")
def unknown_exchange_types_are_direct(broker: Broker) -> None:
    """exchange.declare of an unknown type makes a direct exchange."""
    replace(broker.exchange_methods, "check_type", lambda kind: None)


@defect("AMQP-TOPO-028")
def exchange_types_may_change(broker: Broker) -> None:
    """Declaring an exchange again with another type is answered as if it were the same."""

    def change(channel: Channel, operation: Method) -> Method:
        existing = broker.vhosts[channel.connection.vhost].exchanges.get(operation.arguments["exchange"])
        if existing is None or operation.arguments["type"] not in TYPES:
            return operation
        return with_arguments(operation, type=existing.kind)

    before_handling(broker, "exchange.declare", change)


@defect("AMQP-TOPO-029")
def passive_declares_find_any_exchange(broker: Broker) -> None:
    """A passive exchange.declare of a missing exchange is answered."""
    original = broker.closing.fail

    def fail(connection: Connection, operation: Method, fault: AmqpFault, now: int) -> None:
        if fault.code == NOT_FOUND and operation.method == "exchange.declare":
            broker.outbox.send(connection, operation.channel, "exchange.declare-ok")
        else:
            original(connection, operation, fault, now)

    replace(broker.closing, "fail", fail)


@defect("AMQP-TOPO-030")
def amq_match_is_missing(broker: Broker) -> None:
    """There is no exchange amq.match."""
    for vhost in broker.vhosts.values():
        del vhost.exchanges["amq.match"]


@defect("AMQP-TOPO-031")
def reserved_exchange_names_are_free(broker: Broker) -> None:
    """Clients can declare exchanges whose names begin with amq."""
    original = broker.topology.check_name

    def check_name(kind: str, name: str) -> None:
        if kind != "exchange":
            original(kind, name)

    replace(broker.topology, "check_name", check_name)


@defect("AMQP-TOPO-033")
def bound_exchanges_are_deleted(broker: Broker) -> None:
    """exchange.delete ignores if_unused."""
    before_handling(
        broker, "exchange.delete", lambda channel, operation: with_arguments(operation, if_unused=False)
    )
