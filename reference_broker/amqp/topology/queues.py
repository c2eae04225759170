"""The data of a queue: messages in order, consumers in turn. The rules are elsewhere.

Source: RabbitMQ, "Queues", "Consumer Acknowledgements" (requeueing), "Priority Queue Support".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from plumbline.reference_broker.amqp.messages.message import QueueEntry

if TYPE_CHECKING:
    from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection, Channel


QUEUE_TYPE = "x-queue-type"
CLASSIC, QUORUM = "classic", "quorum"


class EntryQueue:
    """Entries by position: what is new comes last, what is requeued goes where it was."""

    __slots__ = ("_new", "_returned")

    def __init__(self) -> None:
        self._new: deque[QueueEntry] = deque()
        self._returned: list[tuple[int, QueueEntry]] = []

    def __len__(self) -> int:
        return len(self._new) + len(self._returned)

    def __iter__(self) -> Iterator[QueueEntry]:
        yield from (entry for _, entry in sorted(self._returned, key=lambda one: one[0]))
        yield from self._new

    def append(self, entry: QueueEntry) -> None:
        self._new.append(entry)

    def put_back(self, entry: QueueEntry) -> None:
        """To its original position: whatever is returned stood before all that is new."""
        heappush(self._returned, (entry.position, entry))

    def first(self) -> QueueEntry:
        return self._returned[0][1] if self._returned else self._new[0]

    def pop(self) -> QueueEntry:
        return heappop(self._returned)[1] if self._returned else self._new.popleft()

    def clear(self) -> None:
        self._new.clear()
        self._returned.clear()


class PriorityEntryQueue:
    """A lane for each priority, the highest first."""

    __slots__ = ("_lanes",)

    def __init__(self, max_priority: int) -> None:
        self._lanes = [EntryQueue() for _ in range(max_priority + 1)]

    def __len__(self) -> int:
        return sum(map(len, self._lanes))

    def __iter__(self) -> Iterator[QueueEntry]:
        for lane in reversed(self._lanes):
            yield from lane

    def append(self, entry: QueueEntry) -> None:
        self._lane(entry).append(entry)

    def put_back(self, entry: QueueEntry) -> None:
        self._lane(entry).put_back(entry)

    def first(self) -> QueueEntry:
        return self._head().first()

    def pop(self) -> QueueEntry:
        return self._head().pop()

    def clear(self) -> None:
        for lane in self._lanes:
            lane.clear()

    def _lane(self, entry: QueueEntry) -> EntryQueue:
        priority = entry.message.properties.get("priority") or 0
        return self._lanes[min(priority, len(self._lanes) - 1)]

    def _head(self) -> EntryQueue:
        return next(lane for lane in reversed(self._lanes) if len(lane))


class QueueConsumer:
    """A subscription of one channel to one queue."""

    __slots__ = (
        "active",
        "channel",
        "exclusive",
        "no_ack",
        "outstanding",
        "prefetch",
        "prefix",
        "priority",
        "queue",
        "tag",
    )

    def __init__(self, channel: Channel, queue: Queue, tag: str, prefix: bytes) -> None:
        self.channel = channel
        self.queue = queue
        self.tag = tag
        self.prefix = prefix  # how the method frames of its deliveries begin
        self.no_ack = False
        self.exclusive = False
        self.priority = 0
        self.prefetch = 0
        self.outstanding = 0  # deliveries that are not settled
        self.active = False  # it is in the queue's turn


class Queue:
    """One queue. ``arguments`` are as declared; what they mean is in the other attributes."""

    def __init__(self, vhost: str, name: str, *, durable: bool, auto_delete: bool) -> None:
        self.vhost = vhost
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner: AmqpClientConnection | None = None  # of an exclusive queue
        self.arguments: Mapping[str, Any] = {}
        self.message_ttl: int | None = None  # milliseconds
        self.expires: int | None = None  # milliseconds
        self.max_length: int | None = None
        self.max_length_bytes: int | None = None
        self.overflow = "drop-head"
        self.dead_letter_exchange: str | None = None
        self.dead_letter_routing_key: str | None = None
        self.ready: EntryQueue | PriorityEntryQueue = EntryQueue()
        self.bytes_ready = 0  # kept only with max_length_bytes
        self.last_position = 0
        self.delivery_limit: int | None = None  # of a quorum queue
        self.single_active = False  # only the first consumer has a turn
        self.limited = False  # a length limit or a time to live: publishing takes a look
        self.number = 0  # its name in the store
        self.durable_entries: dict[int, QueueEntry] = {}  # what a restart gives back, by position
        self.consumers: list[QueueConsumer] = []
        self.turn: deque[QueueConsumer] = deque()  # those that may take a message, the next one first
        self.deleted = False

    @property
    def kind(self) -> str:
        """``CLASSIC`` or ``QUORUM``."""
        return str(self.arguments.get(QUEUE_TYPE, CLASSIC))

    @property
    def exclusive(self) -> bool:
        return self.owner is not None

    def append(self, entry: QueueEntry) -> None:
        self.ready.append(entry)
        if self.max_length_bytes is not None:
            self.bytes_ready += entry.message.size

    def put_back(self, entry: QueueEntry) -> None:
        self.ready.put_back(entry)
        if self.max_length_bytes is not None:
            self.bytes_ready += entry.message.size

    def pop(self) -> QueueEntry:
        entry = self.ready.pop()
        if self.max_length_bytes is not None:
            self.bytes_ready -= entry.message.size
        return entry

    def clear(self) -> list[QueueEntry]:
        """Take all that is ready."""
        entries = list(self.ready)
        self.ready.clear()
        self.bytes_ready = 0
        return entries

    def enter_turn(self, consumer: QueueConsumer) -> None:
        """Let ``consumer`` have a turn, behind all others of its priority."""
        if self.single_active and consumer is not self.consumers[0]:
            return
        consumer.active = True
        turn = self.turn
        if not turn or turn[-1].priority >= consumer.priority:
            turn.append(consumer)
            return
        place = next(at for at, other in enumerate(turn) if other.priority < consumer.priority)
        turn.insert(place, consumer)

    def leave_turn(self, consumer: QueueConsumer) -> None:
        """No turn for ``consumer`` until it queues up again."""
        if consumer.active:
            consumer.active = False
            self.turn.remove(consumer)

    def remove(self, consumer: QueueConsumer) -> None:
        self.leave_turn(consumer)
        self.consumers.remove(consumer)
        if self.single_active and self.consumers and not self.consumers[0].active:
            self.enter_turn(self.consumers[0])
