"""Who may connect. docs.nats.io, "Client Protocol", CONNECT. Refusals are traces, below traces/core."""

from __future__ import annotations

from base64 import urlsafe_b64encode

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.ed25519 import sign
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed
from plumbline.wire.nats import Connect, Info, Msg, Ping, Pong, Pub, Sub

# RFC 8032, section 7.1, test 1, and its public key as an NKey: the user of the variant nkey.
RFC_8032_TEST_1 = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
RFC_8032_USER = "UDLVVGABQKYQVN6VJP7NHSLEA45A5YLS6PNKMIZFV4BBU2HXA5IRUVAL"
# The same of "TEST SHA(abc)", the one key of that section whose point has an odd x.
RFC_8032_TEST_SHA = bytes.fromhex("833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42")
RFC_8032_ODD_USER = "UDWBOK4TVVPFMO7USMWHBYJEKA2MGVDH54XP2TLE5P4BS2BUM7RL7Q7A"


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
    nonce = connection.expect(Info, within=2.0).fields.get("nonce")
    if not isinstance(nonce, str):
        raise Failed("INFO has no nonce to sign", expected="a nonce", actual=str(nonce))
    signature = urlsafe_b64encode(sign(secret, nonce.encode())).rstrip(b"=").decode()
    connection.send(
        Connect.make({"verbose": False, "pedantic": False, "nkey": user, "sig": signature}),
        Sub.make(subject := session.name("foo"), 1),
        Pub.make(subject, b"hi"),
    )
    connection.expect(Msg, subject=subject, payload=b"hi")
