"""Sources: headers inside base64. docs.nats.io, "Source and Mirror Streams"."""

from __future__ import annotations

import base64
import binascii

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.jetstream.api_answers import field, shows
from plumbline.conformance.nats.session import NatsSession
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats.headers import Headers

COPIED_WITHIN_S = 5.0


@verifies("JS-API-170", source='docs.nats.io, "Source and Mirror Streams"')
def test_a_message_from_a_source_names_it(session: NatsSession) -> None:
    """A message that came from a source has the header Nats-Stream-Source."""
    subject = session.name("s")
    origin = session.stage.stream("ORIGIN", [subject])
    session.stage.publish(subject, b"m1")
    session.stage.publish(subject, b"m2")
    session.stage.api("STREAM.PURGE", origin, body={"seq": 2})
    copy = session.name("COPY")
    body = {"name": copy, "sources": [{"name": origin}], "storage": "memory"}
    session.stage.api("STREAM.CREATE", copy, body=body)
    session.stage.expect_stream(copy, within=COPIED_WITHIN_S, messages=1, last_seq=1)
    answer = session.stage.answer("STREAM.MSG.GET", copy, body={"seq": 1})
    shows(session, answer, "message.subject", subject)
    source = _header(field(answer, "message.hdrs"), "Nats-Stream-Source")
    session.require(
        (source or "").split(" ")[:2] == [origin, "2"],
        "Nats-Stream-Source is another",
        expected=f"Nats-Stream-Source: {origin} 2, and more behind a blank",
        actual=f"Nats-Stream-Source: {source}",
    )


def _header(encoded: object, name: str) -> str | None:
    try:
        return Headers.parse(base64.b64decode(str(encoded))).get(name)
    except (ProtocolError, binascii.Error):
        return None
