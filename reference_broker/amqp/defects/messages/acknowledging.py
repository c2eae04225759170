"""Defects in acknowledgements: basic.ack, nack, reject, recover, and what is requeued."""

from __future__ import annotations

from plumbline.reference_broker.amqp.connections.connection import Channel, UnackedDelivery
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import (
    handling,
)
from plumbline.reference_broker.amqp.defects.messages.settling import (
    UNKNOWN,
    Taken,
    overlooks,
    pop,
    settles_all_below,
    takes,
)
from plumbline.reference_broker.amqp.errors import PRECONDITION_FAILED, AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.message import QueueEntry
from plumbline.reference_broker.amqp.topology.queues import QueueConsumer
from plumbline.wire.amqp import Method


@defect("AMQP-ACK-001")
def single_acks_settle_all_below(broker: Broker) -> None:
    """basic.ack without multiple settles all lower tags, too."""
    settles_all_below(broker, "basic.ack")


@defect("AMQP-ACK-003")
def ack_multiple_settles_one_more(broker: Broker) -> None:
    """basic.ack with multiple settles the tag above the named one, too."""

    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        if not multiple or tag not in channel.outstanding:
            return None
        return pop(channel, [one for one in list(channel.outstanding) if one <= tag + 1])

    takes(broker, "basic.ack", taken)


@defect("AMQP-ACK-004")
def acks_must_come_in_order(broker: Broker) -> None:
    """basic.ack of another than the lowest outstanding tag is refused, unless it is multiple."""

    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        if not multiple and channel.outstanding and tag > min(channel.outstanding):
            raise AmqpReplyError(PRECONDITION_FAILED, f"delivery tag {tag} is out of order")
        return None

    takes(broker, "basic.ack", taken)


@defect("AMQP-ACK-005")
def ack_of_tag_0_settles_nothing(broker: Broker) -> None:
    """basic.ack of tag 0 with multiple settles nothing."""
    takes(broker, "basic.ack", lambda channel, tag, multiple: {} if multiple and not tag else None)


@defect("AMQP-ACK-006")
def ack_of_tag_0_needs_deliveries(broker: Broker) -> None:
    """basic.ack of tag 0 with multiple is refused if nothing is outstanding."""

    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        if multiple and not tag and not channel.outstanding:
            raise AmqpReplyError(PRECONDITION_FAILED, f"{UNKNOWN} 0")
        return None

    takes(broker, "basic.ack", taken)


@defect("AMQP-ACK-008")
def double_acks_are_overlooked(broker: Broker) -> None:
    """basic.ack of a tag that is settled already is ignored."""
    overlooks(broker, lambda channel, tag: 0 < tag <= channel.last_tag)


@defect("AMQP-ACK-009", "AMQP-LIMITS-001")
def acks_of_the_future_are_overlooked(broker: Broker) -> None:
    """basic.ack of a tag that was never issued is ignored."""
    overlooks(broker, lambda channel, tag: tag > channel.last_tag)


@defect("AMQP-ACK-010")
def ack_multiple_above_all_settles_all(broker: Broker) -> None:
    """basic.ack with multiple of a tag above all that are outstanding settles them."""

    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        if multiple and channel.outstanding and tag > max(channel.outstanding):
            return pop(channel, list(channel.outstanding))
        return None

    takes(broker, "basic.ack", taken)


@defect("AMQP-ACK-012")
def acks_on_any_channel(broker: Broker) -> None:
    """basic.ack settles the delivery of another channel of the connection."""

    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        if tag in channel.outstanding or not tag:
            return None
        for other in channel.connection.channels.values():
            if tag in other.outstanding:
                return pop(other, [tag])
        return None

    takes(broker, "basic.ack", taken)


@defect("AMQP-ACK-014")
def no_ack_deliveries_can_be_acknowledged(broker: Broker) -> None:
    """basic.ack of a delivery to a no_ack consumer is ignored."""
    without: set[tuple[Channel, int]] = set()
    original = broker.deliveries.deliver

    def deliver(consumer: QueueConsumer, entry: QueueEntry, now: int) -> None:
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


@defect("AMQP-ACK-015")
def rejected_can_be_acknowledged(broker: Broker) -> None:
    """basic.ack after basic.nack or basic.reject of the same tag is ignored."""
    settled = _remembers(broker, "basic.nack", "basic.reject")
    overlooks(broker, lambda channel, tag: (channel, tag) in settled)


@defect("AMQP-ACK-016", "AMQP-RECOVER-009")
def recovered_can_be_acknowledged(broker: Broker) -> None:
    """Settling a tag that basic.recover gave back is ignored."""
    settled = _remembers(broker, "basic.recover", "basic.recover-async")
    overlooks(broker, lambda channel, tag: (channel, tag) in settled, method="")


@defect("AMQP-ACK-017")
def acks_are_answered(broker: Broker) -> None:
    """basic.ack is answered with basic.ack."""

    @handling(broker, "basic.ack")
    def acked(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        original(channel, operation, now)
        broker.outbox.answer(channel, "basic.ack", operation.arguments["delivery_tag"], False)


@defect("AMQP-ACK-018", "AMQP-REQUEUE-016")
def acks_are_forgotten(broker: Broker) -> None:
    """When a channel ends, the last delivery that was acknowledged on it is requeued, too."""
    original_ack, original_leave = broker.acknowledging.acknowledge, broker.channels.leave
    last: dict[str, UnackedDelivery] = {}

    def acknowledge(delivery: UnackedDelivery, now: int) -> None:
        last["one"] = delivery
        original_ack(delivery, now)

    def leave_channel(channel: Channel, now: int) -> None:
        delivery = last.pop("one", None)
        original_leave(channel, now)
        if delivery is not None and not delivery.queue.deleted:
            broker.deliveries.deliver_ready_all(broker.deliveries.requeue([delivery], now), now)

    replace(broker.acknowledging, "acknowledge", acknowledge)
    replace(broker.channels, "leave", leave_channel)


@defect("AMQP-NACK-005")
def nack_of_tag_0_settles_nothing(broker: Broker) -> None:
    """basic.nack of tag 0 with multiple settles nothing."""
    takes(broker, "basic.nack", lambda channel, tag, multiple: {} if multiple and not tag else None)


@defect("AMQP-NACK-008")
def what_was_got_cannot_be_nacked(broker: Broker) -> None:
    """basic.nack does not know deliveries of basic.get."""

    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        if tag in channel.outstanding and channel.outstanding[tag].consumer is None:
            raise AmqpReplyError(PRECONDITION_FAILED, f"{UNKNOWN} {tag}")
        return None

    takes(broker, "basic.nack", taken)


@defect("AMQP-REJECT-005")
def reject_of_tag_0_rejects_all(broker: Broker) -> None:
    """basic.reject of tag 0 settles everything outstanding."""
    takes(
        broker,
        "basic.reject",
        lambda channel, tag, multiple: None if tag else pop(channel, list(channel.outstanding)),
    )


@defect("AMQP-REJECT-006")
def reject_settles_all_below(broker: Broker) -> None:
    """basic.reject settles all lower tags, too."""

    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        if tag not in channel.outstanding:
            return None
        return pop(channel, [one for one in list(channel.outstanding) if one <= tag])

    takes(broker, "basic.reject", taken)
