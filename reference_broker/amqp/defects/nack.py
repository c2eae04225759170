"""Defects in negative acknowledgements: basic.nack and basic.reject."""

from __future__ import annotations

from plumbline.reference_broker.amqp.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect
from plumbline.reference_broker.amqp.defects.alterations import before_handling, overlooked, with_arguments
from plumbline.reference_broker.amqp.defects.settling import UNKNOWN, Taken, overlooks, pop, takes
from plumbline.reference_broker.amqp.errors import PRECONDITION_FAILED, AmqpFault


@defect("AMQP-NACK-001")
def nack_always_requeues(broker: Broker) -> None:
    """basic.nack requeues, asked or not."""
    before_handling(
        broker,
        "basic.nack",
        lambda channel, operation: (
            operation if operation.arguments["multiple"] else with_arguments(operation, requeue=True)
        ),
    )


@defect("AMQP-NACK-002")
def nack_never_requeues(broker: Broker) -> None:
    """basic.nack without multiple discards."""
    before_handling(
        broker,
        "basic.nack",
        lambda channel, operation: (
            operation if operation.arguments["multiple"] else with_arguments(operation, requeue=False)
        ),
    )


@defect("AMQP-NACK-003")
def nack_multiple_requeues_one(broker: Broker) -> None:
    """basic.nack with multiple and requeue settles the named tag alone."""
    before_handling(
        broker,
        "basic.nack",
        lambda channel, operation: (
            with_arguments(operation, multiple=False)
            if operation.arguments["requeue"] and operation.arguments["delivery_tag"]
            else operation
        ),
    )


@defect("AMQP-NACK-004")
def nack_multiple_discards_one(broker: Broker) -> None:
    """basic.nack with multiple and without requeue settles the named tag alone."""
    before_handling(
        broker,
        "basic.nack",
        lambda channel, operation: (
            operation if operation.arguments["requeue"] else with_arguments(operation, multiple=False)
        ),
    )


@defect("AMQP-NACK-005")
def nack_of_tag_0_settles_nothing(broker: Broker) -> None:
    """basic.nack of tag 0 with multiple settles nothing."""
    takes(broker, "basic.nack", lambda channel, tag, multiple: {} if multiple and not tag else None)


@defect("AMQP-NACK-006")
def single_nack_of_tag_0_is_overlooked(broker: Broker) -> None:
    """basic.nack of tag 0 without multiple is ignored."""
    overlooked(broker, method="basic.nack", text=f"{UNKNOWN} 0")


@defect("AMQP-NACK-007")
def unknown_nacks_are_overlooked(broker: Broker) -> None:
    """basic.nack of an unknown tag is ignored."""
    overlooks(broker, lambda channel, tag: tag > 0, method="basic.nack")


@defect("AMQP-NACK-008")
def what_was_got_cannot_be_nacked(broker: Broker) -> None:
    """basic.nack does not know deliveries of basic.get."""

    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        if tag in channel.outstanding and channel.outstanding[tag].consumer is None:
            raise AmqpFault(PRECONDITION_FAILED, f"{UNKNOWN} {tag}")
        return None

    takes(broker, "basic.nack", taken)


@defect("AMQP-NACK-009")
def nack_without_bits_requeues(broker: Broker) -> None:
    """basic.nack with neither multiple nor requeue set requeues."""
    before_handling(
        broker,
        "basic.nack",
        lambda channel, operation: with_arguments(
            operation, requeue=operation.arguments["requeue"] or not operation.arguments["multiple"]
        ),
    )


@defect("AMQP-REJECT-001")
def reject_always_requeues(broker: Broker) -> None:
    """basic.reject requeues, asked or not."""
    before_handling(
        broker, "basic.reject", lambda channel, operation: with_arguments(operation, requeue=True)
    )


@defect("AMQP-REJECT-002")
def reject_never_requeues(broker: Broker) -> None:
    """basic.reject discards, asked or not."""
    before_handling(
        broker, "basic.reject", lambda channel, operation: with_arguments(operation, requeue=False)
    )


@defect("AMQP-REJECT-004")
def unknown_rejects_are_overlooked(broker: Broker) -> None:
    """basic.reject of an unknown tag is ignored."""
    overlooks(broker, lambda channel, tag: tag > 0, method="basic.reject")


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
