"""The broker core: a state machine from client operations to outputs.

No socket, file, clock, source of chance or task: ``now`` (nanoseconds since the epoch) comes with every call,
chance comes as ``choose(n)``, a number below n, and ``next_wake`` says when to call ``wake``. What has to
survive is entered in a write queue; the shell writes it before it sends the outputs of the same call.

The broker consists of parts. Each part has its own rules and state, and gets in its constructor the other
parts that it needs. ``lifecycle`` says which method is handled when; the handler is a method ``on_...``
of one of the parts.
Sources: AMQP 0-9-1, sections 1.2, 4.2 and 4.3; RabbitMQ, "Protocol Extensions".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from plumbline.bounds import UNFINISHED_BEFORE_LOGIN
from plumbline.reference_broker.amqp.access import Access
from plumbline.reference_broker.amqp.alarms import OF_CONNECTIONS, Alarms, AmqpTimer
from plumbline.reference_broker.amqp.certificates import TlsTerms
from plumbline.reference_broker.amqp.config import NS, Config
from plumbline.reference_broker.amqp.connections.blocking import Blocking
from plumbline.reference_broker.amqp.connections.channels import Channels
from plumbline.reference_broker.amqp.connections.closing import Closing
from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection, Channel
from plumbline.reference_broker.amqp.connections.handshake import Handshake
from plumbline.reference_broker.amqp.connections.heartbeats import Heartbeats
from plumbline.reference_broker.amqp.errors import CONNECTION_FORCED, PRECONDITION_FAILED, AmqpReplyError
from plumbline.reference_broker.amqp.lifecycle import OTHER, ChannelPhase, Phase, handlers
from plumbline.reference_broker.amqp.messages.acknowledging import Acknowledging, Transactions
from plumbline.reference_broker.amqp.messages.consuming import Consuming
from plumbline.reference_broker.amqp.messages.delivery import Deliveries
from plumbline.reference_broker.amqp.messages.direct_replies import DirectReplies
from plumbline.reference_broker.amqp.messages.publishing import Confirms, Publishing
from plumbline.reference_broker.amqp.names import unique_names
from plumbline.reference_broker.amqp.outbox import CloseOutput, Outbox, Output, SendOutput
from plumbline.reference_broker.amqp.storage.recovery import Recovery
from plumbline.reference_broker.amqp.storage.store import AmqpRecordStore
from plumbline.reference_broker.amqp.topology.exchange_methods import ExchangeMethods
from plumbline.reference_broker.amqp.topology.exchanges import VirtualHost
from plumbline.reference_broker.amqp.topology.queue_methods import QueueMethods
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.reference_broker.amqp.topology.topology import Topology
from plumbline.reference_broker.write_queue import WriteQueue
from plumbline.wire.amqp import AmqpError, Decoder, Limits, Method, Operation, Sender

__all__ = ["Broker", "CloseOutput", "Output", "SendOutput"]

# Before the login no method has a content.
_HANDSHAKE_LIMITS = Limits(131072, max_unfinished=UNFINISHED_BEFORE_LOGIN)
# A constant of a module is found quicker than a member of an enum.
_RUNNING, _OPENED, _CLOSING = Phase.RUNNING, ChannelPhase.OPENED, ChannelPhase.CLOSING


class Broker:
    """One AMQP server: its parts, and what happens to them from outside."""

    def __init__(
        self, config: Config, choose: Callable[[int], int], write_queue: WriteQueue | None = None
    ) -> None:
        self.config = config
        self.vhosts = {name: VirtualHost(name) for name in config.vhosts}
        self.connections: dict[int, AmqpClientConnection] = {}
        self.alarms = Alarms()
        self.store = AmqpRecordStore(write_queue)
        self.outbox = Outbox()
        self.access = Access(config)
        unique = unique_names(choose)
        timeout = round(config.consumer_timeout * NS)
        self.deliveries = Deliveries(self.vhosts, self.store, self.alarms, self.outbox, timeout)
        self.topology = Topology(
            self.vhosts, self.deliveries, self.access, self.store, self.alarms, self.outbox
        )
        self.replies = DirectReplies(self.outbox, unique)
        self.queue_methods = QueueMethods(
            self.topology,
            self.deliveries,
            self.store,
            self.replies,
            self.outbox,
            unique,
            config.queue_types,
        )
        self.exchange_methods = ExchangeMethods(self.topology, self.store, self.outbox)
        self.confirms = Confirms(self.outbox)
        self.publishing = Publishing(
            self.vhosts,
            self.deliveries,
            self.confirms,
            self.replies,
            self.access,
            self.outbox,
            config.max_message_size,
        )
        self.consuming = Consuming(self.topology, self.deliveries, self.replies, self.outbox, unique)
        self.acknowledging = Acknowledging(self.deliveries, self.outbox)
        self.transactions = Transactions(self.publishing, self.acknowledging, self.outbox)
        self.channels = Channels(self.topology, self.deliveries, self.transactions, self.outbox)
        self.closing = Closing(
            self.channels,
            self.alarms,
            self.outbox,
            refusal_delay=config.refusal_delay,
            close_timeout=config.close_timeout,
        )
        self.heartbeats = Heartbeats(self.alarms, self.outbox)
        self.blocking = Blocking(self.outbox)
        self.handshake = Handshake(
            config,
            self.vhosts,
            self.access,
            self.closing,
            self.heartbeats,
            self.blocking,
            self.alarms,
            self.outbox,
        )
        self.tls = TlsTerms(config.tls) if config.tls is not None else None
        self.recovery = Recovery(self.topology, self.deliveries, self.store)
        self.handlers = handlers(self._parts(), self.answer, self.closing.close_without_reply)

    def _parts(self) -> tuple[object, ...]:
        """Those with handlers of methods."""
        return (
            self.handshake,
            self.closing,
            self.channels,
            self.queue_methods,
            self.exchange_methods,
            self.publishing,
            self.confirms,
            self.consuming,
            self.acknowledging,
            self.transactions,
        )

    # What happens from outside

    def on_connected(self, connection_id: int, now: int, peer: str) -> list[Output]:
        """A client has connected from the address ``peer``."""
        connection = AmqpClientConnection(connection_id, Decoder(Sender.CLIENT, _HANDSHAKE_LIMITS), peer)
        connection.last_received = connection.spoke = connection.connected = now
        self.connections[connection_id] = connection
        wait = round(self.config.handshake_timeout * NS)
        self.alarms.set((AmqpTimer.HANDSHAKE, connection_id), now + wait)
        return self.end_event(now)

    def on_data(self, connection_id: int, data: bytes | Sequence[Operation], now: int) -> list[Output]:
        """A client has sent bytes, in any segmentation, or whole operations."""
        connection = self.connections.get(connection_id)
        if connection is None or connection.ending:  # its last bytes were under way
            return []
        connection.last_received = now
        operations, error = self.decode(connection, data)
        if connection.held_operations is not None:
            connection.held_operations += operations
        else:
            self.handle_all(connection, operations, now)
        if error is not None and not connection.ending:
            self.closing.handle_malformed(connection, error, now)
        return self.end_event(now)

    def on_disconnected(self, connection_id: int, now: int) -> list[Output]:
        """A client is gone."""
        connection = self.connections.pop(connection_id, None)
        if connection is not None:
            connection.ending = True
            self.channels.leave_all(connection, now)
            for alarm in OF_CONNECTIONS:
                self.alarms.clear((alarm, connection_id))
        return self.end_event(now)

    def on_client_slow(self, connection_id: int) -> None:
        """A client does not take what it is sent: it gets no deliveries until it does."""
        if (connection := self.connections.get(connection_id)) is not None:
            connection.is_slow = True

    def on_client_ready(self, connection_id: int, now: int) -> list[Output]:
        """A client has taken what it was sent."""
        connection = self.connections.get(connection_id)
        if connection is None:
            return []
        connection.is_slow = False
        for channel in list(connection.channels.values()):
            self.deliveries.offer_again(channel, now)
        return self.end_event(now)

    def block(self, reason: str, now: int) -> list[Output]:
        """Publishers have to wait from now on."""
        self.blocking.block(self.connections.values(), reason)
        return self.flush(now)

    def unblock(self, now: int) -> list[Output]:
        """Publishers may go on; what they sent meanwhile comes first."""
        self.blocking.reason = None
        for connection in list(self.connections.values()):
            self.blocking.notify_end(connection)
            held, connection.held_operations = connection.held_operations, None
            self.handle_all(connection, held or (), now)
        return self.end_event(now)

    def next_wake(self) -> int | None:
        """When ``wake`` has something to do; None for never."""
        return self.alarms.next()

    def wake(self, now: int) -> list[Output]:
        """Run what is due."""
        for alarm, whose in self.alarms.due(now):
            if isinstance(whose, Queue):
                if alarm is AmqpTimer.HEAD:
                    self.deliveries.drop_expired(whose, now)
                else:
                    self.topology.remove_queue(whose)
            elif (connection := self.connections.get(whose)) is not None:
                self.on_timer(alarm, connection, now)
        return self.end_event(now)

    def on_timer(self, alarm: AmqpTimer, connection: AmqpClientConnection, now: int) -> None:
        """A timer of a connection."""
        match alarm:
            case AmqpTimer.BEAT:
                self.heartbeats.send_heartbeat(connection, now)
            case AmqpTimer.SILENCE:
                self.heartbeats.check_heartbeat(connection, now)
            case AmqpTimer.UNSETTLED:
                self.end_overdue(connection, now)
            case _:
                self.outbox.end(connection)

    def end_overdue(self, connection: AmqpClientConnection, now: int) -> None:
        """Close the channels whose consumers hold a delivery for too long."""
        while (channel := self.deliveries.overdue(connection, now)) is not None:
            text = (
                f"delivery acknowledgement on channel {channel.number} timed out. Timeout value used: "
                f"{round(1000 * self.config.consumer_timeout)} ms"
            )
            self.channels.close(channel, PRECONDITION_FAILED, text, (0, 0), now)

    def recover(self, files: Mapping[str, bytes], now: int) -> list[str]:
        """Before any client connects: take up what the files hold; returns warnings."""
        return self.recovery.recover(files, now)

    def stop(self, now: int) -> list[Output]:
        """The broker ends, in order."""
        for connection in list(self.connections.values()):
            if connection.phase is Phase.RUNNING:
                text = "broker forced connection closure with reason 'shutdown'"
                self.closing.close(connection, CONNECTION_FORCED, text, (0, 0), 0, now)
            self.outbox.end(connection)
        self.store.record_shutdown(self.vhosts.values())
        return self.flush(now)

    # What comes in

    def decode(
        self, connection: AmqpClientConnection, data: bytes | Sequence[Operation]
    ) -> tuple[Sequence[Operation], AmqpError | None]:
        """The operations in ``data``, and the error after them."""
        if not isinstance(data, bytes):
            return data, None
        try:
            return connection.decoder.feed(data), None
        except AmqpError as error:
            return error.operations, error.detached()

    def handle_all(self, connection: AmqpClientConnection, operations: Sequence[Operation], now: int) -> None:
        """In their order; while publishers are blocked, up to the first message."""
        for place, operation in enumerate(operations):
            if connection.ending:
                return
            if self.blocking.reason is not None and operation.method == "basic.publish":
                connection.held_operations = list(operations[place:])
                return
            self.handle(connection, operation, now)

    def handle(self, connection: AmqpClientConnection, operation: Operation, now: int) -> None:
        """One operation: call what ``lifecycle`` has for it."""
        phase: Phase | ChannelPhase = connection.phase
        if not isinstance(operation, Method):
            if phase is Phase.HEADER:
                row = self.handlers[phase]
                row.get(operation.method, row[OTHER])(connection, operation, now)
            return
        subject: AmqpClientConnection | Channel = connection
        if phase is _RUNNING and operation.channel:
            channel = connection.channels.get(operation.channel)
            if channel is None:
                phase = ChannelPhase.UNOPENED
            else:
                subject = channel
                phase = _CLOSING if channel.closing else _OPENED
        row = self.handlers[phase]
        handler = row.get(operation.shape.name) or row[OTHER]
        try:
            handler(subject, operation, now)
        except AmqpReplyError as fault:
            self.closing.fail(connection, operation, fault, now)

    # What goes out

    def answer(self, subject: AmqpClientConnection | Channel, method: str) -> None:
        """Send a method without arguments on a channel, or on channel 0 of a connection."""
        if isinstance(subject, Channel):
            self.outbox.answer(subject, method)
        else:
            self.outbox.send(subject, 0, method)

    def end_event(self, now: int) -> list[Output]:
        """The end of an event: what it has to confirm, then what it has to send."""
        self.confirms.send()
        return self.flush(now)

    def flush(self, now: int) -> list[Output]:
        """What this event has to send and close; what has to survive is entered in the write queue first."""
        if self.store.records:
            self.store.commit(self.vhosts.values())
        return self.outbox.take(now)
