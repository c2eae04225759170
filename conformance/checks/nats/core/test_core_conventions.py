"""Protocol conventions: line ends, segments. docs.nats.io, "Client Protocol", "Protocol conventions"."""

from __future__ import annotations

import itertools

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.connection import ConnectionClosed, NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Unsupported
from plumbline.wire.nats import Err, Msg, Ping, Pong, Pub, Sub


@verifies("CORE-021", source="observed, nats-server 2.9.10 and 2.15")
def test_bare_line_feed_ends_a_control_line(session: NatsSession) -> None:
    """A line feed alone ends a control line too."""
    connection = session.connect()
    foo = session.name("foo")
    connection.send_bytes(f"SUB {foo} 1\nPING\n".encode())
    try:
        answer = connection.take(1.0)
    except ConnectionClosed:
        answer = None
    if answer is None or isinstance(answer, Err):
        raise Unsupported(f"a bare LF is answered with {answer or 'nothing'}: it is no line end here")
    session.require(isinstance(answer, Pong), "PING was not answered", expected="PONG", actual=str(answer))
    connection.send(Pub.make(foo, b"hi"))
    connection.expect(Msg, subject=foo, sid="1", payload=b"hi")


def exchange(subject: str, sid: int) -> bytes:
    """Operations of every shape, a payload that looks like operations among them."""
    published = [Pub.make(subject, b"hello"), Pub.make(subject, b"PING\r\n")]
    return b"".join(operation.raw for operation in (Sub.make(subject, sid), *published, Ping.make()))


def expect_exchange(connection: NatsConnection, subject: str, sid: int) -> None:
    """What ``exchange`` brings, and no more."""
    connection.expect(Msg, subject=subject, sid=str(sid), payload=b"hello")
    connection.expect(Msg, subject=subject, sid=str(sid), payload=b"PING\r\n")
    connection.expect(Pong)


@verifies("CORE-102", source='docs.nats.io, "Client Protocol"', is_long=True)
def test_one_byte_at_a_time(session: NatsSession) -> None:
    """Operations whose bytes come one at a time mean the same."""
    connection, clock = session.connect(), session.connect("clock")
    connection.answers_pings = False  # a PONG between two segments would be part of the operation
    for byte in exchange(session.name("foo"), 1):
        connection.send_bytes(bytes([byte]))
        clock.flush()  # so long that the server has read the byte before the next one is sent
    expect_exchange(connection, session.name("foo"), 1)


@verifies("CORE-102", source='docs.nats.io, "Client Protocol"', is_long=True)
def test_cut_anywhere(session: NatsSession) -> None:
    """Operations cut in two segments, wherever the cut is, mean the same."""
    connection, clock = session.connect(), session.connect("clock")
    connection.answers_pings = False  # a PONG between two segments would be part of the operation
    for cut in itertools.count(1):
        sid = 1000 + cut  # always as long, so that every cut is another place of the same operations
        subject = f"{session.name('foo')}.{sid}"
        data = exchange(subject, sid)
        if cut == len(data):
            return
        connection.send_bytes(data[:cut])
        clock.flush()
        connection.send_bytes(data[cut:])
        expect_exchange(connection, subject, sid)
