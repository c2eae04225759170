"""PING from the server. docs.nats.io, "Client Protocol", PING/PONG. What follows without PONG is a trace."""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Unsupported
from plumbline.wire.nats import Connect, Info, Ping

A_FEW_SECONDS = 4.0


@verifies("CORE-069", source="observed, nats-server 2.9.10 and 2.15", is_long=True)
def test_first_ping_comes_early(session: NatsSession) -> None:
    """To a client that has sent no PING the server's first one comes within seconds."""
    connection = session.connect(handshake=False)
    connection.expect(Info, within=2.0)
    connection.send(Connect.make(session.connect_fields(connection)))
    first = connection.take(A_FEW_SECONDS, skip=(Info,))
    if first is None:
        raise Unsupported(f"no PING within {A_FEW_SECONDS:g} s of the connection")
    session.require(isinstance(first, Ping), "no PING but something else", expected="PING", actual=str(first))
