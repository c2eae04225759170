"""Defects in acknowledgements: basic.ack, nack, reject, recover, and what is requeued."""

from __future__ import annotations

from plumbline.reference_broker.amqp.connection import Channel, Delivery
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import (
    before_handling,
    handling,
    on_faults,
    overlooked,
    with_arguments,
)
from plumbline.reference_broker.amqp.defects.settling import UNKNOWN, Taken, overlooks, pop, takes
from plumbline.reference_broker.amqp.errors import NOT_ALLOWED, PRECONDITION_FAILED, AmqpFault
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages import Entry
from plumbline.reference_broker.amqp.queues import Consumer
from plumbline.wire.amqp import Method


@defect(
    "single-acks-settle-all-below",
    breaks=("AMQP-ACK-001",),
    summary="basic.ack without multiple settles all lower tags, too.",
)
def _(broker: Broker) -> None:
    before_handling(
        broker,
        "basic.ack",
        lambda channel, operation: (
            with_arguments(operation, multiple=True)
            if operation.arguments["delivery_tag"] in channel.outstanding
            else operation
        ),
    )


@defect(
    "ack-multiple-settles-one",
    breaks=("AMQP-ACK-002",),
    summary="basic.ack with multiple settles the named tag alone.",
)
def _(broker: Broker) -> None:
    before_handling(
        broker,
        "basic.ack",
        lambda channel, operation: (
            with_arguments(operation, multiple=False) if operation.arguments["delivery_tag"] else operation
        ),
    )


@defect(
    "ack-multiple-settles-one-more",
    breaks=("AMQP-ACK-003",),
    summary="basic.ack with multiple settles the tag above the named one, too.",
)
def _(broker: Broker) -> None:
    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        if not multiple or tag not in channel.outstanding:
            return None
        return pop(channel, [one for one in list(channel.outstanding) if one <= tag + 1])

    takes(broker, "basic.ack", taken)


@defect(
    "acks-must-come-in-order",
    breaks=("AMQP-ACK-004",),
    summary="basic.ack of another than the lowest outstanding tag is refused, unless it is multiple.",
)
def _(broker: Broker) -> None:
    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        if not multiple and channel.outstanding and tag > min(channel.outstanding):
            raise AmqpFault(PRECONDITION_FAILED, f"delivery tag {tag} is out of order")
        return None

    takes(broker, "basic.ack", taken)


@defect(
    "ack-of-tag-0-settles-nothing",
    breaks=("AMQP-ACK-005",),
    summary="basic.ack of tag 0 with multiple settles nothing.",
)
def _(broker: Broker) -> None:
    takes(broker, "basic.ack", lambda channel, tag, multiple: {} if multiple and not tag else None)


@defect(
    "ack-of-tag-0-needs-deliveries",
    breaks=("AMQP-ACK-006",),
    summary="basic.ack of tag 0 with multiple is refused if nothing is outstanding.",
)
def _(broker: Broker) -> None:
    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        if multiple and not tag and not channel.outstanding:
            raise AmqpFault(PRECONDITION_FAILED, f"{UNKNOWN} 0")
        return None

    takes(broker, "basic.ack", taken)


@defect(
    "ack-of-tag-0-is-overlooked",
    breaks=("AMQP-ACK-007",),
    summary="basic.ack of tag 0 without multiple is ignored.",
)
def _(broker: Broker) -> None:
    overlooked(broker, method="basic.ack", text=f"{UNKNOWN} 0")


@defect(
    "double-acks-are-overlooked",
    breaks=("AMQP-ACK-008",),
    summary="basic.ack of a tag that is settled already is ignored.",
)
def _(broker: Broker) -> None:
    overlooks(broker, lambda channel, tag: 0 < tag <= channel.last_tag)


@defect(
    "acks-of-the-future-are-overlooked",
    breaks=("AMQP-ACK-009", "AMQP-LIMITS-001"),
    summary="basic.ack of a tag that was never issued is ignored.",
)
def _(broker: Broker) -> None:
    overlooks(broker, lambda channel, tag: tag > channel.last_tag)


@defect(
    "ack-multiple-above-all-settles-all",
    breaks=("AMQP-ACK-010",),
    summary="basic.ack with multiple of a tag above all that are outstanding settles them.",
)
def _(broker: Broker) -> None:
    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        if multiple and channel.outstanding and tag > max(channel.outstanding):
            return pop(channel, list(channel.outstanding))
        return None

    takes(broker, "basic.ack", taken)


@defect(
    "acks-on-any-channel",
    breaks=("AMQP-ACK-012",),
    summary="basic.ack settles the delivery of another channel of the connection.",
)
def _(broker: Broker) -> None:
    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        if tag in channel.outstanding or not tag:
            return None
        for other in channel.connection.channels.values():
            if tag in other.outstanding:
                return pop(other, [tag])
        return None

    takes(broker, "basic.ack", taken)


@defect(
    "wrong-acks-close-the-connection",
    breaks=("AMQP-ACK-013",),
    summary="An unknown delivery tag closes the connection.",
)
def _(broker: Broker) -> None:
    on_faults(
        broker,
        lambda connection, operation, fault: AmqpFault(NOT_ALLOWED, fault.detail),
        code=PRECONDITION_FAILED,
        method="basic.ack",
        text=UNKNOWN,
    )


@defect(
    "no-ack-deliveries-can-be-acknowledged",
    breaks=("AMQP-ACK-014",),
    summary="basic.ack of a delivery to a no_ack consumer is ignored.",
)
def _(broker: Broker) -> None:
    without: set[tuple[Channel, int]] = set()
    original = broker.deliveries.deliver

    def deliver(consumer: Consumer, entry: Entry, now: int) -> None:
        original(consumer, entry, now)
        if consumer.no_ack:
            without.add((consumer.channel, consumer.channel.last_tag))

    replace(broker.deliveries, "deliver", deliver)
    overlooks(broker, lambda channel, tag: (channel, tag) in without)


def _remembers(broker: Broker, *methods: str) -> set[tuple[Channel, int]]:
    """The tags that these methods settled."""
    settled: set[tuple[Channel, int]] = set()

    @handling(broker, *methods)
    def handle(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        before = set(channel.outstanding)
        original(channel, operation, now)
        settled.update((channel, tag) for tag in before - set(channel.outstanding))

    return settled


@defect(
    "rejected-can-be-acknowledged",
    breaks=("AMQP-ACK-015",),
    summary="basic.ack after basic.nack or basic.reject of the same tag is ignored.",
)
def _(broker: Broker) -> None:
    settled = _remembers(broker, "basic.nack", "basic.reject")
    overlooks(broker, lambda channel, tag: (channel, tag) in settled)


@defect(
    "recovered-can-be-acknowledged",
    breaks=("AMQP-ACK-016", "AMQP-RECOVER-009"),
    summary="Settling a tag that basic.recover gave back is ignored.",
)
def _(broker: Broker) -> None:
    settled = _remembers(broker, "basic.recover", "basic.recover-async")
    overlooks(broker, lambda channel, tag: (channel, tag) in settled, method="")


@defect("acks-are-answered", breaks=("AMQP-ACK-017",), summary="basic.ack is answered with basic.ack.")
def _(broker: Broker) -> None:

    @handling(broker, "basic.ack")
    def acked(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        original(channel, operation, now)
        broker.outbox.answer(channel, "basic.ack", operation.arguments["delivery_tag"], False)


@defect(
    "acks-are-forgotten",
    breaks=("AMQP-ACK-018", "AMQP-REQUEUE-016"),
    summary="When a channel ends, the last delivery that was acknowledged on it is requeued, too.",
)
def _(broker: Broker) -> None:
    original_ack, original_leave = broker.acknowledging.acknowledge, broker.channels.leave
    last: dict[str, Delivery] = {}

    def acknowledge(delivery: Delivery, now: int) -> None:
        last["one"] = delivery
        original_ack(delivery, now)

    def leave_channel(channel: Channel, now: int) -> None:
        delivery = last.pop("one", None)
        original_leave(channel, now)
        if delivery is not None and not delivery.queue.deleted:
            broker.deliveries.pump_all(broker.deliveries.requeue([delivery], now), now)

    replace(broker.acknowledging, "acknowledge", acknowledge)
    replace(broker.channels, "leave", leave_channel)
