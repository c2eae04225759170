"""Defects of transactions that hold for a part only: one settlement, one sort of end, one channel."""

from __future__ import annotations

from collections.abc import Callable

from plumbline.reference_broker.amqp.connections.connection import (
    AmqpClientConnection,
    Channel,
    Transaction,
)
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import (
    before_handling,
    handling,
    on_faults,
    on_reopening,
)
from plumbline.reference_broker.amqp.errors import NOT_FOUND, PRECONDITION_FAILED, AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.dead_letters import REJECTED
from plumbline.reference_broker.amqp.messages.message import PublishedMessage, altered
from plumbline.wire.amqp import Method


def _ended(broker: Broker, method: str, change: Callable[[Transaction], None]) -> None:
    """What ``method`` ends has been changed before."""

    def handle(channel: Channel, operation: Method) -> Method:
        if channel.transaction is not None:
            change(channel.transaction)
        return operation

    before_handling(broker, method, handle)


@defect("AMQP-CONFIRM-034")
def commits_settle_what_came_last(broker: Broker) -> None:
    """tx.commit applies the last settlement of the transaction, and no other."""

    def change(transaction: Transaction) -> None:
        del transaction.settlements[:-1]

    _ended(broker, "tx.commit", change)


@defect("AMQP-CONFIRM-034")
def commits_settle_what_came_first(broker: Broker) -> None:
    """tx.commit applies the first settlement of the transaction, and no other."""

    def change(transaction: Transaction) -> None:
        del transaction.settlements[1:]

    _ended(broker, "tx.commit", change)


@defect("AMQP-CONFIRM-035")
def rollback_undoes_what_came_first(broker: Broker) -> None:
    """tx.rollback undoes the first settlement of the transaction, and no other."""

    def change(transaction: Transaction) -> None:
        del transaction.settlements[1:]

    _ended(broker, "tx.rollback", change)


@defect("AMQP-CONFIRM-034")
def transactions_overlook_tag_0(broker: Broker) -> None:
    """In a transaction tag 0 with multiple settles nothing."""
    original = broker.acknowledging.settle_tag

    def settle_tag(channel: Channel, tag: int, settlement: str, now: int, *, multiple: bool) -> None:
        if tag or not multiple or channel.transaction is None:
            original(channel, tag, settlement, now, multiple=multiple)

    replace(broker.acknowledging, "settle_tag", settle_tag)


@defect("AMQP-CONFIRM-034")
def transactions_make_room_at_once(broker: Broker) -> None:
    """What is settled in a transaction takes no place any more, though it is not committed."""
    original = broker.acknowledging.settle_tag

    def settle_tag(channel: Channel, tag: int, settlement: str, now: int, *, multiple: bool) -> None:
        original(channel, tag, settlement, now, multiple=multiple)
        if channel.transaction is None:
            return
        for delivery in channel.transaction.settlements[-1][0].values():
            broker.deliveries.settle(delivery)
            broker.acknowledging.resume_delivery(delivery, now)
            delivery.consumer = None

    replace(broker.acknowledging, "settle_tag", settle_tag)


@defect("AMQP-CONFIRM-034")
def transactions_dead_letter_at_once(broker: Broker) -> None:
    """What is rejected in a transaction is dead-lettered before the commit."""
    original = broker.acknowledging.settle_tag

    def settle_tag(channel: Channel, tag: int, settlement: str, now: int, *, multiple: bool) -> None:
        original(channel, tag, settlement, now, multiple=multiple)
        if channel.transaction is None or settlement != "discard":
            return
        deliveries, _ = channel.transaction.settlements.pop()
        channel.transaction.settlements.append((deliveries, "ack"))
        for delivery in deliveries.values():
            broker.deliveries.dead_letter(delivery.queue, delivery.entry.message, REJECTED, now)

    replace(broker.acknowledging, "settle_tag", settle_tag)


@defect("AMQP-CONFIRM-034")
def commits_dead_letter_nothing(broker: Broker) -> None:
    """What is rejected in a transaction is discarded at the commit, and not dead-lettered."""

    def change(transaction: Transaction) -> None:
        transaction.settlements = [
            (deliveries, "ack" if how == "discard" else how) for deliveries, how in transaction.settlements
        ]

    _ended(broker, "tx.commit", change)


def _forgives_publishes(broker: Broker, code: int) -> None:
    """A publish with this fault is dropped if it is in a transaction."""

    def change(
        connection: AmqpClientConnection, operation: Method, fault: AmqpReplyError
    ) -> AmqpReplyError | None:
        channel = connection.channels[operation.channel]
        return fault if channel.transaction is None else None

    on_faults(broker, change, code=code, method="basic.publish")


@defect("AMQP-PUB-001")
def transactions_may_publish_to_no_exchange(broker: Broker) -> None:
    """In a transaction a publish to an exchange that is not there is dropped."""
    _forgives_publishes(broker, NOT_FOUND)


@defect("AMQP-PUB-012", "AMQP-PUB-013")
def transactions_overlook_wrong_properties(broker: Broker) -> None:
    """In a transaction a publish with a wrong expiration or user_id is dropped."""
    _forgives_publishes(broker, PRECONDITION_FAILED)


@defect("AMQP-CONFIRM-041")
def transactions_are_the_connections(broker: Broker) -> None:
    """tx.select makes every channel of the connection that is open transactional."""

    @handling(broker, "tx.select")
    def selected(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        original(channel, operation, now)
        for other in channel.connection.channels.values():
            if other.transaction is None and not other.confirms:
                other.transaction = Transaction()


def _commit(broker: Broker, channel: Channel, now: int) -> None:
    if channel.transaction is None:
        return
    ended = broker.transactions.end(channel)
    for message, _, queues in ended.publishes:
        broker.publishing.distribute(queues, message, now)
    for deliveries, how in ended.settlements:
        broker.acknowledging.apply_settlement(deliveries, how, now)


@defect("AMQP-CONFIRM-037")
def channels_that_fail_commit(broker: Broker) -> None:
    """A channel error commits the open transaction of its channel."""
    original = broker.channels.close

    def close(channel: Channel, code: int, detail: str, cause: tuple[int, int], now: int) -> None:
        _commit(broker, channel, now)
        original(channel, code, detail, cause, now)

    replace(broker.channels, "close", close)


@defect("AMQP-CONFIRM-037")
def connections_that_are_lost_commit(broker: Broker) -> None:
    """The open transactions of a client that leaves without connection.close are committed."""
    original = broker.on_disconnected

    def on_disconnected(connection_id: int, now: int) -> object:
        connection = broker.connections.get(connection_id)
        if connection is not None:
            for channel in connection.channels.values():
                _commit(broker, channel, now)
        return original(connection_id, now)

    replace(broker, "on_disconnected", on_disconnected)


@defect("AMQP-CONFIRM-031", "AMQP-PUB-005")
def commits_return_bodies_alone(broker: Broker) -> None:
    """What tx.commit returns has lost its properties."""
    original = broker.publishing.return_message

    def return_message(channel: Channel, message: PublishedMessage) -> None:
        if channel.transaction is not None:
            message = altered(message, message.exchange, message.routing_key, {})
        original(channel, message)

    replace(broker.publishing, "return_message", return_message)


@defect("AMQP-CONFIRM-042")
def reopened_channels_are_transactional(broker: Broker) -> None:
    """A channel that is opened again is transactional if it was so before."""

    def change(before: Channel, channel: Channel) -> None:
        channel.transaction = None if before.transaction is None else Transaction()

    on_reopening(broker, change)


@defect("AMQP-CONFIRM-042")
def reopened_channels_confirm(broker: Broker) -> None:
    """A channel that is opened again is in confirm mode if it was so before."""

    def change(before: Channel, channel: Channel) -> None:
        channel.confirms = before.confirms

    on_reopening(broker, change)
