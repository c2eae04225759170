"""What cannot be parsed, or was not agreed on, ends the connection.

docs.nats.io, "Client Protocol", +OK/ERR: a "Parser Error" there; servers close without a word.
"""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.core.core_refusals import closed_as_an_error, hears_nothing
from plumbline.conformance.nats.session import NatsSession
from plumbline.wire.nats import HPub, Pub, Sub


@verifies("CORE-026", source='docs.nats.io, "Client Protocol", SUB')
def test_sub_without_a_sid(session: NatsSession) -> None:
    """SUB without a sid closes the connection."""
    connection = session.connect()
    connection.send_bytes(f"SUB {session.name('foo')}\r\n".encode())
    closed_as_an_error(connection)


@verifies("CORE-027", source='docs.nats.io, "Client Protocol", SUB')
def test_sub_with_too_many_fields(session: NatsSession) -> None:
    """SUB with more than three fields closes the connection."""
    connection = session.connect()
    connection.send_bytes(f"SUB {session.name('foo')} {session.name('group')} 1 2\r\n".encode())
    closed_as_an_error(connection)


@verifies("CORE-028", source='docs.nats.io, "Client Protocol", PUB')
def test_pub_with_a_size_that_is_no_number(session: NatsSession) -> None:
    """PUB whose size is no number closes the connection."""
    connection = session.connect()
    connection.send(Pub.make(session.name("foo"), b"hello", size="xx"))
    closed_as_an_error(connection)


@verifies("CORE-029", source='docs.nats.io, "Client Protocol", PUB')
def test_pub_with_a_negative_size(session: NatsSession) -> None:
    """PUB with a negative size closes the connection."""
    connection = session.connect()
    connection.send(Pub.make(session.name("foo"), b"hello", size=-1))
    closed_as_an_error(connection)


@verifies("CORE-030", source='docs.nats.io, "Client Protocol", PUB')
def test_pub_without_a_size(session: NatsSession) -> None:
    """PUB without a size closes the connection."""
    connection = session.connect()
    connection.send_bytes(f"PUB {session.name('foo')}\r\nhello\r\n".encode())
    closed_as_an_error(connection)


@verifies("CORE-031", source='docs.nats.io, "Client Protocol", PUB')
def test_payload_longer_than_announced(session: NatsSession) -> None:
    """A payload longer than announced is not delivered and closes the connection."""
    subject = session.name("foo")
    listener = session.connect("listener")
    listener.send(Sub.make(subject, 1))
    listener.flush()
    connection = session.connect()
    connection.send(Pub.make(subject, b"hello", size=2))
    closed_as_an_error(connection)
    hears_nothing(session, listener)


@verifies("CORE-032", source='docs.nats.io, "Client Protocol", HPUB')
def test_hpub_with_headers_larger_than_all(session: NatsSession) -> None:
    """HPUB whose header size is larger than its total size closes the connection."""
    session.needs("headers")
    connection = session.connect()
    connection.send(HPub.make(session.name("foo"), (), header_size=30, size=10))
    closed_as_an_error(connection)


@verifies("CORE-033", source='ADR-4, "Enabling Message Headers"')
def test_hpub_from_a_client_without_headers(session: NatsSession) -> None:
    """HPUB from a client that did not ask for headers is not delivered and closes the connection."""
    session.needs("headers")
    subject = session.name("foo")
    listener = session.connect("listener")
    listener.send(Sub.make(subject, 1))
    listener.flush()
    connection = session.connect(headers=False, no_responders=False)
    connection.send(HPub.make(subject, (), b"x"))
    closed_as_an_error(connection)
    hears_nothing(session, listener)
