"""Defects in publisher confirms and transactions."""

from __future__ import annotations

from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection, Channel
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
from plumbline.reference_broker.amqp.messages.message import PublishedMessage, QueueEntry
from plumbline.reference_broker.amqp.topology.queues import Queue, QueueConsumer
from plumbline.wire.amqp import Method


@defect("AMQP-CONFIRM-003")
def second_select_counts_anew(broker: Broker) -> None:
    """A second confirm.select begins to count at 1 again."""

    def change(channel: Channel, operation: Method) -> Method:
        channel.published = 0
        return operation

    before_handling(broker, "confirm.select", change)


@defect("AMQP-CONFIRM-004")
def publishes_before_select_count(broker: Broker) -> None:
    """What was published before confirm.select is counted, too."""

    def change(channel: Channel, operation: Method) -> Method:
        if not channel.confirms:
            channel.published += 1
        return operation

    before_handling(broker, "basic.publish", change)


@defect("AMQP-CONFIRM-005")
def channels_share_confirm_numbers(broker: Broker) -> None:
    """Confirms are counted for the whole connection."""
    numbers: dict[AmqpClientConnection, int] = {}

    original = broker.confirms.confirm

    def confirm(channel: Channel, tag: int, *, taken: bool) -> None:
        numbers[channel.connection] = numbers.get(channel.connection, 0) + 1
        original(channel, numbers[channel.connection], taken=taken)

    replace(broker.confirms, "confirm", confirm)


@defect("AMQP-CONFIRM-006")
def reopened_channels_go_on_confirming(broker: Broker) -> None:
    """Confirms go on counting where they were when a channel is opened again."""

    def change(before: Channel, channel: Channel) -> None:
        channel.published = before.published

    on_reopening(broker, change)


@defect("AMQP-CONFIRM-007")
def transactions_can_be_confirmed(broker: Broker) -> None:
    """confirm.select on a channel with transactions is accepted."""

    def change(channel: Channel, operation: Method) -> Method:
        channel.transaction = None
        return operation

    before_handling(broker, "confirm.select", change)


@defect("AMQP-CONFIRM-008")
def confirms_can_be_transacted(broker: Broker) -> None:
    """tx.select on a channel with confirms is accepted."""

    def change(channel: Channel, operation: Method) -> Method:
        channel.confirms = False
        return operation

    before_handling(broker, "tx.select", change)


def _confirms(broker: Broker, change: object) -> None:
    """What is confirmed in one go is changed: ``change(channel)``."""
    original = broker.confirms.send

    def send_confirms() -> None:
        for channel in broker.confirms.confirming:
            change(channel)  # type: ignore[operator]
        original()

    replace(broker.confirms, "send", send_confirms)


@defect("AMQP-CONFIRM-009")
def every_third_message_is_not_acked(broker: Broker) -> None:
    """Every third message is not acked, and nothing is confirmed together."""

    def change(channel: Channel) -> None:
        channel.acked = [tag for tag in channel.acked if tag % 3]

    _confirms(broker, change)
    _singly(broker)


def _singly(broker: Broker) -> None:
    def send_settled(
        channel: Channel, method: str, more: tuple[bool, ...], tags: list[int], others: list[int]
    ) -> None:
        for tag in tags:
            broker.outbox.answer(channel, method, tag, False, *more)

    replace(broker.confirms, "send_settled", send_settled)


@defect("AMQP-CONFIRM-010")
def acked_is_nacked_too(broker: Broker) -> None:
    """Every third message is acked and nacked."""

    def change(channel: Channel) -> None:
        channel.nacked = sorted([*channel.nacked, *(tag for tag in channel.acked if tag % 3 == 0)])

    _confirms(broker, change)
    _singly(broker)


@defect("AMQP-CONFIRM-011")
def confirm_multiple_names_the_lowest(broker: Broker) -> None:
    """A confirm with multiple names the lowest of its tags in the place of the highest."""

    def send_settled(
        channel: Channel, method: str, more: tuple[bool, ...], tags: list[int], others: list[int]
    ) -> None:
        if tags:
            broker.outbox.answer(channel, method, tags[0], len(tags) > 1, *more)

    replace(broker.confirms, "send_settled", send_settled)


def _unrouted(broker: Broker, *, mandatory: bool, taken: bool) -> None:
    """What reaches no queue is confirmed otherwise."""
    original_distribute = broker.publishing.distribute
    is_mandatory = [False]

    @handling(broker, "basic.publish")
    def published(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        is_mandatory[0] = operation.arguments["mandatory"]
        original(channel, operation, now)

    def distribute(queues: object, message: PublishedMessage, now: int) -> bool:
        if not queues and is_mandatory[0] is mandatory:
            return taken
        return original_distribute(queues, message, now)  # type: ignore[arg-type]

    replace(broker.publishing, "distribute", distribute)


@defect("AMQP-CONFIRM-014")
def unroutable_is_nacked(broker: Broker) -> None:
    """A message that reaches no queue is nacked."""
    _unrouted(broker, mandatory=False, taken=False)


@defect("AMQP-CONFIRM-015")
def ack_before_return(broker: Broker) -> None:
    """The ack of a returned message comes before the return."""
    original_back, original_finish = broker.publishing.return_message, broker.confirms.send
    waiting: list[tuple[Channel, PublishedMessage]] = []

    def send_confirms() -> None:
        original_finish()
        for channel, message in waiting:
            original_back(channel, message)
        waiting.clear()

    replace(broker.publishing, "return_message", lambda channel, message: waiting.append((channel, message)))
    replace(broker.confirms, "send", send_confirms)


@defect("AMQP-CONFIRM-016")
def confirms_wait_for_consumers(broker: Broker) -> None:
    """What a consumer gets at once is confirmed only when that one acknowledges it."""
    original_deliver, original_confirm, original_ack = (
        broker.deliveries.deliver,
        broker.confirms.confirm,
        broker.acknowledging.acknowledge,
    )
    given: set[PublishedMessage] = set()
    owed: dict[PublishedMessage, tuple[Channel, int]] = {}
    latest: list[PublishedMessage] = []
    original_distribute = broker.publishing.distribute

    def deliver(consumer: QueueConsumer, entry: QueueEntry, now: int) -> None:
        if not consumer.no_ack:
            given.add(entry.message)
        original_deliver(consumer, entry, now)

    def distribute(queues: object, message: PublishedMessage, now: int) -> bool:
        latest[:] = [message]
        return original_distribute(queues, message, now)  # type: ignore[arg-type]

    def confirm(channel: Channel, tag: int, *, taken: bool) -> None:
        if taken and latest and latest[0] in given:
            owed[latest[0]] = (channel, tag)
        else:
            original_confirm(channel, tag, taken=taken)

    def acknowledge(delivery: object, now: int) -> None:
        original_ack(delivery, now)  # type: ignore[arg-type]
        if (late := owed.pop(delivery.entry.message, None)) is not None:  # type: ignore[attr-defined]
            original_confirm(*late, taken=True)

    replace(broker.deliveries, "deliver", deliver)
    replace(broker.publishing, "distribute", distribute)
    replace(broker.confirms, "confirm", confirm)
    replace(broker.acknowledging, "acknowledge", acknowledge)


@defect("AMQP-CONFIRM-017")
def one_queue_is_enough(broker: Broker) -> None:
    """A message is acked if at least one of its queues took it."""

    def distribute(queues: list[Queue], message: PublishedMessage, now: int) -> bool:
        taken = [broker.deliveries.enqueue(queue, message, now) for queue in queues]
        return any(taken) or not taken

    replace(broker.publishing, "distribute", distribute)


@defect("AMQP-CONFIRM-024")
def expired_at_once_is_not_acked(broker: Broker) -> None:
    """A message that expires at once is nacked."""
    original = broker.deliveries.enqueue

    def enqueue(queue: Queue, message: PublishedMessage, now: int) -> bool:
        taken = original(queue, message, now)
        return taken and queue.message_ttl != 0 and message.properties.get("expiration") != "0"

    replace(broker.deliveries, "enqueue", enqueue)


@defect("AMQP-CONFIRM-025")
def failed_publishes_are_acked(broker: Broker) -> None:
    """A publish that closes its channel is acked before."""

    def change(connection: AmqpClientConnection, operation: Method, fault: AmqpReplyError) -> AmqpReplyError:
        channel = connection.channels[operation.channel]
        if channel.confirms:
            broker.outbox.answer(channel, "basic.ack", channel.published + 1, False)
        return fault

    on_faults(broker, change, code=NOT_FOUND, method="basic.publish")


@defect("AMQP-CONFIRM-027")
def publishers_can_ack(broker: Broker) -> None:
    """basic.ack of the number of a publish is ignored."""

    def change(
        connection: AmqpClientConnection, operation: Method, fault: AmqpReplyError
    ) -> AmqpReplyError | None:
        channel = connection.channels[operation.channel]
        own = 0 < operation.arguments["delivery_tag"] <= channel.published
        return None if own else fault

    on_faults(broker, change, code=PRECONDITION_FAILED, method="basic.ack")


@defect("AMQP-CONFIRM-028", "AMQP-DURABILITY-005")
def acked_is_not_written(broker: Broker) -> None:
    """Persistent messages are confirmed unwritten; only an orderly end writes them."""
    unwritten: list[tuple[Queue, QueueEntry]] = []
    original_stop = broker.stop
    original_stored = broker.store.record_message_stored

    def stop(now: int) -> object:
        for queue, entry in unwritten:
            if queue.durable_entries.get(entry.position) is entry:
                original_stored(queue, entry)
        return original_stop(now)

    def stored(queue: Queue, entry: QueueEntry) -> None:
        queue.durable_entries[entry.position] = entry
        unwritten.append((queue, entry))

    replace(broker.store, "record_message_stored", stored)
    replace(broker, "stop", stop)


@defect("AMQP-CONFIRM-040")
def all_channels_confirm(broker: Broker) -> None:
    """Every publish is confirmed, without confirm.select."""
    before_handling(broker, "basic.publish", _selecting)


@defect("AMQP-CONFIRM-040")
def persistent_messages_are_confirmed(broker: Broker) -> None:
    """A persistent message is confirmed, without confirm.select."""

    def change(channel: Channel, operation: Method) -> Method:
        is_persistent = (operation.properties or {}).get("delivery_mode") == 2
        return _selecting(channel, operation) if is_persistent else operation

    before_handling(broker, "basic.publish", change)


@defect("AMQP-CONFIRM-040")
def confirms_are_selected_for_all_channels(broker: Broker) -> None:
    """confirm.select on one channel is for all that the connection has open."""

    def change(channel: Channel, operation: Method) -> Method:
        for other in channel.connection.channels.values():
            _selecting(other, operation)
        return operation

    before_handling(broker, "confirm.select", change)


@defect("AMQP-CONFIRM-040")
def returned_messages_are_confirmed(broker: Broker) -> None:
    """A message that is returned is confirmed, without confirm.select."""
    original = broker.publishing.return_message

    def return_message(channel: Channel, message: PublishedMessage) -> None:
        original(channel, message)
        if not channel.confirms:
            channel.published += 1
            broker.confirms.confirm(channel, channel.published, taken=True)

    replace(broker.publishing, "return_message", return_message)


def _selecting(channel: Channel, operation: Method) -> Method:
    channel.confirms = True
    return operation


# Transactions


@defect("AMQP-CONFIRM-032")
def transactions_publish_at_once(broker: Broker) -> None:
    """What is published in a transaction is visible at once."""

    @handling(broker, "basic.publish")
    def published(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        transaction, channel.transaction = channel.transaction, None
        original(channel, operation, now)
        channel.transaction = transaction


@defect("AMQP-CONFIRM-033")
def transactions_hide_wrong_tags(broker: Broker) -> None:
    """In a transaction basic.ack of an unknown tag is ignored."""

    def change(
        connection: AmqpClientConnection, operation: Method, fault: AmqpReplyError
    ) -> AmqpReplyError | None:
        return None if connection.channels[operation.channel].transaction is not None else fault

    on_faults(broker, change, code=PRECONDITION_FAILED, method="basic.ack")
