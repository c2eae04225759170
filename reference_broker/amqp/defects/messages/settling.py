"""How defects settle other deliveries than a client names, and overlook tags that are unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from plumbline.reference_broker.amqp.connections.connection import (
    AmqpClientConnection,
    Channel,
    UnackedDelivery,
)
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects.alterations import (
    before_handling,
    handling,
    on_faults,
    with_arguments,
)
from plumbline.reference_broker.amqp.errors import PRECONDITION_FAILED, AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.registry import replace
from plumbline.wire.amqp import Method

Taken = dict[int, UnackedDelivery]
UNKNOWN = "unknown delivery tag"


def settles_all_below(
    broker: Broker, method: str, concerns: Callable[[Method], bool] = lambda operation: True
) -> None:
    """The method of one delivery settles those with lower tags, too, as with multiple."""
    before_handling(
        broker,
        method,
        lambda channel, operation: (
            with_arguments(operation, multiple=True)
            if concerns(operation) and operation.arguments["delivery_tag"] in channel.outstanding
            else operation
        ),
    )


class TagSelector(Protocol):
    """Which deliveries a tag means; None: those that it should mean."""

    def __call__(self, channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        """Takes them off the channel, too."""
        ...


def takes(broker: Broker, method: str, taken: TagSelector) -> None:
    """For ``method`` other deliveries are settled than it names; None: those that it names."""
    original_take = broker.acknowledging.take_outstanding
    handled = [""]

    def take_outstanding(channel: Channel, tag: int, *, multiple: bool) -> Taken:
        other = taken(channel, tag, multiple=multiple) if handled[0] == method else None
        return original_take(channel, tag, multiple=multiple) if other is None else other

    @handling(broker, "basic.ack", "basic.nack", "basic.reject")
    def handle(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        handled[0] = operation.method
        if operation.method == method == "basic.ack":  # past the quick way of single acks
            arguments = operation.arguments
            tag, multiple = arguments["delivery_tag"], arguments["multiple"]
            broker.acknowledging.settle_tag(channel, tag, "ack", now, multiple=multiple)
        else:
            original(channel, operation, now)

    replace(broker.acknowledging, "take_outstanding", take_outstanding)


def pop(channel: Channel, tags: Iterable[int]) -> Taken:
    """Take these off the channel."""
    return {tag: channel.outstanding.pop(tag) for tag in tags}


def overlooks(broker: Broker, is_meant: Callable[[Channel, int], bool], method: str = "basic.ack") -> None:
    """Unknown tags of this sort are ignored."""

    def change(
        connection: AmqpClientConnection, operation: Method, fault: AmqpReplyError
    ) -> AmqpReplyError | None:
        channel = connection.channels[operation.channel]
        return None if is_meant(channel, operation.arguments["delivery_tag"]) else fault

    on_faults(broker, change, code=PRECONDITION_FAILED, method=method, text=UNKNOWN)
