"""Defects in dead letters: which messages become one, their headers, their route."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import before_handling, with_arguments
from plumbline.reference_broker.amqp.messages.dead_letters import EXPIRED, REJECTED, would_cycle
from plumbline.reference_broker.amqp.messages.dead_letters import dead_letter as letter_of
from plumbline.reference_broker.amqp.messages.message import (
    CC,
    PublishedMessage,
    QueueEntry,
    altered,
    further_keys,
    without_header,
)
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import Integer, Method

Table = dict[str, Any]


def _letters(broker: Broker, change: Callable[[Queue, PublishedMessage, Table], Table]) -> None:
    """The headers of a dead letter are changed: ``change(queue, message, headers)``."""
    original = broker.deliveries.enqueue

    def enqueue(queue: Queue, message: PublishedMessage, now: int) -> bool:
        if "x-death" in message.headers:
            headers = change(queue, message, dict(message.headers))
            properties = {**message.properties, "headers": headers}
            message = altered(message, message.exchange, message.routing_key, properties)
        return original(queue, message, now)

    replace(broker.deliveries, "enqueue", enqueue)


def _deaths(headers: Table, change: Callable[[list[Table]], list[Table]]) -> Table:
    return {**headers, "x-death": change(list(headers["x-death"]))}


@defect("AMQP-DLX-008", "AMQP-DLX-009")
def deaths_replace_each_other(broker: Broker) -> None:
    """x-death has the last death only."""
    _letters(
        broker,
        lambda queue, message, headers: _deaths(
            headers, lambda deaths: [{**deaths[0], "count": Integer(1, "l")}]
        ),
    )


@defect("AMQP-DLX-008")
def deaths_are_not_counted(broker: Broker) -> None:
    """The count in x-death stays 1."""
    _letters(
        broker,
        lambda queue, message, headers: _deaths(
            headers, lambda deaths: [{**death, "count": Integer(1, "l")} for death in deaths]
        ),
    )


@defect("AMQP-DLX-009")
def deaths_come_in_time_order(broker: Broker) -> None:
    """x-death has the first death first."""
    _letters(
        broker,
        lambda queue, message, headers: _deaths(
            headers, lambda deaths: sorted(deaths, key=lambda death: death["queue"] != _first(headers))
        ),
    )


def _first(headers: Table) -> Any:
    return headers.get("x-first-death-queue")


@defect("AMQP-DLX-009")
def the_last_death_is_the_first(broker: Broker) -> None:
    """x-first-death-queue and -reason are those of the last death."""

    def change(queue: Queue, message: PublishedMessage, headers: Table) -> Table:
        last = headers["x-death"][0]
        return {**headers, "x-first-death-queue": last["queue"], "x-first-death-reason": last["reason"]}

    _letters(broker, change)


@defect("AMQP-DLX-009", "AMQP-DLX-010")
def deaths_tell_the_new_route(broker: Broker) -> None:
    """x-death has the exchange and routing key that the letter is published with."""

    def change(queue: Queue, message: PublishedMessage, headers: Table) -> Table:
        route = {"exchange": message.exchange, "routing-keys": [message.routing_key]}
        return _deaths(headers, lambda deaths: [{**deaths[0], **route}, *deaths[1:]])

    _letters(broker, change)


@defect("AMQP-DLX-010")
def dead_letters_ignore_the_routing_key(broker: Broker) -> None:
    """x-dead-letter-routing-key means nothing."""

    def change(channel: Channel, operation: Method) -> Method:
        table = operation.arguments["arguments"]
        rest = {name: value for name, value in table.items() if name != "x-dead-letter-routing-key"}
        return with_arguments(operation, arguments=rest)

    before_handling(broker, "queue.declare", change)


@defect("AMQP-DLX-010")
def dead_letters_are_routed_by_queue(broker: Broker) -> None:
    """Without x-dead-letter-routing-key the name of the queue is the routing key."""

    def change(channel: Channel, operation: Method) -> Method:
        table = operation.arguments["arguments"]
        if "x-dead-letter-exchange" not in table:
            return operation
        return with_arguments(
            operation, arguments={"x-dead-letter-routing-key": operation.arguments["queue"], **table}
        )

    before_handling(broker, "queue.declare", change)


@defect("AMQP-DLX-010")
def dead_letters_lose_their_headers(broker: Broker) -> None:
    """A dead letter has none of the headers that the message had."""
    _letters(
        broker,
        lambda queue, message, headers: {
            name: value for name, value in headers.items() if name.startswith("x-")
        },
    )


@defect("AMQP-DLX-010")
def dead_letters_lose_their_properties(broker: Broker) -> None:
    """A dead letter has no properties but headers."""
    original = broker.deliveries.enqueue

    def enqueue(queue: Queue, message: PublishedMessage, now: int) -> bool:
        if "x-death" in message.headers:
            message = altered(message, message.exchange, message.routing_key, {"headers": message.headers})
        return original(queue, message, now)

    replace(broker.deliveries, "enqueue", enqueue)


@defect("AMQP-DLX-011")
def missing_exchanges_keep_the_dead(broker: Broker) -> None:
    """What cannot be dead-lettered is requeued."""
    original = broker.deliveries.dead_letter

    def dead_letter(queue: Queue, message: PublishedMessage, reason: str, now: int) -> None:
        name = queue.dead_letter_exchange
        if name is not None and name not in broker.vhosts[queue.vhost].exchanges:
            queue.put_back(QueueEntry(message, 0, None))
        else:
            original(queue, message, reason, now)

    replace(broker.deliveries, "dead_letter", dead_letter)


@defect("AMQP-DLX-012")
def acknowledged_messages_are_dead(broker: Broker) -> None:
    """What is acknowledged is dead-lettered."""
    original = broker.acknowledging.acknowledge

    def acknowledge(delivery: Any, now: int) -> None:
        broker.deliveries.dead_letter(delivery.queue, delivery.entry.message, "rejected", now)
        original(delivery, now)

    replace(broker.acknowledging, "acknowledge", acknowledge)


@defect("AMQP-DLX-012")
def requeued_messages_are_dead(broker: Broker) -> None:
    """What is requeued is dead-lettered, too."""
    original = broker.deliveries.requeue

    def requeue(deliveries: Any, now: int) -> set[Queue]:
        deliveries = list(deliveries)
        for delivery in deliveries:
            broker.deliveries.dead_letter(delivery.queue, delivery.entry.message, "rejected", now)
        return original(deliveries, now)

    replace(broker.deliveries, "requeue", requeue)


@defect("AMQP-DLX-012")
def purged_messages_are_dead(broker: Broker) -> None:
    """What is purged is dead-lettered."""
    original = broker.queue_methods.purge

    def purge(queue: Queue) -> list[QueueEntry]:
        entries = original(queue)
        for entry in entries:
            broker.deliveries.dead_letter(queue, entry.message, "rejected", 0)
        return entries

    replace(broker.queue_methods, "purge", purge)


@defect("AMQP-DLX-013")
def dead_letters_come_first(broker: Broker) -> None:
    """A dead letter goes to the head of its queue."""
    original = broker.deliveries.enqueue

    def enqueue(queue: Queue, message: PublishedMessage, now: int) -> bool:
        if "x-death" not in message.headers:
            return original(queue, message, now)
        queue.put_back(QueueEntry(message, -len(queue.ready), None))
        return True

    replace(broker.deliveries, "enqueue", enqueue)


@defect("AMQP-DLX-014")
def what_expires_comes_back(broker: Broker) -> None:
    """A message that expires into a queue in which it has died before is kept there."""
    original = broker.deliveries.dead_letter

    def dead_letter(queue: Queue, message: PublishedMessage, reason: str, now: int) -> None:
        original(queue, message, reason, now)
        if reason != EXPIRED or queue.dead_letter_exchange is None:
            return
        vhost = broker.vhosts[queue.vhost]
        letter = letter_of(queue, message, reason, now)
        exchange = vhost.exchanges[queue.dead_letter_exchange]
        for target in vhost.route(exchange, letter.routing_key, letter.headers):
            if would_cycle(letter, target, reason):
                broker.deliveries.enqueue(target, letter, now)

    replace(broker.deliveries, "dead_letter", dead_letter)


@defect("AMQP-DLX-014")
def what_is_rejected_never_comes_back(broker: Broker) -> None:
    """A message that is rejected into the queue that it was in is dropped."""
    original = broker.deliveries.dead_letter

    def dead_letter(queue: Queue, message: PublishedMessage, reason: str, now: int) -> None:
        key = queue.dead_letter_routing_key or message.routing_key
        if queue.dead_letter_exchange != "" or key != queue.name:
            original(queue, message, reason, now)

    replace(broker.deliveries, "dead_letter", dead_letter)


@defect("AMQP-DLX-008")
def deaths_of_a_queue_are_one(broker: Broker) -> None:
    """x-death has one entry for a queue, whatever the reasons."""
    _letters(
        broker,
        lambda queue, message, headers: _deaths(headers, lambda deaths: _first_of_each(deaths, "queue")),
    )


@defect("AMQP-DLX-008")
def deaths_of_a_reason_are_one(broker: Broker) -> None:
    """x-death has one entry for a reason, whatever the queues."""
    _letters(
        broker,
        lambda queue, message, headers: _deaths(headers, lambda deaths: _first_of_each(deaths, "reason")),
    )


def _first_of_each(deaths: list[Table], name: str) -> list[Table]:
    found: Table = {}
    for death in deaths:
        found.setdefault(death[name], death)
    return list(found.values())


@defect("AMQP-DLX-009")
def deaths_have_no_time(broker: Broker) -> None:
    """The entries of x-death do not have the time."""
    _letters(
        broker,
        lambda queue, message, headers: _deaths(
            headers,
            lambda deaths: [
                {name: value for name, value in death.items() if name != "time"} for death in deaths
            ],
        ),
    )


def _dead_of(broker: Broker, change: Callable[[Queue, PublishedMessage], PublishedMessage | None]) -> None:
    """What dies is another message; None: there is no dead letter."""
    original = broker.deliveries.dead_letter

    def dead_letter(queue: Queue, message: PublishedMessage, reason: str, now: int) -> None:
        if (changed := change(queue, message)) is not None:
            original(queue, changed, reason, now)

    replace(broker.deliveries, "dead_letter", dead_letter)


@defect("AMQP-DLX-010")
def dead_letters_have_one_key(broker: Broker) -> None:
    """A dead message is not routed by the keys of its header CC."""
    _dead_of(broker, lambda queue, message: without_header(message, CC))


@defect("AMQP-DLX-010")
def dead_letters_keep_their_keys(broker: Broker) -> None:
    """Where the queue has x-dead-letter-routing-key, a dead message is routed by its header CC, too."""
    original = broker.deliveries.dead_letter

    def dead_letter(queue: Queue, message: PublishedMessage, reason: str, now: int) -> None:
        original(queue, message, reason, now)
        key = queue.dead_letter_routing_key
        for further in further_keys(message.headers) if key is not None else ():
            queue.dead_letter_routing_key = further
            original(queue, message, reason, now)
        queue.dead_letter_routing_key = key

    replace(broker.deliveries, "dead_letter", dead_letter)


@defect("AMQP-DLX-014")
def rejects_in_a_cycle_are_overlooked(broker: Broker) -> None:
    """A message that was rejected on its way is dropped where it has died before, unless by a reject now."""
    original = broker.deliveries.dead_letter

    def dead_letter(queue: Queue, message: PublishedMessage, reason: str, now: int) -> None:
        deaths = message.headers.get("x-death", [])
        target = queue.dead_letter_routing_key or message.routing_key
        has_died_there = any(death["queue"] == target for death in deaths)
        if reason == REJECTED or not has_died_there:
            original(queue, message, reason, now)

    replace(broker.deliveries, "dead_letter", dead_letter)


@defect("AMQP-DLX-015")
def made_up_deaths_are_final(broker: Broker) -> None:
    """A message whose x-death is of no server is dropped when it dies."""

    def change(queue: Queue, message: PublishedMessage) -> PublishedMessage | None:
        deaths = message.headers.get("x-death", [])
        known = isinstance(deaths, list) and all("queue" in death for death in deaths)
        return message if known else None

    _dead_of(broker, change)
