"""The type of each answer. ADR-1, "JetStream JSON API Design"."""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.jetstream.api_answers import shows
from plumbline.conformance.nats.session import NatsSession


@verifies("JS-API-176", source='ADR-1, "JetStream JSON API Design"')
def test_each_answer_has_its_type(session: NatsSession) -> None:
    """The type of an answer tells which request it answers."""
    stream, consumer, unused = session.name("S"), session.name("C"), session.name("unused")
    config = {"name": stream, "subjects": [session.name("s")], "storage": "memory"}
    durable = {"stream_name": stream, "config": {"durable_name": consumer, "ack_policy": "explicit"}}
    for verb, names, body in (
        ("INFO", (), None),
        ("STREAM.CREATE", (stream,), config),
        ("STREAM.UPDATE", (stream,), config),
        ("STREAM.INFO", (stream,), None),
        ("STREAM.NAMES", (), {"subject": unused}),
        ("STREAM.LIST", (), {"subject": unused}),
        ("STREAM.PURGE", (stream,), None),
        ("STREAM.MSG.GET", (stream,), {"seq": 1}),
        ("STREAM.MSG.DELETE", (stream,), {"seq": 1}),
        ("CONSUMER.CREATE", (stream, consumer), durable),
        ("CONSUMER.INFO", (stream, consumer), None),
        ("CONSUMER.NAMES", (stream,), None),
        ("CONSUMER.LIST", (stream,), None),
        ("CONSUMER.DELETE", (stream, consumer), None),
        ("STREAM.DELETE", (stream,), None),
    ):
        answer = session.stage.answer(verb, *names, body=body)
        name = "account_info" if verb == "INFO" else verb.lower().replace(".", "_")
        kind = {"type": answer.get("type")}  # an error answer has its type as well
        shows(session, kind, "type", f"io.nats.jetstream.api.v1.{name}_response")
