"""Defects that settle too much, too little, or on the wrong channel; and transactions that do not hold."""

from __future__ import annotations

from collections.abc import Callable

from plumbline.reference_broker.amqp.connections.connection import (
    AmqpClientConnection,
    Channel,
    Transaction,
    UnackedDelivery,
)
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import before_handling, handling
from plumbline.reference_broker.amqp.defects.messages.settling import (
    Taken,
    overlooks,
    pop,
    settles_all_below,
    takes,
)
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.message import PublishedMessage, QueueEntry
from plumbline.reference_broker.amqp.topology.queues import Queue, QueueConsumer
from plumbline.wire.amqp import Method

Chosen = Callable[[UnackedDelivery, UnackedDelivery], bool]
Publish = tuple[PublishedMessage, bool, list[Queue]]


@defect("AMQP-NACK-001")
def single_nacks_settle_all_below(broker: Broker) -> None:
    """basic.nack without multiple settles all lower tags, too."""
    settles_all_below(broker, "basic.nack")


@defect("AMQP-NACK-002")
def single_requeues_give_back_all_below(broker: Broker) -> None:
    """basic.nack with requeue gives back all lower tags, too."""
    settles_all_below(broker, "basic.nack", lambda operation: bool(operation.arguments["requeue"]))


def _on_any_channel(broker: Broker, method: str) -> None:
    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        if tag in channel.outstanding or not tag:
            return None
        for other in channel.connection.channels.values():
            if tag in other.outstanding:
                return pop(other, [tag])
        return None

    takes(broker, method, taken)


@defect("AMQP-NACK-011")
def nacks_on_any_channel(broker: Broker) -> None:
    """basic.nack settles the delivery of another channel of the connection."""
    _on_any_channel(broker, "basic.nack")


@defect("AMQP-REJECT-007")
def rejects_on_any_channel(broker: Broker) -> None:
    """basic.reject settles the delivery of another channel of the connection."""
    _on_any_channel(broker, "basic.reject")


def _is_of_another(channel: Channel, tag: int) -> bool:
    return any(tag in other.outstanding for other in channel.connection.channels.values())


@defect("AMQP-NACK-011", "AMQP-REJECT-007")
def negative_acks_on_other_channels_are_overlooked(broker: Broker) -> None:
    """basic.nack and basic.reject of a tag of another channel are ignored."""
    overlooks(broker, _is_of_another, method="basic.nack")
    overlooks(broker, _is_of_another, method="basic.reject")


@defect("AMQP-NACK-012")
def double_nacks_are_overlooked(broker: Broker) -> None:
    """basic.nack of a tag that is settled already is ignored."""
    overlooks(broker, lambda channel, tag: 0 < tag <= channel.last_tag, method="basic.nack")


@defect("AMQP-REJECT-008")
def double_rejects_are_overlooked(broker: Broker) -> None:
    """basic.reject of a tag that is settled already is ignored."""
    overlooks(broker, lambda channel, tag: 0 < tag <= channel.last_tag, method="basic.reject")


def _multiple_on_all_channels(broker: Broker, method: str, *, with_zero: bool) -> None:
    """``with_zero``: of tag 0; else of other tags."""

    @handling(broker, method)
    def settle(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        tag = operation.arguments["delivery_tag"]
        original(channel, operation, now)
        if not operation.arguments["multiple"] or with_zero is not (tag == 0):
            return
        how = "ack" if method == "basic.ack" else "discard"
        for other in channel.connection.channels.values():
            if other is not channel:
                tags = [one for one in other.outstanding if not tag or one <= tag]
                broker.acknowledging.apply_settlement(pop(other, tags), how, now)


@defect("AMQP-ACK-019")
def ack_multiple_reaches_other_channels(broker: Broker) -> None:
    """basic.ack with multiple settles the same tags on the connection's other channels."""
    _multiple_on_all_channels(broker, "basic.ack", with_zero=False)


@defect("AMQP-ACK-019")
def ack_of_all_reaches_other_channels(broker: Broker) -> None:
    """basic.ack of tag 0 with multiple settles everything of the connection."""
    _multiple_on_all_channels(broker, "basic.ack", with_zero=True)


@defect("AMQP-NACK-013")
def nack_multiple_reaches_other_channels(broker: Broker) -> None:
    """basic.nack with multiple settles the same tags on the connection's other channels."""
    _multiple_on_all_channels(broker, "basic.nack", with_zero=False)


@defect("AMQP-NACK-013")
def nack_of_all_reaches_other_channels(broker: Broker) -> None:
    """basic.nack of tag 0 with multiple settles everything of the connection."""
    _multiple_on_all_channels(broker, "basic.nack", with_zero=True)


def _multiple_of_some(broker: Broker, method: str, chosen: Chosen) -> None:
    """multiple settles, beside the delivery that is named, only those that are ``chosen``."""

    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        if not multiple or tag not in channel.outstanding:
            return None
        named = channel.outstanding[tag]
        below = [one for one in channel.outstanding if one <= tag]
        return pop(channel, [one for one in below if chosen(named, channel.outstanding[one])])

    takes(broker, method, taken)


@defect("AMQP-ACK-020")
def ack_multiple_settles_one_queue(broker: Broker) -> None:
    """basic.ack with multiple settles deliveries of the queue of the named one alone."""
    _multiple_of_some(broker, "basic.ack", lambda named, other: other.queue is named.queue)


@defect("AMQP-ACK-020")
def ack_multiple_settles_one_consumer(broker: Broker) -> None:
    """basic.ack with multiple settles deliveries of the consumer of the named one alone."""
    _multiple_of_some(broker, "basic.ack", lambda named, other: other.consumer is named.consumer)


@defect("AMQP-NACK-014")
def nack_multiple_settles_one_queue(broker: Broker) -> None:
    """basic.nack with multiple settles deliveries of the queue of the named one alone."""
    _multiple_of_some(broker, "basic.nack", lambda named, other: other.queue is named.queue)


@defect("AMQP-NACK-014")
def nack_multiple_settles_one_consumer(broker: Broker) -> None:
    """basic.nack with multiple settles deliveries of the consumer of the named one alone."""
    _multiple_of_some(broker, "basic.nack", lambda named, other: other.consumer is named.consumer)


# Transactions


def _settles_at_once(broker: Broker, *methods: str) -> None:
    @handling(broker, *methods)
    def settle(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        transaction, channel.transaction = channel.transaction, None
        try:
            original(channel, operation, now)
        finally:
            channel.transaction = transaction


@defect("AMQP-CONFIRM-035", "AMQP-CONFIRM-037")
def transactions_ack_at_once(broker: Broker) -> None:
    """basic.ack in a transaction settles at once."""
    _settles_at_once(broker, "basic.ack")


@defect("AMQP-CONFIRM-034", "AMQP-CONFIRM-035")
def transactions_nack_at_once(broker: Broker) -> None:
    """basic.nack in a transaction settles at once."""
    _settles_at_once(broker, "basic.nack")


@defect("AMQP-CONFIRM-034", "AMQP-CONFIRM-035")
def transactions_reject_at_once(broker: Broker) -> None:
    """basic.reject in a transaction settles at once."""
    _settles_at_once(broker, "basic.reject")


def _ignored_in_transactions(broker: Broker, method: str) -> None:
    before_handling(
        broker, method, lambda channel, operation: None if channel.transaction is not None else operation
    )


@defect("AMQP-CONFIRM-034")
def transactions_ignore_acks(broker: Broker) -> None:
    """basic.ack in a transaction settles nothing, not at the commit either."""
    _ignored_in_transactions(broker, "basic.ack")


@defect("AMQP-CONFIRM-034")
def transactions_ignore_nacks(broker: Broker) -> None:
    """basic.nack in a transaction settles nothing, not at the commit either."""
    _ignored_in_transactions(broker, "basic.nack")


@defect("AMQP-CONFIRM-034")
def transactions_ignore_rejects(broker: Broker) -> None:
    """basic.reject in a transaction settles nothing, not at the commit either."""
    _ignored_in_transactions(broker, "basic.reject")


@defect("AMQP-CONFIRM-035")
def rollback_requeues(broker: Broker) -> None:
    """tx.rollback gives back to the queue what was settled in the transaction."""

    @handling(broker, "tx.rollback")
    def rolled_back(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        settled = channel.transaction.settlements if channel.transaction is not None else []
        taken = [deliveries for deliveries, _ in settled]
        settled.clear()
        original(channel, operation, now)
        for deliveries in taken:
            broker.acknowledging.apply_settlement(deliveries, "requeue", now)


@defect("AMQP-CONFIRM-035")
def rollback_keeps_settlements(broker: Broker) -> None:
    """tx.rollback undoes publishes only: what was settled is settled."""

    @handling(broker, "tx.rollback")
    def rolled_back(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        settled = list(channel.transaction.settlements) if channel.transaction is not None else []
        if channel.transaction is not None:
            channel.transaction.settlements.clear()
        original(channel, operation, now)
        for deliveries, how in settled:
            broker.acknowledging.apply_settlement(deliveries, how, now)


def _ends_transactions(broker: Broker, method: str) -> None:
    @handling(broker, method)
    def ended(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        original(channel, operation, now)
        channel.transaction = None

    @handling(broker, "tx.rollback" if method == "tx.commit" else "tx.commit")
    def other(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        if channel.transaction is None:
            broker.outbox.answer(channel, f"{operation.method}-ok")
        else:
            original(channel, operation, now)


@defect("AMQP-CONFIRM-036")
def commit_ends_transactions(broker: Broker) -> None:
    """After tx.commit the channel is not transactional any more."""
    _ends_transactions(broker, "tx.commit")


@defect("AMQP-CONFIRM-036")
def rollback_ends_transactions(broker: Broker) -> None:
    """After tx.rollback the channel is not transactional any more."""
    _ends_transactions(broker, "tx.rollback")


@defect("AMQP-CONFIRM-037")
def closing_commits(broker: Broker) -> None:
    """A channel that closes commits its transaction."""
    original = broker.channels.leave

    def leave(channel: Channel, now: int) -> None:
        if (transaction := channel.transaction) is not None:
            for message, _, queues in transaction.publishes:
                broker.publishing.distribute(queues, message, now)
            for deliveries, how in transaction.settlements:
                broker.acknowledging.apply_settlement(deliveries, how, now)
            channel.transaction = None
        original(channel, now)

    replace(broker.channels, "leave", leave)


@defect("AMQP-CONFIRM-032")
def transactions_publish_in_reverse(broker: Broker) -> None:
    """tx.commit publishes the last message first."""

    @handling(broker, "tx.commit")
    def committed(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        if channel.transaction is not None:
            channel.transaction.publishes.reverse()
        original(channel, operation, now)


# What ends with channels and connections


@defect("AMQP-REQUEUE-012", "AMQP-CONSUME-020")
def closed_channels_requeue_what_needed_no_ack(broker: Broker) -> None:
    """What a channel delivered without acknowledgements is requeued when it closes."""
    given: dict[Channel, list[UnackedDelivery]] = {}
    original_deliver, original_leave = broker.deliveries.deliver, broker.channels.leave

    def deliver(consumer: QueueConsumer, entry: QueueEntry, now: int) -> None:
        original_deliver(consumer, entry, now)
        if consumer.no_ack:
            given.setdefault(consumer.channel, []).append(UnackedDelivery(entry, consumer.queue, None, now))

    def leave(channel: Channel, now: int) -> None:
        broker.deliveries.requeue(given.pop(channel, []), now)
        original_leave(channel, now)

    replace(broker.deliveries, "deliver", deliver)
    replace(broker.channels, "leave", leave)


@defect("AMQP-TOPO-035")
def lost_connections_leave_exclusive_queues(broker: Broker) -> None:
    """An exclusive queue stays when its TCP connection ends without connection.close."""
    original = broker.on_disconnected

    def on_disconnected(connection_id: int, now: int) -> object:
        connection = broker.connections.get(connection_id)
        if connection is not None:
            connection.exclusive_queues.clear()
        return original(connection_id, now)

    replace(broker, "on_disconnected", on_disconnected)


@defect("AMQP-TOPO-036")
def exclusive_queues_go_with_their_channel(broker: Broker) -> None:
    """An exclusive queue is deleted when a channel of its connection closes."""

    @handling(broker, "channel.close")
    def closed(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        original(channel, operation, now)
        for queue in list(channel.connection.exclusive_queues):
            broker.topology.remove_queue(queue)


def _auto_delete_by(broker: Broker, *, connection_too: bool) -> None:
    """Without ``connection_too`` only channels that end leave auto-delete queues alone."""
    original_leave, original_all = broker.channels.leave, broker.channels.leave_all
    original_gone = broker.topology.consumer_gone
    ending = [False]

    def gone(queue: Queue, now: int) -> None:
        if not (ending[0] and queue.auto_delete):
            original_gone(queue, now)

    def leave(channel: Channel, now: int) -> None:
        before, ending[0] = ending[0], ending[0] or not connection_too
        original_leave(channel, now)
        ending[0] = before

    def leave_all(connection: AmqpClientConnection, now: int) -> None:
        ending[0] = connection_too
        original_all(connection, now)
        ending[0] = False

    replace(broker.topology, "consumer_gone", gone)
    replace(broker.channels, "leave", leave)
    replace(broker.channels, "leave_all", leave_all)


@defect("AMQP-TOPO-014")
def auto_delete_outlives_channels(broker: Broker) -> None:
    """An auto-delete queue stays when its last consumer goes with its channel."""
    _auto_delete_by(broker, connection_too=False)


@defect("AMQP-TOPO-014")
def auto_delete_outlives_connections(broker: Broker) -> None:
    """An auto-delete queue stays when its last consumer goes with its connection."""
    _auto_delete_by(broker, connection_too=True)


@defect("AMQP-TOPO-014")
def auto_delete_goes_with_the_first_consumer(broker: Broker) -> None:
    """An auto-delete queue is deleted when any of its consumers leaves."""
    original = broker.topology.consumer_gone

    def gone(queue: Queue, now: int) -> None:
        if queue.auto_delete:
            broker.topology.remove_queue(queue)
        else:
            original(queue, now)

    replace(broker.topology, "consumer_gone", gone)


@defect("AMQP-REQUEUE-013")
def given_back_stays_with_its_channel(broker: Broker) -> None:
    """What basic.nack or basic.reject gives back is lost to others until its channel closes."""
    kept: dict[Channel, list[UnackedDelivery]] = {}
    original_leave = broker.channels.leave

    @handling(broker, "basic.nack", "basic.reject")
    def settle(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        tag = operation.arguments["delivery_tag"]
        delivery = channel.outstanding.get(tag)
        gone = delivery is not None and delivery.consumer not in (None, *channel.consumers.values())
        if operation.arguments["requeue"] and delivery is not None and gone:
            kept.setdefault(channel, []).append(channel.outstanding.pop(tag))
            broker.deliveries.settle(delivery)
        else:
            original(channel, operation, now)

    def leave(channel: Channel, now: int) -> None:
        channel.outstanding.update(enumerate(kept.pop(channel, []), channel.last_tag + 1))
        original_leave(channel, now)

    replace(broker.channels, "leave", leave)


@defect("AMQP-CONFIRM-015")
def returns_come_after_a_burst(broker: Broker) -> None:
    """Of several messages that come together the returns but the first come after the acks."""
    original_return, original_send = broker.publishing.return_message, broker.confirms.send
    waiting: list[tuple[Channel, PublishedMessage]] = []
    returned = [0]

    def return_message(channel: Channel, message: PublishedMessage) -> None:
        returned[0] += 1
        if returned[0] == 1:
            original_return(channel, message)
        else:
            waiting.append((channel, message))

    def send() -> None:
        original_send()
        for channel, message in waiting:
            original_return(channel, message)
        waiting.clear()
        returned[0] = 0

    replace(broker.publishing, "return_message", return_message)
    replace(broker.confirms, "send", send)


def _commits(broker: Broker, change: Callable[[list[Publish]], list[Publish]]) -> None:
    """tx.commit sees other publishes than there were."""
    original = broker.transactions.end

    def end(channel: Channel) -> Transaction:
        ended = original(channel)
        ended.publishes = change(ended.publishes)
        return ended

    replace(broker.transactions, "end", end)


@defect("AMQP-CONFIRM-031")
def commits_return_all_that_is_lost(broker: Broker) -> None:
    """tx.commit returns what goes nowhere, mandatory or not."""
    _commits(broker, lambda publishes: [(message, True, queues) for message, _, queues in publishes])


@defect("AMQP-CONFIRM-031")
def commits_return_one_message(broker: Broker) -> None:
    """tx.commit returns the first message that has to be returned, and no other."""

    def change(publishes: list[Publish]) -> list[Publish]:
        seen = 0
        changed = []
        for message, mandatory, queues in publishes:
            seen += mandatory and not queues
            changed.append((message, mandatory and seen <= 1, queues))
        return changed

    _commits(broker, change)
