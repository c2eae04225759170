"""Clients of the users of a variant. Holds no check."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

from plumbline.conformance.nats.connection import NatsConnection
from plumbline.conformance.nats.ed25519 import sign
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed, Untestable
from plumbline.conformance.targets.variants import variants
from plumbline.wire.nats import HMsg, Info, Msg, Sub

# RFC 8032, section 7.1, test 1, and its public key as an NKey: the user of the variant nkey.
RFC_8032_TEST_1 = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
RFC_8032_USER = "UDLVVGABQKYQVN6VJP7NHSLEA45A5YLS6PNKMIZFV4BBU2HXA5IRUVAL"
# The same of "TEST SHA(abc)", the one key of that section whose point has an odd x.
RFC_8032_TEST_SHA = bytes.fromhex("833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42")
RFC_8032_ODD_USER = "UDWBOK4TVVPFMO7USMWHBYJEKA2MGVDH54XP2TLE5P4BS2BUM7RL7Q7A"


def client_of(session: NatsSession, role: str, name: str = "") -> NatsConnection:
    """A connection of one of the ``credentials`` of the session's variant.

    Raises ``Untestable`` if the server does not know the user.
    """
    assert session.variant is not None
    credentials: dict[str, Any] = dict(variants()[session.variant].credentials[role])
    try:
        return session.connect(name or role, **credentials)
    except Failed as error:
        message = f"the variant {session.variant} has no user {credentials['user']!r}"
        raise Untestable(message, actual=error.actual) from None


def listening(connection: NatsConnection, *subjects: str) -> NatsConnection:
    """The same connection with a subscription to each subject; its sids count from 1."""
    connection.send(*(Sub.make(subject, sid) for sid, subject in enumerate(subjects, 1)))
    connection.flush()
    return connection


def next_message(connection: NatsConnection, subject: str, payload: bytes) -> Msg | HMsg:
    """The next operation, a message with or without headers. Raises ``Failed`` if it is another one."""
    expected = f"MSG or HMSG {subject} with the payload {payload.decode()}"
    operation = connection.arrival(1.0, expected).operation
    if not isinstance(operation, Msg | HMsg) or (operation.subject, operation.payload) != (subject, payload):
        connection.mark_offending(operation)
        raise Failed(
            f"{connection.name}: not the message that is due", expected=expected, actual=str(operation)
        )
    return operation


def signature_of_nonce(connection: NatsConnection, secret: bytes) -> str:
    """``sig`` for CONNECT, from the INFO that comes next. Raises ``Failed`` if that has no nonce."""
    nonce = connection.expect(Info, within=2.0).fields.get("nonce")
    if not isinstance(nonce, str):
        raise Failed("INFO has no nonce to sign", expected="a nonce", actual=str(nonce))
    return urlsafe_b64encode(sign(secret, nonce.encode())).rstrip(b"=").decode()
