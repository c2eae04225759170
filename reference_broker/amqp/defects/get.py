"""Defects in basic.get."""

from __future__ import annotations

from plumbline.reference_broker.amqp.connection import Channel, Connection
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import (
    before_handling,
    handling,
    never_sent,
    with_arguments,
)
from plumbline.reference_broker.amqp.errors import NOT_FOUND, AmqpFault
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages import Entry, Message
from plumbline.reference_broker.amqp.queues import Queue
from plumbline.wire.amqp import Method


@defect("AMQP-GET-001")
def get_counts_itself(broker: Broker) -> None:
    """basic.get-ok counts its own message."""

    @handling(broker, "basic.get")
    def gets(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        queue = broker.topology.usable_queue(channel, operation.arguments["queue"])
        extra = Entry(Message.make("", "", {}, b"\0\0", b""), queue.last_position + 1, None)
        if not len(queue.ready):
            original(channel, operation, now)
            return
        queue.append(extra)
        original(channel, operation, now)
        entries = [entry for entry in queue.clear() if entry is not extra]
        for entry in entries:
            queue.append(entry)


@defect("AMQP-GET-002")
def get_of_nothing_is_silent(broker: Broker) -> None:
    """basic.get of an empty queue gets no answer."""
    never_sent(broker, "basic.get-empty")


@defect("AMQP-GET-003")
def get_of_no_queue_is_empty(broker: Broker) -> None:
    """basic.get of an unknown queue is answered with get-empty."""
    original = broker.closing.fail

    def fail(connection: Connection, operation: Method, fault: AmqpFault, now: int) -> None:
        if fault.code == NOT_FOUND and operation.method == "basic.get":
            broker.outbox.send(connection, operation.channel, "basic.get-empty", "")
        else:
            original(connection, operation, fault, now)

    replace(broker.closing, "fail", fail)


@defect("AMQP-GET-004")
def got_is_gone(broker: Broker) -> None:
    """What basic.get got is gone at once."""
    original = broker.deliveries.requeue

    def requeue(deliveries: object, now: int) -> set[Queue]:
        return original([one for one in deliveries if one.consumer is not None], now)  # type: ignore[attr-defined]

    replace(broker.deliveries, "requeue", requeue)


@defect("AMQP-GET-005")
def got_without_ack_can_be_acknowledged(broker: Broker) -> None:
    """What basic.get got with no_ack stays outstanding."""
    before_handling(broker, "basic.get", lambda channel, operation: with_arguments(operation, no_ack=False))


@defect("AMQP-GET-006")
def get_without_ack_uses_no_tag(broker: Broker) -> None:
    """basic.get with no_ack does not count delivery tags on."""

    @handling(broker, "basic.get")
    def gets(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        before = channel.last_tag
        original(channel, operation, now)
        if operation.arguments["no_ack"]:
            channel.last_tag = before


def _limited_get(broker: Broker, *, by_channel: bool) -> None:
    """basic.get finds nothing while as much is outstanding as basic.qos allows."""

    @handling(broker, "basic.get")
    def gets(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        most = channel.limit if by_channel else channel.prefetch
        if most and len(channel.outstanding) >= most:
            broker.outbox.answer(channel, "basic.get-empty", "")
        else:
            original(channel, operation, now)


@defect("AMQP-GET-007", "AMQP-QOS-008")
def prefetch_limits_get(broker: Broker) -> None:
    """basic.get finds nothing while prefetch_count messages are outstanding."""
    _limited_get(broker, by_channel=False)


@defect("AMQP-GET-008")
def global_prefetch_limits_get(broker: Broker) -> None:
    """basic.get finds nothing while as many messages are outstanding as the channel may have."""
    _limited_get(broker, by_channel=True)


@defect("AMQP-GET-009")
def multiple_passes_over_what_was_got(broker: Broker) -> None:
    """Acknowledging several deliveries at once leaves out those of basic.get, but the named one."""
    original = broker.acknowledging.take_outstanding

    def take_outstanding(channel: Channel, tag: int, *, multiple: bool) -> object:
        taken = original(channel, tag, multiple=multiple)
        kept = {one: taken.pop(one) for one in list(taken) if one != tag and taken[one].consumer is None}
        channel.outstanding = dict(sorted({**channel.outstanding, **kept}.items()))
        return taken

    replace(broker.acknowledging, "take_outstanding", take_outstanding)
