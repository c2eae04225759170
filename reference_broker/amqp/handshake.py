"""Who gets in, on what terms, and how a connection ends: header, login, tuning, heartbeats, close.

Sources: AMQP 0-9-1, sections 2.2.4 ("The Connection Class"), 4.2.2 ("Protocol Header"), 4.2.7
("Heartbeats"), 4.10.2 (closing); RabbitMQ, "Authentication Failure Notifications", "Networking".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plumbline.reference_broker.amqp.config import NS
from plumbline.reference_broker.amqp.connection import Connection, Phase
from plumbline.reference_broker.amqp.errors import (
    ACCESS_REFUSED,
    CHANNEL_ERROR,
    CONNECTION_FORCED,
    NOT_ALLOWED,
    AmqpFault,
    reply_text,
)
from plumbline.reference_broker.amqp.state import Alarm, State
from plumbline.wire.amqp import (
    FRAME_MIN_SIZE,
    FRAME_OVERHEAD,
    PROTOCOL_HEADER,
    AmqpError,
    Heartbeat,
    Limits,
    Method,
    ProtocolHeader,
    decode_entries,
)

SERVER_PROPERTIES = {
    "capabilities": {
        "publisher_confirms": True,
        "exchange_exchange_bindings": True,
        "basic.nack": True,
        "consumer_cancel_notify": True,
        "connection.blocked": True,
        "consumer_priorities": True,
        "authentication_failure_close": True,
        "per_consumer_qos": True,
        "direct_reply_to": False,
    },
    "cluster_name": "plumbline@localhost",
    "copyright": "The Plumbline authors",
    "information": "Licensed under the Apache License 2.0",
    "platform": "Python",
    "product": "Plumbline reference broker",
    "version": "3.10.8",  # whose behaviour this is
}
MECHANISMS = {"PLAIN", "AMQPLAIN"}
# What connection.start says to each header. AMQP 0-9-1, 2.3.3: a peer may speak older versions, too.
VERSIONS = {
    PROTOCOL_HEADER: (0, 9),
    b"AMQP\x01\x01\x00\x09": (0, 9),
    b"AMQP\x01\x01\x08\x00": (8, 0),
}
SILENT_INTERVALS = 2  # AMQP 0-9-1, 4.2.7
BEATS_PER_INTERVAL = 2
HEARTBEAT = Heartbeat.make().raw


class Handshake(State):
    """From the first byte to the last."""

    def greeted(self, connection: Connection, header: ProtocolHeader, now: int) -> None:
        """The protocol header: connection.start, or the header that would have been right."""
        if header.raw not in VERSIONS:
            self.refuse_header(connection)
            return
        connection.phase = Phase.START_OK
        mechanisms = " ".join(sorted(MECHANISMS, reverse=True))
        self.send(
            connection,
            0,
            "connection.start",
            *VERSIONS[header.raw],
            self.server_properties(),
            mechanisms,
            self.locales(),
        )

    def refuse_header(self, connection: Connection) -> None:
        self.write(connection, PROTOCOL_HEADER)
        connection.phase = Phase.REFUSED
        self.end(connection)

    def server_properties(self) -> Mapping[str, Any]:
        return SERVER_PROPERTIES

    def locales(self) -> str:
        return "en_US"

    # Login

    def started(self, connection: Connection, arguments: Mapping[str, Any], now: int) -> None:
        """connection.start-ok."""
        capabilities = arguments["client_properties"].get("capabilities")
        connection.capabilities = capabilities if isinstance(capabilities, Mapping) else {}
        mechanism = arguments["mechanism"]
        credentials = self.credentials(mechanism, arguments["response"])
        if credentials is None:
            self.drop(connection, now)
        elif self.admits(*credentials):
            connection.user = credentials[0]
            connection.phase = Phase.TUNE_OK
            config = self.config
            self.send(
                connection, 0, "connection.tune", config.channel_max, config.frame_max, config.heartbeat
            )
        else:
            self.login_failed(connection, mechanism, now)

    def credentials(self, mechanism: str, response: str) -> tuple[str, str] | None:
        """Name and password; None if the mechanism was not offered or the response is malformed."""
        if mechanism == "PLAIN" and "PLAIN" in MECHANISMS:  # RFC 4616, without authzid
            parts = response.split("\0")
            return (parts[1], parts[2]) if len(parts) == 3 else None
        if mechanism == "AMQPLAIN" and "AMQPLAIN" in MECHANISMS:
            try:
                table = decode_entries(response.encode("utf-8", "surrogateescape"))
            except AmqpError:
                return None
            user, password = table.get("LOGIN"), table.get("PASSWORD")
            return (user, password) if isinstance(user, str) and isinstance(password, str) else None
        return None

    def admits(self, user: str, password: str) -> bool:
        return self.config.users.get(user) == password

    def login_failed(self, connection: Connection, mechanism: str, now: int) -> None:
        """Told only to clients that say they understand it."""
        if connection.capabilities.get("authentication_failure_close") is True:
            code = ACCESS_REFUSED
            text = f"Login was refused using authentication mechanism {mechanism}. "
            text += "For details see the broker logfile."
            self.send(connection, 0, "connection.close", code, reply_text(code, text), 0, 0)
        self.drop(connection, now)

    # Tuning

    def tuned(self, connection: Connection, arguments: Mapping[str, Any], now: int) -> None:
        """connection.tune-ok."""
        if not self.terms_are_acceptable(**arguments):
            self.drop(connection, now)
            return
        connection.channel_max = arguments["channel_max"]
        connection.frame_max = arguments["frame_max"]
        connection.heartbeat = arguments["heartbeat"] * NS
        connection.decoder.limits = self.frame_limits(connection.frame_max)
        connection.phase = Phase.OPEN
        if connection.heartbeat:
            self.timers.set((Alarm.BEAT, connection.id), now + connection.heartbeat // BEATS_PER_INTERVAL)
            self.timers.set((Alarm.SILENCE, connection.id), now + SILENT_INTERVALS * connection.heartbeat)

    def terms_are_acceptable(self, *, channel_max: int, frame_max: int, heartbeat: int) -> bool:
        """A client may lower what was proposed, and 0 is not lower."""
        config = self.config
        return 0 < channel_max <= config.channel_max and FRAME_MIN_SIZE <= frame_max <= config.frame_max

    def frame_limits(self, frame_max: int) -> Limits:
        """A decoder compares payloads."""
        return Limits(frame_max=frame_max - FRAME_OVERHEAD)

    def entered(self, connection: Connection, vhost: str, now: int) -> None:
        """connection.open."""
        if vhost not in self.vhosts:
            raise AmqpFault(NOT_ALLOWED, f"vhost {vhost} not found")
        connection.vhost = vhost
        connection.phase = Phase.RUNNING
        self.timers.clear((Alarm.HANDSHAKE, connection.id))
        self.send(connection, 0, "connection.open-ok", "")
        if self.blocked is not None:
            self.tell_blocked(connection)

    # Life

    def beat(self, connection: Connection, now: int) -> None:
        """Say something, unless something was said."""
        half = connection.heartbeat // BEATS_PER_INTERVAL
        if now - connection.spoke >= half:
            self.write(connection, HEARTBEAT)
            connection.spoke = now
        self.timers.set((Alarm.BEAT, connection.id), connection.spoke + half)

    def check_silence(self, connection: Connection, now: int) -> None:
        """End a connection that was not heard for two intervals."""
        until = connection.heard + SILENT_INTERVALS * connection.heartbeat
        if now < until or connection.lagging:
            self.timers.set((Alarm.SILENCE, connection.id), max(until, now + connection.heartbeat))
        else:
            self.end(connection)

    def block(self, reason: str, now: int) -> list[Any]:
        """Publishers shall wait: those that know connection.blocked are told."""
        self.blocked = reason
        for connection in self.connections.values():
            if connection.phase is Phase.RUNNING:
                self.tell_blocked(connection)
        return self.flush(now)

    def tell_blocked(self, connection: Connection) -> None:
        if self.knows_blocked(connection):
            self.send(connection, 0, "connection.blocked", self.blocked)

    def knows_blocked(self, connection: Connection) -> bool:
        return connection.capabilities.get("connection.blocked") is True

    # The end

    def drop(self, connection: Connection, now: int) -> None:
        """No more is said. The socket is closed a while later, so that guessing takes its time."""
        connection.phase = Phase.REFUSED
        self.timers.set((Alarm.END, connection.id), now + round(self.config.refusal_delay * NS))

    def close_connection(
        self, connection: Connection, code: int, detail: str, cause: tuple[int, int], wait: float, now: int
    ) -> None:
        """connection.close; ``wait``: how many seconds its close-ok may take."""
        self.leave_channels(connection, now)
        connection.phase = Phase.CLOSING
        self.send(connection, 0, "connection.close", code, reply_text(code, detail), *cause)
        self.timers.set((Alarm.END, connection.id), now + round(wait * NS))

    def client_closes(self, connection: Connection, now: int) -> None:
        """connection.close of a client: what was its own is gone before it hears close-ok."""
        self.leave_channels(connection, now)
        self.send(connection, 0, "connection.close-ok")
        connection.phase = Phase.REFUSED
        self.end(connection)

    def stop(self, now: int) -> list[Any]:
        """The broker ends, in order."""
        for connection in list(self.connections.values()):
            if connection.phase is Phase.RUNNING:
                text = "broker forced connection closure with reason 'shutdown'"
                self.close_connection(connection, CONNECTION_FORCED, text, (0, 0), 0, now)
            self.end(connection)
        self.store.shut_down(self.vhosts.values())
        return self.flush(now)

    def on_connection(self, connection: Connection, operation: Method, now: int) -> None:
        """A method on channel 0 of a connection that is open."""
        match operation.method:
            case "connection.close":
                self.client_closes(connection, now)
            case "connection.update-secret":
                self.send(connection, 0, "connection.update-secret-ok")
            case "connection.close-ok":
                self.end(connection)
            case _:
                raise AmqpFault(CHANNEL_ERROR, "unexpected method in connection state running")

    def negotiate(self, connection: Connection, operation: Method, now: int) -> None:
        """A method of the handshake. Anything out of order ends the connection without a word."""
        match (connection.phase, operation.method):
            case (Phase.START_OK, "connection.start-ok"):
                self.started(connection, operation.arguments, now)
            case (Phase.TUNE_OK, "connection.tune-ok"):
                self.tuned(connection, operation.arguments, now)
            case (Phase.OPEN, "connection.open"):
                self.entered(connection, operation.arguments["virtual_host"], now)
            case (_, "connection.close") if connection.phase > Phase.START_OK:
                self.client_closes(connection, now)
            case _:
                self.out_of_order(connection, now)

    def out_of_order(self, connection: Connection, now: int) -> None:
        self.drop(connection, now)

    def leave_channels(self, connection: Connection, now: int) -> None:
        """Give back what the connection holds; ``channels`` says how."""
        raise NotImplementedError
