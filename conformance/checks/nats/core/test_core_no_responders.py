"""Requests without a subscriber. docs.nats.io, "Request-Reply", "No responders"."""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.core.core_refusals import goes_on
from plumbline.conformance.nats.connection import NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.nats.statuses import status_code
from plumbline.conformance.outcomes import Failed
from plumbline.wire.errors import ProtocolError
from plumbline.wire.json_text import json_object
from plumbline.wire.nats import HMsg, Msg, Operation, Pub, Sub

ATTEMPTS = 10
ATTEMPTS_AFTER_A_CLOSE = 40  # which a server sees some moments later
BETWEEN_S = 0.05


def answers(
    session: NatsSession, connection: NatsConnection, subject: str, reply: str, attempts: int = ATTEMPTS
) -> list[Operation]:
    """What a request on ``subject`` brings, if it has no subscriber.

    Somebody may listen for a moment: a subscription on > of another check is a subscriber, and then no 503 is
    due. So a request that brings nothing is made again, a few times.
    """
    for _ in range(attempts):
        connection.send(Pub.make(subject, b"x", reply))
        came = connection.flush()
        if came:
            return came
        session.pause(BETWEEN_S)
    raise Failed(
        f"no answer to {attempts} requests",
        expected=f"HMSG {reply} with status 503",
        actual="nothing (as it must be where somebody else subscribes to >)",
    )


def require_one_503(session: NatsSession, came: list[Operation], reply: str) -> None:
    """One HMSG to the reply subject came, with status 503 and without payload."""
    first = came[0]
    due = (
        isinstance(first, HMsg) and first.subject == reply and status_code(first) == 503 and not first.payload
    )
    session.require(
        due and len(came) == 1,
        "not the one answer that is due",
        expected=f"one HMSG {reply} with status 503 and no payload",
        actual="; ".join(map(str, came)),
    )


@verifies("CORE-076", source='docs.nats.io, "Request-Reply", "No responders"')
def test_request_to_nobody_gets_503(session: NatsSession) -> None:
    """A request without a subscriber is answered with 503 at once."""
    session.needs("headers")
    connection = session.connect()
    reply = f"{session.inbox()}.1"
    connection.send(Sub.make(f"{session.inbox()}.*", 1))
    require_one_503(session, answers(session, connection, session.name("unused"), reply), reply)


@verifies("CORE-076", source='docs.nats.io, "Request-Reply", "No responders"')
def test_503_once_the_subscriber_is_gone(session: NatsSession) -> None:
    """Once the connection of the only subscriber is closed, a request is answered with 503."""
    session.needs("headers")
    connection, service = session.connect(), session.connect()
    reply = f"{session.inbox()}.1"
    subject = session.name("service")
    service.send(Sub.make(subject, 1))
    service.flush()
    connection.send(Sub.make(f"{session.inbox()}.*", 1), Pub.make(subject, b"x", reply))
    connection.flush()
    service.arrival(2.0, f"MSG {subject}")
    service.close()
    came = answers(session, connection, subject, reply, ATTEMPTS_AFTER_A_CLOSE)
    require_one_503(session, came, reply)


@verifies("CORE-080", source="observed, nats-server 2.9.10 and 2.15")
def test_overlapping_subscriptions_get_one_503(session: NatsSession) -> None:
    """Two subscriptions of the requester that match its reply subject get one 503 between them."""
    session.needs("headers")
    connection = session.connect()
    reply = f"{session.inbox()}.1"
    connection.send(Sub.make(f"{session.inbox()}.>", 1), Sub.make(reply, 2))
    require_one_503(session, answers(session, connection, session.name("unused"), reply), reply)


@verifies("CORE-082", source="observed, nats-server 2.9.10 and 2.15")
def test_unknown_jetstream_request(session: NatsSession) -> None:
    """A request below $JS.API that is none of the API gets nothing, 503 or an error, and harms nothing."""
    session.needs("jetstream")
    connection = session.connect()
    reply = session.inbox()
    connection.send(Sub.make(reply, 1), Pub.make(f"$JS.API.NOPE.{session.name('x')}", b"", reply))
    unlike = [str(answer) for answer in connection.flush() if not is_refusal(answer)]
    session.require(
        not unlike,
        "an answer that refuses nothing",
        expected="nothing, a 503 or an error object",
        actual="; ".join(unlike),
    )
    goes_on(connection)


def is_refusal(answer: Operation) -> bool:
    """Whether an answer is a 503 or a JSON object with an error."""
    if isinstance(answer, HMsg):
        return status_code(answer) == 503
    try:
        return isinstance(answer, Msg) and "error" in json_object(answer.payload)
    except ProtocolError:
        return False
