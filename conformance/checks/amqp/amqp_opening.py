"""The steps by which an AMQP connection is opened, one at a time, and the ways in which it may end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.conformance.amqp.connection import AmqpConnection
from plumbline.conformance.amqp.handshake import open_, start_ok, tune_ok
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.checks.amqp.amqp_answers import reply_code
from plumbline.conformance.outcomes import Failed
from plumbline.conformance.sessions.connection import ConnectionClosed
from plumbline.wire.amqp import Method, Operation, ProtocolHeader

# RabbitMQ waits three seconds before it closes on a client that it does not trust yet.
ENDS_WITHIN_S = 8.0
SUCCESS = 200


def bare(session: AmqpSession, name: str = "client") -> AmqpConnection:
    """A connection on which nothing was sent."""
    return session.connect(name, handshake=False)


def greeted(session: AmqpSession, name: str = "client") -> tuple[AmqpConnection, Method]:
    """A connection on which connection.start came, and that."""
    connection = bare(session, name)
    connection.send(ProtocolHeader.make())
    return connection, connection.expect("connection.start")


def logged_in(session: AmqpSession, name: str = "client") -> tuple[AmqpConnection, Method]:
    """A connection on which connection.tune came, and that."""
    connection, _ = greeted(session, name)
    connection.send(start_ok(session.url(None), {}))
    return connection, connection.expect("connection.tune")


def opening(session: AmqpSession, tune: Method, **options: Any) -> tuple[Method, Method]:
    """connection.tune-ok and connection.open, as ``options`` say."""
    return tune_ok(tune, options), open_(session.url(None), options)


def expect_end(
    session: AmqpSession, connection: AmqpConnection, what: str, *codes: int, within: float = ENDS_WITHIN_S
) -> None:
    """The server ends the connection after ``what``, and then answers a fresh one.

    It sends connection.close with one of ``codes`` (none: any error code), or closes without a word.
    """
    allowed = " or ".join(map(str, codes)) or "an error code"
    wanted = f"connection.close with {allowed}, or the connection closed, within {within:g} s"
    try:
        answer = connection.take(within)
    except ConnectionClosed:
        connection.expect_closed(0.1)
        return
    code = reply_code(answer) if answer is not None else 0
    if (
        answer is None
        or answer.method != "connection.close"
        or (code not in codes if codes else code == SUCCESS)
    ):
        if answer is not None:
            connection.mark_offending(answer)
        raise Failed(f"{what} does not end the connection", expected=wanted, actual=str(answer or "nothing"))
    session.count_observation()


def expect_matching(
    session: AmqpSession, connection: AmqpConnection, wanted: str, fits: Callable[[Operation], bool]
) -> Operation:
    """The next operation, for which ``fits`` must hold."""

    def judge(operation: Operation) -> None:
        if not fits(operation):
            connection.mark_offending(operation)
            raise Failed(f"{connection.name}: something else came", expected=wanted, actual=str(operation))

    operation: Operation = connection.arrival(1.0, wanted, judge=judge).operation
    session.count_observation()
    return operation
