"""Defects in how clients are let in and kept: CONNECT, authentication, limits, PING from the server."""

from __future__ import annotations

from plumbline.reference_broker.nats.auth import Credentials
from plumbline.reference_broker.nats.config import User
from plumbline.reference_broker.nats.connection import Connection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.wire.nats import Connect, Operation, Ping, Pub


@defect("lower-case-ping-is-ignored", breaks=("CORE-022",), summary="ping in lower case gets no PONG.")
def _(broker: Broker) -> None:
    original = broker.dispatch

    def dispatch(connection: Connection, operation: Operation, now: int) -> None:
        if not (isinstance(operation, Ping) and operation.raw.startswith(b"ping")):
            original(connection, operation, now)

    replace(broker, "dispatch", dispatch)


@defect("second-connect-is-refused", breaks=("CORE-035",), summary="A second CONNECT ends the connection.")
def _(broker: Broker) -> None:
    original = broker.connected

    def connected(connection: Connection, operation: Connect, now: int) -> None:
        if connection.connected:
            broker.refuse(connection, None)
        else:
            original(connection, operation, now)

    replace(broker, "connected", connected)


@defect(
    "no-responders-needs-no-headers",
    breaks=("CORE-036",),
    summary="CONNECT may ask for no_responders without headers.",
)
def _(broker: Broker) -> None:
    original = broker.refusal

    def refusal(connection: Connection) -> str | None:
        found = original(connection)
        return None if found and found.startswith("no responders") else found

    replace(broker, "refusal", refusal)


@defect("any-password-is-right", breaks=("CORE-056",), summary="Any password but an empty one is right.")
def _(broker: Broker) -> None:
    def password_is_right(user: User, password: str | None) -> bool:
        return bool(password)

    replace(broker.authenticator, "password_is_right", password_is_right)


@defect("anonymous-is-let-in", breaks=("CORE-057",), summary="Who shows no credentials needs none.")
def _(broker: Broker) -> None:
    original = broker.authenticator.admits

    def admits(credentials: Credentials, nonce: str) -> bool:
        anonymous = not (credentials.user or credentials.token or credentials.nkey)
        return anonymous or original(credentials, nonce)

    replace(broker.authenticator, "admits", admits)


@defect("no-token-is-right", breaks=("CORE-058",), summary="The configured token is refused.")
def _(broker: Broker) -> None:
    replace(broker.authenticator, "token_is_right", lambda token: False)


@defect("any-token-is-right", breaks=("CORE-059",), summary="Any token but an empty one is right.")
def _(broker: Broker) -> None:
    replace(broker.authenticator, "token_is_right", bool)


@defect("any-signature-is-right", breaks=("CORE-110",), summary="No NKey signature is wrong.")
def _(broker: Broker) -> None:
    replace(broker.authenticator, "signature_is_right", lambda nkey, nonce, signature: True)


@defect(
    "authentication-times-out-in-silence",
    breaks=("CORE-061",),
    summary="Who sends no CONNECT in time is cut off without -ERR.",
)
def _(broker: Broker) -> None:
    replace(broker, "authentication_timed_out", lambda connection: broker.refuse(connection, None))


@defect(
    "operations-before-connect-are-served",
    breaks=("CORE-062",),
    summary="Where credentials are required, whoever sends no CONNECT needs none.",
)
def _(broker: Broker) -> None:
    replace(broker, "came_too_early", broker.dispatch)
    replace(broker, "check_opening", lambda connection, unfinished: None)


@defect(
    "operations-before-connect-are-refused",
    breaks=("CORE-063",),
    summary="No operation is served before CONNECT, credentials or not.",
)
def _(broker: Broker) -> None:
    dispatch, published = broker.dispatch, broker.published

    def anything(connection: Connection, operation: Operation, now: int) -> None:
        if connection.connected:
            dispatch(connection, operation, now)
        else:
            broker.refuse(connection, "Authorization Violation")

    def pub(connection: Connection, operation: Pub, now: int) -> None:
        if connection.connected:
            published(connection, operation, now)
        else:
            broker.refuse(connection, "Authorization Violation")

    replace(broker, "dispatch", anything)
    replace(broker, "published", pub)


@defect(
    "subscriptions-have-no-limit",
    breaks=("CORE-064",),
    summary="A connection may have more than max_subscriptions.",
)
def _(broker: Broker) -> None:
    replace(broker, "has_all_subscriptions", lambda connection: False)


@defect("connections-have-no-limit", breaks=("CORE-066",), summary="There may be more than max_connections.")
def _(broker: Broker) -> None:
    replace(broker, "is_full", lambda: False)


@defect(
    "silent-clients-are-kept",
    breaks=("CORE-068",),
    summary="PINGs may stay unanswered for ever.",
)
def _(broker: Broker) -> None:
    replace(broker, "is_stale", lambda connection: False)
