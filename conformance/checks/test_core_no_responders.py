"""What is asked of nobody in particular. docs.nats.io, "Request-Reply", "No responders"."""

from __future__ import annotations

from conformance.check import verifies
from conformance.checks.core_refusals import goes_on
from conformance.session import Session
from wire.errors import ProtocolError
from wire.json_text import json_object
from wire.nats import HMsg, Msg, Operation, Pub, Sub


@verifies("CORE-082", source="observed, nats-server 2.9.10 and 2.15")
def test_unknown_jetstream_request(session: Session) -> None:
    """A request below $JS.API that is none of the API gets nothing, 503 or an error, and harms nothing."""
    session.needs("jetstream")
    connection = session.connect()
    reply = session.inbox()
    connection.send(Sub.make(reply, 1), Pub.make(f"$JS.API.NOPE.{session.name('x')}", b"", reply))
    answers = [str(answer) for answer in connection.flush() if not is_refusal(answer)]
    session.require(
        not answers,
        "an answer that refuses nothing",
        expected="nothing, a 503 or an error object",
        actual="; ".join(answers),
    )
    goes_on(connection)


def is_refusal(answer: Operation) -> bool:
    """Whether an answer is a 503 or a JSON object with an error."""
    try:
        if isinstance(answer, HMsg):
            status = answer.headers.status if answer.headers else None
            return status is not None and status.code == 503
        return isinstance(answer, Msg) and "error" in json_object(answer.payload)
    except ProtocolError:
        return False
