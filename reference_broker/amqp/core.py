"""The broker as a state machine: operations of clients in, what to send to whom out.

No socket, file, clock, source of chance or task: ``now`` (nanoseconds since the epoch) comes with every call,
chance comes as ``choose(n)``, a number below n, and ``next_wake`` says when to call ``wake``. What has to
survive is entered in a ledger; the shell writes it before it sends what came of the same call. Every rule of
the protocol is one small method or one attribute, here or in what ``Broker`` consists of; a defect replaces
exactly one of them.
Sources: AMQP 0-9-1, sections 1.2, 4.2 and 4.3; RabbitMQ, "Protocol Extensions".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plumbline.reference_broker.amqp.config import NS
from plumbline.reference_broker.amqp.connection import Channel, Connection, Phase
from plumbline.reference_broker.amqp.errors import (
    CHANNEL_ERROR,
    COMMAND_INVALID,
    INTERNAL_ERROR,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    AmqpFault,
    reply_text,
)
from plumbline.reference_broker.amqp.exchange_methods import ExchangeMethods
from plumbline.reference_broker.amqp.exchanges import VirtualHost
from plumbline.reference_broker.amqp.handshake import Handshake
from plumbline.reference_broker.amqp.queues import Queue
from plumbline.reference_broker.amqp.state import Alarm, Close, Output, Send
from plumbline.reference_broker.amqp.storage.restoring import Restored, read_journal
from plumbline.wire.amqp import (
    PROTOCOL_HEADER,
    AmqpError,
    Decoder,
    Limits,
    Method,
    Operation,
    ProtocolHeader,
    Sender,
)
from plumbline.wire.errors import ErrorKind

__all__ = ["Broker", "Close", "Output", "Send"]

# The methods of a client on an open channel, and who answers them.
_METHODS = {
    "access.request": "requests_access",
    "basic.ack": "acked",
    "basic.cancel": "cancels",
    "basic.cancel-ok": "confirms_cancel",
    "basic.consume": "consumes",
    "basic.get": "gets",
    "basic.nack": "nacked",
    "basic.publish": "published",
    "basic.qos": "sets_qos",
    "basic.recover": "recovered",
    "basic.recover-async": "recovered",
    "basic.reject": "rejected",
    "channel.close": "closes_channel",
    "channel.flow": "flows",
    "confirm.select": "selected_confirms",
    "exchange.bind": "binds_exchange",
    "exchange.declare": "declares_exchange",
    "exchange.delete": "deletes_exchange",
    "exchange.unbind": "unbinds_exchange",
    "queue.bind": "binds_queue",
    "queue.declare": "declares_queue",
    "queue.delete": "deletes_queue",
    "queue.purge": "purges",
    "queue.unbind": "unbinds_queue",
    "tx.commit": "commits_transaction",
    "tx.rollback": "rolls_back",
    "tx.select": "selected_transaction",
}
_HANDSHAKE_FRAME_MAX = 131072


class Broker(ExchangeMethods, Handshake):
    """One AMQP server."""

    def opened(self, connection_id: int, now: int, peer: str) -> list[Output]:
        """A client has connected from the address ``peer``."""
        connection = Connection(connection_id, peer, Decoder(Sender.CLIENT, Limits(_HANDSHAKE_FRAME_MAX)))
        connection.heard = connection.spoke = now
        self.connections[connection_id] = connection
        wait = round(self.config.handshake_timeout * NS)
        self.timers.set((Alarm.HANDSHAKE, connection_id), now + wait)
        return self.finish(now)

    def received(self, connection_id: int, data: bytes | Sequence[Operation], now: int) -> list[Output]:
        """A client has sent bytes, in any segmentation, or whole operations."""
        connection = self.connections.get(connection_id)
        if connection is None or connection.ending:  # its last bytes were under way
            return []
        connection.heard = now
        operations, error = self.decoded(connection, data)
        if connection.held is not None:
            connection.held += operations
        else:
            self.handle_all(connection, operations, now)
        if error is not None and not connection.ending:
            self.malformed(connection, error, now)
        return self.finish(now)

    def closed(self, connection_id: int, now: int) -> list[Output]:
        """A client is gone."""
        connection = self.connections.pop(connection_id, None)
        if connection is not None:
            connection.ending = True
            self.leave_channels(connection, now)
            for alarm in (Alarm.HANDSHAKE, Alarm.END, Alarm.BEAT, Alarm.SILENCE):
                self.timers.clear((alarm, connection_id))
        return self.finish(now)

    def lags(self, connection_id: int) -> None:
        """A client does not take what it is sent: it gets no deliveries until it does."""
        if (connection := self.connections.get(connection_id)) is not None:
            connection.lagging = True

    def caught_up(self, connection_id: int, now: int) -> list[Output]:
        """A client has taken what it was sent."""
        connection = self.connections.get(connection_id)
        if connection is None:
            return []
        connection.lagging = False
        for channel in list(connection.channels.values()):
            self.requeue_consumers(channel)
            self.pump_all({consumer.queue for consumer in channel.consumers.values()}, now)
        return self.finish(now)

    def wake(self, now: int) -> list[Output]:
        """Run what is due."""
        for alarm, whose in self.timers.due(now):
            if isinstance(whose, Queue):
                if alarm is Alarm.HEAD:
                    self.drop_expired(whose, now)
                else:
                    self.remove_queue(whose)
            elif (connection := self.connections.get(whose)) is not None:
                self.ring(alarm, connection, now)
        return self.finish(now)

    def ring(self, alarm: Alarm, connection: Connection, now: int) -> None:
        """A timer of a connection."""
        match alarm:
            case Alarm.BEAT:
                self.beat(connection, now)
            case Alarm.SILENCE:
                self.check_silence(connection, now)
            case _:
                self.end(connection)

    def next_wake(self) -> int | None:
        """When ``wake`` has something to do; None for never."""
        return self.timers.next()

    def recover(self, files: Mapping[str, bytes], now: int) -> list[str]:
        """Before anybody connects: take up what the files of before tell; gives warnings."""
        restored = Restored()
        warnings = read_journal(files, restored)
        self.restore(restored, now)
        self.store.rewrite(self.vhosts.values())
        return warnings

    def restore(self, restored: Restored, now: int) -> None:
        for name in sorted(restored.vhost_names()):
            vhost = self.vhosts.setdefault(name, VirtualHost(name))
            for exchange in restored.exchanges_of(name):
                vhost.exchanges[exchange.name] = exchange
        self.restore_queues(restored, now)
        for name, vhost in self.vhosts.items():
            for binding in restored.bindings_of(name):
                vhost.bind(binding)

    # What comes in

    def decoded(
        self, connection: Connection, data: bytes | Sequence[Operation]
    ) -> tuple[Sequence[Operation], AmqpError | None]:
        if not isinstance(data, bytes):
            return data, None
        try:
            return connection.decoder.feed(data), None
        except AmqpError as error:
            return error.operations, error

    def handle_all(self, connection: Connection, operations: Sequence[Operation], now: int) -> None:
        """In their order; while publishers are blocked, up to the first message."""
        for place, operation in enumerate(operations):
            if connection.ending:
                return
            if self.blocked is not None and operation.method == "basic.publish":
                connection.held = list(operations[place:])
                return
            self.handle(connection, operation, now)

    def unblock(self, now: int) -> list[Output]:
        """Publishers may go on, with what they have sent meanwhile first."""
        self.blocked = None
        for connection in list(self.connections.values()):
            if connection.phase is Phase.RUNNING and self.knows_blocked(connection):
                self.send(connection, 0, "connection.unblocked")
            held, connection.held = connection.held, None
            self.handle_all(connection, held or (), now)
        return self.finish(now)

    def handle(self, connection: Connection, operation: Operation, now: int) -> None:
        """One operation that came whole."""
        phase = connection.phase
        if phase is Phase.RUNNING:
            if isinstance(operation, Method):
                self.on_channel(connection, operation, now)
        elif phase is Phase.HEADER:
            if isinstance(operation, ProtocolHeader):
                self.greeted(connection, operation, now)
        elif isinstance(operation, Method):
            if phase is Phase.CLOSING:
                self.while_closing(connection, operation)
            elif phase is not Phase.REFUSED:
                try:
                    self.negotiate(connection, operation, now)
                except AmqpFault as fault:
                    self.fail(connection, operation, fault, now)

    def while_closing(self, connection: Connection, operation: Method) -> None:
        """connection.close was sent: nothing counts but its answer, or the client's own."""
        if operation.method == "connection.close-ok":
            self.end(connection)
        elif operation.method == "connection.close":
            self.send(connection, 0, "connection.close-ok")

    def on_channel(self, connection: Connection, operation: Method, now: int) -> None:
        """A method on an open connection."""
        channel = connection.channels.get(operation.channel)
        try:
            if channel is None:
                self.without_channel(connection, operation, now)
            elif channel.closing:
                self.while_channel_closes(channel, operation)
            else:
                name = operation.shape.name
                if name == "basic.publish":
                    self.published(channel, operation, now)
                elif name == "basic.ack":
                    self.acked(channel, operation, now)
                else:
                    self.dispatch(channel, operation, now)
        except AmqpFault as fault:
            self.fail(connection, operation, fault, now)

    def without_channel(self, connection: Connection, operation: Method, now: int) -> None:
        """On channel 0, or on one that is not open."""
        if operation.channel == 0:
            self.on_connection(connection, operation, now)
        elif operation.method == "channel.open":
            self.opens_channel(connection, operation.channel)
        else:
            self.refuse_unopened(operation)

    def refuse_unopened(self, operation: Method) -> None:
        raise AmqpFault(CHANNEL_ERROR, "expected 'channel.open'")

    def dispatch(self, channel: Channel, operation: Method, now: int) -> None:
        """Anything but the quick ones on an open channel."""
        name = _METHODS.get(operation.method)
        if name is not None:
            getattr(self, name)(channel, operation, now)
        elif operation.method == "channel.open":
            self.refuse_second_open()
        else:
            self.refuse_misplaced(operation)

    def refuse_second_open(self) -> None:
        raise AmqpFault(CHANNEL_ERROR, "second 'channel.open' seen")

    def refuse_misplaced(self, operation: Method) -> None:
        """What clients do not send, or not on a channel."""
        raise AmqpFault(COMMAND_INVALID, "unimplemented method")

    # Channels

    def opens_channel(self, connection: Connection, number: int) -> None:
        """channel.open. Servers: how many there are counts, not their numbers."""
        count, most = len(connection.channels), connection.channel_max
        if count >= most:
            text = f"number of channels opened ({count}) has reached the negotiated channel_max ({most})"
            raise AmqpFault(NOT_ALLOWED, text, cause=(0, 0))
        connection.channels[number] = Channel(connection, number)
        self.send(connection, number, "channel.open-ok", "")

    def closes_channel(self, channel: Channel, operation: Method, now: int) -> None:
        """channel.close of a client."""
        self.silence([channel])
        self.leave_channel(channel, now)
        del channel.connection.channels[channel.number]
        self.answer(channel, "channel.close-ok")

    def while_channel_closes(self, channel: Channel, operation: Method) -> None:
        """channel.close was sent: everything is thrown away until its answer."""
        if operation.method == "channel.close-ok":
            del channel.connection.channels[channel.number]
        elif operation.method == "channel.close":
            self.answer(channel, "channel.close-ok")

    def flows(self, channel: Channel, operation: Method, now: int) -> None:
        """channel.flow: servers only know how to go on."""
        if not operation.arguments["active"]:
            raise AmqpFault(NOT_IMPLEMENTED, "active=false")
        self.answer(channel, "channel.flow-ok", True)

    def requests_access(self, channel: Channel, operation: Method, now: int) -> None:
        """access.request of old clients."""
        self.answer(channel, "access.request-ok", 1)

    def confirms_cancel(self, channel: Channel, operation: Method, now: int) -> None:
        """basic.cancel-ok: the client has heard of a consumer's end."""

    # Errors

    def fail(self, connection: Connection, operation: Method, fault: AmqpFault, now: int) -> None:
        """Close what has to be closed, and name the method that was wrong."""
        cause = fault.cause or (operation.shape.class_id, operation.shape.method_id)
        if fault.is_hard:
            self.close_connection(connection, fault.code, fault.detail, cause, self.config.close_timeout, now)
            return
        channel = connection.channels[operation.channel]
        self.silence([channel])
        self.answer(channel, "channel.close", fault.code, reply_text(fault.code, fault.detail), *cause)
        self.leave_channel(channel, now)

    def malformed(self, connection: Connection, error: AmqpError, now: int) -> None:
        """What is not the protocol. Before login nobody is told why; later an answer may still come."""
        connection.decoder = self.new_decoder(connection)
        if connection.phase is Phase.RUNNING:
            code = INTERNAL_ERROR if error.kind is ErrorKind.PROPERTIES else error.reply_code
            cause = (error.class_id, error.method_id)
            wait = self.config.refusal_delay
            self.close_connection(connection, code, error.message, cause, wait, now)
        elif connection.phase < Phase.RUNNING:
            self.drop(connection, now)

    def new_decoder(self, connection: Connection) -> Decoder:
        """For what comes after frames that could not be read."""
        decoder = Decoder(Sender.CLIENT, connection.decoder.limits)
        decoder.feed(PROTOCOL_HEADER)
        return decoder
