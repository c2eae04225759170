"""Defects in routing: the default exchange, and the further keys of a message (CC and BCC)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import handling, on_faults
from plumbline.reference_broker.amqp.defects.topology.routing import Headers
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.message import (
    BCC,
    CC,
    KEY_HEADERS,
    PublishedMessage,
    further_keys,
)
from plumbline.reference_broker.amqp.topology.exchanges import Exchange, VirtualHost
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import Method

# The default exchange


def _default_route(broker: Broker, same: Callable[[str, str], bool]) -> None:
    original = broker.publishing.route

    def route(channel: Channel, exchange: Exchange, message: PublishedMessage) -> list[Queue]:
        queues = list(original(channel, exchange, message))
        if exchange.name or queues:
            return queues
        vhost = broker.vhosts[channel.connection.vhost]
        return [queue for name, queue in vhost.queues.items() if same(name, message.routing_key)]

    replace(broker.publishing, "route", route)


@defect("AMQP-PUB-016")
def default_exchange_ignores_case(broker: Broker) -> None:
    """The default exchange does not tell capital letters from small ones."""
    _default_route(broker, lambda name, key: name.lower() == key.lower())


@defect("AMQP-PUB-016")
def default_exchange_compares_beginnings(broker: Broker) -> None:
    """The default exchange takes keys that begin with the name of a queue."""
    _default_route(broker, lambda name, key: key.startswith(name))


@defect("AMQP-PUB-016")
def default_exchange_knows_wildcards(broker: Broker) -> None:
    """The default exchange takes the key # for every queue."""
    _default_route(broker, lambda name, key: key in ("#", "*"))


@defect("AMQP-ROUTE-029")
def the_default_exchange_can_be_bound(broker: Broker) -> None:
    """Bindings of the default exchange can be made and removed."""
    original = broker.topology.check_binding

    def check_binding(channel: Channel, kind: str, destination: str, source: str) -> None:
        if source and destination:
            original(channel, kind, destination, source)

    replace(broker.topology, "check_binding", check_binding)


@defect("AMQP-ROUTE-029")
def nothing_is_bound_to_the_default_exchange(broker: Broker) -> None:
    """Only the source of a binding must not be the default exchange."""
    original = broker.topology.check_binding

    def check_binding(channel: Channel, kind: str, destination: str, source: str) -> None:
        original(channel, kind, destination or "amq.direct", source)

    replace(broker.topology, "check_binding", check_binding)


@defect("AMQP-TOPO-032")
def the_default_exchange_can_be_deleted(broker: Broker) -> None:
    """exchange.delete of the default exchange deletes it."""

    @handling(broker, "exchange.delete")
    def handle(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        if operation.arguments["exchange"]:
            original(channel, operation, now)
        else:
            broker.vhosts[channel.connection.vhost].exchanges.pop("", None)
            broker.outbox.answer(channel, "exchange.delete-ok")


# Further keys


def _routes_all(
    broker: Broker, route_all: Callable[[VirtualHost, Exchange, str, Headers], tuple[Queue, ...]]
) -> None:
    """The queues of a message are those that ``route_all`` gives."""
    for vhost in broker.vhosts.values():
        replace(vhost, "route_all", partial(route_all, vhost))


def _without(name: str) -> Callable[[VirtualHost, Exchange, str, Headers], tuple[Queue, ...]]:
    def route_all(vhost: VirtualHost, exchange: Exchange, key: str, headers: Headers) -> tuple[Queue, ...]:
        others = {one: value for one, value in headers.items() if one != name}
        return VirtualHost.route_all(vhost, exchange, key, others)

    return route_all


@defect("AMQP-ROUTE-030")
def cc_is_ignored(broker: Broker) -> None:
    """The header CC names no routing keys."""
    _routes_all(broker, _without(CC))


@defect("AMQP-ROUTE-031")
def bcc_is_ignored(broker: Broker) -> None:
    """The header BCC names no routing keys."""
    _routes_all(broker, _without(BCC))


@defect("AMQP-ROUTE-030", "AMQP-ROUTE-031")
def the_default_exchange_has_no_further_keys(broker: Broker) -> None:
    """The default exchange takes no routing keys from CC and BCC."""

    def route_all(vhost: VirtualHost, exchange: Exchange, key: str, headers: Headers) -> tuple[Queue, ...]:
        return VirtualHost.route_all(vhost, exchange, key, headers if exchange.name else {})

    _routes_all(broker, route_all)


@defect("AMQP-ROUTE-030", "AMQP-ROUTE-031")
def further_keys_are_one(broker: Broker) -> None:
    """Only the first key of CC and BCC counts."""

    def route_all(vhost: VirtualHost, exchange: Exchange, key: str, headers: Headers) -> tuple[Queue, ...]:
        firsts = {name: value[:1] if name in KEY_HEADERS else value for name, value in headers.items()}
        return VirtualHost.route_all(vhost, exchange, key, firsts)

    _routes_all(broker, route_all)


@defect("AMQP-ROUTE-030", "AMQP-ROUTE-031")
def every_key_is_a_copy(broker: Broker) -> None:
    """A queue gets a copy for each key of CC and BCC that leads to it."""

    def route_all(vhost: VirtualHost, exchange: Exchange, key: str, headers: Headers) -> tuple[Queue, ...]:
        keys = (key, *further_keys(headers))
        return tuple(queue for each in keys for queue in vhost.route(exchange, each, headers))

    _routes_all(broker, route_all)


@defect("AMQP-ROUTE-018")
def each_key_has_its_alternate(broker: Broker) -> None:
    """An alternate exchange gets a message of which one key in CC or BCC leads nowhere."""

    def route_all(vhost: VirtualHost, exchange: Exchange, key: str, headers: Headers) -> tuple[Queue, ...]:
        keys = (key, *further_keys(headers))
        found = (queue for each in keys for queue in vhost.route(exchange, each, headers))
        return tuple(dict.fromkeys(found))

    _routes_all(broker, route_all)


@defect("AMQP-ROUTE-031")
def bcc_is_seen(broker: Broker) -> None:
    """Deliveries have the header BCC."""
    original = broker.publishing.distribute
    sent: dict[int, PublishedMessage] = {}
    route = broker.publishing.route

    def remember(channel: Channel, exchange: Exchange, message: PublishedMessage) -> Sequence[Queue]:
        sent[0] = message
        return route(channel, exchange, message)

    def distribute(queues: Iterable[Queue], message: PublishedMessage, now: int) -> bool:
        return original(queues, sent.get(0, message), now)

    replace(broker.publishing, "route", remember)
    replace(broker.publishing, "distribute", distribute)


@defect("AMQP-ROUTE-032")
def wrong_keys_are_overlooked(broker: Broker) -> None:
    """A CC or BCC that is no array is ignored."""
    on_faults(broker, lambda connection, operation, fault: None, method="basic.publish", text="in_header")
