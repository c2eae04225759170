"""Defects in consumers and basic.get."""

from __future__ import annotations

from collections.abc import Callable

from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection, Channel
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace
from plumbline.reference_broker.amqp.defects.alterations import handling, on_reopening
from plumbline.reference_broker.amqp.errors import NOT_ALLOWED, NOT_FOUND, AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import Handler
from plumbline.reference_broker.amqp.messages.message import PublishedMessage, QueueEntry
from plumbline.reference_broker.amqp.topology.queues import Queue, QueueConsumer
from plumbline.wire.amqp import Method


@defect("AMQP-CONSUME-001")
def server_tags_are_empty(broker: Broker) -> None:
    """A consumer without a tag gets none from the server."""
    replace(broker.consuming, "unique", lambda prefix: "")


@defect("AMQP-CONSUME-002")
def deliveries_name_no_routing_key(broker: Broker) -> None:
    """basic.deliver has an empty routing key."""
    original = broker.deliveries.deliver

    def deliver(consumer: QueueConsumer, entry: QueueEntry, now: int) -> None:
        message = entry.message
        entry.message = PublishedMessage(message.operation, message.exchange, "", b"\0\0")
        original(consumer, entry, now)
        entry.message = message

    replace(broker.deliveries, "deliver", deliver)


@defect("AMQP-CONSUME-003")
def everything_is_redelivered(broker: Broker) -> None:
    """First deliveries have redelivered set."""
    replace(broker.deliveries, "is_redelivered", lambda entry: True)


@defect("AMQP-CONSUME-004")
def delivery_tags_fall(broker: Broker) -> None:
    """Delivery tags fall by 1."""

    def next_tag(channel: Channel) -> int:
        channel.last_tag = (channel.last_tag or 10_000) - 1
        return channel.last_tag

    replace(broker.deliveries, "next_tag", next_tag)


@defect("AMQP-CONSUME-029")
def delivery_tags_skip(broker: Broker) -> None:
    """Delivery tags grow by 2."""

    def next_tag(channel: Channel) -> int:
        channel.last_tag += 2 if channel.last_tag else 1
        return channel.last_tag

    replace(broker.deliveries, "next_tag", next_tag)


@defect("AMQP-CONSUME-005")
def channels_share_delivery_tags(broker: Broker) -> None:
    """Delivery tags are counted for the whole connection."""

    def next_tag(channel: Channel) -> int:
        channel.last_tag = 1 + max(one.last_tag for one in channel.connection.channels.values())
        return channel.last_tag

    replace(broker.deliveries, "next_tag", next_tag)


@defect("AMQP-CONSUME-006")
def reopened_channels_go_on_counting(broker: Broker) -> None:
    """Delivery tags go on where they were when a channel is opened again."""

    def change(before: Channel, channel: Channel) -> None:
        channel.last_tag = before.last_tag

    on_reopening(broker, change)


def _after_errors(broker: Broker, change: Callable[[Channel, Channel], object]) -> None:
    """A channel that is opened again after an error is changed, one that was closed by its client is not."""
    failed: set[tuple[int, int]] = set()
    original = broker.channels.close

    def close(channel: Channel, code: int, detail: str, cause: tuple[int, int], now: int) -> None:
        failed.add((channel.connection.id, channel.number))
        original(channel, code, detail, cause, now)

    def changed(before: Channel, channel: Channel) -> None:
        if (channel.connection.id, channel.number) in failed:
            change(before, channel)

    replace(broker.channels, "close", close)
    on_reopening(broker, changed)


@defect("AMQP-CONSUME-006")
def channels_go_on_counting_after_errors(broker: Broker) -> None:
    """Delivery tags go on where they were when a channel is opened again after an error."""

    def change(before: Channel, channel: Channel) -> None:
        channel.last_tag = before.last_tag

    _after_errors(broker, change)


@defect("AMQP-CONFIRM-006")
def channels_go_on_confirming_after_errors(broker: Broker) -> None:
    """Confirms go on counting where they were when a channel is opened again after an error."""

    def change(before: Channel, channel: Channel) -> None:
        channel.published = before.published

    _after_errors(broker, change)


@defect("AMQP-CONSUME-029")
def empty_gets_use_a_tag(broker: Broker) -> None:
    """basic.get that finds nothing uses up a delivery tag."""

    @handling(broker, "basic.get")
    def get(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        queue = broker.vhosts[channel.connection.vhost].queues.get(operation.arguments["queue"])
        was_empty = queue is not None and not len(queue.ready)
        original(channel, operation, now)
        channel.last_tag += was_empty


@defect("AMQP-CONSUME-043")
def reopened_channels_remember_tags(broker: Broker) -> None:
    """A consumer tag that a channel had before it was closed is in use on it for ever."""
    used: dict[Channel, set[str]] = {}

    def change(before: Channel, channel: Channel) -> None:
        used[channel] = set(before.consumers) | used.get(before, set())

    on_reopening(broker, change)

    @handling(broker, "basic.consume")
    def consume(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        if operation.arguments["consumer_tag"] in used.get(channel, ()):
            raise AmqpReplyError(NOT_ALLOWED, "attempt to reuse consumer tag")
        original(channel, operation, now)


@defect("AMQP-CONSUME-009")
def consuming_nothing_is_fine(broker: Broker) -> None:
    """basic.consume of an unknown queue is answered with consume-ok."""
    original = broker.closing.fail

    def fail(connection: AmqpClientConnection, operation: Method, fault: AmqpReplyError, now: int) -> None:
        if fault.code == NOT_FOUND and operation.method == "basic.consume":
            tag = operation.arguments["consumer_tag"]
            broker.outbox.send(connection, operation.channel, "basic.consume-ok", tag or "c")
        else:
            original(connection, operation, fault, now)

    replace(broker.closing, "fail", fail)


@defect("AMQP-CONSUME-010")
def consumer_tags_can_be_used_again(broker: Broker) -> None:
    """A second consumer with the same tag on the channel is accepted."""
    replace(broker.consuming, "check_tag", lambda channel, tag: None)


@defect("AMQP-CONSUME-011")
def consumer_tags_are_the_connections(broker: Broker) -> None:
    """A consumer tag that another channel of the connection uses is refused."""

    @handling(broker, "basic.consume")
    def consumes(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        tag = operation.arguments["consumer_tag"]
        for other in channel.connection.channels.values() if tag else ():
            broker.consuming.check_tag(other, tag)
        original(channel, operation, now)


@defect("AMQP-CONSUME-012")
def cancelled_consumers_go_on(broker: Broker) -> None:
    """A consumer still gets messages after its basic.cancel-ok."""

    @handling(broker, "basic.cancel")
    def cancels(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        if not operation.arguments["no_wait"]:
            broker.outbox.answer(channel, "basic.cancel-ok", operation.arguments["consumer_tag"])


@defect("AMQP-CONSUME-013")
def unknown_consumers_cannot_be_cancelled(broker: Broker) -> None:
    """basic.cancel of an unknown tag is a channel error."""

    @handling(broker, "basic.cancel")
    def cancels(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        tag = operation.arguments["consumer_tag"]
        if tag not in channel.consumers:
            raise AmqpReplyError(NOT_FOUND, f"no consumer '{tag}'")
        original(channel, operation, now)


@defect("AMQP-CONSUME-015")
def cancel_requeues(broker: Broker) -> None:
    """basic.cancel requeues what its consumer has not acknowledged."""

    @handling(broker, "basic.cancel")
    def cancels(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        consumer = channel.consumers.get(operation.arguments["consumer_tag"])
        original(channel, operation, now)
        tags = [tag for tag, one in channel.outstanding.items() if consumer and one.consumer is consumer]
        taken = [channel.outstanding.pop(tag) for tag in tags]
        broker.deliveries.deliver_ready_all(broker.deliveries.requeue(taken, now), now)


@defect("AMQP-CONSUME-016")
def exclusive_consumers_push_in(broker: Broker) -> None:
    """An exclusive consumer is accepted on a queue that has consumers."""
    original = broker.consuming.check_exclusive_use

    def check_exclusive_use(queue: Queue, *, exclusive: bool) -> None:
        if not exclusive:
            original(queue, exclusive=exclusive)

    replace(broker.consuming, "check_exclusive_use", check_exclusive_use)


@defect("AMQP-CONSUME-017")
def exclusive_consumers_get_company(broker: Broker) -> None:
    """A second consumer is accepted on a queue that is consumed exclusively."""
    original = broker.consuming.check_exclusive_use

    def check_exclusive_use(queue: Queue, *, exclusive: bool) -> None:
        if exclusive:
            original(queue, exclusive=exclusive)

    replace(broker.consuming, "check_exclusive_use", check_exclusive_use)


@defect("AMQP-CONSUME-022")
def everybody_hears_of_cancelled_consumers(broker: Broker) -> None:
    """basic.cancel is sent to clients that did not say they know it."""
    original = broker.topology.notify_cancel

    def notify_cancel(consumer: QueueConsumer) -> None:
        connection = consumer.channel.connection
        kept, connection.capabilities = connection.capabilities, {"consumer_cancel_notify": True}
        original(consumer)
        connection.capabilities = kept

    replace(broker.topology, "notify_cancel", notify_cancel)


@defect("AMQP-GET-001")
def get_counts_itself(broker: Broker) -> None:
    """basic.get-ok counts its own message."""

    @handling(broker, "basic.get")
    def gets(original: Handler, channel: Channel, operation: Method, now: int) -> None:
        queue = broker.topology.usable_queue(channel, operation.arguments["queue"])
        extra = QueueEntry(PublishedMessage.make("", "", {}, b"\0\0", b""), queue.last_position + 1, None)
        if not len(queue.ready):
            original(channel, operation, now)
            return
        queue.append(extra)
        original(channel, operation, now)
        entries = [entry for entry in queue.clear() if entry is not extra]
        for entry in entries:
            queue.append(entry)


@defect("AMQP-GET-004")
def got_is_gone(broker: Broker) -> None:
    """What basic.get got is gone at once."""
    original = broker.deliveries.requeue

    def requeue(deliveries: object, now: int) -> set[Queue]:
        return original([one for one in deliveries if one.consumer is not None], now)  # type: ignore[attr-defined]

    replace(broker.deliveries, "requeue", requeue)


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


@defect("AMQP-CONSUME-039")
def who_was_slow_gets_nothing_more(broker: Broker) -> None:
    """A client that did not read for a while gets no more deliveries when it does."""
    replace(broker, "on_client_ready", lambda connection_id, now: broker.end_event(now))


@defect("AMQP-CONSUME-025")
def the_first_consumer_gets_all(broker: Broker) -> None:
    """Consumers do not take turns: the first one gets what it has room for."""
    replace(broker.deliveries, "take_turns", lambda queue: None)
