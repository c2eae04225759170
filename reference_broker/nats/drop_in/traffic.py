"""Counts messages and bytes of each connection, for monitoring. Without monitoring nothing is counted.

Installed on a broker, as a defect is: it puts counting methods in the place of the right ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from plumbline.reference_broker.nats.connection import NatsClientConnection, Subscription
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.routing import Route, RoutedMessage
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats import HPub, Operation, Pub


class Counts(Struct):
    """``in_`` is what a client has sent, ``out_`` what it was sent; bytes are of headers and payload."""

    in_msgs: int = 0
    in_bytes: int = 0
    out_msgs: int = 0
    out_bytes: int = 0


class Traffic:
    """What went through a server, and through each connection that is open."""

    def __init__(self) -> None:
        self.total = Counts()
        self.connections: dict[int, Counts] = {}
        self.opened = 0
        self.slow = 0
        self.stale = 0

    def of(self, connection: int) -> Counts:
        return self.connections.get(connection) or self.connections.setdefault(connection, Counts())

    def sent(self, subscription: Subscription, size: int) -> None:
        for counts in (self.total, self.of(subscription.connection.id)):
            counts.out_msgs += 1
            counts.out_bytes += size

    def received(self, connection: int, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if type(operation) is Pub:
                size = len(operation.payload)
            elif type(operation) is HPub:
                size = len(operation.header_block) + len(operation.payload)
            else:
                continue
            for counts in (self.total, self.of(connection)):
                counts.in_msgs += 1
                counts.in_bytes += size

    def watch(self, broker: Broker) -> None:
        """Count what goes through ``broker``."""
        router = broker.router
        decode, deliver_to, deliver_plainly = broker.decode, router.deliver_to, router.deliver_plainly

        def counting_decode(
            connection: NatsClientConnection, data: bytes | Sequence[Operation]
        ) -> tuple[Sequence[Operation], ProtocolError | None]:
            operations, error = decode(connection, data)
            if isinstance(data, bytes):
                self.received(connection.id, operations)
            return operations, error

        def counting_deliver_to(
            subscription: Subscription,
            head: bytes,
            message: RoutedMessage,
            publisher: NatsClientConnection | None,
        ) -> int:
            count = deliver_to(subscription, head, message, publisher)
            if count:
                self.sent(subscription, _size(message.tail))
            return count

        def counting_deliver_plainly(
            route: Route, subject: bytes, tail: bytes, publisher: NatsClientConnection
        ) -> int:
            plain = [subscription for subscription, _ in route.plain if not subscription.special]
            count = deliver_plainly(route, subject, tail, publisher)
            for subscription in plain:
                self.sent(subscription, _size(tail))
            return count

        vars(broker)["decode"] = counting_decode
        vars(router)["deliver_to"] = counting_deliver_to
        vars(router)["deliver_plainly"] = counting_deliver_plainly


def _size(tail: bytes) -> int:
    """Bytes of headers and payload behind the first line end of ``tail``."""
    return len(tail) - tail.index(b"\r\n") - 4
