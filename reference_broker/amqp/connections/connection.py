"""What the broker knows of one client: its connection and the channels on it. No rules here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plumbline.reference_broker.amqp.config import Permission
from plumbline.reference_broker.amqp.lifecycle import Phase
from plumbline.reference_broker.amqp.messages.message import PublishedMessage, QueueEntry
from plumbline.reference_broker.amqp.topology.queues import Queue, QueueConsumer
from plumbline.wire.amqp import Decoder, Operation


class AmqpClientConnection:
    """One client."""

    def __init__(self, connection_id: int, decoder: Decoder, peer: str = "") -> None:
        self.id = connection_id
        self.peer = peer  # its address
        self.decoder = decoder
        self.out: list[bytes] = []
        self.phase = Phase.HEADER
        self.user = ""
        self.vhost = ""
        self.permission: Permission | None = None  # in the virtual host; None: the user may do everything
        self.mechanism = ""  # of the login
        self.properties: Mapping[str, Any] = {}  # of the client
        self.connected = 0  # nanoseconds since the epoch
        self.capabilities: Mapping[str, Any] = {}  # of the client
        self.channel_max = 0
        self.frame_max = 0  # bytes of the largest frame to this client; 0: no limit
        self.heartbeat = 0  # nanoseconds; 0: none
        self.last_received = 0
        self.spoke = 0
        self.channels: dict[int, Channel] = {}
        self.exclusive_queues: set[Queue] = set()
        self.is_watched = False  # whether a timer looks after its unacknowledged deliveries
        self.is_slow = False  # does not take what it is sent
        self.held_operations: list[Operation] | None = (
            None  # what a publisher has sent while publishers are blocked
        )
        self.ending = False  # the socket is to be closed


class UnackedDelivery:
    """A message that a client has to settle."""

    __slots__ = ("consumer", "entry", "queue", "since")

    def __init__(self, entry: QueueEntry, queue: Queue, consumer: QueueConsumer | None, since: int) -> None:
        self.entry = entry
        self.queue = queue
        self.consumer = consumer  # None after basic.get
        self.since = since


class Transaction:
    """What tx.commit will do."""

    __slots__ = ("publishes", "settlements")

    def __init__(self) -> None:
        self.publishes: list[tuple[PublishedMessage, bool, list[Queue]]] = []  # mandatory or not; where to
        self.settlements: list[tuple[dict[int, UnackedDelivery], str]] = []  # "ack", "requeue" or "discard"


class Channel:
    """One channel of a connection."""

    def __init__(self, connection: AmqpClientConnection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.closing = False  # channel.close was sent: only its close-ok counts
        self.closed = False
        self.consumers: dict[str, QueueConsumer] = {}
        self.outstanding: dict[int, UnackedDelivery] = {}  # by delivery tag, ascending
        self.last_tag = 0
        self.prefetch = 0  # for the consumers to come
        self.limit = 0  # for all consumers together
        self.limited = 0  # how many deliveries count against it
        self.last_queue = ""
        self.confirms = False
        self.published = 0  # the number of the last message that will be confirmed
        self.acked: list[int] = []  # to be confirmed at the end of this event
        self.nacked: list[int] = []
        self.transaction: Transaction | None = None
        self.reply_address = ""  # where direct replies to this channel go; "": it takes none
        self.reply_tag = ""  # of the consumer that gets them
