"""Defects in prefetch limits."""

from __future__ import annotations

from plumbline.reference_broker.amqp.connections.connection import Channel, UnackedDelivery
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import handling
from plumbline.reference_broker.amqp.errors import PRECONDITION_FAILED, AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.topology.queues import QueueConsumer
from plumbline.wire.amqp import Method


@defect("AMQP-QOS-001")
def qos_is_not_answered(broker: Broker) -> None:
    """basic.qos with prefetch_count 1 gets no answer."""

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


@defect("AMQP-QOS-002")
def prefetch_is_one_more(broker: Broker) -> None:
    """A consumer gets one message more than prefetch_count allows."""
    _allowance(broker, 1)


def _after_settling(broker: Broker, frees: object) -> None:
    """Settling frees no slot where ``frees`` says so."""
    original = broker.deliveries.settle

    def settle(delivery: UnackedDelivery) -> None:
        if frees(delivery):  # type: ignore[operator]
            original(delivery)

    replace(broker.deliveries, "settle", settle)


@defect("AMQP-QOS-003")
def acks_out_of_order_free_nothing(broker: Broker) -> None:
    """Acknowledging a delivery that is not the oldest frees no slot."""

    def is_oldest(delivery: UnackedDelivery) -> bool:
        consumer = delivery.consumer
        if consumer is None:
            return True
        others = [one for one in consumer.channel.outstanding.values() if one.consumer is consumer]
        return all(one.entry.position > delivery.entry.position for one in others)

    _after_settling(broker, is_oldest)


@defect("AMQP-QOS-004")
def ack_multiple_frees_one(broker: Broker) -> None:
    """Acknowledging several deliveries at once frees one slot."""
    original_carry, original_settle = broker.acknowledging.apply_settlement, broker.deliveries.settle
    left = [0]

    def carry_out(deliveries: dict[int, UnackedDelivery], how: str, now: int) -> None:
        left[0] = 1 if how == "ack" else len(deliveries)
        original_carry(deliveries, how, now)

    def settle(delivery: UnackedDelivery) -> None:
        if left[0] > 0:
            left[0] -= 1
            original_settle(delivery)

    @handling(broker, "basic.ack")
    def acked(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        arguments = operation.arguments
        broker.acknowledging.settle_tag(
            channel, arguments["delivery_tag"], "ack", now, multiple=arguments["multiple"]
        )

    replace(broker.acknowledging, "apply_settlement", carry_out)
    replace(broker.deliveries, "settle", settle)


@defect("AMQP-QOS-005")
def rejects_free_nothing(broker: Broker) -> None:
    """Rejecting a delivery frees no slot."""
    original_carry, original_settle = broker.acknowledging.apply_settlement, broker.deliveries.settle
    rejecting = [False]

    def carry_out(deliveries: dict[int, UnackedDelivery], how: str, now: int) -> None:
        rejecting[0] = how == "discard"
        original_carry(deliveries, how, now)
        rejecting[0] = False

    def settle(delivery: UnackedDelivery) -> None:
        if not rejecting[0]:
            original_settle(delivery)

    replace(broker.acknowledging, "apply_settlement", carry_out)
    replace(broker.deliveries, "settle", settle)


@defect("AMQP-QOS-006")
def prefetch_0_is_five(broker: Broker) -> None:
    """Without a prefetch_count a consumer gets five messages at most."""
    original = broker.consuming.prefetch_of
    replace(broker.consuming, "prefetch_of", lambda channel: original(channel) or 5)


@defect("AMQP-QOS-007")
def prefetch_limits_no_ack(broker: Broker) -> None:
    """A no_ack consumer gets no more than prefetch_count messages."""
    original = broker.deliveries.has_capacity
    given: dict[QueueConsumer, int] = {}

    def may_take(consumer: QueueConsumer) -> bool:
        if consumer.no_ack and consumer.prefetch:
            given[consumer] = given.get(consumer, 0) + 1
            if given[consumer] > consumer.prefetch:
                return False
        return original(consumer)

    replace(broker.deliveries, "has_capacity", may_take)


@defect("AMQP-QOS-015")
def lowered_limits_do_not_hold(broker: Broker) -> None:
    """After the channel's limit is lowered each acknowledgement still brings a new delivery."""
    original = broker.consuming.limit_channel

    def limit_channel(channel: Channel, prefetch_count: int) -> None:
        over = channel.limited - prefetch_count if prefetch_count else 0
        original(channel, prefetch_count + max(over, 0))

    replace(broker.consuming, "limit_channel", limit_channel)


@defect("AMQP-QOS-018")
def large_prefetch_is_refused(broker: Broker) -> None:
    """basic.qos with a prefetch_count above 32767 is refused."""

    @handling(broker, "basic.qos")
    def sets_qos(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        if operation.arguments["prefetch_count"] > 32767:
            raise AmqpReplyError(PRECONDITION_FAILED, "prefetch_count is too large")
        original(channel, operation, now)


@defect("AMQP-QOS-019")
def requeued_keeps_its_slot(broker: Broker) -> None:
    """A delivery that is rejected and requeued still counts against prefetch_count."""
    original = broker.acknowledging.apply_settlement

    def carry_out(deliveries: dict[int, UnackedDelivery], how: str, now: int) -> None:
        if how != "requeue":
            original(deliveries, how, now)
            return
        broker.deliveries.deliver_ready_all(broker.deliveries.requeue(deliveries.values(), now), now)

    replace(broker.acknowledging, "apply_settlement", carry_out)
