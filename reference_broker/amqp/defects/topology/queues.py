"""Defects in queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection, Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import before_handling, handling, with_arguments
from plumbline.reference_broker.amqp.errors import NOT_FOUND, PRECONDITION_FAILED, AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.message import PublishedMessage, QueueEntry
from plumbline.reference_broker.amqp.topology.arguments import configure
from plumbline.reference_broker.amqp.topology.exchanges import TYPES, Binding, Exchange, VirtualHost
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import Method


@defect("AMQP-TOPO-001")
def server_names_are_all_alike(broker: Broker) -> None:
    """Every queue that is declared without a name gets the same one."""
    replace(broker.queue_methods, "unique", lambda prefix: f"{prefix}AAAAAAAAAAAAAAAAAAAAAA")


@defect("AMQP-TOPO-002")
def equal_queues_are_refused(broker: Broker) -> None:
    """Declaring a queue again is refused, however equal."""

    def check_same_queue(queue: Queue, channel: Channel, arguments: Any) -> None:
        raise AmqpReplyError(PRECONDITION_FAILED, f"queue '{queue.name}' exists")

    replace(broker.queue_methods, "check_same_queue", check_same_queue)


@defect("AMQP-TOPO-003")
def unequal_queues_are_accepted(broker: Broker) -> None:
    """Declaring a queue again with other properties is answered as if they were the same."""

    def check_same_queue(queue: Queue, channel: Channel, arguments: Any) -> None:
        broker.topology.check_owner(queue, channel)

    replace(broker.queue_methods, "check_same_queue", check_same_queue)


@defect("AMQP-TOPO-004")
def passive_declares_make_queues(broker: Broker) -> None:
    """A passive queue.declare of a missing queue makes it."""

    def change(channel: Channel, operation: Method) -> Method:
        vhost = broker.vhosts[channel.connection.vhost]
        if operation.arguments["passive"] and operation.arguments["queue"] not in vhost.queues:
            return with_arguments(operation, passive=False)
        return operation

    before_handling(broker, "queue.declare", change)


@defect("AMQP-TOPO-005")
def passive_declares_compare(broker: Broker) -> None:
    """A passive queue.declare with other properties than the queue's is refused."""

    def change(channel: Channel, operation: Method) -> Method:
        vhost = broker.vhosts[channel.connection.vhost]
        known = operation.arguments["queue"] in vhost.queues
        return with_arguments(operation, passive=False) if known else operation

    before_handling(broker, "queue.declare", change)


@defect("AMQP-TOPO-006")
def delivered_messages_are_counted(broker: Broker) -> None:
    """queue.declare-ok counts messages that are delivered and not acknowledged."""

    def message_count(queue: Queue) -> int:
        channels = (one for each in broker.connections.values() for one in each.channels.values())
        held = sum(one.queue is queue for channel in channels for one in channel.outstanding.values())
        return len(queue.ready) + held

    replace(broker.queue_methods, "message_count", message_count)


@defect("AMQP-TOPO-008")
def reserved_queue_names_are_free(broker: Broker) -> None:
    """Clients can declare queues whose names begin with amq."""
    original = broker.topology.check_name

    def check_name(kind: str, name: str) -> None:
        if kind != "queue":
            original(kind, name)

    replace(broker.topology, "check_name", check_name)


@defect("AMQP-TOPO-009")
def long_names_are_cut(broker: Broker) -> None:
    """A queue name of more than 127 characters is cut."""
    before_handling(
        broker,
        "queue.declare",
        lambda channel, operation: with_arguments(operation, queue=operation.arguments["queue"][:127]),
    )


@defect("AMQP-TOPO-010")
def exclusive_queues_are_everybodys(broker: Broker) -> None:
    """Other connections can use an exclusive queue."""
    replace(broker.topology, "refuse_locked", lambda queue: None)


@defect("AMQP-TOPO-012")
def exclusive_queues_take_no_strangers(broker: Broker) -> None:
    """What another connection publishes never reaches an exclusive queue."""
    original = broker.publishing.route

    def route(channel: Channel, exchange: Exchange, message: PublishedMessage) -> list[Queue]:
        return [
            queue
            for queue in original(channel, exchange, message)
            if queue.owner in (None, channel.connection)
        ]

    replace(broker.publishing, "route", route)


@defect("AMQP-TOPO-013")
def exclusive_queues_outlive_their_connection(broker: Broker) -> None:
    """An exclusive queue is there for everybody after its connection's end."""
    original = broker.channels.leave_all

    def leave_channels(connection: AmqpClientConnection, now: int) -> None:
        for queue in connection.exclusive_queues:
            queue.owner = None
        connection.exclusive_queues.clear()
        original(connection, now)

    replace(broker.channels, "leave_all", leave_channels)


@defect("AMQP-TOPO-014")
def auto_delete_does_nothing(broker: Broker) -> None:
    """An auto-delete queue stays when its last consumer leaves."""
    replace(broker.topology, "consumer_gone", lambda queue, now: None)


@defect("AMQP-TOPO-019")
def empty_queue_name_means_nothing(broker: Broker) -> None:
    """An empty queue name never means the last queue declared."""

    def last_declared(channel: Channel) -> str:
        raise AmqpReplyError(NOT_FOUND, "no queue ''")

    replace(broker.topology, "last_declared", last_declared)


@defect("AMQP-TOPO-026")
def purge_takes_what_was_delivered(broker: Broker) -> None:
    """queue.purge drops what is delivered and not acknowledged, too."""
    original_purge, original_put_back = broker.queue_methods.purge, broker.deliveries.put_back
    purged: dict[Queue, int] = {}

    def purge(queue: Queue) -> list[QueueEntry]:
        purged[queue] = queue.last_position
        return original_purge(queue)

    def put_back(queue: Queue, entry: QueueEntry) -> None:
        if entry.position > purged.get(queue, 0):
            original_put_back(queue, entry)

    replace(broker.queue_methods, "purge", purge)
    replace(broker.deliveries, "put_back", put_back)


@defect("AMQP-TOPO-034")
def wrong_queue_arguments_are_dropped(broker: Broker) -> None:
    """Optional arguments that make no sense are ignored."""

    def change(channel: Channel, operation: Method) -> Method:
        try:
            configure(Queue("/", "", durable=False, auto_delete=False), operation.arguments["arguments"])
        except AmqpReplyError:
            return with_arguments(operation, arguments={})
        return operation

    before_handling(broker, "queue.declare", change)


def _forgives(broker: Broker, is_forgiven: Callable[[dict[str, Any]], bool]) -> None:
    """Impossible arguments of a queue are ignored where ``is_forgiven(arguments)``."""

    def change(channel: Channel, operation: Method) -> Method:
        table = operation.arguments["arguments"]
        return with_arguments(operation, arguments={}) if is_forgiven(table) else operation

    before_handling(broker, "queue.declare", change)


@defect("AMQP-TOPO-034")
def dead_letter_keys_need_no_exchange(broker: Broker) -> None:
    """x-dead-letter-routing-key is accepted without x-dead-letter-exchange."""
    _forgives(
        broker, lambda table: "x-dead-letter-routing-key" in table and "x-dead-letter-exchange" not in table
    )


@defect("AMQP-TOPO-034")
def byte_limits_may_be_negative(broker: Broker) -> None:
    """An x-max-length-bytes below 0 is accepted."""
    _forgives(broker, lambda table: _number(table, "x-max-length-bytes") < 0)


@defect("AMQP-TOPO-034")
def there_may_be_any_number_of_priorities(broker: Broker) -> None:
    """An x-max-priority above 255 is accepted."""
    _forgives(broker, lambda table: _number(table, "x-max-priority") > 255)


def _number(table: dict[str, Any], name: str) -> int:
    value = table.get(name, 0)
    return value if isinstance(value, int) else 0


@defect("AMQP-TOPO-038")
def limits_of_zero_are_refused(broker: Broker) -> None:
    """An x-max-length or x-max-length-bytes of 0 is refused."""

    @handling(broker, "queue.declare")
    def declare(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        table = operation.arguments["arguments"]
        if 0 in (table.get("x-max-length"), table.get("x-max-length-bytes")):
            raise AmqpReplyError(PRECONDITION_FAILED, "invalid arg")
        original(channel, operation, now)


@defect("AMQP-TOPO-038")
def arguments_may_be_left_out_later(broker: Broker) -> None:
    """A queue with arguments can be declared again without them."""

    def change(channel: Channel, operation: Method) -> Method:
        existing = broker.vhosts[channel.connection.vhost].queues.get(operation.arguments["queue"])
        if existing is None or operation.arguments["arguments"]:
            return operation
        return with_arguments(operation, arguments=existing.arguments)

    before_handling(broker, "queue.declare", change)


@defect("AMQP-TOPO-015")
def exclusive_queues_miss_the_default_exchange(broker: Broker) -> None:
    """The default exchange does not know exclusive queues."""
    original = broker.publishing.route

    def route(channel: Channel, exchange: Exchange, message: PublishedMessage) -> list[Queue]:
        return [
            queue for queue in original(channel, exchange, message) if exchange.name or queue.owner is None
        ]

    replace(broker.publishing, "route", route)


def _copies(broker: Broker, *, same_key: bool) -> None:
    """A queue gets a message once more for each further binding, or bind of a binding."""
    binds: dict[tuple[str, str, str], int] = {}
    original_bind, original_route = broker.topology.add_binding, broker.publishing.route

    def add_binding(vhost: VirtualHost, binding: Binding) -> None:
        key = (binding.source, binding.destination, binding.routing_key if same_key else "")
        binds[key] = binds.get(key, 0) + 1
        original_bind(vhost, binding)

    def route(channel: Channel, exchange: Exchange, message: PublishedMessage) -> list[Queue]:
        queues = []
        for queue in original_route(channel, exchange, message):
            key = (exchange.name, queue.name, message.routing_key if same_key else "")
            queues += [queue] * max(binds.get(key, 1), 1)
        return queues

    replace(broker.topology, "add_binding", add_binding)
    replace(broker.publishing, "route", route)


@defect("AMQP-TOPO-017")
def binding_twice_delivers_twice(broker: Broker) -> None:
    """A queue that was bound twice with the same key gets each message twice."""
    _copies(broker, same_key=True)


@defect("AMQP-TOPO-018")
def each_binding_delivers(broker: Broker) -> None:
    """A queue gets one copy for each of its bindings."""
    _copies(broker, same_key=False)


@defect("AMQP-TOPO-027")
def unknown_exchange_types_are_direct(broker: Broker) -> None:
    """exchange.declare of an unknown type makes a direct exchange."""
    replace(broker.exchange_methods, "check_type", lambda kind: None)


@defect("AMQP-TOPO-028")
def exchange_types_may_change(broker: Broker) -> None:
    """Declaring an exchange again with another type is answered as if it were the same."""

    def change(channel: Channel, operation: Method) -> Method:
        existing = broker.vhosts[channel.connection.vhost].exchanges.get(operation.arguments["exchange"])
        if existing is None or operation.arguments["type"] not in TYPES:
            return operation
        return with_arguments(operation, type=existing.kind)

    before_handling(broker, "exchange.declare", change)


@defect("AMQP-TOPO-030")
def amq_match_is_missing(broker: Broker) -> None:
    """There is no exchange amq.match."""
    for vhost in broker.vhosts.values():
        del vhost.exchanges["amq.match"]


@defect("AMQP-TOPO-031")
def reserved_exchange_names_are_free(broker: Broker) -> None:
    """Clients can declare exchanges whose names begin with amq."""
    original = broker.topology.check_name

    def check_name(kind: str, name: str) -> None:
        if kind != "exchange":
            original(kind, name)

    replace(broker.topology, "check_name", check_name)


def _compares_arguments(broker: Broker, sees: Callable[[dict[str, Any], dict[str, Any]], set[str]]) -> None:
    """A queue is the same if the arguments that ``sees`` names, of both declarations, are."""
    original = broker.queue_methods.check_same_queue

    def check_same_queue(queue: Queue, channel: Channel, arguments: Any) -> None:
        received, current = dict(arguments["arguments"]), dict(queue.arguments)
        seen = sees(received, current)
        same = {name: value for name, value in current.items() if name not in seen}
        compared = {name: value for name, value in received.items() if name in seen}
        original(queue, channel, {**arguments, "arguments": {**same, **compared}})

    replace(broker.queue_methods, "check_same_queue", check_same_queue)


@defect("AMQP-TOPO-003")
def arguments_may_be_added_and_left_out(broker: Broker) -> None:
    """Only arguments that both declarations have are compared."""
    _compares_arguments(broker, lambda received, current: received.keys() & current.keys())


@defect("AMQP-TOPO-003")
def values_of_arguments_may_differ(broker: Broker) -> None:
    """Both declarations must have the same arguments, with whatever values."""
    _compares_arguments(broker, lambda received, current: received.keys() ^ current.keys())


@defect("AMQP-TOPO-039")
def there_is_one_headers_exchange(broker: Broker) -> None:
    """amq.headers does not exist."""
    for vhost in broker.vhosts.values():
        vhost.exchanges.pop("amq.headers", None)


@defect("AMQP-TOPO-004")
def long_names_have_no_error(broker: Broker) -> None:
    """An error whose text would be too long is not sent."""
    original = broker.closing.fail

    def fail(connection: AmqpClientConnection, operation: Method, fault: AmqpReplyError, now: int) -> None:
        if len(fault.detail) < 250:
            original(connection, operation, fault, now)

    replace(broker.closing, "fail", fail)
