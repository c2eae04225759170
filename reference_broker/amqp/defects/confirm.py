"""Defects in publisher confirms and transactions."""

from __future__ import annotations

from plumbline.reference_broker.amqp.connection import Channel, Connection
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import (
    before_handling,
    handling,
    never_sent,
    on_faults,
    overlooked,
    with_arguments,
)
from plumbline.reference_broker.amqp.errors import NOT_FOUND, PRECONDITION_FAILED, AmqpFault
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages import Entry, Message
from plumbline.reference_broker.amqp.queues import Consumer, Queue
from plumbline.wire.amqp import Method


@defect(
    "confirm-select-is-not-answered",
    breaks=("AMQP-CONFIRM-001",),
    summary="confirm.select gets no select-ok.",
)
def _(broker: Broker) -> None:
    never_sent(broker, "confirm.select-ok")


@defect(
    "confirm-select-no-wait-is-answered",
    breaks=("AMQP-CONFIRM-002",),
    summary="confirm.select with no_wait is answered all the same.",
)
def _(broker: Broker) -> None:
    before_handling(
        broker, "confirm.select", lambda channel, operation: with_arguments(operation, no_wait=False)
    )


@defect(
    "second-select-counts-anew",
    breaks=("AMQP-CONFIRM-003",),
    summary="A second confirm.select begins to count at 1 again.",
)
def _(broker: Broker) -> None:
    def change(channel: Channel, operation: Method) -> Method:
        channel.published = 0
        return operation

    before_handling(broker, "confirm.select", change)


@defect(
    "publishes-before-select-count",
    breaks=("AMQP-CONFIRM-004",),
    summary="What was published before confirm.select is counted, too.",
)
def _(broker: Broker) -> None:
    def change(channel: Channel, operation: Method) -> Method:
        if not channel.confirms:
            channel.published += 1
        return operation

    before_handling(broker, "basic.publish", change)


@defect(
    "channels-share-confirm-numbers",
    breaks=("AMQP-CONFIRM-005",),
    summary="Confirms are counted for the whole connection.",
)
def _(broker: Broker) -> None:
    numbers: dict[Connection, int] = {}

    def confirm_tag(channel: Channel) -> int:
        numbers[channel.connection] = numbers.get(channel.connection, 0) + 1
        return numbers[channel.connection]

    replace(broker.confirms, "tag", confirm_tag)


@defect(
    "reopened-channels-go-on-confirming",
    breaks=("AMQP-CONFIRM-006",),
    summary="Confirms go on counting where they were when a channel is opened again.",
)
def _(broker: Broker) -> None:
    original_close, original_open = broker.channels.leave, broker.channels.open
    last: dict[tuple[int, int], int] = {}

    def leave_channel(channel: Channel, now: int) -> None:
        last[channel.connection.id, channel.number] = channel.published
        original_close(channel, now)

    def opens_channel(connection: Connection, number: int) -> None:
        original_open(connection, number)
        connection.channels[number].published = last.get((connection.id, number), 0)

    replace(broker.channels, "leave", leave_channel)
    replace(broker.channels, "open", opens_channel)


@defect(
    "transactions-can-be-confirmed",
    breaks=("AMQP-CONFIRM-007",),
    summary="confirm.select on a channel with transactions is accepted.",
)
def _(broker: Broker) -> None:
    def change(channel: Channel, operation: Method) -> Method:
        channel.transaction = None
        return operation

    before_handling(broker, "confirm.select", change)


@defect(
    "confirms-can-be-transacted",
    breaks=("AMQP-CONFIRM-008",),
    summary="tx.select on a channel with confirms is accepted.",
)
def _(broker: Broker) -> None:
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


@defect(
    "every-third-message-is-not-acked",
    breaks=("AMQP-CONFIRM-009",),
    summary="Every third message is not acked, and nothing is confirmed together.",
)
def _(broker: Broker) -> None:
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


@defect(
    "acked-is-nacked-too",
    breaks=("AMQP-CONFIRM-010",),
    summary="Every third message is acked and nacked.",
)
def _(broker: Broker) -> None:
    def change(channel: Channel) -> None:
        channel.nacked = sorted([*channel.nacked, *(tag for tag in channel.acked if tag % 3 == 0)])

    _confirms(broker, change)
    _singly(broker)


@defect(
    "confirm-multiple-names-the-lowest",
    breaks=("AMQP-CONFIRM-011",),
    summary="A confirm with multiple names the lowest of its tags in the place of the highest.",
)
def _(broker: Broker) -> None:
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

    def distribute(queues: object, message: Message, now: int) -> bool:
        if not queues and is_mandatory[0] is mandatory:
            return taken
        return original_distribute(queues, message, now)  # type: ignore[arg-type]

    replace(broker.publishing, "distribute", distribute)


@defect(
    "unroutable-is-nacked",
    breaks=("AMQP-CONFIRM-014",),
    summary="A message that reaches no queue is nacked.",
)
def _(broker: Broker) -> None:
    _unrouted(broker, mandatory=False, taken=False)


@defect(
    "ack-before-return",
    breaks=("AMQP-CONFIRM-015",),
    summary="The ack of a returned message comes before the return.",
)
def _(broker: Broker) -> None:
    original_back, original_finish = broker.publishing.give_back, broker.confirms.send
    waiting: list[tuple[Channel, Message]] = []

    def send_confirms() -> None:
        original_finish()
        for channel, message in waiting:
            original_back(channel, message)
        waiting.clear()

    replace(broker.publishing, "give_back", lambda channel, message: waiting.append((channel, message)))
    replace(broker.confirms, "send", send_confirms)


@defect(
    "confirms-wait-for-consumers",
    breaks=("AMQP-CONFIRM-016",),
    summary="What a consumer gets at once is confirmed only when that one acknowledges it.",
)
def _(broker: Broker) -> None:
    original_deliver, original_confirm, original_ack = (
        broker.deliveries.deliver,
        broker.confirms.confirm,
        broker.acknowledging.acknowledge,
    )
    given: set[Message] = set()
    owed: dict[Message, tuple[Channel, int]] = {}
    latest: list[Message] = []
    original_distribute = broker.publishing.distribute

    def deliver(consumer: Consumer, entry: Entry, now: int) -> None:
        if not consumer.no_ack:
            given.add(entry.message)
        original_deliver(consumer, entry, now)

    def distribute(queues: object, message: Message, now: int) -> bool:
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


@defect(
    "one-queue-is-enough",
    breaks=("AMQP-CONFIRM-017",),
    summary="A message is acked if at least one of its queues took it.",
)
def _(broker: Broker) -> None:
    def distribute(queues: list[Queue], message: Message, now: int) -> bool:
        taken = [broker.deliveries.enqueue(queue, message, now) for queue in queues]
        return any(taken) or not taken

    replace(broker.publishing, "distribute", distribute)


@defect(
    "expired-at-once-is-not-acked",
    breaks=("AMQP-CONFIRM-024",),
    summary="A message that expires at once is nacked.",
)
def _(broker: Broker) -> None:
    original = broker.deliveries.enqueue

    def enqueue(queue: Queue, message: Message, now: int) -> bool:
        taken = original(queue, message, now)
        return taken and queue.message_ttl != 0 and message.properties.get("expiration") != "0"

    replace(broker.deliveries, "enqueue", enqueue)


@defect(
    "failed-publishes-are-acked",
    breaks=("AMQP-CONFIRM-025",),
    summary="A publish that closes its channel is acked before.",
)
def _(broker: Broker) -> None:
    def change(connection: Connection, operation: Method, fault: AmqpFault) -> AmqpFault:
        channel = connection.channels[operation.channel]
        if channel.confirms:
            broker.outbox.answer(channel, "basic.ack", channel.published + 1, False)
        return fault

    on_faults(broker, change, code=NOT_FOUND, method="basic.publish")


@defect(
    "publishers-can-ack",
    breaks=("AMQP-CONFIRM-027",),
    summary="basic.ack of the number of a publish is ignored.",
)
def _(broker: Broker) -> None:
    def change(connection: Connection, operation: Method, fault: AmqpFault) -> AmqpFault | None:
        channel = connection.channels[operation.channel]
        own = 0 < operation.arguments["delivery_tag"] <= channel.published
        return None if own else fault

    on_faults(broker, change, code=PRECONDITION_FAILED, method="basic.ack")


@defect(
    "acked-is-not-written",
    breaks=("AMQP-CONFIRM-028", "AMQP-DURABILITY-005"),
    summary="Persistent messages are confirmed unwritten; only an orderly end writes them.",
)
def _(broker: Broker) -> None:
    unwritten: list[tuple[Queue, Entry]] = []
    original_stop = broker.stop
    original_stored = broker.store.stored

    def stop(now: int) -> object:
        for queue, entry in unwritten:
            if queue.kept.get(entry.position) is entry:
                original_stored(queue, entry)
        return original_stop(now)

    def stored(queue: Queue, entry: Entry) -> None:
        queue.kept[entry.position] = entry
        unwritten.append((queue, entry))

    replace(broker.store, "stored", stored)
    replace(broker, "stop", stop)


# Transactions


@defect(
    "commit-needs-no-transaction",
    breaks=("AMQP-CONFIRM-030",),
    summary="tx.commit and tx.rollback are ignored on a channel without transactions.",
)
def _(broker: Broker) -> None:
    overlooked(broker, code=PRECONDITION_FAILED, text="not transactional")


@defect(
    "transactions-publish-at-once",
    breaks=("AMQP-CONFIRM-032",),
    summary="What is published in a transaction is visible at once.",
)
def _(broker: Broker) -> None:

    @handling(broker, "basic.publish")
    def published(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        transaction, channel.transaction = channel.transaction, None
        original(channel, operation, now)
        channel.transaction = transaction


@defect(
    "transactions-hide-wrong-tags",
    breaks=("AMQP-CONFIRM-033",),
    summary="In a transaction basic.ack of an unknown tag is ignored.",
)
def _(broker: Broker) -> None:
    def change(connection: Connection, operation: Method, fault: AmqpFault) -> AmqpFault | None:
        return None if connection.channels[operation.channel].transaction is not None else fault

    on_faults(broker, change, code=PRECONDITION_FAILED, method="basic.ack")
