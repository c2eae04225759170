"""Channels: how they open and close, and what their end does to consumers and deliveries.

Sources: AMQP 0-9-1 XML, classes channel and access; AMQP 0-9-1, 2.2.5 ("The Channel Class").
"""

from __future__ import annotations

from collections.abc import Iterable

from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection, Channel
from plumbline.reference_broker.amqp.errors import NOT_ALLOWED, NOT_IMPLEMENTED, AmqpReplyError, reply_text
from plumbline.reference_broker.amqp.messages.acknowledging import Transactions
from plumbline.reference_broker.amqp.messages.delivery import Deliveries
from plumbline.reference_broker.amqp.outbox import Outbox
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.reference_broker.amqp.topology.topology import Topology
from plumbline.wire.amqp import Method


class Channels:
    """The channels of all connections."""

    def __init__(
        self, topology: Topology, deliveries: Deliveries, transactions: Transactions, outbox: Outbox
    ) -> None:
        self.topology = topology
        self.deliveries = deliveries
        self.transactions = transactions
        self.outbox = outbox

    def on_channel_open(self, connection: AmqpClientConnection, operation: Method, now: int) -> None:
        """channel.open."""
        self.open(connection, operation.channel)

    def open(self, connection: AmqpClientConnection, number: int) -> None:
        """Servers: how many there are counts, not their numbers. Raises ``AmqpReplyError`` (530)."""
        count, most = len(connection.channels), connection.channel_max
        if count >= most:
            text = f"number of channels opened ({count}) has reached the negotiated channel_max ({most})"
            raise AmqpReplyError(NOT_ALLOWED, text, cause=(0, 0))
        connection.channels[number] = Channel(connection, number)
        self.outbox.send(connection, number, "channel.open-ok", "")

    def on_channel_close(self, channel: Channel, operation: Method, now: int) -> None:
        """channel.close of a client."""
        self.silence([channel])
        self.leave(channel, now)
        del channel.connection.channels[channel.number]
        self.outbox.answer(channel, "channel.close-ok")

    def on_channel_close_ok(self, channel: Channel, operation: Method, now: int) -> None:
        """channel.close-ok: the channel's number is free again."""
        del channel.connection.channels[channel.number]

    def on_channel_flow(self, channel: Channel, operation: Method, now: int) -> None:
        """channel.flow: servers only accept active=true."""
        if not operation.arguments["active"]:
            raise AmqpReplyError(NOT_IMPLEMENTED, "active=false")
        self.outbox.answer(channel, "channel.flow-ok", True)

    def on_access_request(self, channel: Channel, operation: Method, now: int) -> None:
        """access.request of old clients."""
        self.outbox.answer(channel, "access.request-ok", 1)

    def close(self, channel: Channel, code: int, detail: str, cause: tuple[int, int], now: int) -> None:
        """channel.close of the broker; ``cause`` is the class and method that were wrong."""
        self.silence([channel])
        self.outbox.answer(channel, "channel.close", code, reply_text(code, detail), *cause)
        self.leave(channel, now)

    def leave(self, channel: Channel, now: int) -> None:
        """The channel ends: consumers go, and what is outstanding is requeued."""
        channel.closed = True
        if channel.transaction is not None:
            self.transactions.restore_outstanding(channel, channel.transaction)
        consumers, channel.consumers = channel.consumers, {}
        left: list[Queue] = []
        for consumer in consumers.values():
            if not consumer.queue.deleted:
                consumer.queue.remove(consumer)
                left.append(consumer.queue)
        outstanding, channel.outstanding = channel.outstanding, {}
        queues = self.deliveries.requeue(outstanding.values(), now)
        for queue in left:
            self.topology.consumer_gone(queue, now)
        self.deliveries.deliver_ready_all(queues, now)

    def leave_all(self, connection: AmqpClientConnection, now: int) -> None:
        """The connection ends, and with it its channels and exclusive queues."""
        channels = list(connection.channels.values())
        connection.channels.clear()
        self.silence(channels)
        for channel in channels:
            self.leave(channel, now)
        for queue in sorted(connection.exclusive_queues, key=lambda queue: queue.name):
            self.topology.remove_queue(queue)

    def silence(self, channels: Iterable[Channel]) -> None:
        """None of them gets what another gives back."""
        for channel in channels:
            channel.closing = True
            for consumer in channel.consumers.values():
                if not consumer.queue.deleted:
                    consumer.queue.leave_turn(consumer)
