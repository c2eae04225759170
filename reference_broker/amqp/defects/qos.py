"""Defects in prefetch limits."""

from __future__ import annotations

from plumbline.reference_broker.amqp.connection import Channel, Delivery
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import handling
from plumbline.reference_broker.amqp.errors import PRECONDITION_FAILED, AmqpFault
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.queues import Consumer
from plumbline.wire.amqp import Method


@defect(
    "qos-is-not-answered",
    breaks=("AMQP-QOS-001",),
    summary="basic.qos with prefetch_count 1 gets no answer.",
)
def _(broker: Broker) -> None:

    @handling(broker, "basic.qos")
    def sets_qos(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        silent = operation.arguments["prefetch_count"] == 1
        before = len(channel.connection.out)
        original(channel, operation, now)
        if silent:
            del channel.connection.out[before:]


def _allowance(broker: Broker, more: int) -> None:
    """Each consumer may hold that many more than its prefetch_count."""
    original = broker.consuming.prefetch_of

    def prefetch_of(channel: Channel) -> int:
        own = original(channel)
        return max(own + more, 1) if own else 0

    replace(broker.consuming, "prefetch_of", prefetch_of)


@defect(
    "prefetch-is-one-more",
    breaks=("AMQP-QOS-002",),
    summary="A consumer gets one message more than prefetch_count allows.",
)
def _(broker: Broker) -> None:
    _allowance(broker, 1)


def _after_settling(broker: Broker, frees: object) -> None:
    """Settling frees no slot where ``frees`` says so."""
    original = broker.deliveries.settle

    def settle(delivery: Delivery) -> None:
        if frees(delivery):  # type: ignore[operator]
            original(delivery)

    replace(broker.deliveries, "settle", settle)


@defect(
    "acks-out-of-order-free-nothing",
    breaks=("AMQP-QOS-003",),
    summary="Acknowledging a delivery that is not the oldest frees no slot.",
)
def _(broker: Broker) -> None:
    def is_oldest(delivery: Delivery) -> bool:
        consumer = delivery.consumer
        if consumer is None:
            return True
        others = [one for one in consumer.channel.outstanding.values() if one.consumer is consumer]
        return all(one.entry.position > delivery.entry.position for one in others)

    _after_settling(broker, is_oldest)


@defect(
    "ack-multiple-frees-one",
    breaks=("AMQP-QOS-004",),
    summary="Acknowledging several deliveries at once frees one slot.",
)
def _(broker: Broker) -> None:
    original_carry, original_settle = broker.acknowledging.carry_out, broker.deliveries.settle
    left = [0]

    def carry_out(deliveries: dict[int, Delivery], how: str, now: int) -> None:
        left[0] = 1 if how == "ack" else len(deliveries)
        original_carry(deliveries, how, now)

    def settle(delivery: Delivery) -> None:
        if left[0] > 0:
            left[0] -= 1
            original_settle(delivery)

    @handling(broker, "basic.ack")
    def acked(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        arguments = operation.arguments
        broker.acknowledging.settled(
            channel, arguments["delivery_tag"], "ack", now, multiple=arguments["multiple"]
        )

    replace(broker.acknowledging, "carry_out", carry_out)
    replace(broker.deliveries, "settle", settle)


@defect(
    "rejects-free-nothing",
    breaks=("AMQP-QOS-005",),
    summary="Rejecting a delivery frees no slot.",
)
def _(broker: Broker) -> None:
    original_carry, original_settle = broker.acknowledging.carry_out, broker.deliveries.settle
    rejecting = [False]

    def carry_out(deliveries: dict[int, Delivery], how: str, now: int) -> None:
        rejecting[0] = how == "discard"
        original_carry(deliveries, how, now)
        rejecting[0] = False

    def settle(delivery: Delivery) -> None:
        if not rejecting[0]:
            original_settle(delivery)

    replace(broker.acknowledging, "carry_out", carry_out)
    replace(broker.deliveries, "settle", settle)


@defect(
    "prefetch-0-is-five",
    breaks=("AMQP-QOS-006",),
    summary="Without a prefetch_count a consumer gets five messages at most.",
)
def _(broker: Broker) -> None:
    original = broker.consuming.prefetch_of
    replace(broker.consuming, "prefetch_of", lambda channel: original(channel) or 5)


@defect(
    "prefetch-limits-no-ack",
    breaks=("AMQP-QOS-007",),
    summary="A no_ack consumer gets no more than prefetch_count messages.",
)
def _(broker: Broker) -> None:
    original = broker.deliveries.may_take
    given: dict[Consumer, int] = {}

    def may_take(consumer: Consumer) -> bool:
        if consumer.no_ack and consumer.prefetch:
            given[consumer] = given.get(consumer, 0) + 1
            if given[consumer] > consumer.prefetch:
                return False
        return original(consumer)

    replace(broker.deliveries, "may_take", may_take)


@defect(
    "lowered-limits-do-not-hold",
    breaks=("AMQP-QOS-015",),
    summary="After the channel's limit is lowered each acknowledgement still brings a new delivery.",
)
def _(broker: Broker) -> None:
    original = broker.consuming.limit_channel

    def limit_channel(channel: Channel, prefetch_count: int) -> None:
        over = channel.limited - prefetch_count if prefetch_count else 0
        original(channel, prefetch_count + max(over, 0))

    replace(broker.consuming, "limit_channel", limit_channel)


@defect(
    "large-prefetch-is-refused",
    breaks=("AMQP-QOS-018",),
    summary="basic.qos with a prefetch_count above 32767 is refused.",
)
def _(broker: Broker) -> None:

    @handling(broker, "basic.qos")
    def sets_qos(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        if operation.arguments["prefetch_count"] > 32767:
            raise AmqpFault(PRECONDITION_FAILED, "prefetch_count is too large")
        original(channel, operation, now)


@defect(
    "requeued-keeps-its-slot",
    breaks=("AMQP-QOS-019",),
    summary="A delivery that is rejected and requeued still counts against prefetch_count.",
)
def _(broker: Broker) -> None:
    original = broker.acknowledging.carry_out

    def carry_out(deliveries: dict[int, Delivery], how: str, now: int) -> None:
        if how != "requeue":
            original(deliveries, how, now)
            return
        broker.deliveries.pump_all(broker.deliveries.requeue(deliveries.values(), now), now)

    replace(broker.acknowledging, "carry_out", carry_out)
