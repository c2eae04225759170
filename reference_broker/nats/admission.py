"""Connecting and keep-alive: INFO, CONNECT, authentication, PING and PONG.

Sources: docs.nats.io, "Client Protocol" and "Authentication".
"""

from __future__ import annotations

import msgspec

from plumbline.reference_broker.nats.config import NS
from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.info import make_nonce
from plumbline.reference_broker.nats.state import NatsTimer, Output, State
from plumbline.wire.errors import ErrorKind, ProtocolError
from plumbline.wire.nats import Connect, Info

FIRST_PING = 2 * NS  # the first PING comes early, to measure the round trip

PING = b"PING\r\n"
PONG = b"PONG\r\n"


class Admission(State):
    """What happens before a client may do anything, and what keeps it."""

    def expect_authentication(self, connection: NatsClientConnection) -> None:
        """Whoever must say who it is may do nothing before."""
        connection.awaiting_auth = self.authenticator.required
        if self.config.operator_mode or any(user.nkey for user in self.config.users):
            connection.nonce = make_nonce(self.choose)

    def send_info(self, connection: NatsClientConnection) -> None:
        self.send(connection, Info.make(self.identity.fields(connection)).raw)

    def on_connect(self, connection: NatsClientConnection, operation: Connect, now: int) -> None:
        """Take the options, let the client in or not. A later CONNECT changes what it names."""
        try:
            options = connection.options.updated(operation.fields)
        except (ProtocolError, msgspec.ValidationError):
            self.send_err_and_close(connection, self.error_texts.get(ErrorKind.JSON))
            return
        self.timers.clear((connection.id, NatsTimer.AUTHENTICATION))
        self.timers.set((connection.id, NatsTimer.PING), now + self.first_ping_after())
        if connection.connected and self.rules.second_connect_drops_subscriptions:
            self.drop_subscriptions(connection)
        connection.options = options
        connection.connected = True
        connection.headers = options.headers and not self.config.no_header_support
        if (refusal := self.connect_refusal(connection)) is not None:
            self.send_err_and_close(connection, refusal)
            return
        connection.awaiting_auth = False
        self.grant_permissions(connection)
        connection.account = self.authenticator.account_of(options.credentials) or connection.account
        self.await_expiry(connection)
        for subscription in connection.subscriptions.values():
            self.router.mark_special(subscription)
        self.send_ok(connection, operation)

    def connect_refusal(self, connection: NatsClientConnection) -> str | None:
        """Why a client may not come in; None if it may."""
        options = connection.options
        issued = self.authenticator.issued(options.credentials)
        # Choosing an account in CONNECT is no longer possible, and refused as bad credentials are.
        if (
            not self.authenticator.admits(options.credentials, connection.nonce or "")
            or (issued is not None and not issued.claims.holds(self.now / NS))
            or options.account
            or options.new_account
        ):
            return "Authorization Violation"
        if options.protocol not in (0, 1):
            return "invalid client protocol"
        if options.no_responders and not connection.headers:
            return "no responders requires headers support"
        return None

    def dismiss_refused(self) -> list[Output]:
        """Close the clients that the configuration does not let in any more; others get their permissions."""
        for connection in list(self.connections.values()):
            if not connection.connected:
                continue
            if (refusal := self.connect_refusal(connection)) is not None:
                self.send_err_and_close(connection, refusal)
            else:
                self.grant_permissions(connection)
        return self.flush()

    def grant_permissions(self, connection: NatsClientConnection) -> None:
        """What the client may publish and subscribe to, by its credentials."""
        options = connection.options
        connection.permits = self.authenticator.permissions(options.credentials)
        connection.guarded = options.verbose or options.pedantic or connection.permits is not None

    def on_authentication_timeout(self, connection: NatsClientConnection) -> None:
        self.send_err_and_close(connection, "Authentication Timeout")

    def await_expiry(self, connection: NatsClientConnection) -> None:
        """A JWT that ends closes the connection of its user."""
        issued = self.authenticator.issued(connection.options.credentials)
        if issued is not None and issued.claims.expires:
            self.timers.set((connection.id, NatsTimer.EXPIRY), issued.claims.expires * NS)

    def on_expiry(self, connection: NatsClientConnection) -> None:
        self.send_err_and_close(connection, "User Authentication Expired")

    def is_full(self) -> bool:
        return len(self.connections) > self.config.max_connections

    def on_ping(self, connection: NatsClientConnection) -> None:
        self.send(connection, PONG)
        if connection.connected and not connection.first_pong_sent:
            connection.first_pong_sent = True
            if self.rules.connect_info and connection.options.protocol >= 1:
                self.send(connection, Info.make(self.identity.connect_fields(connection)).raw)

    def on_pong(self, connection: NatsClientConnection) -> None:
        connection.pings_out = 0

    def start_timers(self, connection: NatsClientConnection, now: int) -> None:
        if connection.awaiting_auth:
            timeout = round(self.config.authorization.timeout * NS)
            self.timers.set((connection.id, NatsTimer.AUTHENTICATION), now + timeout)
        self.timers.set((connection.id, NatsTimer.PING), now + self.ping_interval())

    def first_ping_after(self) -> int:
        """Soon after CONNECT, up to a fifth later, so that connections do not beat in step."""
        first = min(FIRST_PING, self.ping_interval())
        return first + self.choose(max(first // 5, 1))

    def ping_interval(self) -> int:
        return round(self.config.ping_interval * NS)

    def on_ping_timer(self, connection: NatsClientConnection, now: int) -> None:
        """PING, unless the client was heard lately; give up on one that answers none."""
        interval = self.ping_interval()
        if not connection.was_pinged or now - connection.last_received >= interval:
            if self.is_stale(connection):
                self.send_err_and_close(connection, "Stale Connection")
                return
            connection.was_pinged = True
            connection.pings_out += 1
            self.send(connection, PING)
        self.timers.set((connection.id, NatsTimer.PING), now + interval)

    def is_stale(self, connection: NatsClientConnection) -> bool:
        return connection.pings_out >= self.config.ping_max
