"""The broker's memory and outputs: all output of one event leaves in one batch.

No rule of the protocol stands here but what an answer looks like. ``admission`` and ``messaging``
hold the rules, ``core`` puts them together.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from plumbline.reference_broker.nats.auth import Authenticator
from plumbline.reference_broker.nats.config import Config
from plumbline.reference_broker.nats.connection import NatsClientConnection, Subscription
from plumbline.reference_broker.nats.host import Service
from plumbline.reference_broker.nats.info import Identity
from plumbline.reference_broker.nats.levels import CoreRules
from plumbline.reference_broker.nats.routing import RoutedMessage, Router
from plumbline.reference_broker.outputs import CloseOutput, SendOutput
from plumbline.reference_broker.timers import Timers
from plumbline.wire.errors import ErrorKind
from plumbline.wire.nats import Err, Operation

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.accounts import Links
    from plumbline.reference_broker.nats.mappings import Mappings

OK = b"+OK\r\n"

# What becomes of the connection is the same for all of them: it is closed.
# docs.nats.io, "-ERR"; an error without text closes in silence, as servers do.
ERROR_TEXTS = {
    ErrorKind.UNKNOWN_OPERATION: "Unknown Protocol Operation",
    ErrorKind.PAYLOAD_END: "Unknown Protocol Operation",
    ErrorKind.CONTROL_LINE: "maximum control line exceeded",
    ErrorKind.PAYLOAD_SIZE: "Maximum Payload Violation",
}


__all__ = ["CloseOutput", "NatsTimer", "Output", "SendOutput", "State", "quoted"]

Output = SendOutput | CloseOutput


class NatsTimer(Enum):
    """What a connection's timers are for."""

    PING = "ping"
    AUTHENTICATION = "authentication"
    EXPIRY = "expiry"  # of the user's JWT


class State:
    """One server's memory. Give it a ``Service`` in ``service`` to have one run inside."""

    def __init__(self, config: Config, choose: Callable[[int], int]) -> None:
        self.config = config
        self.rules = CoreRules.of(config.level)
        self.choose = choose
        self.identity = Identity(config, self.rules, choose)
        self.authenticator = _authenticator(config)
        self.service: Service | None = None
        self.connections: dict[int, NatsClientConnection] = {}
        self.now = 0  # when the last event was
        self.last_event = 0  # when it was, while subscriptions wait to be taken out
        self.speaking: NatsClientConnection | None = None  # whose operations are being handled
        self.timers: Timers[tuple[int, NatsTimer]] = Timers()
        self.dirty: list[NatsClientConnection] = []  # those with something to be sent or closed
        self.router = Router(choose, self.dirty, self.rules.reserved_subjects)
        self.router.on_delivered = self.expect_response
        self.router.serves = self.service_handles
        self.error_texts = dict(ERROR_TEXTS)
        self.mappings: Mappings | None = None  # of subjects that clients publish on
        self.changes_of_links: list[Callable[[Links], None]] = []  # defects of imports

    def reconfigure(self, config: Config) -> None:
        """Another configuration from now on: of users and limits, not of ports and JetStream."""
        self.config = self.identity.config = config
        self.authenticator = _authenticator(config)

    def expect_response(self, subscription: Subscription, message: RoutedMessage) -> None:
        """A client that may answer what it receives has received ``message``."""
        permits, words = subscription.connection.permits, message.tail.partition(b"\r\n")[0].split(b" ")
        is_asked = len(words) == (2 if message.stripped is None else 3)
        if permits is not None and is_asked:
            permits.expect_response(words[0], self.now)

    def service_handles(self, subject: bytes) -> bool:
        """Whether the service inside wants what is published on ``subject``."""
        return self.service is not None and self.service.handles_subject(subject)

    def send_ok(self, connection: NatsClientConnection, operation: Operation) -> None:
        """+OK to an operation, if the client asked for it. docs.nats.io, "CONNECT", ``verbose``."""
        if connection.options.verbose:
            self.send(connection, OK)

    def send_err(self, connection: NatsClientConnection, text: str) -> None:
        """-ERR; the connection stays open."""
        self.send(connection, Err.make(text).raw)

    def send_err_and_close(self, connection: NatsClientConnection, text: str | None) -> None:
        """-ERR, if there is anything to say, and the end of the connection; only once."""
        if connection.closing:
            return
        if text is not None:
            self.send_err(connection, text)
        self.close(connection)

    def close(self, connection: NatsClientConnection) -> None:
        if not connection.out:
            self.dirty.append(connection)
        connection.closing = True
        self.forget(connection)

    def forget(self, connection: NatsClientConnection) -> None:
        self.drop_subscriptions(connection)
        for alarm in NatsTimer:
            self.timers.clear((connection.id, alarm))
        del self.connections[connection.id]

    def send(self, connection: NatsClientConnection, data: bytes) -> None:
        if not connection.out:
            self.dirty.append(connection)
        connection.out.append(data)

    def flush(self) -> list[Output]:
        """What this event has to be sent and closed."""
        outputs: list[Output] = []
        for connection in self.dirty:
            if connection.out:
                outputs.append(SendOutput(connection.id, b"".join(connection.out)))
                connection.out.clear()
            if connection.closing:
                outputs.append(CloseOutput(connection.id))
        self.dirty.clear()
        return outputs

    def drop_subscriptions(self, connection: NatsClientConnection) -> None:
        self.router.remove_all(connection)


def _authenticator(config: Config) -> Authenticator:
    return Authenticator(
        config.authorization, config.accounts, config.no_auth_user, operator_mode=config.operator_mode
    )


def quoted(name: bytes) -> str:
    """As -ERR texts spell names."""
    text = name.decode("utf-8", "backslashreplace")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
