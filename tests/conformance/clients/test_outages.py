"""Which connections of a client count, by what it sent there and what came."""

from __future__ import annotations

from typing import Any, cast

import pytest

from plumbline.conformance.clients.nats.outages import connections
from plumbline.conformance.clients.nats.scene import NatsScene
from plumbline.monitors import Observation
from plumbline.wire.nats import Connect, Operation, Ping, Pong, Sub
from plumbline.wire.sender import Sender

CONNECT, PING, PONG, SUB = Connect.make({}), Ping.make(), Pong.make(), Sub.make("orders.>", 1)


class Seen:
    """A scene of which only the wire is there."""

    def __init__(self, *operations: tuple[str, Sender, Operation]) -> None:
        self.wire = [
            Observation(operation, sender, connection, index, index, "broker")
            for index, (connection, sender, operation) in enumerate(operations, 1)
        ]

    def sent_operations(self, *kinds: type[Any]) -> list[Observation]:
        return [one for one in self.wire if one.sender is Sender.CLIENT and isinstance(one.operation, kinds)]

    def received_operations(self, *kinds: type[Any]) -> list[Observation]:
        return [one for one in self.wire if one.sender is Sender.SERVER and isinstance(one.operation, kinds)]


def counted(*operations: tuple[str, Sender, Operation]) -> list[str]:
    return connections(cast(NatsScene, Seen(*operations)))


def greeted(name: str) -> tuple[tuple[str, Sender, Operation], ...]:
    return (name, Sender.CLIENT, CONNECT), (name, Sender.CLIENT, PING), (name, Sender.SERVER, PONG)


def test_a_connection_whose_ping_is_answered_counts() -> None:
    assert counted(*greeted("1"), *greeted("2")) == ["1", "2"]


def test_a_connection_whose_ping_is_not_answered_does_not_count() -> None:
    assert counted(*greeted("1"), ("2", Sender.CLIENT, CONNECT), ("2", Sender.CLIENT, PING)) == ["1"]


@pytest.mark.parametrize("more", [(), (("2", Sender.CLIENT, SUB),)])
def test_a_connection_of_a_client_that_sends_no_ping_counts(
    more: tuple[tuple[str, Sender, Operation], ...],
) -> None:
    assert counted(*greeted("1"), ("2", Sender.CLIENT, CONNECT), *more) == ["1", "2"]


def test_a_connection_without_connect_does_not_count() -> None:
    assert counted(*greeted("1"), ("2", Sender.SERVER, PONG)) == ["1"]
