"""Who gets in, and on what terms: protocol header, login, tuning, virtual host.

Sources: AMQP 0-9-1, sections 2.2.4 ("The Connection Class"), 4.2.2 ("Protocol Header"); RabbitMQ,
"Authentication Failure Notifications", "Networking".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from plumbline.bounds import UNFINISHED_BESIDES_ONE_MESSAGE
from plumbline.reference_broker.amqp.access import Access
from plumbline.reference_broker.amqp.alarms import Alarms, AmqpTimer
from plumbline.reference_broker.amqp.config import NS, Config
from plumbline.reference_broker.amqp.connections.blocking import Blocking
from plumbline.reference_broker.amqp.connections.closing import Closing
from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection
from plumbline.reference_broker.amqp.connections.heartbeats import Heartbeats
from plumbline.reference_broker.amqp.errors import ACCESS_REFUSED, NOT_ALLOWED, AmqpReplyError, reply_text
from plumbline.reference_broker.amqp.lifecycle import Phase
from plumbline.reference_broker.amqp.outbox import Outbox
from plumbline.wire.amqp import (
    FRAME_MIN_SIZE,
    FRAME_OVERHEAD,
    PROTOCOL_HEADER,
    AmqpError,
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
        "direct_reply_to": True,
    },
    "cluster_name": "plumbline@localhost",
    "copyright": "The Plumbline authors",
    "information": "Licensed under the Apache License 2.0",
    "platform": "Python",
    "version": "3.10.8",  # whose behaviour this is
}
EXTERNAL = "EXTERNAL"
# What connection.start says to each header. AMQP 0-9-1, 2.3.3: a peer may speak older versions, too.
VERSIONS = {
    PROTOCOL_HEADER: (0, 9),
    b"AMQP\x01\x01\x00\x09": (0, 9),
    b"AMQP\x01\x01\x08\x00": (8, 0),
}
LOCALES = "en_US"


class Handshake:
    """From the first byte to connection.open-ok."""

    def __init__(
        self,
        config: Config,
        vhosts: Collection[str],
        access: Access,
        closing: Closing,
        heartbeats: Heartbeats,
        blocking: Blocking,
        alarms: Alarms,
        outbox: Outbox,
    ) -> None:
        self.config = config
        self.server_properties = {**SERVER_PROPERTIES, "product": config.product}
        self.vhosts = vhosts
        self.access = access
        self.closing = closing
        self.heartbeats = heartbeats
        self.blocking = blocking
        self.alarms = alarms
        self.outbox = outbox
        self.certificates: dict[int, str] = {}  # by connection: the user that a client certificate names

    def on_protocol_header(self, connection: AmqpClientConnection, header: ProtocolHeader, now: int) -> None:
        """The protocol header: connection.start, or the header that would have been right."""
        if header.raw not in VERSIONS:
            self.refuse_header(connection)
            return
        connection.phase = Phase.START_OK
        mechanisms = " ".join(self.mechanisms(connection))
        self.outbox.send(
            connection,
            0,
            "connection.start",
            *VERSIONS[header.raw],
            self.server_properties,
            mechanisms,
            LOCALES,
        )

    def mechanisms(self, connection: AmqpClientConnection) -> list[str]:
        """Those that are offered: EXTERNAL only to who has shown a certificate."""
        has_shown = connection.id in self.certificates
        return [one for one in self.config.auth_mechanisms if one != EXTERNAL or has_shown]

    def refuse_header(self, connection: AmqpClientConnection) -> None:
        self.outbox.write(connection, PROTOCOL_HEADER)
        connection.phase = Phase.REFUSED
        self.outbox.end(connection)

    # Login

    def on_connection_start_ok(self, connection: AmqpClientConnection, operation: Method, now: int) -> None:
        """connection.start-ok."""
        arguments = operation.arguments
        connection.properties = arguments["client_properties"]
        capabilities = connection.properties.get("capabilities")
        connection.capabilities = capabilities if isinstance(capabilities, Mapping) else {}
        mechanism = connection.mechanism = arguments["mechanism"]
        user = self.user_of(connection, mechanism, arguments["response"])
        if user is None:
            self.closing.close_without_reply(connection, now)
        elif user and self.access.may_come_from(user, connection.peer):
            connection.user = user
            connection.phase = Phase.TUNE_OK
            config = self.config
            self.outbox.send(
                connection, 0, "connection.tune", config.channel_max, config.frame_max, config.heartbeat
            )
        else:
            self.login_failed(connection, mechanism, now)

    def user_of(self, connection: AmqpClientConnection, mechanism: str, response: str) -> str | None:
        """Who logs in; "" if he is refused, None if ``credentials`` has none."""
        if mechanism == EXTERNAL and EXTERNAL in self.mechanisms(connection):
            name = self.certificates[connection.id]
            return name if name in self.access.users else ""
        credentials = self.credentials(mechanism, response)
        if credentials is None:
            return None
        return credentials[0] if self.admits(*credentials) else ""

    def credentials(self, mechanism: str, response: str) -> tuple[str, str] | None:
        """Name and password; None if the mechanism was not offered or the response is malformed."""
        if mechanism not in self.config.auth_mechanisms:
            return None
        if mechanism == "PLAIN":  # RFC 4616, without authzid
            parts = response.split("\0")
            return (parts[1], parts[2]) if len(parts) == 3 else None
        if mechanism == "AMQPLAIN":
            try:
                table = decode_entries(response.encode("utf-8", "surrogateescape"))
            except AmqpError:
                return None
            user, password = table.get("LOGIN"), table.get("PASSWORD")
            return (user, password) if isinstance(user, str) and isinstance(password, str) else None
        return None

    def admits(self, user: str, password: str) -> bool:
        return self.access.admits(user, password)

    def login_failed(self, connection: AmqpClientConnection, mechanism: str, now: int) -> None:
        """Sent only to clients with the capability for it."""
        if connection.capabilities.get("authentication_failure_close") is True:
            code = ACCESS_REFUSED
            text = f"Login was refused using authentication mechanism {mechanism}. "
            text += "For details see the broker logfile."
            self.outbox.send(connection, 0, "connection.close", code, reply_text(code, text), 0, 0)
        self.closing.close_without_reply(connection, now)

    # Tuning

    def on_connection_tune_ok(self, connection: AmqpClientConnection, operation: Method, now: int) -> None:
        """connection.tune-ok."""
        arguments = operation.arguments
        if not self.terms_are_acceptable(**arguments):
            self.closing.close_without_reply(connection, now)
            return
        connection.channel_max = arguments["channel_max"]
        connection.frame_max = arguments["frame_max"]
        connection.heartbeat = arguments["heartbeat"] * NS
        connection.decoder.limits = self.frame_limits(connection.frame_max)
        connection.phase = Phase.OPEN
        self.heartbeats.start(connection, now)

    def terms_are_acceptable(self, *, channel_max: int, frame_max: int, heartbeat: int) -> bool:
        """A client may lower what was proposed, and 0 is not lower."""
        config = self.config
        return 0 < channel_max <= config.channel_max and FRAME_MIN_SIZE <= frame_max <= config.frame_max

    def frame_limits(self, frame_max: int) -> Limits:
        """A decoder compares payloads. A message that is a little too large is refused when complete."""
        most = self.config.max_message_size + UNFINISHED_BESIDES_ONE_MESSAGE
        return Limits(frame_max=frame_max - FRAME_OVERHEAD, max_body=most, max_unfinished=most)

    def on_connection_open(self, connection: AmqpClientConnection, operation: Method, now: int) -> None:
        """connection.open."""
        self.open(connection, operation.arguments["virtual_host"])

    def open(self, connection: AmqpClientConnection, vhost: str) -> None:
        """Let a client use a virtual host. Raises ``AmqpReplyError`` (530)."""
        if vhost not in self.vhosts:
            raise AmqpReplyError(NOT_ALLOWED, f"vhost {vhost} not found")
        if not self.access.enter(connection, vhost):
            text = f"access to vhost '{vhost}' refused for user '{connection.user}'"
            raise AmqpReplyError(NOT_ALLOWED, text)
        connection.vhost = vhost
        connection.phase = Phase.RUNNING
        self.alarms.clear((AmqpTimer.HANDSHAKE, connection.id))
        self.outbox.send(connection, 0, "connection.open-ok", "")
        self.blocking.notify(connection)

    def on_connection_update_secret(
        self, connection: AmqpClientConnection, operation: Method, now: int
    ) -> None:
        """connection.update-secret: accepted, as no credential here expires."""
        self.outbox.send(connection, 0, "connection.update-secret-ok")
