"""Defects in negative acknowledgements: basic.nack and basic.reject."""

from __future__ import annotations

from plumbline.reference_broker.amqp.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect
from plumbline.reference_broker.amqp.defects.alterations import before_handling, overlooked, with_arguments
from plumbline.reference_broker.amqp.defects.settling import UNKNOWN, Taken, overlooks, pop, takes
from plumbline.reference_broker.amqp.errors import PRECONDITION_FAILED, AmqpFault


@defect("nack-always-requeues", breaks=("AMQP-NACK-001",), summary="basic.nack requeues, asked or not.")
def _(broker: Broker) -> None:
    before_handling(
        broker,
        "basic.nack",
        lambda channel, operation: (
            operation if operation.arguments["multiple"] else with_arguments(operation, requeue=True)
        ),
    )


@defect("nack-never-requeues", breaks=("AMQP-NACK-002",), summary="basic.nack without multiple discards.")
def _(broker: Broker) -> None:
    before_handling(
        broker,
        "basic.nack",
        lambda channel, operation: (
            operation if operation.arguments["multiple"] else with_arguments(operation, requeue=False)
        ),
    )


@defect(
    "nack-multiple-requeues-one",
    breaks=("AMQP-NACK-003",),
    summary="basic.nack with multiple and requeue settles the named tag alone.",
)
def _(broker: Broker) -> None:
    before_handling(
        broker,
        "basic.nack",
        lambda channel, operation: (
            with_arguments(operation, multiple=False)
            if operation.arguments["requeue"] and operation.arguments["delivery_tag"]
            else operation
        ),
    )


@defect(
    "nack-multiple-discards-one",
    breaks=("AMQP-NACK-004",),
    summary="basic.nack with multiple and without requeue settles the named tag alone.",
)
def _(broker: Broker) -> None:
    before_handling(
        broker,
        "basic.nack",
        lambda channel, operation: (
            operation if operation.arguments["requeue"] else with_arguments(operation, multiple=False)
        ),
    )


@defect(
    "nack-of-tag-0-settles-nothing",
    breaks=("AMQP-NACK-005",),
    summary="basic.nack of tag 0 with multiple settles nothing.",
)
def _(broker: Broker) -> None:
    takes(broker, "basic.nack", lambda channel, tag, multiple: {} if multiple and not tag else None)


@defect(
    "single-nack-of-tag-0-is-overlooked",
    breaks=("AMQP-NACK-006",),
    summary="basic.nack of tag 0 without multiple is ignored.",
)
def _(broker: Broker) -> None:
    overlooked(broker, method="basic.nack", text=f"{UNKNOWN} 0")


@defect(
    "unknown-nacks-are-overlooked",
    breaks=("AMQP-NACK-007",),
    summary="basic.nack of an unknown tag is ignored.",
)
def _(broker: Broker) -> None:
    overlooks(broker, lambda channel, tag: tag > 0, method="basic.nack")


@defect(
    "what-was-got-cannot-be-nacked",
    breaks=("AMQP-NACK-008",),
    summary="basic.nack does not know deliveries of basic.get.",
)
def _(broker: Broker) -> None:
    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        if tag in channel.outstanding and channel.outstanding[tag].consumer is None:
            raise AmqpFault(PRECONDITION_FAILED, f"{UNKNOWN} {tag}")
        return None

    takes(broker, "basic.nack", taken)


@defect(
    "nack-without-bits-requeues",
    breaks=("AMQP-NACK-009",),
    summary="basic.nack with neither multiple nor requeue set requeues.",
)
def _(broker: Broker) -> None:
    before_handling(
        broker,
        "basic.nack",
        lambda channel, operation: with_arguments(
            operation, requeue=operation.arguments["requeue"] or not operation.arguments["multiple"]
        ),
    )


@defect("reject-always-requeues", breaks=("AMQP-REJECT-001",), summary="basic.reject requeues, asked or not.")
def _(broker: Broker) -> None:
    before_handling(
        broker, "basic.reject", lambda channel, operation: with_arguments(operation, requeue=True)
    )


@defect("reject-never-requeues", breaks=("AMQP-REJECT-002",), summary="basic.reject discards, asked or not.")
def _(broker: Broker) -> None:
    before_handling(
        broker, "basic.reject", lambda channel, operation: with_arguments(operation, requeue=False)
    )


@defect(
    "unknown-rejects-are-overlooked",
    breaks=("AMQP-REJECT-004",),
    summary="basic.reject of an unknown tag is ignored.",
)
def _(broker: Broker) -> None:
    overlooks(broker, lambda channel, tag: tag > 0, method="basic.reject")


@defect(
    "reject-of-tag-0-rejects-all",
    breaks=("AMQP-REJECT-005",),
    summary="basic.reject of tag 0 settles everything outstanding.",
)
def _(broker: Broker) -> None:
    takes(
        broker,
        "basic.reject",
        lambda channel, tag, multiple: None if tag else pop(channel, list(channel.outstanding)),
    )


@defect(
    "reject-settles-all-below",
    breaks=("AMQP-REJECT-006",),
    summary="basic.reject settles all lower tags, too.",
)
def _(broker: Broker) -> None:
    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        if tag not in channel.outstanding:
            return None
        return pop(channel, [one for one in list(channel.outstanding) if one <= tag])

    takes(broker, "basic.reject", taken)
