"""Users by JWT. docs.nats.io, "Decentralized JWT Authentication/Authorization" and "In Depth JWT Guide".

The JWTs are credentials of the variant; ``tests/jwt_variant.py`` says who has signed what.
"""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.core.core_refusals import (
    closed_as_an_error,
    goes_on,
    hears_nothing,
    publish_violation,
    refused,
    subscription_violation,
)
from plumbline.conformance.checks.nats.core.core_users import (
    RFC_8032_TEST_1,
    RFC_8032_TEST_SHA,
    listening,
    next_message,
    signature_of_nonce,
)
from plumbline.conformance.nats.connection import NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.targets.variants import variants
from plumbline.wire.nats import Connect, Info, Ping, Pong, Pub, Sub

VARIANT = "jwt"
JWT = 'docs.nats.io, "Decentralized JWT Authentication/Authorization"'
PROCESS = f'{JWT}, "The Authentication Process"'
GUIDE = 'docs.nats.io, "In Depth JWT Guide"'
CHAIN = f'{GUIDE}, "JWT and Chain of Trust Verification"'
NO_KEY = b""  # the nonce is not signed


def _asking(session: NatsSession, role: str, secret: bytes = RFC_8032_TEST_1) -> NatsConnection:
    """A connection that has sent CONNECT with the JWT of this role, none without a role, and PING."""
    connection = session.connect(role or "client", handshake=False)
    if secret:
        login = {"sig": signature_of_nonce(connection, secret)}
    else:
        connection.expect(Info, within=2.0)
        login = {}
    if role:
        login |= variants()[VARIANT].credentials[role]
    connection.send(Connect.make({"verbose": False, "pedantic": False, **login}), Ping.make())
    return connection


def _accepted(session: NatsSession, role: str, secret: bytes = RFC_8032_TEST_1) -> NatsConnection:
    connection = _asking(session, role, secret)
    connection.expect(Pong)
    return connection


@verifies("CORE-133", variant=VARIANT, source=PROCESS)
def test_user_of_a_signed_account_is_accepted(session: NatsSession) -> None:
    """The chain of signatures leads from the user to the operator, and the users are in their accounts."""
    subject = session.name("foo")
    user, same, other = (_accepted(session, role) for role in ("user", "limited", "other"))
    listening(user, subject, f"{session.name('bar')}.ok.a")
    listening(other, f"{subject}.>", subject, f"{session.name('bar')}.ok.a")
    same.send(Pub.make(f"{session.name('bar')}.ok.a", b"m1"))
    goes_on(same)
    next_message(user, f"{session.name('bar')}.ok.a", b"m1")
    user.send(Pub.make(subject, b"m2"))
    next_message(user, subject, b"m2")
    hears_nothing(session, other)


@verifies("CORE-134", variant=VARIANT, source=PROCESS)
def test_nonce_must_be_signed_by_the_user(session: NatsSession) -> None:
    """A JWT whose user has not signed the nonce is refused: another key has, or none; and so is no JWT."""
    for role, secret in (("user", RFC_8032_TEST_SHA), ("user", NO_KEY), ("", RFC_8032_TEST_1)):
        closed_as_an_error(_asking(session, role, secret))
    _accepted(session, "user")


@verifies("CORE-135", variant=VARIANT, source=CHAIN)
def test_chain_of_signatures_must_be_whole(session: NatsSession) -> None:
    """Refused: an account that no operator has signed, another account's signature, and changed claims."""
    for role in ("of-an-unknown-account", "signed-by-another-account", "with-other-claims"):
        closed_as_an_error(_asking(session, role))


@verifies("CORE-136", variant=VARIANT, source=f'{GUIDE}, "Signing keys"')
def test_signing_key_of_the_account_counts(session: NatsSession) -> None:
    """A user that a signing key of the account has signed is in that account, which issuer_account names."""
    subject = session.name("foo")
    user = listening(_accepted(session, "user"), subject)
    signed = _accepted(session, "signed-by-a-signing-key")
    signed.send(Pub.make(subject, b"m1"))
    goes_on(signed)
    next_message(user, subject, b"m1")


@verifies("CORE-137", variant=VARIANT, source=CHAIN)
def test_revoked_user_is_refused(session: NatsSession) -> None:
    """A JWT from before the revocation of its user is refused, and one from after it is accepted."""
    closed_as_an_error(_asking(session, "revoked", RFC_8032_TEST_SHA))
    _accepted(session, "issued-later", RFC_8032_TEST_SHA)


@verifies("CORE-138", variant=VARIANT, source=f'{JWT}; RFC 7519, "exp", "nbf"')
def test_jwt_out_of_its_time_is_refused(session: NatsSession) -> None:
    """A JWT that expired in 2020 is refused, and one that begins in 2100."""
    for role in ("expired", "not-yet"):
        closed_as_an_error(_asking(session, role))


@verifies("CORE-139", variant=VARIANT, source=f'{JWT}, "The Authorization Process"')
def test_permissions_of_the_jwt_count(session: NatsSession) -> None:
    """The JWT says what its user may publish and subscribe to."""
    name = session.name("foo")
    user = listening(_accepted(session, "user"), f"{name}.>")
    limited = _accepted(session, "limited")
    limited.send(Pub.make(f"{name}.no", b"m1"))
    refused(limited, publish_violation(f"{name}.no"))
    limited.send(Pub.make(f"{name}.ok.bad", b"m2"))
    refused(limited, publish_violation(f"{name}.ok.bad"))
    limited.send(Sub.make(f"{name}.no", 1))
    refused(limited, subscription_violation(f"{name}.no"))
    limited.send(Sub.make(f"{name}.ok.a", 2), Pub.make(f"{name}.ok.a", b"m3"))
    next_message(limited, f"{name}.ok.a", b"m3")
    next_message(user, f"{name}.ok.a", b"m3")
    hears_nothing(session, user)


@verifies(
    "CORE-140", variant=VARIANT, source='docs.nats.io, "MQTT", "Authentication/Authorization of MQTT Users"'
)
def test_bearer_needs_no_signature(session: NatsSession) -> None:
    """Who gives a JWT with bearer_token need not sign the nonce."""
    _accepted(session, "bearer", NO_KEY)
