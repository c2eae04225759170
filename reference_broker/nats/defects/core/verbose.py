"""Defects in +OK: where there must be none, none where there must be one, or too late."""

from __future__ import annotations

from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.methods import method_defect
from plumbline.reference_broker.nats.state import OK
from plumbline.wire.nats import Connect, Operation, Sub, Unsub


def _never_acknowledge(broker: Broker, kind: type[Operation]) -> None:
    """No +OK for one kind of operation."""
    original = broker.send_ok

    def acknowledge(connection: NatsClientConnection, operation: Operation) -> None:
        if not isinstance(operation, kind):
            original(connection, operation)

    replace(broker, "send_ok", acknowledge)


@defect("CORE-008")
def connect_is_not_acknowledged(broker: Broker) -> None:
    """A verbose CONNECT gets no +OK."""
    _never_acknowledge(broker, Connect)


@defect("CORE-013")
def sub_is_not_acknowledged(broker: Broker) -> None:
    """A verbose SUB gets no +OK."""
    _never_acknowledge(broker, Sub)


@method_defect(Broker.send_ok, "CORE-016")
def unsub_is_not_acknowledged(broker: Broker, connection: NatsClientConnection, operation: Operation) -> None:
    """A verbose UNSUB gets no +OK."""
    known = isinstance(operation, Unsub) and operation.args[0] in connection.subscriptions
    if not known:
        Broker.send_ok(broker, connection, operation)


def _acknowledge_late(broker: Broker, name: str) -> None:
    """+OK to a publish after what it brings."""
    handler, acknowledge = getattr(broker, name), broker.send_ok

    def handle(connection: NatsClientConnection, operation: Operation, now: int) -> None:
        replace(broker, "send_ok", lambda connection, operation: None)
        handler(connection, operation, now)
        replace(broker, "send_ok", acknowledge)
        if connection.options.verbose and not connection.closing:
            broker.send(connection, OK)

    replace(broker, name, handle)


@defect("CORE-014")
def pub_is_acknowledged_late(broker: Broker) -> None:
    """The +OK of a verbose PUB comes after the MSG that it brings."""
    _acknowledge_late(broker, "on_pub")


@defect("CORE-015")
def hpub_is_acknowledged_late(broker: Broker) -> None:
    """The +OK of a verbose HPUB comes after the HMSG that it brings."""
    _acknowledge_late(broker, "on_hpub")


@method_defect(Broker.on_ping, "CORE-010")
def ping_is_acknowledged(broker: Broker, connection: NatsClientConnection) -> None:
    """A verbose PING, but the first, gets +OK after its PONG."""
    is_first = not connection.first_pong_sent
    Broker.on_ping(broker, connection)
    if connection.options.verbose and not is_first:
        broker.send(connection, OK)


@method_defect(Broker.on_pong, "CORE-012")
def pong_is_acknowledged(broker: Broker, connection: NatsClientConnection) -> None:
    """A verbose PONG gets +OK."""
    Broker.on_pong(broker, connection)
    if connection.options.verbose:
        broker.send(connection, OK)
