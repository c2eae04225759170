"""Defects in what is kept too long: routes and bindings, purged messages, channels that were closed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import before_handling, with_arguments
from plumbline.reference_broker.amqp.messages.message import QueueEntry
from plumbline.reference_broker.amqp.topology.exchanges import Binding, Exchange, VirtualHost
from plumbline.reference_broker.amqp.topology.queues import EntryQueue, PriorityEntryQueue, Queue
from plumbline.wire.amqp import Method

# Routes


def _keeps_routes(broker: Broker, part: object, method: str) -> None:
    """Routes that were found before ``method`` are still taken after it. It gets the virtual host first."""
    original = getattr(part, method)

    def change(vhost: VirtualHost, *others: Any) -> Any:
        known = dict(vhost._routes)
        result = original(vhost, *others)
        vhost._routes.update(known)
        return result

    replace(part, method, change)


@defect("AMQP-TOPO-015")
def queues_that_were_missed_stay_unknown(broker: Broker) -> None:
    """A queue to whose name a message was published before it was declared gets none by its name."""
    _keeps_routes(broker, broker.queue_methods, "make_queue")


@defect("AMQP-ROUTE-018")
def alternates_that_were_missed_stay_unknown(broker: Broker) -> None:
    """An alternate exchange that is declared after a message needed it gets none of the same key."""
    _keeps_routes(broker, broker.exchange_methods, "make_exchange")


@defect("AMQP-ROUTE-020")
def deleted_alternates_go_on(broker: Broker) -> None:
    """What an alternate exchange once routed goes the same way after it is deleted."""
    _keeps_routes(broker, broker.topology, "remove_exchange")


@defect("AMQP-ROUTE-018")
def deleted_alternates_are_forgotten(broker: Broker) -> None:
    """An exchange whose alternate exchange is deleted has none any more, also when it is declared again."""
    original = broker.topology.remove_exchange

    def remove_exchange(vhost: VirtualHost, exchange: Exchange) -> None:
        original(vhost, exchange)
        for other in vhost.exchanges.values():
            if other.alternate == exchange.name:
                other.arguments = {}

    replace(broker.topology, "remove_exchange", remove_exchange)


# Bindings


@defect("AMQP-ROUTE-035")
def deleted_exchanges_unbind_their_namesakes(broker: Broker) -> None:
    """exchange.delete also ends the bindings of the queue that has the same name."""
    original = broker.topology.remove_exchange

    def remove_exchange(vhost: VirtualHost, exchange: Exchange) -> None:
        for binding in vhost.bound_to(exchange.name, is_queue=True):
            broker.topology.remove_binding(vhost, binding)
        original(vhost, exchange)

    replace(broker.topology, "remove_exchange", remove_exchange)


@defect("AMQP-ROUTE-035")
def deleted_queues_unbind_their_namesakes(broker: Broker) -> None:
    """queue.delete also ends the bindings that lead to the exchange of the same name."""
    original = broker.topology.remove_queue

    def remove_queue(queue: Queue) -> None:
        vhost = broker.vhosts[queue.vhost]
        for binding in vhost.bound_to(queue.name, is_queue=False):
            broker.topology.remove_binding(vhost, binding)
        original(queue)

    replace(broker.topology, "remove_queue", remove_queue)


@defect("AMQP-ROUTE-021")
def exchanges_that_come_again_are_bound_as_before(broker: Broker) -> None:
    """An exchange that is deleted and declared again gets what other exchanges led to it."""
    lost: dict[str, list[Binding]] = {}
    remove, make = broker.topology.remove_exchange, broker.exchange_methods.make_exchange

    def remove_exchange(vhost: VirtualHost, exchange: Exchange) -> None:
        lost[exchange.name] = vhost.bound_to(exchange.name, is_queue=False)
        remove(vhost, exchange)

    def make_exchange(vhost: VirtualHost, name: str, arguments: Any) -> None:
        make(vhost, name, arguments)
        for binding in lost.pop(name, ()):
            if binding.source in vhost.exchanges:
                vhost.bind(binding)

    replace(broker.topology, "remove_exchange", remove_exchange)
    replace(broker.exchange_methods, "make_exchange", make_exchange)


@defect("AMQP-ROUTE-023")
def deleted_destinations_are_no_last_binding(broker: Broker) -> None:
    """An exchange with auto_delete stays when its last binding ends with the exchange that it leads to."""
    original = broker.topology.remove_exchange

    def remove_exchange(vhost: VirtualHost, exchange: Exchange) -> None:
        sources = [vhost.exchanges[one.source] for one in vhost.bound_to(exchange.name, is_queue=False)]
        kept = [source for source in sources if source.auto_delete]
        for source in kept:
            source.auto_delete = False
        original(vhost, exchange)
        for source in kept:
            source.auto_delete = True

    replace(broker.topology, "remove_exchange", remove_exchange)


@defect("AMQP-ROUTE-036")
def arguments_are_compared_in_their_order(broker: Broker) -> None:
    """queue.unbind with the same arguments in another order ends no binding."""

    def change(channel: Channel, operation: Method) -> Method:
        vhost = broker.vhosts[channel.connection.vhost]
        exchange = vhost.exchanges.get(operation.arguments["exchange"])
        table = operation.arguments["arguments"]
        for binding in exchange.bindings.values() if exchange is not None else ():
            if binding.arguments == table and list(binding.arguments) != list(table):
                return with_arguments(operation, arguments={"x-none": "such"})
        return operation

    before_handling(broker, "queue.unbind", change)


# Purges


def _purges(broker: Broker, purge: Callable[[Queue], list[QueueEntry]]) -> None:
    replace(broker.queue_methods, "purge", purge)


@defect("AMQP-TOPO-043")
def purges_leave_what_was_given_back(broker: Broker) -> None:
    """queue.purge counts a message that was given back, and leaves it in the queue."""

    def purge(queue: Queue) -> list[QueueEntry]:
        given_back = list(queue.ready._returned) if isinstance(queue.ready, EntryQueue) else []
        entries = queue.clear()
        for _, entry in given_back:
            queue.put_back(entry)
        return entries

    _purges(broker, purge)


@defect("AMQP-TOPO-043")
def purges_leave_priorities(broker: Broker) -> None:
    """queue.purge counts the messages of a queue with priorities, and leaves them."""
    _purges(
        broker,
        lambda queue: list(queue.ready) if isinstance(queue.ready, PriorityEntryQueue) else queue.clear(),
    )


@defect("AMQP-TOPO-043")
def purges_make_no_room(broker: Broker) -> None:
    """The bytes of what queue.purge removed still count for x-max-length-bytes."""

    def purge(queue: Queue) -> list[QueueEntry]:
        counted = queue.bytes_ready
        entries = queue.clear()
        queue.bytes_ready = counted
        return entries

    _purges(broker, purge)


# Channels


@defect("AMQP-CHAN-030")
def confirms_follow_close_ok(broker: Broker) -> None:
    """What was published right before channel.close is confirmed after channel.close-ok."""
    original = broker.confirms.send

    def send() -> None:
        ended = [channel for channel in broker.confirms.confirming if channel.closed]
        for channel in ended:
            channel.closed = channel.closing = False
        original()
        for channel in ended:
            channel.closed = channel.closing = True

    replace(broker.confirms, "send", send)


@defect("AMQP-ROUTE-007")
def headers_behind_a_binding_are_compared_once(broker: Broker) -> None:
    """A route that began elsewhere than at a headers exchange is kept for all messages of the same key."""

    def find(vhost: VirtualHost) -> None:
        original = vhost._find_queues

        def find_queues(start: Exchange, keys: Sequence[str], headers: Mapping[str, Any]) -> tuple[Any, bool]:
            return original(start, keys, headers)[0], start.kind == "headers"

        replace(vhost, "_find_queues", find_queues)

    for vhost in broker.vhosts.values():
        find(vhost)
