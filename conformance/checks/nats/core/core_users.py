"""Clients of the users of a variant. Holds no check."""

from __future__ import annotations

from typing import Any

from plumbline.conformance.nats.connection import NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed, Untestable
from plumbline.conformance.variants import variants
from plumbline.wire.nats import HMsg, Msg, Sub


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
