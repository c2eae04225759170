"""Who may connect. docs.nats.io, "Client Protocol", CONNECT. Refusals are traces, below traces/core."""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.session import NatsSession
from plumbline.wire.nats import Connect, Info, Ping, Pong


@verifies("CORE-058", variant="token", source='docs.nats.io, "Client Protocol", CONNECT')
def test_token_is_accepted(session: NatsSession) -> None:
    """A CONNECT with the server's token in auth_token is accepted."""
    connection = session.connect(handshake=False)
    connection.expect(Info, within=2.0)
    connection.send(Connect.make(session.connect_fields(connection)), Ping.make())
    connection.expect(Pong)
