"""What a server takes at most: payloads, control lines, connections, what may wait for one who does not read.

docs.nats.io, "Client Protocol", INFO and +OK/ERR; "Server Configuration".
"""

from __future__ import annotations

import time

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.core.core_refusals import goes_on, judged, refused, refused_and_closed
from plumbline.conformance.nats.connection import ConnectionClosed, NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed, Inconclusive, Unsupported, Untestable
from plumbline.wire.nats import CRLF, Connect, HMsg, HPub, Info, Msg, Operation, Ping, Pong, Pub, Sub
from plumbline.wire.nats.headers import encode_headers

LARGEST_TO_SEND = 8 * 1024 * 1024
DEFAULT_CONTROL_LINE = 4096
# conformance/targets/variants.toml: small-limits, max-connections, slow-consumer
CONFIGURED_CONTROL_LINE = 512
CONFIGURED_CONNECTIONS = 3
FLOOD_PAYLOAD = 60_000
FLOOD_BYTES = 24_000_000  # far more than sockets hold for a client that does not read
SOON_S = 0.2
ROOM_WITHIN_S = 2.0
TOO_LARGE = "Maximum Payload Violation"
TOO_MANY = "maximum connections exceeded"
TOO_LONG = "maximum control line exceeded"


def max_payload(session: NatsSession, connection: NatsConnection) -> int:
    """What INFO announces. Raises ``Unsupported`` for a limit too large to be tried."""
    found = connection.info.fields.get("max_payload") if connection.info else None
    if not isinstance(found, int) or found <= 0:
        raise Untestable("INFO announces no max_payload", actual=f"max_payload {found!r}")
    if found > LARGEST_TO_SEND:
        raise Unsupported(f"INFO announces max_payload {found}; at most {LARGEST_TO_SEND} bytes are sent")
    return found


def refused_for_its_size(connection: NatsConnection, line: bytes, payload: bytes) -> None:
    """The operation is refused and the connection closed, after the control line or after all of it.

    The payload follows only if the line alone brings no answer: a server that closes at once leaves it
    unread, and the reset that TCP then sends may overtake the -ERR.
    """
    connection.send_bytes(line)
    try:
        answer = connection.take(SOON_S)
    except ConnectionClosed:
        connection.disconnected_outcome(f"-ERR '{TOO_LARGE}'")
    if answer is None:
        connection.send_bytes(payload + CRLF)
        refused(connection, TOO_LARGE)
    else:
        judged(connection, answer, TOO_LARGE)
    connection.expect_closed()


@verifies("CORE-047", source='docs.nats.io, "Client Protocol", +OK/ERR')
def test_payload_over_the_maximum_is_refused(session: NatsSession) -> None:
    """PUB of one byte more than max_payload is refused, and the connection is closed."""
    connection = session.connect()
    size = max_payload(session, connection) + 1
    refused_for_its_size(connection, f"PUB {session.name('foo')} {size}\r\n".encode(), b"x" * size)


@verifies("CORE-048", source='docs.nats.io, "Client Protocol", INFO')
def test_payload_of_the_maximum_is_delivered(session: NatsSession) -> None:
    """PUB of exactly max_payload bytes is delivered whole."""
    connection = session.connect()
    subject = session.name("foo")
    payload = b"".join(b"%07d." % number for number in range(max_payload(session, connection) // 8 + 1))
    payload = payload[: max_payload(session, connection)]
    connection.send(Sub.make(subject, 1), Pub.make(subject, payload))
    message = connection.expect(Msg, within=5.0, subject=subject, sid="1")
    session.require(
        message.payload == payload,
        "other bytes than sent",
        expected=f"{len(payload)} bytes as sent",
        actual=f"{len(message.payload)} bytes",
    )


@verifies("CORE-049", source='docs.nats.io, "Client Protocol", HPUB')
def test_headers_count_against_the_maximum(session: NatsSession) -> None:
    """HPUB of headers and payload that only together exceed max_payload is refused, and closes."""
    session.needs("headers")
    connection = session.connect()
    limit = max_payload(session, connection)
    block = encode_headers([("A", "1")])
    size = len(block) + limit
    line = f"HPUB {session.name('foo')} {len(block)} {size}\r\n".encode()
    refused_for_its_size(connection, line, block + b"x" * limit)


@verifies("CORE-049", source='docs.nats.io, "Client Protocol", HPUB')
def test_headers_and_payload_of_the_maximum_are_delivered(session: NatsSession) -> None:
    """HPUB of exactly max_payload bytes of headers and payload together is delivered whole."""
    session.needs("headers")
    connection = session.connect()
    subject, block = session.name("foo"), encode_headers([("A", "1")])
    payload = b"x" * (max_payload(session, connection) - len(block))
    connection.send(Sub.make(subject, 1), HPub.make(subject, block, payload))
    message = connection.expect(HMsg, within=5.0, subject=subject, sid="1")
    session.require(
        message.header_block == block and message.payload == payload,
        "other bytes than sent",
        expected=f"{len(block)} bytes of headers and {len(payload)} of payload, as sent",
        actual=f"{len(message.header_block)} and {len(message.payload)} bytes",
    )


def subject_of(session: NatsSession, size: int) -> str:
    """A subject that is ``size`` bytes long."""
    return f"{session.name('foo')}.".ljust(size, "a")


@verifies("CORE-050", source='docs.nats.io, "Client Protocol", +OK/ERR')
def test_endless_control_line_is_refused(session: NatsSession) -> None:
    """A control line longer than any limit in use is refused, and the connection is closed."""
    # The wire does not say what the limit is. 8000 bytes are over the default; each try is far larger.
    for size in (8_000, 80_000, 800_000, LARGEST_TO_SEND):
        connection = session.connect(f"client-{size}")
        connection.send(Sub.make(subject_of(session, size), 1), Ping.make())
        answer = connection.arrival(5.0, f"-ERR '{TOO_LONG}'").operation
        if not isinstance(answer, Pong):
            judged(connection, answer, TOO_LONG)
            connection.expect_closed()
            return
    raise Failed(f"a line of {size} bytes is taken", expected=f"-ERR '{TOO_LONG}'", actual="PONG")


@verifies("CORE-050", variant="small-limits", source='docs.nats.io, "Client Protocol", +OK/ERR')
def test_control_line_over_the_configured_limit_is_refused(session: NatsSession) -> None:
    """Where 512 bytes are configured, a longer subject is refused and a line of 512 bytes is not."""
    connection = session.connect()
    whole = CONFIGURED_CONTROL_LINE - len("SUB  1")
    connection.send(Sub.make(subject_of(session, whole), 1))
    goes_on(connection)
    connection.send(Sub.make(subject_of(session, CONFIGURED_CONTROL_LINE + 1), 2))
    refused_and_closed(connection, TOO_LONG)


@verifies("CORE-106", source='docs.nats.io, "Server Configuration", max_control_line')
def test_control_lines_up_to_the_default_limit_are_taken(session: NatsSession) -> None:
    """Control lines of 4096 bytes are taken, in one segment or in two."""
    try:
        take_long_lines(session, DEFAULT_CONTROL_LINE)
    except Failed as error:
        if TOO_LONG not in error.actual.lower():
            raise
        raise Unsupported(f"{error.actual}: whether that was configured, the wire does not say") from None


@verifies("CORE-106", variant="no-jetstream", source='docs.nats.io, "Server Configuration", max_control_line')
def test_control_lines_up_to_the_default_limit_where_nothing_configures_it(session: NatsSession) -> None:
    """Control lines of 4096 bytes are taken where the configuration says nothing of their length."""
    take_long_lines(session, DEFAULT_CONTROL_LINE)


def take_long_lines(session: NatsSession, size: int) -> None:
    """The server takes control lines of this many bytes, CRLF aside. Raises ``Failed``."""
    connection = session.connect()
    subject = subject_of(session, size - len("SUB  1"))
    connection.send(Sub.make(subject, 1))
    goes_on(connection)
    line = f"PUB {subject} 1\r\n".encode()
    connection.send_bytes(line[: size // 2])
    session.connect("clock").flush()  # so long that the server has read the first part
    connection.send_bytes(line[size // 2 :] + b"x\r\n")
    connection.expect(Msg, subject=subject, sid="1", payload=b"x")


@verifies("CORE-066", variant="max-connections", source='docs.nats.io, "Client Protocol", +OK/ERR')
def test_connection_over_the_maximum_is_refused(session: NatsSession) -> None:
    """A connection beyond the maximum is refused and closed, and those before it go on."""
    members, newcomer, answer = filled(session)
    for member in members:
        goes_on(member)
        member.close()
    if answer is None:
        raise Failed("refused without a reason", expected=f"-ERR '{TOO_MANY}'", actual="connection closed")
    judged(newcomer, answer, TOO_MANY)
    newcomer.expect_closed()


def filled(session: NatsSession) -> tuple[list[NatsConnection], NatsConnection, Operation | None]:
    """The connections that are served, the first that is not, and what that one received.

    Raises ``Failed`` if all are served; ``Inconclusive`` if none is for a while, because others hold them.
    """
    members: list[NatsConnection] = []
    deadline = time.monotonic() + ROOM_WITHIN_S
    while len(members) <= CONFIGURED_CONNECTIONS:
        newcomer = session.connect(f"client-{len(members) + 1}", handshake=False)
        answer = answer_to_handshake(session, newcomer)
        if isinstance(answer, Pong):
            members.append(newcomer)
        elif members:
            return members, newcomer, answer
        elif time.monotonic() > deadline:
            raise Inconclusive("not one connection is served: others hold them all", actual=str(answer))
        else:
            session.pause(0.01)
    raise Failed(
        "no connection is refused",
        expected=f"-ERR '{TOO_MANY}' for connection {CONFIGURED_CONNECTIONS + 1}",
        actual=f"{len(members)} connections are served",
    )


def answer_to_handshake(session: NatsSession, connection: NatsConnection) -> Operation | None:
    """PONG if the connection is served, what comes instead if not; None if it is closed without a word."""
    try:
        first = connection.take(2.0, skip=())
        if not isinstance(first, Info):
            return first
        connection.send(Connect.make(session.connect_fields(connection)), Ping.make())
        return connection.take(2.0)
    except ConnectionClosed:
        return None


@verifies("CORE-105", variant="slow-consumer", source='docs.nats.io, "Client Protocol", +OK/ERR')
def test_client_that_does_not_read_is_cut_off(session: NatsSession) -> None:
    """A client that does not read is cut off, and the other connections go on."""
    subject = session.name("foo")
    sleeper, publisher = session.connect("sleeper"), session.connect("publisher")
    sleeper.send(Sub.make(subject, 1))
    sleeper.flush()
    sleeper.stop_reading()
    message = Pub.make(subject, b"x" * FLOOD_PAYLOAD)
    for _ in range(FLOOD_BYTES // FLOOD_PAYLOAD):
        publisher.send(message)
    publisher.flush(within=10.0)
    sleeper.resume_reading()
    came = 0
    try:
        while sleeper.take(1.0) is not None:
            came += 1
    except ConnectionClosed:
        sleeper.expect_closed()
    else:
        raise Failed(
            "a client that does not read is not cut off",
            expected="a closed connection",
            actual=f"{came} messages of {FLOOD_PAYLOAD} bytes waited for it",
        )
    goes_on(publisher)
