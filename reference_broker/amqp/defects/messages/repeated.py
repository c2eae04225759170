"""Defects that show the second time, or later: of deliveries, timers, tags and dead letter exchanges."""

from __future__ import annotations

from collections.abc import Iterable

from plumbline.reference_broker.amqp.connections.connection import (
    AmqpClientConnection,
    Channel,
    UnackedDelivery,
)
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import handling
from plumbline.reference_broker.amqp.defects.messages.settling import Taken, pop, takes
from plumbline.reference_broker.amqp.errors import PRECONDITION_FAILED, AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.message import PublishedMessage, QueueEntry
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import Method


@defect("AMQP-REQUEUE-004")
def every_second_delivery_is_the_first(broker: Broker) -> None:
    """A message that is given back a second time has lost its mark of being redelivered."""
    original = broker.deliveries.requeue
    times: dict[QueueEntry, int] = {}

    def requeue(deliveries: Iterable[UnackedDelivery], now: int) -> set[Queue]:
        for delivery in deliveries:
            times[delivery.entry] = times.get(delivery.entry, 0) + 1
        return original(deliveries, now)

    replace(broker.deliveries, "requeue", requeue)
    replace(broker.deliveries, "is_redelivered", lambda entry: times.get(entry, 0) % 2 == 1)


def _settles_below(broker: Broker, *, unknown: bool) -> None:
    """A nack with multiple of a tag that is not outstanding settles those below it. ``unknown``: of a tag
    that was never given; else of one that is settled."""

    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        is_meant = multiple and tag and tag not in channel.outstanding and channel.outstanding
        if not is_meant or unknown is not (tag > channel.last_tag):
            return None
        return pop(channel, [one for one in channel.outstanding if one <= tag])

    takes(broker, "basic.nack", taken)


@defect("AMQP-NACK-007")
def nack_multiple_above_all_settles_all(broker: Broker) -> None:
    """basic.nack with multiple of a tag that was never given settles all that is outstanding."""
    _settles_below(broker, unknown=True)


@defect("AMQP-NACK-012")
def nack_multiple_of_a_settled_tag_settles_those_below(broker: Broker) -> None:
    """basic.nack with multiple of a tag that is settled settles all that is outstanding below it."""
    _settles_below(broker, unknown=False)


@defect("AMQP-NACK-015")
def nack_of_nothing_is_an_error(broker: Broker) -> None:
    """basic.nack of tag 0 with multiple is an unknown delivery tag where nothing is outstanding."""

    def taken(channel: Channel, tag: int, *, multiple: bool) -> Taken | None:
        if multiple and not tag and not channel.outstanding:
            raise AmqpReplyError(PRECONDITION_FAILED, "unknown delivery tag 0")
        return None

    takes(broker, "basic.nack", taken)


@defect("AMQP-DLX-020")
def dead_letter_exchanges_are_those_of_the_declaration(broker: Broker) -> None:
    """A dead letter exchange that was not there when its queue was declared gets nothing."""
    original_made, original_dead = broker.queue_methods.make_queue, broker.deliveries.dead_letter
    missing: set[Queue] = set()

    def make_queue(vhost: object, name: str, channel: Channel, arguments: object) -> Queue:
        queue = original_made(vhost, name, channel, arguments)  # type: ignore[arg-type]
        exchange = queue.dead_letter_exchange
        if exchange is not None and exchange not in broker.vhosts[queue.vhost].exchanges:
            missing.add(queue)
        return queue

    def dead_letter(queue: Queue, message: PublishedMessage, reason: str, now: int) -> None:
        if queue not in missing:
            original_dead(queue, message, reason, now)

    replace(broker.queue_methods, "make_queue", make_queue)
    replace(broker.deliveries, "dead_letter", dead_letter)


@defect("AMQP-DLX-020")
def dead_letter_exchanges_made_anew_get_nothing(broker: Broker) -> None:
    """A dead letter exchange that was deleted and declared anew gets nothing."""
    original = broker.deliveries.dead_letter
    deleted: set[str] = set()

    @handling(broker, "exchange.delete")
    def deletes(other: Handler, channel: Channel, operation: Method, now: int) -> None:
        deleted.add(operation.arguments["exchange"])
        other(channel, operation, now)

    def dead_letter(queue: Queue, message: PublishedMessage, reason: str, now: int) -> None:
        if queue.dead_letter_exchange not in deleted:
            original(queue, message, reason, now)

    replace(broker.deliveries, "dead_letter", dead_letter)


@defect("AMQP-CONSUME-028")
def deliveries_are_watched_once(broker: Broker) -> None:
    """Once a consumer has acknowledged in time, consumer_timeout does not end its channel any more."""
    original = broker.deliveries.overdue
    trusted: set[AmqpClientConnection] = set()

    def overdue(connection: AmqpClientConnection, now: int) -> Channel | None:
        found = None if connection in trusted else original(connection, now)
        if found is None:
            trusted.add(connection)
        return found

    replace(broker.deliveries, "overdue", overdue)


@defect("AMQP-CONFIRM-017")
def the_first_queue_decides(broker: Broker) -> None:
    """A message to several queues is acked when the first of them takes it."""
    original = broker.publishing.distribute

    def distribute(queues: Iterable[Queue], message: PublishedMessage, now: int) -> bool:
        taken = [original([queue], message, now) for queue in queues]
        return taken[0] if taken else True

    replace(broker.publishing, "distribute", distribute)
