"""HPUB and HMSG: header blocks pass unchanged. ADR-4; docs.nats.io, "Client Protocol", HPUB."""

from __future__ import annotations

import json

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.core.core_refusals import closed_as_an_error, goes_on, hears_nothing
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed
from plumbline.wire.nats import HMsg, HPub, Info, Msg, Sub


def require_same_block(session: NatsSession, block: bytes, payload: bytes) -> None:
    """What is published with this block arrives with exactly this block."""
    session.needs("headers")
    subject = session.name("foo")
    connection = session.connect()
    connection.send(Sub.make(subject, 1), HPub.make(subject, block, payload))
    message = connection.expect(HMsg, subject=subject, sid="1")
    if message.header_block != block or message.payload != payload:
        connection.mark_offending(message)
        raise Failed("other bytes than sent", expected=repr(block + payload), actual=repr(message.body))
    goes_on(connection)


@verifies("CORE-070", source='ADR-4, "Case preserving"')
def test_header_block_is_relayed_byte_for_byte(session: NatsSession) -> None:
    """Case, order, duplicates and blanks of a header block stay as they were sent."""
    block = b"NATS/1.0\r\nB: 2\r\nA: 1\r\na: 2\r\nA:3\r\nA: 1\r\nC:  spaced \r\nD:\r\nD:\t\xc3\xa9\r\n\r\n"
    require_same_block(session, block, b"hi")


@verifies("CORE-070", source='ADR-4, "Case preserving"')
def test_status_line_is_relayed(session: NatsSession) -> None:
    """A status line that a client sends is relayed as it is."""
    require_same_block(session, b"NATS/1.0 503  No  Such\r\nX: y\r\n\r\n", b"")


@verifies("CORE-074", source="observed, nats-server 2.9.10 and 2.15")
def test_header_block_is_not_judged(session: NatsSession) -> None:
    """Bytes that are no header block are relayed as they are."""
    require_same_block(session, b"abcd", b"hi")


@verifies("CORE-075", source="observed, nats-server 2.9.10 and 2.15")
def test_header_size_zero_gives_msg(session: NatsSession) -> None:
    """HPUB with header size 0 is delivered as MSG."""
    session.needs("headers")
    subject = session.name("foo")
    connection = session.connect()
    connection.send(Sub.make(subject, 1), HPub.make(subject, b"", b"hi"))
    connection.expect(Msg, subject=subject, sid="1", payload=b"hi")


@verifies("CORE-065", variant="no-headers", source='ADR-4, "Enabling Message Headers"')
def test_headers_are_not_announced_where_they_are_off(session: NatsSession) -> None:
    """A server with header support switched off does not announce it."""
    found = session.connect(handshake=False).expect(Info, within=2.0).fields.get("headers", False)
    session.require(
        found is False,
        "INFO announces what is switched off",
        expected="headers false or absent",
        actual=f'"headers":{json.dumps(found)}',
    )


@verifies("CORE-067", variant="no-headers", source='ADR-4, "Enabling Message Headers"')
def test_hpub_is_refused_where_headers_are_off(session: NatsSession) -> None:
    """HPUB to a server with header support switched off is not delivered and closes the connection."""
    subject = session.name("foo")
    listener = session.connect("listener", headers=False, no_responders=False)
    listener.send(Sub.make(subject, 1))
    listener.flush()
    connection = session.connect(headers=True, no_responders=False)
    connection.send(HPub.make(subject, (), b"x"))
    closed_as_an_error(connection)
    hears_nothing(session, listener)
