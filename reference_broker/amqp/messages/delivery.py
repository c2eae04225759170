"""Delivery from queues to consumers: turns, prefetch, expiry, overflow.

Sources: RabbitMQ, "Consumer Prefetch", "Consumer Priorities", "Time-To-Live and Expiration", "Queue Length
Limit", "Dead Letter Exchanges".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from plumbline.reference_broker.amqp.alarms import Alarms, AmqpTimer
from plumbline.reference_broker.amqp.connections.connection import (
    AmqpClientConnection,
    Channel,
    UnackedDelivery,
)
from plumbline.reference_broker.amqp.messages.dead_letters import (
    DELIVERY_LIMIT,
    EXPIRED,
    MAXLEN,
    dead_letter,
    would_cycle,
)
from plumbline.reference_broker.amqp.messages.message import PublishedMessage, QueueEntry, altered
from plumbline.reference_broker.amqp.outbox import Outbox
from plumbline.reference_broker.amqp.storage.store import AmqpRecordStore
from plumbline.reference_broker.amqp.topology.exchanges import VirtualHost
from plumbline.reference_broker.amqp.topology.queues import QUORUM, Queue, QueueConsumer
from plumbline.wire.amqp import Integer
from plumbline.wire.amqp.frames import FRAME_HEAD

DELIVERY_COUNT = "x-delivery-count"
MILLISECOND = 1_000_000
_TAG = struct.Struct(">QB")
_METHOD_FRAME = 1
_END = b"\xce"


class Deliveries:
    """What queues do with messages."""

    def __init__(
        self,
        vhosts: Mapping[str, VirtualHost],
        store: AmqpRecordStore,
        alarms: Alarms,
        outbox: Outbox,
        consumer_timeout: int,
    ) -> None:
        self.vhosts = vhosts
        self.store = store
        self.alarms = alarms
        self.outbox = outbox
        self.consumer_timeout = consumer_timeout  # nanoseconds

    # Into a queue

    def enqueue(self, queue: Queue, message: PublishedMessage, now: int) -> bool:
        """Put a message into a queue and hand on what can be; False if the queue rejects it."""
        if queue.limited and self.is_rejected_by_full_queue(queue, message):
            if queue.overflow == "reject-publish-dlx":
                self.dead_letter(queue, message, MAXLEN, now)
            return False
        queue.last_position += 1
        entry = QueueEntry(message, queue.last_position, self.expiry(queue, message, now))
        if self.store.is_durable_message(queue, message):
            self.store.record_message_stored(queue, entry)
        queue.append(entry)
        if queue.turn:
            self.deliver_ready(queue, now)
        if queue.limited:
            self.drop_overflow(queue, now)
        if entry.expires is not None:
            self.drop_expired(queue, now)
        return True

    def is_rejected_by_full_queue(self, queue: Queue, message: PublishedMessage) -> bool:
        """Whether a full queue takes no more, as ``x-overflow`` says."""
        return queue.overflow != "drop-head" and self.is_over(queue, 1, message.size)

    def is_over(self, queue: Queue, more: int, more_bytes: int) -> bool:
        """Only what is ready counts."""
        if queue.max_length is not None and len(queue.ready) + more > queue.max_length:
            return True
        return queue.max_length_bytes is not None and queue.bytes_ready + more_bytes > queue.max_length_bytes

    def drop_overflow(self, queue: Queue, now: int) -> None:
        """The oldest go first. A queue that rejects what is too much keeps what comes back to it."""
        if queue.overflow != "drop-head":
            return
        while len(queue.ready) and self.is_over(queue, 0, 0):
            entry = queue.pop()
            self.discard(queue, entry)
            self.dead_letter(queue, entry.message, MAXLEN, now)
        self.drop_expired(queue, now)

    def expiry(self, queue: Queue, message: PublishedMessage, now: int) -> int | None:
        """The sooner of the queue's and the message's own time to live, as a moment."""
        ttl = queue.message_ttl
        own = message.properties.get("expiration")
        if own is not None:
            ttl = int(own) if ttl is None else min(ttl, int(own))
        return None if ttl is None else now + ttl * MILLISECOND

    def drop_expired(self, queue: Queue, now: int) -> None:
        """Expired messages at the head go; those behind the head are not looked at."""
        while len(queue.ready):
            expires = queue.ready.first().expires
            if expires is None:
                return
            if expires > now:
                self.alarms.set((AmqpTimer.HEAD, queue), expires)
                return
            entry = queue.pop()
            self.discard(queue, entry)
            self.dead_letter(queue, entry.message, EXPIRED, now)

    def discard(self, queue: Queue, entry: QueueEntry) -> None:
        """The entry is gone from its queue for good."""
        if queue.durable_entries:
            self.store.record_message_removed(queue, entry)

    def dead_letter(self, queue: Queue, message: PublishedMessage, reason: str, now: int) -> None:
        """Publish it again where ``x-dead-letter-exchange`` says, if it says so and the exchange exists."""
        if queue.dead_letter_exchange is None:
            return
        vhost = self.vhosts[queue.vhost]
        exchange = vhost.exchanges.get(queue.dead_letter_exchange)
        if exchange is None:
            return
        letter = dead_letter(queue, message, reason, now)
        for target in vhost.route_all(exchange, letter.routing_key, letter.headers):
            if not would_cycle(letter, target, reason):
                self.enqueue(target, letter, now)

    # Out of a queue

    def deliver_ready(self, queue: Queue, now: int) -> None:
        """Deliver while there is a message and a consumer that may have it."""
        turn, ready = queue.turn, queue.ready
        while turn and len(ready):
            consumer = turn[0]
            if not self.has_capacity(consumer):
                consumer.active = False
                turn.popleft()
                continue
            first = ready.first()
            if first.expires is not None and first.expires < now:  # what expires at once may be taken at once
                self.drop_expired(queue, now)
                continue
            if len(turn) > 1:
                self.take_turns(queue)
            self.deliver(consumer, queue.pop(), now)
        self.drop_expired(queue, now)  # what is at the head now has its time, too

    def has_capacity(self, consumer: QueueConsumer) -> bool:
        """Prefetch limits count what is not settled; without acknowledgements nothing is."""
        channel = consumer.channel
        if channel.connection.is_slow:
            return False
        if consumer.no_ack:
            return True
        if consumer.prefetch and consumer.outstanding >= consumer.prefetch:
            return False
        return not channel.limit or channel.limited < channel.limit

    def take_turns(self, queue: Queue) -> None:
        """Round robin among consumers of the same priority."""
        consumer = queue.turn.popleft()
        queue.enter_turn(consumer)

    def deliver(self, consumer: QueueConsumer, entry: QueueEntry, now: int) -> None:
        """basic.deliver."""
        channel, queue, message = consumer.channel, consumer.queue, entry.message
        tag = self.next_tag(channel)
        payload = consumer.prefix + _TAG.pack(tag, self.is_redelivered(entry)) + message.route
        head = FRAME_HEAD.pack(_METHOD_FRAME, channel.number, len(payload))
        self.outbox.send_content(channel, head + payload + _END, message)
        if consumer.no_ack:
            self.discard(queue, entry)
            return
        channel.outstanding[tag] = UnackedDelivery(entry, queue, consumer, now)
        if not channel.connection.is_watched:
            self.watch(channel.connection, now)
        consumer.outstanding += 1
        channel.limited += 1

    def watch(self, connection: AmqpClientConnection, now: int) -> None:
        """Look at its deliveries once one of them may have waited too long for its acknowledgement."""
        connection.is_watched = True
        self.alarms.set((AmqpTimer.UNSETTLED, connection.id), now + self.consumer_timeout)

    def overdue(self, connection: AmqpClientConnection, now: int) -> Channel | None:
        """A channel whose consumer holds a delivery for too long. Without one the connection is watched on
        while it has deliveries."""
        connection.is_watched = False
        soonest: int | None = None
        for channel in connection.channels.values():
            for delivery in channel.outstanding.values():
                if delivery.consumer is None:
                    continue
                if delivery.since + self.consumer_timeout <= now:
                    return channel
                soonest = delivery.since if soonest is None else min(soonest, delivery.since)
                break  # those behind it are younger
        if soonest is not None:
            self.watch(connection, soonest)
        return None

    def next_tag(self, channel: Channel) -> int:
        """Delivery tags count from 1 on each channel."""
        channel.last_tag += 1
        return channel.last_tag

    def is_redelivered(self, entry: QueueEntry) -> bool:
        return entry.redelivered

    # Back into a queue, or settled

    def settle(self, delivery: UnackedDelivery) -> None:
        """It no longer counts against a prefetch limit."""
        consumer = delivery.consumer
        if consumer is None:
            return
        consumer.outstanding -= 1
        channel = consumer.channel
        channel.limited -= 1
        if channel.limit:
            self.requeue_consumers(channel)
        elif not consumer.active:
            self.wait_for_turn(consumer)

    def requeue_consumers(self, channel: Channel) -> None:
        """All consumers of a channel get another chance."""
        for consumer in channel.consumers.values():
            if not consumer.active:
                self.wait_for_turn(consumer)

    def offer_again(self, channel: Channel, now: int) -> None:
        """All consumers of a channel may have room again: deliver what their queues have."""
        self.requeue_consumers(channel)
        self.deliver_ready_all({consumer.queue for consumer in channel.consumers.values()}, now)

    def wait_for_turn(self, consumer: QueueConsumer) -> None:
        """A consumer that may take a message is in its queue's turn."""
        if consumer.channel.consumers.get(consumer.tag) is consumer and not consumer.queue.deleted:
            consumer.queue.enter_turn(consumer)

    def requeue(self, deliveries: Iterable[UnackedDelivery], now: int) -> set[Queue]:
        """Back to where they were, marked as delivered before; the queues still have to be pumped.

        Also that of a message which was delivered too often: it makes room.
        """
        queues = set()
        for delivery in deliveries:
            queue, entry = delivery.queue, delivery.entry
            if queue.deleted:
                continue
            entry.redelivered = True
            if queue.kind != QUORUM or self.count_delivery(queue, entry, now):
                self.put_back(queue, entry)
            queues.add(queue)
        return queues

    def count_delivery(self, queue: Queue, entry: QueueEntry, now: int) -> bool:
        """A quorum queue says how often it has delivered a message, and dead-letters it beyond its limit:
        then it is False. RabbitMQ, "Quorum Queues" ("Poison Message Handling")."""
        message = entry.message
        before = message.headers.get(DELIVERY_COUNT)
        count = before + 1 if isinstance(before, int) else 1
        headers = {**message.headers, DELIVERY_COUNT: Integer(count, "l")}
        properties = {**message.properties, "headers": headers}
        if queue.delivery_limit is not None and count > queue.delivery_limit:
            self.discard(queue, entry)
            self.dead_letter(queue, message, DELIVERY_LIMIT, now)
            return False
        entry.message = altered(message, message.exchange, message.routing_key, properties)
        return True

    def put_back(self, queue: Queue, entry: QueueEntry) -> None:
        """To its original position if possible. RabbitMQ, "Consumer Acknowledgements", requeueing."""
        queue.put_back(entry)

    def deliver_ready_all(self, queues: Iterable[Queue], now: int) -> None:
        for queue in sorted(queues, key=lambda queue: queue.name):
            if not queue.deleted:
                self.deliver_ready(queue, now)
                if queue.limited:
                    self.drop_overflow(queue, now)
