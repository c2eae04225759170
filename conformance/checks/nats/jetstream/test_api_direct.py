"""Direct gets where a server may answer or not. ADR-31."""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.nats.statuses import status_code
from plumbline.conformance.outcomes import Failed
from plumbline.wire.nats import Pub, Sub

SILENCE_S = 0.05


@verifies("JS-API-120", source='ADR-31, "JetStream direct get"')
def test_a_stream_that_does_not_allow_it_answers_with_503_or_nothing(session: NatsSession) -> None:
    """DIRECT.GET of a stream without allow_direct is answered with 503, or with nothing."""
    subject = session.name("s")
    stream = session.stage.stream("S", [subject])
    session.stage.publish(subject, b"m1")
    client, inbox = session.connect(), session.inbox()
    client.send(Sub.make(inbox, 1), Pub.make(f"$JS.API.DIRECT.GET.{stream}", b'{"seq":1}', inbox))
    answer = client.take(SILENCE_S)
    if answer is None:
        client.flush()
    elif status_code(answer) != 503:
        raise Failed("another answer", expected="503, or nothing", actual=str(answer))
    session.count_observation()
