"""The broker core: a state machine from client operations to outputs.

No socket, clock, source of chance or task: ``now`` (nanoseconds since the epoch) comes with every
call, chance comes as ``choose(n)``, a number below n, and ``next_wake`` says when to call ``wake``.
Every rule of the protocol is one small method or one attribute, here or in what ``Broker`` consists
of; a defect replaces exactly one of them on an instance.
"""

from __future__ import annotations

from collections.abc import Sequence

from plumbline.reference_broker.nats.admission import Admission
from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.messaging import Messaging
from plumbline.reference_broker.nats.state import CloseOutput, NatsTimer, Output, SendOutput
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats import (
    Connect,
    Decoder,
    Err,
    HPub,
    Info,
    Limits,
    Operation,
    Ping,
    Pong,
    Pub,
    Sender,
    Sub,
    Unsub,
)

__all__ = ["Broker", "CloseOutput", "Output", "SendOutput"]


class Broker(Admission, Messaging):
    """One NATS server."""

    def on_connected(self, connection_id: int, now: int, peer: str) -> list[Output]:
        """A client has connected from the address ``peer``."""
        connection = NatsClientConnection(connection_id, peer, self.make_decoder())
        connection.started = now
        self.connections[connection_id] = connection
        self.expect_authentication(connection)
        self.send_info(connection)
        if self.is_full():
            self.send_err_and_close(connection, "maximum connections exceeded")
        else:
            self.start_timers(connection, now)
        return self.flush()

    def refusal(self, connection_id: int, peer: str) -> bytes:
        """INFO and -ERR for a client that the shell cannot take, as for one above ``max_connections``."""
        stranger = NatsClientConnection(connection_id, peer, self.make_decoder())
        error = Err.make("maximum connections exceeded").raw
        return Info.make(self.identity.fields(stranger)).raw + error

    def on_data(self, connection_id: int, data: bytes | Sequence[Operation], now: int) -> list[Output]:
        """A client has sent bytes, in any segmentation, or whole operations."""
        connection = self.connections.get(connection_id)
        if connection is None:  # it was closed, and its last bytes were under way
            return []
        self.speaking = connection
        self.now = now
        operations, error = self.decode(connection, data)
        if operations and not (type(operations[0]) is Pong and all(type(one) is Pong for one in operations)):
            connection.last_received = now
        published, admitted = self.on_pub, not connection.awaiting_auth
        for operation in operations:
            if admitted and type(operation) is Pub:
                published(connection, operation, now)
                continue
            self.handle(connection, operation, now)
            if connection.closing:
                return self.end_event(now)
            admitted = not connection.awaiting_auth
        if error is not None:
            self.on_malformed(connection, error)
        elif connection.awaiting_auth:
            self.check_opening(connection, connection.decoder.unfinished)
        return self.end_event(now)

    def on_disconnected(self, connection_id: int, now: int) -> list[Output]:
        """A client is gone."""
        connection = self.connections.get(connection_id)
        if connection is not None:
            self.forget(connection)
        return self.end_event(now)

    def wake(self, now: int) -> list[Output]:
        """Run what is due."""
        self.now = now
        for connection_id, alarm in self.timers.due(now):
            connection = self.connections[connection_id]
            if alarm is NatsTimer.PING:
                self.on_ping_timer(connection, now)
            elif alarm is NatsTimer.EXPIRY:
                self.on_expiry(connection)
            else:
                self.on_authentication_timeout(connection)
        if self.service is not None:
            self.service.wake(now)
        return self.end_event(now)

    def end_event(self, now: int) -> list[Output]:
        """The end of an event: what it leaves is sent."""
        if self.router.leaving:
            self.router.take_out_some()
            self.last_event = now
        self.notify_unsubscribed(now)
        return self.flush()

    def notify_unsubscribed(self, now: int) -> None:
        """The service learns of subscriptions that have ended."""
        ended = self.router.ended
        while ended:
            subject = ended.pop()
            if self.service is not None:
                self.service.on_unsubscribed(subject, now)

    def next_wake(self) -> int | None:
        """When ``wake`` has something to do; None for never."""
        if self.router.leaving:
            return self.last_event
        own = self.timers.next()
        served = self.service.next_wake() if self.service is not None else None
        return own if served is None else served if own is None else min(own, served)

    def make_decoder(self) -> Decoder:
        return Decoder(Sender.CLIENT, Limits(self.config.max_control_line, self.config.max_payload))

    def decode(
        self, connection: NatsClientConnection, data: bytes | Sequence[Operation]
    ) -> tuple[Sequence[Operation], ProtocolError | None]:
        if not isinstance(data, bytes):
            return data, None
        try:
            return connection.decoder.feed(data), None
        except ProtocolError as error:
            return error.operations, error.detached()

    def on_malformed(self, connection: NatsClientConnection, error: ProtocolError) -> None:
        """What is not the protocol ends the connection, with or without a word."""
        if connection.awaiting_auth and error.excerpt[:1] not in b"Cc":
            self.send_err_and_close(connection, "Authorization Violation")
            return
        self.send_err_and_close(connection, self.error_texts.get(error.kind))

    def check_opening(self, connection: NatsClientConnection, unfinished: bytes) -> None:
        """One byte is enough to see that what comes is not CONNECT."""
        if unfinished and unfinished[:1] not in b"Cc":
            self.send_err_and_close(connection, "Authorization Violation")

    def handle(self, connection: NatsClientConnection, operation: Operation, now: int) -> None:
        """One operation that came whole."""
        if isinstance(operation, Connect):
            self.on_connect(connection, operation, now)
        elif connection.awaiting_auth:
            self.refuse_before_connect(connection, operation, now)
        else:
            self.dispatch(connection, operation, now)

    def refuse_before_connect(self, connection: NatsClientConnection, operation: Operation, now: int) -> None:
        """Something else than CONNECT from somebody who must say first who it is."""
        self.send_err_and_close(connection, "Authorization Violation")

    def dispatch(self, connection: NatsClientConnection, operation: Operation, now: int) -> None:
        """An operation of a client that is in."""
        if isinstance(operation, Pub):
            self.on_pub(connection, operation, now)
        elif isinstance(operation, HPub):
            self.on_hpub(connection, operation, now)
        elif isinstance(operation, Sub):
            self.on_sub(connection, operation, now)
        elif isinstance(operation, Unsub):
            self.on_unsub(connection, operation)
            self.notify_unsubscribed(now)
        elif isinstance(operation, Ping):
            self.on_ping(connection)
        elif isinstance(operation, Pong):
            self.on_pong(connection)
