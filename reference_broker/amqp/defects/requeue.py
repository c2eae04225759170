"""Defects in what is requeued: when, where, and how it is marked; basic.recover."""

from __future__ import annotations

from collections.abc import Iterable

from plumbline.reference_broker.amqp.connection import Channel, Connection, Delivery
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import before_handling, handling, never_sent
from plumbline.reference_broker.amqp.errors import AmqpFault
from plumbline.reference_broker.amqp.lifecycle import Handler, Phase
from plumbline.reference_broker.amqp.messages import Entry
from plumbline.reference_broker.amqp.queues import Consumer, Queue
from plumbline.wire.amqp import Method


@defect(
    "redelivered-is-never-set",
    breaks=("AMQP-REQUEUE-004",),
    summary="redelivered is not set on messages that come again.",
)
def _(broker: Broker) -> None:
    replace(broker.deliveries, "is_redelivered", lambda entry: False)


@defect(
    "closed-channels-lose-messages",
    breaks=("AMQP-REQUEUE-005",),
    summary="What is outstanding when a client closes a channel is lost.",
)
def _(broker: Broker) -> None:
    def change(channel: Channel, operation: Method) -> Method:
        channel.outstanding = {}
        return operation

    before_handling(broker, "channel.close", change)


@defect(
    "closed-connections-lose-messages",
    breaks=("AMQP-REQUEUE-006",),
    summary="What is outstanding when a client closes its connection is lost.",
)
def _(broker: Broker) -> None:
    @handling(broker, "connection.close", phase=Phase.RUNNING)
    def close(original: Handler, connection: Connection, operation: Method, now: int) -> None:
        for channel in connection.channels.values():
            channel.outstanding = {}
        original(connection, operation, now)


@defect(
    "lost-connections-lose-messages",
    breaks=("AMQP-REQUEUE-007", "AMQP-REQUEUE-008"),
    summary="What is outstanding when a socket is closed without connection.close is lost.",
)
def _(broker: Broker) -> None:
    original = broker.closed

    def closed(connection_id: int, now: int) -> object:
        connection = broker.connections.get(connection_id)
        for channel in connection.channels.values() if connection is not None else ():
            channel.outstanding = {}
        return original(connection_id, now)

    replace(broker, "closed", closed)


@defect(
    "failed-channels-lose-messages",
    breaks=("AMQP-REQUEUE-009",),
    summary="What is outstanding when an error closes a channel is lost.",
)
def _(broker: Broker) -> None:
    original = broker.closing.fail

    def fail(connection: Connection, operation: Method, fault: AmqpFault, now: int) -> None:
        if not fault.is_hard:
            connection.channels[operation.channel].outstanding = {}
        original(connection, operation, fault, now)

    replace(broker.closing, "fail", fail)


@defect(
    "failed-connections-lose-messages",
    breaks=("AMQP-REQUEUE-010",),
    summary="What is outstanding when an error closes a connection is lost.",
)
def _(broker: Broker) -> None:
    original = broker.closing.close

    def close_connection(
        connection: Connection, code: int, detail: str, cause: tuple[int, int], wait: float, now: int
    ) -> None:
        for channel in connection.channels.values():
            channel.outstanding = {}
        original(connection, code, detail, cause, wait, now)

    replace(broker.closing, "close", close_connection)


@defect(
    "requeued-comes-last",
    breaks=("AMQP-REQUEUE-011",),
    summary="What is requeued goes to the end of its queue.",
)
def _(broker: Broker) -> None:
    def put_back(queue: Queue, entry: Entry) -> None:
        queue.last_position += 1
        entry.position = queue.last_position
        queue.append(entry)

    replace(broker.deliveries, "put_back", put_back)


@defect(
    "requeued-waits-for-its-consumer",
    breaks=("AMQP-REQUEUE-013",),
    summary="A requeued message is not given to another consumer than the first one.",
)
def _(broker: Broker) -> None:
    first: dict[Entry, object] = {}
    original_deliver, original_pump = broker.deliveries.deliver, broker.deliveries.pump

    def deliver(consumer: Consumer, entry: Entry, now: int) -> None:
        first.setdefault(entry, consumer)
        original_deliver(consumer, entry, now)

    def pump(queue: Queue, now: int) -> None:
        if len(queue.ready) and queue.turn:
            mine = first.get(queue.ready.first())
            if mine is not None and mine is not queue.turn[0]:
                return
        original_pump(queue, now)

    replace(broker.deliveries, "deliver", deliver)
    replace(broker.deliveries, "pump", pump)


# basic.recover


@defect(
    "recover-is-not-answered", breaks=("AMQP-RECOVER-001",), summary="basic.recover gets no basic.recover-ok."
)
def _(broker: Broker) -> None:
    never_sent(broker, "basic.recover-ok")


@defect(
    "recover-brings-back-what-was-acknowledged",
    breaks=("AMQP-RECOVER-002",),
    summary="basic.recover requeues the last delivery that was acknowledged, too.",
)
def _(broker: Broker) -> None:
    original_ack = broker.acknowledging.acknowledge
    last: list[Delivery] = []

    def acknowledge(delivery: Delivery, now: int) -> None:
        last[:] = [delivery]
        original_ack(delivery, now)

    @handling(broker, "basic.recover", "basic.recover-async")
    def recovered(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        queues = broker.deliveries.requeue(last, now)
        last.clear()
        original(channel, operation, now)
        broker.deliveries.pump_all(queues, now)

    replace(broker.acknowledging, "acknowledge", acknowledge)


@defect(
    "recover-passes-over-what-was-got",
    breaks=("AMQP-RECOVER-003",),
    summary="basic.recover leaves out deliveries of basic.get.",
)
def _(broker: Broker) -> None:

    @handling(broker, "basic.recover", "basic.recover-async")
    def recovered(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        got = {tag: one for tag, one in channel.outstanding.items() if one.consumer is None}
        for tag in got:
            del channel.outstanding[tag]
        original(channel, operation, now)
        channel.outstanding = dict(sorted({**channel.outstanding, **got}.items()))


@defect(
    "recover-takes-all-channels",
    breaks=("AMQP-RECOVER-004",),
    summary="basic.recover requeues what is outstanding on all channels of the connection.",
)
def _(broker: Broker) -> None:

    @handling(broker, "basic.recover", "basic.recover-async")
    def recovered(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        for other in channel.connection.channels.values():
            if other is not channel:
                taken, other.outstanding = other.outstanding, {}
                broker.acknowledging.carry_out(taken, "requeue", now)
        original(channel, operation, now)


@defect(
    "recover-of-nothing-is-silent",
    breaks=("AMQP-RECOVER-005",),
    summary="basic.recover with nothing outstanding is not answered.",
)
def _(broker: Broker) -> None:
    before_handling(
        broker, "basic.recover", lambda channel, operation: operation if channel.outstanding else None
    )


@defect(
    "recover-needs-the-consumer",
    breaks=("AMQP-RECOVER-008",),
    summary="basic.recover after basic.cancel loses what that consumer had.",
)
def _(broker: Broker) -> None:
    original = broker.deliveries.requeue

    def requeue(deliveries: Iterable[Delivery], now: int) -> set[Queue]:
        return original(
            [
                one
                for one in deliveries
                if one.consumer is None
                or one.consumer.channel.closed
                or one.consumer.tag in one.consumer.channel.consumers
            ],
            now,
        )

    replace(broker.deliveries, "requeue", requeue)
