"""CONNECT: what the client asks for, and what holds before it. docs.nats.io, "Client Protocol", CONNECT.

CONNECT is written out here, with the run's own credentials in it, so these are functions and no traces.
"""

from __future__ import annotations

import json

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.core.core_refusals import (
    closed_as_an_error,
    goes_on,
    hears_nothing,
    judged,
    refused,
    refused_and_closed,
)
from plumbline.conformance.nats.connection import ConnectionClosed, NatsConnection
from plumbline.conformance.nats.probe import CONNECT_DEFAULTS
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.nats.statuses import status_code
from plumbline.conformance.outcomes import Failed, Unsupported
from plumbline.wire.nats import Connect, HMsg, Info, Msg, Ok, Ping, Pong, Pub, Sub

SILENCE_S = 0.1
HANDSHAKE_WITHIN_S = 3.0  # nats-server waits 2 s for the rest of a handshake


def greeted(session: NatsSession, name: str = "client") -> NatsConnection:
    """A connection that has read INFO and sent nothing."""
    connection = session.connect(name, handshake=False)
    connection.info = connection.expect(Info, within=2.0)
    return connection


def needs_no_authentication(connection: NatsConnection) -> None:
    """Raises ``Unsupported`` if INFO asks for credentials: then CORE-062 says what comes of haste."""
    assert connection.info is not None
    if connection.info.fields.get("auth_required"):
        raise Unsupported("INFO has auth_required true: all before CONNECT is an authorization violation")


@verifies("CORE-008", source='docs.nats.io, "Client Protocol", CONNECT')
def test_verbose_connect_is_confirmed(session: NatsSession) -> None:
    """A CONNECT with verbose true is answered +OK."""
    connection = greeted(session)
    connection.send(Connect.make(session.connect_fields(connection, verbose=True)))
    connection.expect(Ok)
    goes_on(connection)


@verifies("CORE-009", source="observed, nats-server 2.9.10 and 2.15")
def test_only_ping_and_info_come_unasked(session: NatsSession) -> None:
    """After a CONNECT that is not verbose nothing comes unasked but PING and INFO."""
    connection = greeted(session)
    connection.send(Connect.make(session.connect_fields(connection)))
    connection.expect_silence(SILENCE_S)
    goes_on(connection)


@verifies("CORE-113", source='docs.nats.io, "Client Protocol", CONNECT')
def test_a_client_of_protocol_0_gets_one_info(session: NatsSession) -> None:
    """After a CONNECT with protocol 0, or without protocol, no further INFO comes."""
    for name, protocol in (("zero", 0), ("none", None)):
        connection = greeted(session, name)
        connection.send(Connect.make(session.connect_fields(connection, protocol=protocol)))
        for _ in range(3):  # nats-server sends one after the first PONG to those of protocol 1
            connection.send(Ping.make())
            while not isinstance(operation := connection.arrival(1.0, "PONG", skip=(Ping,)).operation, Pong):
                connection.mark_offending(operation)
                raise Failed(f"{name}: not PONG alone", expected="PONG", actual=str(operation))
        session.count_observation()


@verifies("CORE-102", variant="auth", source='docs.nats.io, "Client Protocol"')
def test_connect_may_come_in_parts(session: NatsSession) -> None:
    """Where credentials are required, a CONNECT that is cut in two segments means the same."""
    clock = session.connect("clock")
    for cut in (1, 4, 7, 9, 20):
        connection = greeted(session, f"cut at {cut}")
        data = Connect.make(session.connect_fields(connection, verbose=False)).raw
        connection.send_bytes(data[:cut])
        clock.flush()  # so long that the server has read the first part before the second is sent
        connection.send_bytes(data[cut:])
        goes_on(connection)
        connection.close()


@verifies("CORE-019", source='docs.nats.io, "Client Protocol", "Protocol messages"')
def test_lower_case_connect_is_understood(session: NatsSession) -> None:
    """A connect in lower case acts as CONNECT."""
    connection = greeted(session)
    fields = json.dumps(session.connect_fields(connection, verbose=False)).encode()
    connection.send_bytes(b"connect " + fields + b"\r\n")
    # Before CONNECT a connection is verbose: no +OK to SUB shows that the options were taken.
    connection.send(Sub.make(session.name("foo"), 1))
    goes_on(connection)


@verifies("CORE-025", source='docs.nats.io, "Client Protocol", +OK/ERR')
def test_http_request_is_refused(session: NatsSession) -> None:
    """An HTTP request instead of CONNECT is refused, and the connection is closed."""
    connection = greeted(session)
    needs_no_authentication(connection)
    connection.send_bytes(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    refused_and_closed(connection, "Unknown Protocol Operation")


@verifies("CORE-025", source='docs.nats.io, "Client Protocol", +OK/ERR')
def test_tls_hello_is_refused(session: NatsSession) -> None:
    """A TLS hello to a server that speaks clear text is refused, and the connection is closed."""
    connection = greeted(session)
    needs_no_authentication(connection)
    connection.send_bytes(bytes.fromhex("16030100050100000103"))
    refused_and_closed(connection, "Unknown Protocol Operation")


@verifies("CORE-034", source='docs.nats.io, "Client Protocol", CONNECT')
def test_connect_without_an_argument_closes(session: NatsSession) -> None:
    """A CONNECT without an argument closes the connection."""
    connection = greeted(session)
    connection.send_bytes(b"CONNECT\r\n")
    closed_as_an_error(connection)


@verifies("CORE-034", source='docs.nats.io, "Client Protocol", CONNECT')
def test_connect_with_malformed_json_closes(session: NatsSession) -> None:
    """A CONNECT whose JSON breaks off closes the connection."""
    connection = greeted(session)
    connection.send(Connect.make(b'{"verbose":'))
    closed_as_an_error(connection)


@verifies("CORE-034", source='docs.nats.io, "Client Protocol", CONNECT')
def test_connect_with_an_array_closes(session: NatsSession) -> None:
    """A CONNECT with JSON that is no object closes the connection."""
    connection = greeted(session)
    connection.send(Connect.make(b'["verbose"]'))
    closed_as_an_error(connection)


@verifies("CORE-035", source="observed, nats-server 2.9.10 and 2.15")
def test_second_connect_replaces_the_options(session: NatsSession) -> None:
    """A second CONNECT is accepted, and its options replace those of the first."""
    connection = session.connect()
    connection.send(Connect.make(session.connect_fields(connection, verbose=True)))
    connection.expect(Ok)
    connection.send(Sub.make(session.name("foo"), 1))
    connection.expect(Ok)
    connection.send(
        Connect.make(session.connect_fields(connection, verbose=False)), Sub.make(session.name("bar"), 2)
    )
    goes_on(connection)


@verifies("CORE-035", source="observed, nats-server 2.9.10 and 2.15")
def test_second_connect_replaces_echo_and_no_responders(session: NatsSession) -> None:
    """After a second CONNECT a connection hears itself, and of missing responders, as that one says."""
    session.needs("headers")
    connection = session.connect()
    foo, bar, missing = (session.name(label) for label in ("foo", "bar", "missing"))
    connection.send(
        Connect.make(session.connect_fields(connection, echo=False, no_responders=False)),
        Sub.make(foo, 1),
        Pub.make(foo, b"quiet"),
        Pub.make(missing, b"quiet", foo),
    )
    hears_nothing(session, connection)
    connection.send(
        Connect.make(session.connect_fields(connection, echo=True, no_responders=True)),
        Sub.make(bar, 2),
        Pub.make(bar, b"loud"),
        Pub.make(missing, b"loud", bar),
    )
    connection.expect(Msg, subject=bar, payload=b"loud")
    answer = connection.expect(HMsg, subject=bar)
    session.require(status_code(answer) == 503, "not the status", expected="status 503", actual=str(answer))


@verifies("CORE-036", source='docs.nats.io, "Request-Reply", "No responders"')
def test_no_responders_without_headers_is_refused(session: NatsSession) -> None:
    """A CONNECT with no_responders and without headers is refused, and the connection is closed."""
    connection = greeted(session)
    connection.send(Connect.make(session.connect_fields(connection, headers=False, no_responders=True)))
    refused_and_closed(connection, "no responders requires headers support")


@verifies("CORE-046", source="observed, nats-server 2.9.10 and 2.15")
def test_verbose_pedantic_pub_is_refused_then_confirmed(session: NatsSession) -> None:
    """On a verbose and pedantic connection the -ERR for a bad subject comes before the +OK."""
    connection = session.connect(verbose=True, pedantic=True)
    connection.send(Pub.make(f"{session.name('foo')}..bar", b"x"), Ping.make())
    refused(connection, "Invalid Publish Subject")
    following = connection.arrival(1.0, "+OK or PONG").operation
    if isinstance(following, Pong):
        raise Unsupported("-ERR comes alone: this server adds no +OK to it")
    session.require(
        isinstance(following, Ok), "neither +OK nor PONG follows", expected="+OK", actual=str(following)
    )
    connection.expect(Pong)


@verifies("CORE-063", source="observed, nats-server 2.9.10 and 2.15")
def test_operations_before_connect_are_served(session: NatsSession) -> None:
    """Operations that come before CONNECT are served, in verbose mode."""
    connection = greeted(session)
    needs_no_authentication(connection)
    foo = session.name("foo")
    connection.send(Sub.make(foo, 1))
    connection.expect(Ok)
    connection.send(Pub.make(foo, b"x"))
    connection.expect(Ok)
    connection.expect(Msg, subject=foo, sid="1", payload=b"x")
    goes_on(connection)


@verifies("CORE-104", source='docs.nats.io, "Client Protocol", INFO and +OK/ERR')
def test_connect_in_the_clear_is_refused_where_tls_is_required(session: NatsSession) -> None:
    """INFO of a server that requires TLS has tls_required; a CONNECT in clear text ends the connection."""
    connection = session.connect_in_the_clear()
    info = connection.expect(Info, within=2.0)
    if not info.fields.get("tls_required") and info.fields.get("tls_available"):
        raise Unsupported("INFO has tls_available: this server does not require TLS")
    session.require(
        info.fields.get("tls_required") is True,
        "INFO of a server with TLS does not require it",
        expected="tls_required: true, or tls_available: true",
        actual=f"tls_required: {info.fields.get('tls_required')!r}",
    )
    connection.send(Connect.make(CONNECT_DEFAULTS), Ping.make())  # without credentials
    try:
        answer = connection.take(HANDSHAKE_WITHIN_S)
    except ConnectionClosed:
        answer = None
    if answer is not None:
        judged(connection, answer, "Secure Connection - TLS Required")
    connection.expect_closed()
