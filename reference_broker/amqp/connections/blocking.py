"""connection.blocked: publishers wait while the broker is short of memory or disk.

Source: RabbitMQ, "Blocked Connection Notifications".
"""

from __future__ import annotations

from collections.abc import Iterable

from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection
from plumbline.reference_broker.amqp.lifecycle import Phase
from plumbline.reference_broker.amqp.outbox import Outbox


class Blocking:
    """Whether publishers may publish; ``reason`` says why not, None that they may."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.reason: str | None = None

    def block(self, connections: Iterable[AmqpClientConnection], reason: str) -> None:
        """From now on publishers wait."""
        self.reason = reason
        for connection in connections:
            if connection.phase is Phase.RUNNING:
                self.notify(connection)

    def notify(self, connection: AmqpClientConnection) -> None:
        """Send connection.blocked if publishers wait and the client knows the method."""
        if self.reason is not None and self.is_known_to(connection):
            self.outbox.send(connection, 0, "connection.blocked", self.reason)

    def notify_end(self, connection: AmqpClientConnection) -> None:
        """Send connection.unblocked if the client knows it."""
        if connection.phase is Phase.RUNNING and self.is_known_to(connection):
            self.outbox.send(connection, 0, "connection.unblocked")

    def is_known_to(self, connection: AmqpClientConnection) -> bool:
        """Whether it is among the client's capabilities."""
        return connection.capabilities.get("connection.blocked") is True
