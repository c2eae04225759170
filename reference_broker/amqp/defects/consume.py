"""Defects in consumers and basic.get."""

from __future__ import annotations

from plumbline.reference_broker.amqp.connection import Channel, Connection
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import before_handling, handling, with_arguments
from plumbline.reference_broker.amqp.errors import NOT_FOUND, AmqpFault
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages import Entry, Message
from plumbline.reference_broker.amqp.queues import Consumer, Queue
from plumbline.wire.amqp import Method


@defect(
    "server-tags-are-empty",
    breaks=("AMQP-CONSUME-001",),
    summary="A consumer without a tag gets none from the server.",
)
def _(broker: Broker) -> None:
    replace(broker.consuming, "unique", lambda prefix: "")


@defect(
    "deliveries-name-no-routing-key",
    breaks=("AMQP-CONSUME-002",),
    summary="basic.deliver has an empty routing key.",
)
def _(broker: Broker) -> None:
    original = broker.deliveries.deliver

    def deliver(consumer: Consumer, entry: Entry, now: int) -> None:
        message = entry.message
        entry.message = Message(message.operation, message.exchange, "", b"\0\0")
        original(consumer, entry, now)
        entry.message = message

    replace(broker.deliveries, "deliver", deliver)


@defect(
    "everything-is-redelivered",
    breaks=("AMQP-CONSUME-003",),
    summary="First deliveries have redelivered set.",
)
def _(broker: Broker) -> None:
    replace(broker.deliveries, "is_redelivered", lambda entry: True)


@defect(
    "delivery-tags-skip",
    breaks=("AMQP-CONSUME-004",),
    summary="Delivery tags grow by 2.",
)
def _(broker: Broker) -> None:
    def next_tag(channel: Channel) -> int:
        channel.last_tag += 2 if channel.last_tag else 1
        return channel.last_tag

    replace(broker.deliveries, "next_tag", next_tag)


@defect(
    "channels-share-delivery-tags",
    breaks=("AMQP-CONSUME-005",),
    summary="Delivery tags are counted for the whole connection.",
)
def _(broker: Broker) -> None:
    def next_tag(channel: Channel) -> int:
        channel.last_tag = 1 + max(one.last_tag for one in channel.connection.channels.values())
        return channel.last_tag

    replace(broker.deliveries, "next_tag", next_tag)


@defect(
    "reopened-channels-go-on-counting",
    breaks=("AMQP-CONSUME-006",),
    summary="Delivery tags go on where they were when a channel is opened again.",
)
def _(broker: Broker) -> None:
    original_close, original_open = broker.channels.leave, broker.channels.open
    last: dict[tuple[int, int], int] = {}

    def leave_channel(channel: Channel, now: int) -> None:
        last[channel.connection.id, channel.number] = channel.last_tag
        original_close(channel, now)

    def opens_channel(connection: Connection, number: int) -> None:
        original_open(connection, number)
        connection.channels[number].last_tag = last.get((connection.id, number), 0)

    replace(broker.channels, "leave", leave_channel)
    replace(broker.channels, "open", opens_channel)


@defect(
    "consume-no-wait-is-answered",
    breaks=("AMQP-CONSUME-008",),
    summary="basic.consume with no_wait is answered all the same.",
)
def _(broker: Broker) -> None:
    before_handling(
        broker, "basic.consume", lambda channel, operation: with_arguments(operation, no_wait=False)
    )


@defect(
    "consuming-nothing-is-fine",
    breaks=("AMQP-CONSUME-009",),
    summary="basic.consume of an unknown queue is answered with consume-ok.",
)
def _(broker: Broker) -> None:
    original = broker.closing.fail

    def fail(connection: Connection, operation: Method, fault: AmqpFault, now: int) -> None:
        if fault.code == NOT_FOUND and operation.method == "basic.consume":
            tag = operation.arguments["consumer_tag"]
            broker.outbox.send(connection, operation.channel, "basic.consume-ok", tag or "c")
        else:
            original(connection, operation, fault, now)

    replace(broker.closing, "fail", fail)


@defect(
    "consumer-tags-can-be-used-again",
    breaks=("AMQP-CONSUME-010",),
    summary="A second consumer with the same tag on the channel is accepted.",
)
def _(broker: Broker) -> None:
    replace(broker.consuming, "check_tag", lambda channel, tag: None)


@defect(
    "consumer-tags-are-the-connections",
    breaks=("AMQP-CONSUME-011",),
    summary="A consumer tag that another channel of the connection uses is refused.",
)
def _(broker: Broker) -> None:

    @handling(broker, "basic.consume")
    def consumes(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        tag = operation.arguments["consumer_tag"]
        for other in channel.connection.channels.values() if tag else ():
            broker.consuming.check_tag(other, tag)
        original(channel, operation, now)


@defect(
    "cancelled-consumers-go-on",
    breaks=("AMQP-CONSUME-012",),
    summary="A consumer still gets messages after its basic.cancel-ok.",
)
def _(broker: Broker) -> None:
    @handling(broker, "basic.cancel")
    def cancels(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        if not operation.arguments["no_wait"]:
            broker.outbox.answer(channel, "basic.cancel-ok", operation.arguments["consumer_tag"])


@defect(
    "unknown-consumers-cannot-be-cancelled",
    breaks=("AMQP-CONSUME-013",),
    summary="basic.cancel of an unknown tag is a channel error.",
)
def _(broker: Broker) -> None:

    @handling(broker, "basic.cancel")
    def cancels(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        tag = operation.arguments["consumer_tag"]
        if tag not in channel.consumers:
            raise AmqpFault(NOT_FOUND, f"no consumer '{tag}'")
        original(channel, operation, now)


@defect(
    "cancel-no-wait-is-answered",
    breaks=("AMQP-CONSUME-014",),
    summary="basic.cancel with no_wait is answered all the same.",
)
def _(broker: Broker) -> None:
    before_handling(
        broker, "basic.cancel", lambda channel, operation: with_arguments(operation, no_wait=False)
    )


@defect(
    "cancel-requeues",
    breaks=("AMQP-CONSUME-015",),
    summary="basic.cancel requeues what its consumer has not acknowledged.",
)
def _(broker: Broker) -> None:

    @handling(broker, "basic.cancel")
    def cancels(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        consumer = channel.consumers.get(operation.arguments["consumer_tag"])
        original(channel, operation, now)
        tags = [tag for tag, one in channel.outstanding.items() if consumer and one.consumer is consumer]
        taken = [channel.outstanding.pop(tag) for tag in tags]
        broker.deliveries.pump_all(broker.deliveries.requeue(taken, now), now)


@defect(
    "exclusive-consumers-push-in",
    breaks=("AMQP-CONSUME-016",),
    summary="An exclusive consumer is accepted on a queue that has consumers.",
)
def _(broker: Broker) -> None:
    original = broker.consuming.check_exclusive_use

    def check_exclusive_use(queue: Queue, *, wanted: bool) -> None:
        if not wanted:
            original(queue, wanted=wanted)

    replace(broker.consuming, "check_exclusive_use", check_exclusive_use)


@defect(
    "exclusive-consumers-get-company",
    breaks=("AMQP-CONSUME-017",),
    summary="A second consumer is accepted on a queue that is consumed exclusively.",
)
def _(broker: Broker) -> None:
    original = broker.consuming.check_exclusive_use

    def check_exclusive_use(queue: Queue, *, wanted: bool) -> None:
        if wanted:
            original(queue, wanted=wanted)

    replace(broker.consuming, "check_exclusive_use", check_exclusive_use)


@defect(
    "no-ack-is-ignored",
    breaks=("AMQP-CONSUME-020", "AMQP-REQUEUE-012"),
    summary="Deliveries to no_ack consumers wait for an acknowledgement, and come back without.",
)
def _(broker: Broker) -> None:
    before_handling(
        broker, "basic.consume", lambda channel, operation: with_arguments(operation, no_ack=False)
    )


@defect(
    "everybody-hears-of-cancelled-consumers",
    breaks=("AMQP-CONSUME-022",),
    summary="basic.cancel is sent to clients that did not say they know it.",
)
def _(broker: Broker) -> None:
    original = broker.topology.notify_cancel

    def notify_cancel(consumer: Consumer) -> None:
        connection = consumer.channel.connection
        told, connection.capabilities = connection.capabilities, {"consumer_cancel_notify": True}
        original(consumer)
        connection.capabilities = told

    replace(broker.topology, "notify_cancel", notify_cancel)
