"""Defects in how things end: closes that cross, openings that failed, what is left behind or comes late."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from plumbline.reference_broker.amqp.alarms import AmqpTimer
from plumbline.reference_broker.amqp.connections.connection import (
    AmqpClientConnection,
    Channel,
    Transaction,
    UnackedDelivery,
)
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import before_handling, handling, with_arguments
from plumbline.reference_broker.amqp.lifecycle import ChannelPhase, Handler, Phase
from plumbline.reference_broker.amqp.messages.delivery import Deliveries
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import AmqpError, Method

# Closes that cross


@defect("AMQP-CHAN-029")
def crossing_channel_closes_get_no_answer(broker: Broker) -> None:
    """channel.close that comes between channel.close of the server and close-ok is ignored."""

    @handling(broker, "channel.close", phase=ChannelPhase.CLOSING)
    def ignored(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        """No close-ok."""


@defect("AMQP-CHAN-029")
def crossing_channel_closes_are_answered_on_channel_1(broker: Broker) -> None:
    """channel.close that crosses the server's own is answered on channel 1, whatever its number."""

    @handling(broker, "channel.close", phase=ChannelPhase.CLOSING)
    def answered(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        broker.outbox.send(channel.connection, 1, "channel.close-ok")


@defect("AMQP-CONN-057")
def crossing_connection_closes_get_no_answer(broker: Broker) -> None:
    """connection.close that comes between connection.close of the server and close-ok is ignored."""

    @handling(broker, "connection.close", phase=Phase.CLOSING)
    def ignored(original: Handler, connection: AmqpClientConnection, operation: Method, now: int) -> None:
        """No close-ok."""


@defect("AMQP-CONN-057")
def crossing_connection_closes_end_the_socket(broker: Broker) -> None:
    """After connection.close that crosses the server's own the socket is closed without close-ok."""

    @handling(broker, "connection.close", phase=Phase.CLOSING)
    def ended(original: Handler, connection: AmqpClientConnection, operation: Method, now: int) -> None:
        broker.outbox.end(connection)


@defect("AMQP-CONN-059")
def close_ok_is_always_welcome(broker: Broker) -> None:
    """connection.close-ok that answers nothing is ignored."""

    @handling(broker, "connection.close-ok", phase=Phase.RUNNING)
    def ignored(original: Handler, connection: AmqpClientConnection, operation: Method, now: int) -> None:
        """The connection goes on."""


# Openings that failed


def _may_be_mended(broker: Broker, phase: Phase) -> None:
    """What is refused in this phase of a connection may be sent again, and right."""
    original = broker.closing.close_without_reply

    def close_without_reply(connection: AmqpClientConnection, now: int) -> None:
        before = connection.phase
        original(connection, now)
        if before is phase:
            connection.phase = before

    replace(broker.closing, "close_without_reply", close_without_reply)


@defect("AMQP-CONN-058")
def logins_may_be_repeated(broker: Broker) -> None:
    """After a wrong password the right one is taken on the same connection."""
    _may_be_mended(broker, Phase.START_OK)


@defect("AMQP-CONN-058")
def terms_may_be_mended(broker: Broker) -> None:
    """After connection.tune-ok with impossible terms another one is taken."""
    _may_be_mended(broker, Phase.TUNE_OK)


def _skips_malformed(broker: Broker, phase: Phase) -> None:
    """Bytes that are no frame are skipped in this phase of a connection."""
    original = broker.closing.handle_malformed

    def handle_malformed(connection: AmqpClientConnection, error: AmqpError, now: int) -> None:
        if connection.phase is phase:
            connection.decoder = broker.closing.new_decoder(connection)
        else:
            original(connection, error, now)

    replace(broker.closing, "handle_malformed", handle_malformed)


@defect("AMQP-CONN-058")
def no_frame_is_skipped_before_start_ok(broker: Broker) -> None:
    """Bytes that are no frame, in the place of connection.start-ok, are skipped."""
    _skips_malformed(broker, Phase.START_OK)


@defect("AMQP-CONN-058")
def no_frame_is_skipped_before_tune_ok(broker: Broker) -> None:
    """Bytes that are no frame, in the place of connection.tune-ok, are skipped."""
    _skips_malformed(broker, Phase.TUNE_OK)


@defect("AMQP-CONN-058")
def no_frame_is_skipped_before_open(broker: Broker) -> None:
    """Bytes that are no frame, in the place of connection.open, are skipped."""
    _skips_malformed(broker, Phase.OPEN)


# Transactions


@defect("AMQP-CONFIRM-038")
def second_tx_select_forgets(broker: Broker) -> None:
    """A second tx.select begins a new transaction, and what was in the open one never happens."""

    @handling(broker, "tx.select")
    def select(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        if channel.transaction is not None:
            channel.transaction = Transaction()
        original(channel, operation, now)


@defect("AMQP-CONFIRM-038")
def second_tx_select_commits(broker: Broker) -> None:
    """A second tx.select publishes what is in the open transaction."""

    @handling(broker, "tx.select")
    def select(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        if channel.transaction is not None:
            for message, _, queues in channel.transaction.publishes:
                broker.publishing.distribute(queues, message, now)
            channel.transaction.publishes.clear()
        original(channel, operation, now)


@defect("AMQP-CONFIRM-035")
def rollback_gives_back_in_another_order(broker: Broker) -> None:
    """After a rollback an ack with multiple takes what was settled last for the highest tag."""

    def restore_outstanding(channel: Channel, ended: Transaction) -> None:
        for deliveries, _ in ended.settlements:
            channel.outstanding.update(deliveries)

    replace(broker.transactions, "restore_outstanding", restore_outstanding)


@defect("AMQP-CONFIRM-037")
def ended_connections_give_back_twice(broker: Broker) -> None:
    """What was settled in an open transaction is given back when its connection closes, and once more when
    the socket does."""
    original = broker.channels.leave_all

    def leave_all(connection: AmqpClientConnection, now: int) -> None:
        channels = dict(connection.channels)
        original(connection, now)
        connection.channels.update(channels)

    replace(broker.channels, "leave_all", leave_all)


# What is left behind


def _while_leaving(broker: Broker) -> list[bool]:
    """Whether a channel is ending: one value."""
    leaving = [False]
    original = broker.channels.leave

    def leave(channel: Channel, now: int) -> None:
        leaving[0] = True
        try:
            original(channel, now)
        finally:
            leaving[0] = False

    replace(broker.channels, "leave", leave)
    return leaving


@defect("AMQP-REQUEUE-017")
def what_was_got_waits_in_the_queue(broker: Broker) -> None:
    """What a channel took with basic.get is in the queue when it ends, and no consumer gets it by that."""
    leaving = _while_leaving(broker)
    original = broker.deliveries.deliver_ready_all

    def deliver_ready_all(queues: Iterable[Queue], now: int) -> None:
        if not leaving[0]:
            original(queues, now)

    replace(broker.deliveries, "deliver_ready_all", deliver_ready_all)


@defect("AMQP-REQUEUE-004")
def what_was_got_comes_as_new(broker: Broker) -> None:
    """What a channel took with basic.get comes without redelivered once the channel has ended."""
    leaving = _while_leaving(broker)
    original = broker.deliveries.requeue

    def requeue(deliveries: Iterable[UnackedDelivery], now: int) -> set[Queue]:
        requeued = list(deliveries)
        queues = original(requeued, now)
        for delivery in requeued:
            if leaving[0] and delivery.consumer is None:
                delivery.entry.redelivered = False
        return queues

    replace(broker.deliveries, "requeue", requeue)


def _unused_at_once(broker: Broker, is_meant: Callable[[], bool]) -> None:
    original = broker.topology.consumer_gone

    def consumer_gone(queue: Queue, now: int) -> None:
        if queue.expires is not None and not queue.consumers and is_meant():
            broker.topology.remove_queue(queue)
        else:
            original(queue, now)

    replace(broker.topology, "consumer_gone", consumer_gone)


@defect("AMQP-TTL-015")
def queues_expire_with_the_channel_of_their_consumer(broker: Broker) -> None:
    """A queue with x-expires is deleted as soon as the channel of its last consumer ends."""
    leaving = _while_leaving(broker)
    _unused_at_once(broker, lambda: leaving[0])


@defect("AMQP-TTL-015")
def queues_expire_when_their_consumer_is_cancelled(broker: Broker) -> None:
    """A queue with x-expires is deleted as soon as its last consumer is cancelled."""
    leaving = _while_leaving(broker)
    _unused_at_once(broker, lambda: not leaving[0])


@defect("AMQP-TTL-015")
def queues_expire_with_a_lost_consumer(broker: Broker) -> None:
    """A queue with x-expires is deleted as soon as the client of its last consumer is gone."""
    lost = [False]
    original = broker.on_disconnected

    def on_disconnected(connection_id: int, now: int) -> Any:
        lost[0] = True
        try:
            return original(connection_id, now)
        finally:
            lost[0] = False

    replace(broker, "on_disconnected", on_disconnected)
    _unused_at_once(broker, lambda: lost[0])


# What comes back late


@defect("AMQP-TTL-005")
def late_requeues_are_delivered(broker: Broker) -> None:
    """What is given back after its time is delivered once more."""
    original = broker.deliveries.requeue

    def requeue(deliveries: Iterable[UnackedDelivery], now: int) -> set[Queue]:
        given = list(deliveries)
        for delivery in given:
            if delivery.entry.expires is not None and delivery.entry.expires <= now:
                delivery.entry.expires = None
        return original(given, now)

    replace(broker.deliveries, "requeue", requeue)


@defect("AMQP-TTL-005")
def late_requeues_wait_for_a_look(broker: Broker) -> None:
    """What is given back after its time stays in its queue until somebody asks for it."""
    deliveries: Deliveries = broker.deliveries

    def deliver_ready_all(queues: Iterable[Queue], now: int) -> None:
        for queue in queues:
            if not queue.deleted and queue.turn:
                deliveries.deliver_ready(queue, now)

    replace(deliveries, "deliver_ready_all", deliver_ready_all)


@defect("AMQP-TTL-004", "AMQP-DLX-003")
def what_a_get_leaves_at_the_head_stays(broker: Broker) -> None:
    """What basic.get leaves at the head of a queue does not expire until somebody looks."""

    @handling(broker, "basic.get")
    def got(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        original(channel, operation, now)
        queue = broker.vhosts[channel.connection.vhost].queues.get(operation.arguments["queue"])
        if queue is not None:
            broker.alarms.clear((AmqpTimer.HEAD, queue))


# Consumers


@defect("AMQP-CONSUME-012")
def channel_limits_outlive_consumers(broker: Broker) -> None:
    """A consumer whose channel was given a limit gets one more message after basic.cancel-ok."""

    def requeue_consumers(channel: Channel) -> None:
        for consumer in channel.consumers.values():
            broker.deliveries.wait_for_turn(consumer)

    replace(broker.deliveries, "requeue_consumers", requeue_consumers)


@defect("AMQP-CONSUME-025")
def two_consumers_take_no_turns(broker: Broker) -> None:
    """Of two consumers the first gets all that it has room for; three take turns."""
    original = broker.deliveries.take_turns

    def take_turns(queue: Queue) -> None:
        if len(queue.turn) > 2:
            original(queue)

    replace(broker.deliveries, "take_turns", take_turns)


# Exchanges


@defect("AMQP-ROUTE-021")
def exchanges_bound_to_themselves_stay(broker: Broker) -> None:
    """exchange.delete of an exchange that is bound to itself is answered, and deletes nothing."""

    def change(channel: Channel, operation: Method) -> Method | None:
        name = operation.arguments["exchange"]
        exchange = broker.vhosts[channel.connection.vhost].exchanges.get(name)
        bindings = exchange.bindings.values() if exchange is not None else ()
        if any(not binding.to_queue and binding.destination == name for binding in bindings):
            broker.outbox.answer(channel, "exchange.delete-ok")
            return None
        return operation

    before_handling(broker, "exchange.delete", change)


@defect("AMQP-ROUTE-034")
def wrong_alternates_are_overlooked(broker: Broker) -> None:
    """exchange.declare with an alternate-exchange that is no text makes an exchange without one."""

    def change(channel: Channel, operation: Method) -> Method:
        table = operation.arguments["arguments"]
        if isinstance(table.get("alternate-exchange", ""), str):
            return operation
        rest = {name: value for name, value in table.items() if name != "alternate-exchange"}
        return with_arguments(operation, arguments=rest)

    before_handling(broker, "exchange.declare", change)
