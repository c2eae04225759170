"""Sources and snapshots: headers inside base64, data in pieces. docs.nats.io, "Source and Mirror Streams"."""

from __future__ import annotations

import base64
import binascii

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.jetstream.api_answers import field, refused, shows
from plumbline.conformance.nats.session import NatsSession
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats import HMsg, Msg, Pub, Sub
from plumbline.wire.nats.headers import Headers
from plumbline.wire.nats.jetstream import ApiError

COPIED_WITHIN_S = 5.0
MOST_PIECES = 1000


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


@verifies("JS-API-172", source='docs.nats.io, "JetStream wire API Reference"')
def test_a_snapshot_begins_with_configuration_and_state(session: NatsSession) -> None:
    """STREAM.SNAPSHOT is answered with config and state, or refused for this storage."""
    subject, pieces = session.name("s"), session.inbox("pieces")
    stream = session.stage.stream("S", [subject])
    session.stage.publish(subject, b"m1")
    client = session.connect()
    client.send(Sub.make(pieces, 1))
    client.flush()
    answer = session.stage.answer("STREAM.SNAPSHOT", stream, body={"deliver_subject": pieces})
    if ApiError.of(answer) is not None:
        refused(session, answer, 500, 10064, what="a snapshot")
        return
    shows(session, answer, "type", "io.nats.jetstream.api.v1.stream_snapshot_response")
    shows(session, answer, "config.name", stream)
    shows(session, answer, "state.messages", 1)
    for _ in range(MOST_PIECES):
        piece = client.arrival(2.0, "a piece of the snapshot, or its end").operation
        if not isinstance(piece, Msg | HMsg) or not piece.payload:
            break
        if piece.reply is not None:
            client.send(Pub.make(piece.reply, b""))


def _header(encoded: object, name: str) -> str | None:
    try:
        return Headers.parse(base64.b64decode(str(encoded))).get(name)
    except (ProtocolError, binascii.Error):
        return None
