"""How a server refuses what it was sent, as the checks of the client protocol expect it. Holds no check.

Two ways: -ERR on a connection that stays open, and a closed connection, with or without an -ERR before.
"""

from __future__ import annotations

import re

from plumbline.conformance.nats.connection import ConnectionClosed, NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed
from plumbline.wire.nats import Err, Operation, Ping, Pong

WITHIN_S = 1.0
ERROR_WITHIN_S = 10.0  # no document says how soon


def refused(connection: NatsConnection, message: str, *, within: float = WITHIN_S) -> None:
    """The next operation is an -ERR whose whole text fits the expression, in any case."""
    judged(connection, connection.arrival(within, f"-ERR '{message}'").operation, message)


def judged(connection: NatsConnection, operation: Operation, message: str) -> None:
    """``operation`` is an -ERR whose whole text fits the expression.

    In any case: servers and docs.nats.io ("Client Protocol", +OK/ERR) differ in the case of these texts.
    """
    if not isinstance(operation, Err) or re.fullmatch(message, operation.message, re.IGNORECASE) is None:
        connection.mark_offending(operation)
        raise Failed(
            f"{connection.name}: not refused like that", expected=f"-ERR '{message}'", actual=str(operation)
        )


def refused_and_closed(connection: NatsConnection, message: str, *, within: float = WITHIN_S) -> None:
    """An -ERR that fits the expression, then the server closes."""
    refused(connection, message, within=within)
    connection.expect_closed()


def closed_as_an_error(connection: NatsConnection) -> None:
    """The server closes, with or without an -ERR before, which may come late; nothing else comes."""
    try:
        operation = connection.take(ERROR_WITHIN_S)
    except ConnectionClosed:
        operation = None
    if operation is not None and not isinstance(operation, Err):
        connection.mark_offending(operation)
        raise Failed(f"{connection.name}: not refused", expected="a closed connection", actual=str(operation))
    connection.expect_closed()


def goes_on(connection: NatsConnection) -> None:
    """The connection is open, and nothing is left to come on it."""
    connection.send(Ping.make())
    connection.expect(Pong)


def hears_nothing(session: NatsSession, connection: NatsConnection) -> None:
    """What was published before on connections that have been flushed does not come here."""
    came = connection.flush()
    for operation in came:
        connection.mark_offending(operation)
    session.require(
        not came,
        f"{connection.name}: something came",
        expected="nothing before PONG",
        actual="; ".join(map(str, came)),
    )


def publish_violation(subject: str) -> str:
    """The reason for a refused PUB: the document has the subject bare, servers have it in double quotes."""
    return f'Permissions Violation for Publish to "?{re.escape(subject)}"?'


def subscription_violation(subject: str) -> str:
    """The reason for a refused SUB without a queue group, likewise."""
    return f'Permissions Violation for Subscription to "?{re.escape(subject)}"?'
