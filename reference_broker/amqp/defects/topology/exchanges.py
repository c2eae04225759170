"""Defects in exchanges: alternate exchanges, deleting, declaring again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import before_handling, handling, with_arguments
from plumbline.reference_broker.amqp.defects.topology.routing import Step, Stops, leads
from plumbline.reference_broker.amqp.errors import PRECONDITION_FAILED, AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.message import PublishedMessage
from plumbline.reference_broker.amqp.topology.exchanges import (
    Binding,
    Exchange,
    VirtualHost,
)
from plumbline.wire.amqp import Method

# Alternate exchanges


def _alternates(broker: Broker, change: Callable[[str, Any], Any]) -> None:
    """The alternate exchange of an exchange that is declared is changed: ``change(exchange, alternate)``."""

    def changed(channel: Channel, operation: Method) -> Method:
        table = operation.arguments["arguments"]
        if "alternate-exchange" not in table:
            return operation
        name = change(operation.arguments["exchange"], table["alternate-exchange"])
        rest = {key: value for key, value in table.items() if key != "alternate-exchange"}
        return with_arguments(
            operation, arguments=rest if name is None else {**rest, "alternate-exchange": name}
        )

    before_handling(broker, "exchange.declare", changed)


@defect("AMQP-ROUTE-018", "AMQP-ROUTE-019")
def alternates_are_ignored(broker: Broker) -> None:
    """Exchanges have no alternate exchange."""
    _alternates(broker, lambda exchange, alternate: None)


@defect("AMQP-ROUTE-018")
def alternates_get_everything(broker: Broker) -> None:
    """An alternate exchange gets what its exchange could route, too."""

    def lead(step: Step) -> Stops:
        yield from step.right
        alternate = step.exchange.alternate
        if alternate is not None and alternate in step.vhost.exchanges:
            yield alternate

    leads(broker, lead)


@defect("AMQP-ROUTE-018")
def bound_exchanges_have_no_alternate(broker: Broker) -> None:
    """What an exchange cannot route goes nowhere if the exchange is bound to another one."""

    def lead(step: Step) -> Stops:
        yield from step.right
        if step.vhost.bound_to(step.exchange.name, is_queue=False):
            yield None

    leads(broker, lead)


def _has_no_alternate(broker: Broker, kind: str) -> None:
    """Exchanges of this type have no alternate exchange."""

    def changed(channel: Channel, operation: Method) -> Method:
        is_meant = operation.arguments["type"] == kind
        return with_arguments(operation, arguments={}) if is_meant else operation

    before_handling(broker, "exchange.declare", changed)


@defect("AMQP-ROUTE-018")
def headers_exchanges_have_no_alternate(broker: Broker) -> None:
    """A headers exchange has no alternate exchange."""
    _has_no_alternate(broker, "headers")


@defect("AMQP-ROUTE-018")
def topic_exchanges_have_no_alternate(broker: Broker) -> None:
    """A topic exchange has no alternate exchange."""
    _has_no_alternate(broker, "topic")


def _takes(exchange: Exchange | None, message: PublishedMessage) -> bool:
    """Whether one of its bindings takes the message."""
    return exchange is not None and any(exchange.matching(message.routing_key, message.headers))


@defect("AMQP-ROUTE-018")
def alternates_do_not_stop_returns(broker: Broker) -> None:
    """A mandatory message that only an alternate exchange routes is returned, too."""

    @handling(broker, "basic.publish")
    def published(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        message = broker.publishing.message(operation)
        exchange = broker.vhosts[channel.connection.vhost].exchanges.get(message.exchange)
        is_meant = exchange is not None and exchange.alternate is not None
        if is_meant and operation.arguments["mandatory"] and not _takes(exchange, message):
            broker.publishing.return_message(channel, message)
        original(channel, operation, now)


@defect("AMQP-ROUTE-019")
def alternates_have_no_alternates(broker: Broker) -> None:
    """The alternate exchange of an alternate exchange gets nothing."""
    used: set[str] = set()

    def change(exchange: str, alternate: str) -> str | None:
        if any(alternate == one for one in used):
            return None
        used.add(exchange)
        return alternate

    _alternates(broker, change)


@defect("AMQP-ROUTE-019", "AMQP-ROUTE-020")
def alternates_are_not_mandatory(broker: Broker) -> None:
    """A mandatory message to an exchange with an alternate exchange is never returned."""
    original = broker.publishing.return_message

    def return_message(channel: Channel, message: PublishedMessage) -> None:
        exchange = broker.vhosts[channel.connection.vhost].exchanges[message.exchange]
        if exchange.alternate is None:
            original(channel, message)

    replace(broker.publishing, "return_message", return_message)


# Exchanges


@defect("AMQP-ROUTE-023")
def auto_delete_exchanges_stay(broker: Broker) -> None:
    """An auto-delete exchange stays when its last binding goes."""
    before_handling(
        broker, "exchange.declare", lambda channel, operation: with_arguments(operation, auto_delete=False)
    )


@defect("AMQP-ROUTE-023")
def auto_delete_exchanges_go_with_any_binding(broker: Broker) -> None:
    """An auto-delete exchange goes when any of its bindings goes."""
    original = broker.topology.remove_binding

    def remove_binding(vhost: VirtualHost, binding: Binding) -> None:
        exchange = vhost.exchanges[binding.source]
        original(vhost, binding)
        if exchange.auto_delete:
            exchange.bindings.clear()
            broker.topology.remove_exchange(vhost, exchange)

    replace(broker.topology, "remove_binding", remove_binding)


@defect("AMQP-ROUTE-024")
def unused_exchanges_are_not_deleted(broker: Broker) -> None:
    """exchange.delete with if_unused is answered, and nothing is deleted."""

    @handling(broker, "exchange.delete")
    def delete(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        name = operation.arguments["exchange"]
        exchange = broker.vhosts[channel.connection.vhost].exchanges.get(name)
        if operation.arguments["if_unused"] and exchange is not None and not exchange.bindings:
            broker.outbox.answer(channel, "exchange.delete-ok")
        else:
            original(channel, operation, now)


@defect("AMQP-TOPO-033")
def refused_deletes_drop_bindings(broker: Broker) -> None:
    """exchange.delete with if_unused of an exchange in use is refused, and its bindings go."""

    @handling(broker, "exchange.delete")
    def delete(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        vhost = broker.vhosts[channel.connection.vhost]
        exchange = vhost.exchanges.get(operation.arguments["exchange"])
        try:
            original(channel, operation, now)
        finally:
            if exchange is not None and operation.arguments["if_unused"]:
                exchange.bindings.clear()
                vhost.forget_routes()


def _takes_other(broker: Broker, name: str) -> None:
    """exchange.declare of an existing exchange with another value of ``name`` is answered."""

    def change(channel: Channel, operation: Method) -> Method:
        existing = broker.vhosts[channel.connection.vhost].exchanges.get(operation.arguments["exchange"])
        if existing is None:
            return operation
        return with_arguments(operation, **{name: getattr(existing, name)})

    before_handling(broker, "exchange.declare", change)


@defect("AMQP-ROUTE-025")
def exchanges_may_become_transient(broker: Broker) -> None:
    """exchange.declare does not compare durable."""
    _takes_other(broker, "durable")


@defect("AMQP-ROUTE-025")
def exchanges_may_become_auto_delete(broker: Broker) -> None:
    """exchange.declare does not compare auto_delete."""
    _takes_other(broker, "auto_delete")


@defect("AMQP-ROUTE-025")
def exchanges_may_become_internal(broker: Broker) -> None:
    """exchange.declare does not compare internal."""
    _takes_other(broker, "internal")


@defect("AMQP-ROUTE-025")
def exchanges_may_get_another_alternate(broker: Broker) -> None:
    """exchange.declare does not compare alternate-exchange."""
    _takes_other(broker, "arguments")


@defect("AMQP-ROUTE-025")
def refused_declares_change_exchanges(broker: Broker) -> None:
    """exchange.declare with other properties is refused, and the exchange has them all the same."""
    original = broker.exchange_methods.check_same_exchange

    def check_same_exchange(vhost: VirtualHost, exchange: Exchange, arguments: Any) -> None:
        try:
            original(vhost, exchange, arguments)
        finally:
            exchange.durable, exchange.internal = arguments["durable"], arguments["internal"]
            exchange.auto_delete, exchange.arguments = arguments["auto_delete"], arguments["arguments"]

    replace(broker.exchange_methods, "check_same_exchange", check_same_exchange)


@defect("AMQP-ROUTE-026")
def passive_declares_drop_bindings(broker: Broker) -> None:
    """A passive exchange.declare declares the exchange again, without bindings."""

    def change(channel: Channel, operation: Method) -> Method:
        vhost = broker.vhosts[channel.connection.vhost]
        exchange = vhost.exchanges.get(operation.arguments["exchange"])
        if operation.arguments["passive"] and exchange is not None:
            exchange.bindings.clear()
            vhost.forget_routes()
        return operation

    before_handling(broker, "exchange.declare", change)


def _same_again(broker: Broker, change: Callable[[Exchange], None]) -> None:
    """What happens to an exchange that is declared again as it is."""
    original = broker.exchange_methods.check_same_exchange

    def check_same_exchange(vhost: VirtualHost, exchange: Exchange, arguments: Any) -> None:
        original(vhost, exchange, arguments)
        change(exchange)
        vhost.forget_routes()

    replace(broker.exchange_methods, "check_same_exchange", check_same_exchange)


@defect("AMQP-ROUTE-037")
def equal_exchanges_are_made_anew(broker: Broker) -> None:
    """An exchange that is declared again replaces the one that was there, with its bindings."""
    _same_again(broker, lambda exchange: exchange.bindings.clear())


@defect("AMQP-ROUTE-037")
def equal_exchanges_with_an_alternate_are_made_anew(broker: Broker) -> None:
    """Only one with an alternate-exchange does."""
    _same_again(broker, lambda exchange: exchange.bindings.clear() if exchange.alternate else None)


@defect("AMQP-ROUTE-037")
def equal_exchanges_are_refused(broker: Broker) -> None:
    """Declaring an exchange again is refused, however equal."""

    def refuse(exchange: Exchange) -> None:
        raise AmqpReplyError(PRECONDITION_FAILED, f"exchange '{exchange.name}' exists")

    _same_again(broker, refuse)


def _answers(broker: Broker, method: str) -> None:
    """``method`` with no_wait is answered."""
    before_handling(broker, method, lambda channel, operation: with_arguments(operation, no_wait=False))


@defect("AMQP-ROUTE-028")
def exchange_declare_always_answers(broker: Broker) -> None:
    """exchange.declare is answered, no_wait or not."""
    _answers(broker, "exchange.declare")


@defect("AMQP-ROUTE-028")
def exchange_bind_always_answers(broker: Broker) -> None:
    """exchange.bind is answered, no_wait or not."""
    _answers(broker, "exchange.bind")


@defect("AMQP-ROUTE-028")
def exchange_unbind_always_answers(broker: Broker) -> None:
    """exchange.unbind is answered, no_wait or not."""
    _answers(broker, "exchange.unbind")


@defect("AMQP-ROUTE-028")
def exchange_delete_always_answers(broker: Broker) -> None:
    """exchange.delete is answered, no_wait or not."""
    _answers(broker, "exchange.delete")
