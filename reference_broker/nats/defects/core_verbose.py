"""Defects in +OK: where there must be none, none where there must be one, or too late."""

from __future__ import annotations

from plumbline.reference_broker.nats.connection import Connection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.state import OK
from plumbline.wire.nats import Connect, Operation, Sub, Unsub


def _never_acknowledge(broker: Broker, kind: type[Operation]) -> None:
    """No +OK for one kind of operation."""
    original = broker.acknowledge

    def acknowledge(connection: Connection, operation: Operation) -> None:
        if not isinstance(operation, kind):
            original(connection, operation)

    replace(broker, "acknowledge", acknowledge)


@defect("connect-is-not-acknowledged", breaks=("CORE-008",), summary="A verbose CONNECT gets no +OK.")
def _(broker: Broker) -> None:
    _never_acknowledge(broker, Connect)


@defect("sub-is-not-acknowledged", breaks=("CORE-013",), summary="A verbose SUB gets no +OK.")
def _(broker: Broker) -> None:
    _never_acknowledge(broker, Sub)


@defect("unsub-is-not-acknowledged", breaks=("CORE-016",), summary="A verbose UNSUB gets no +OK.")
def _(broker: Broker) -> None:
    original = broker.acknowledge

    def acknowledge(connection: Connection, operation: Operation) -> None:
        known = isinstance(operation, Unsub) and operation.args[0] in connection.subscriptions
        if not known:
            original(connection, operation)

    replace(broker, "acknowledge", acknowledge)


def _acknowledge_late(broker: Broker, name: str) -> None:
    """+OK to a publish after what it brings."""
    handler, acknowledge = getattr(broker, name), broker.acknowledge

    def handle(connection: Connection, operation: Operation, now: int) -> None:
        replace(broker, "acknowledge", lambda connection, operation: None)
        handler(connection, operation, now)
        replace(broker, "acknowledge", acknowledge)
        if connection.options.verbose and not connection.closing:
            broker.send(connection, OK)

    replace(broker, name, handle)


@defect(
    "pub-is-acknowledged-late",
    breaks=("CORE-014",),
    summary="The +OK of a verbose PUB comes after the MSG that it brings.",
)
def _(broker: Broker) -> None:
    _acknowledge_late(broker, "published")


@defect(
    "hpub-is-acknowledged-late",
    breaks=("CORE-015",),
    summary="The +OK of a verbose HPUB comes after the HMSG that it brings.",
)
def _(broker: Broker) -> None:
    _acknowledge_late(broker, "published_with_headers")


@defect(
    "ping-is-acknowledged",
    breaks=("CORE-010",),
    summary="A verbose PING, but the first, gets +OK after its PONG.",
)
def _(broker: Broker) -> None:
    original = broker.pinged

    def pinged(connection: Connection) -> None:
        is_first = not connection.first_pong_sent
        original(connection)
        if connection.options.verbose and not is_first:
            broker.send(connection, OK)

    replace(broker, "pinged", pinged)


@defect("pong-is-acknowledged", breaks=("CORE-012",), summary="A verbose PONG gets +OK.")
def _(broker: Broker) -> None:
    original = broker.ponged

    def ponged(connection: Connection) -> None:
        original(connection)
        if connection.options.verbose:
            broker.send(connection, OK)

    replace(broker, "ponged", ponged)
