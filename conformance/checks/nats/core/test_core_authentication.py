"""Who may connect. docs.nats.io, "Client Protocol", CONNECT. Refusals are traces, below traces/core."""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.core.core_users import (
    RFC_8032_ODD_USER,
    RFC_8032_TEST_1,
    RFC_8032_TEST_SHA,
    RFC_8032_USER,
    signature_of_nonce,
)
from plumbline.conformance.nats.session import NatsSession
from plumbline.wire.nats import Connect, Info, Msg, Ping, Pong, Pub, Sub


@verifies("CORE-058", variant="token", source='docs.nats.io, "Client Protocol", CONNECT')
def test_token_is_accepted(session: NatsSession) -> None:
    """A CONNECT with the server's token in auth_token is accepted."""
    connection = session.connect(handshake=False)
    connection.expect(Info, within=2.0)
    connection.send(Connect.make(session.connect_fields(connection)), Ping.make())
    connection.expect(Pong)


@verifies("CORE-112", variant="nkey", source='docs.nats.io, "Client Protocol", CONNECT')
def test_a_signed_nonce_is_accepted(session: NatsSession) -> None:
    """A CONNECT whose sig signs the nonce with the key of a user is accepted, and the client may work."""
    _works(session, RFC_8032_USER, RFC_8032_TEST_1)
    _works(session, RFC_8032_ODD_USER, RFC_8032_TEST_SHA)


def _works(session: NatsSession, user: str, secret: bytes) -> None:
    connection = session.connect(user[:4], handshake=False)
    signature = signature_of_nonce(connection, secret)
    connection.send(
        Connect.make({"verbose": False, "pedantic": False, "nkey": user, "sig": signature}),
        Sub.make(subject := session.name("foo"), 1),
        Pub.make(subject, b"hi"),
    )
    connection.expect(Msg, subject=subject, payload=b"hi")
