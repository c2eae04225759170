"""exchange.declare, delete, bind and unbind.

Sources: AMQP 0-9-1 XML, class exchange; RabbitMQ, "Exchange to Exchange Bindings", "Alternate Exchanges".
"""

from __future__ import annotations

from typing import Any

from plumbline.reference_broker.amqp.access import CONFIGURE, READ, WRITE
from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.errors import (
    ACCESS_REFUSED,
    COMMAND_INVALID,
    NOT_FOUND,
    PRECONDITION_FAILED,
    AmqpReplyError,
    quoted,
)
from plumbline.reference_broker.amqp.outbox import Outbox
from plumbline.reference_broker.amqp.storage.store import AmqpRecordStore
from plumbline.reference_broker.amqp.topology.arguments import invalid, type_name
from plumbline.reference_broker.amqp.topology.exchanges import (
    TYPES,
    Binding,
    Exchange,
    VirtualHost,
)
from plumbline.reference_broker.amqp.topology.topology import (
    RESERVED,
    Topology,
    check_same,
    default_exchange_refused,
    strip_line_ends,
)
from plumbline.wire.amqp import Method

_ALTERNATE = "alternate-exchange"


class ExchangeMethods:
    """What clients may do with exchanges."""

    def __init__(self, topology: Topology, store: AmqpRecordStore, outbox: Outbox) -> None:
        self.topology = topology
        self.store = store
        self.outbox = outbox

    def on_exchange_declare(self, channel: Channel, operation: Method, now: int) -> None:
        """exchange.declare."""
        arguments = operation.arguments
        name = strip_line_ends(arguments["exchange"])
        vhost = self.topology.vhosts[channel.connection.vhost]
        if not arguments["passive"]:
            self.check_type(arguments["type"])
        if not name:
            raise default_exchange_refused()
        existing = vhost.exchanges.get(name)
        if arguments["passive"]:
            if existing is None:
                raise AmqpReplyError(NOT_FOUND, f"no {quoted('exchange', name, vhost.name)}")
        else:
            self.topology.check_access(channel, CONFIGURE, "exchange", name)
            if existing is not None:
                self.check_same_exchange(vhost, existing, arguments)
            else:
                self.topology.check_name("exchange", name)
                self.check_alternate_access(channel, name, arguments["arguments"].get(_ALTERNATE))
                self.make_exchange(vhost, name, arguments)
        if not arguments["no_wait"]:
            self.outbox.answer(channel, "exchange.declare-ok")

    def check_alternate_access(self, channel: Channel, name: str, alternate: Any) -> None:
        """Who has messages go elsewhere must be allowed to move them. Raises ``AmqpReplyError`` (403)."""
        if isinstance(alternate, str):
            self.topology.check_access(channel, READ, "exchange", name)
            self.topology.check_access(channel, WRITE, "exchange", alternate)

    def check_type(self, kind: str) -> None:
        if kind not in TYPES:
            raise AmqpReplyError(COMMAND_INVALID, f"unknown exchange type '{kind}'")

    def check_same_exchange(self, vhost: VirtualHost, exchange: Exchange, arguments: Any) -> None:
        what = quoted("exchange", exchange.name, vhost.name)
        check_same("type", what, arguments["type"], exchange.kind)
        check_same("durable", what, arguments["durable"], exchange.durable)
        check_same("auto_delete", what, arguments["auto_delete"], exchange.auto_delete)
        check_same("internal", what, arguments["internal"], exchange.internal)
        received, current = arguments["arguments"].get(_ALTERNATE), exchange.alternate
        if received != current:
            values = [
                "none" if one is None else f"the value '{one}' of type '{type_name(one)}'"
                for one in (received, current)
            ]
            text = (
                f"inequivalent arg '{_ALTERNATE}' for {what}: received {values[0]} but current is {values[1]}"
            )
            raise AmqpReplyError(PRECONDITION_FAILED, text)

    def make_exchange(self, vhost: VirtualHost, name: str, arguments: Any) -> None:
        optional = arguments["arguments"]
        if _ALTERNATE in optional and not isinstance(optional[_ALTERNATE], str):
            why = f"{{unacceptable_type,{type_name(optional[_ALTERNATE])}}}"
            raise invalid(_ALTERNATE, "exchange", name, vhost.name, why)
        exchange = Exchange(
            name,
            arguments["type"],
            durable=arguments["durable"],
            auto_delete=arguments["auto_delete"],
            internal=arguments["internal"],
            arguments=optional,
        )
        vhost.exchanges[name] = exchange
        vhost.forget_routes()
        self.store.record_exchange_declared(vhost.name, exchange)

    def on_exchange_delete(self, channel: Channel, operation: Method, now: int) -> None:
        """exchange.delete. What does not exist is deleted already."""
        name = strip_line_ends(operation.arguments["exchange"])
        vhost = self.topology.vhosts[channel.connection.vhost]
        what = quoted("exchange", name, vhost.name)
        if not name:
            raise default_exchange_refused()
        if name.startswith(RESERVED):
            raise AmqpReplyError(ACCESS_REFUSED, f"deletion of system {what} not allowed")
        self.topology.check_access(channel, CONFIGURE, "exchange", name)
        exchange = vhost.exchanges.get(name)
        if exchange is not None:
            if operation.arguments["if_unused"] and exchange.bindings:
                raise AmqpReplyError(PRECONDITION_FAILED, f"{what} in use")
            for binding in list(exchange.bindings.values()):
                self.store.record_binding_removed(vhost, binding)
            exchange.bindings.clear()
            self.topology.remove_exchange(vhost, exchange)
        if not operation.arguments["no_wait"]:
            self.outbox.answer(channel, "exchange.delete-ok")

    def on_exchange_bind(self, channel: Channel, operation: Method, now: int) -> None:
        """exchange.bind, an extension."""
        vhost = self.topology.vhosts[channel.connection.vhost]
        destination, source = self.ends(operation.arguments)
        self.topology.check_binding(channel, "exchange", destination, source)
        self.topology.check_topic(channel, source, operation.arguments["routing_key"])
        self.topology.add_binding(vhost, self.exchange_binding(vhost, operation.arguments))
        if not operation.arguments["no_wait"]:
            self.outbox.answer(channel, "exchange.bind-ok")

    def on_exchange_unbind(self, channel: Channel, operation: Method, now: int) -> None:
        """exchange.unbind."""
        arguments = operation.arguments
        destination, source = self.ends(arguments)
        self.topology.check_binding(channel, "exchange", destination, source)
        self.topology.check_topic(channel, source, arguments["routing_key"])
        binding = Binding(source, False, destination, arguments["routing_key"], arguments["arguments"])
        self.topology.drop_binding(channel, binding)
        if not arguments["no_wait"]:
            self.outbox.answer(channel, "exchange.unbind-ok")

    def ends(self, arguments: Any) -> tuple[str, str]:
        """The destination and the source of a binding."""
        return strip_line_ends(arguments["destination"]), strip_line_ends(arguments["source"])

    def exchange_binding(self, vhost: VirtualHost, arguments: Any) -> Binding:
        to, of = self.ends(arguments)
        source = self.topology.bindable(vhost, of)
        destination = self.topology.bindable(vhost, to)
        return Binding(source.name, False, destination.name, arguments["routing_key"], arguments["arguments"])
