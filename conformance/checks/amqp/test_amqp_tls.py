"""AMQP: listeners with TLS, and what client certificates are for."""

from __future__ import annotations

import secrets
import socket
import time

from plumbline.conformance.amqp.connection import ACCESS_REFUSED, AmqpConnection
from plumbline.conformance.amqp.handshake import start_ok
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.checks.amqp.amqp_opening import expect_end
from plumbline.conformance.outcomes import Failed
from plumbline.conformance.sessions.connection import ConnectionClosed
from plumbline.conformance.targets.certificates import CERTIFIED, EXPIRED, FOREIGN, STRANGER
from plumbline.conformance.targets.urls import AccessRefusedError
from plumbline.errors import TargetUnreachable
from plumbline.wire.amqp import PROTOCOL_HEADER, FrameType, Method, ProtocolHeader

VARIANT = "amqp-tls"
ENABLING = 'RabbitMQ, "TLS Support", "Enabling TLS Support in RabbitMQ"'
PEERS = 'RabbitMQ, "TLS Support", "Peer Verification"'
EXTERNAL = 'RabbitMQ, "X509 Certificate Authentication Mechanism"'
BODY_BYTES = 40_000  # three records of TLS
ENDED_S = 5.0
CONNECT_S = 2.0


@verifies("AMQP-TLS-001", source=ENABLING, variant=VARIANT)
def test_amqp_is_spoken_inside_tls(session: AmqpSession) -> None:
    """A login with PLAIN, and a message of three records of TLS there and back."""
    client, queue, body = session.connect(), session.stage.queue("ORDERS"), b"x" * BODY_BYTES
    client.call("confirm.select")
    client.send(Method.make("basic.publish", 1, routing_key=queue, body=body))
    client.expect("basic.ack")
    client.send(Method.make("basic.get", 1, queue=queue, no_ack=True))
    client.expect("basic.get-ok", body=body)


@verifies("AMQP-TLS-002", source=ENABLING, variant=VARIANT)
def test_a_listener_with_tls_is_silent_in_the_clear(session: AmqpSession) -> None:
    """The protocol header in the clear is answered with no frame and no protocol header."""
    url = session.url_with_certificate(CERTIFIED)
    until, received = time.monotonic() + ENDED_S, b""
    with socket.create_connection((url.host, url.port), CONNECT_S) as plain:
        plain.sendall(PROTOCOL_HEADER)
        try:
            while (left := until - time.monotonic()) > 0:
                plain.settimeout(left)
                data = plain.recv(4096)
                if not data:
                    break
                received += data
        except OSError:  # reset, or silence: neither is an answer
            pass
    is_amqp = received[:4] == PROTOCOL_HEADER[:4] or received[:1] == bytes([FrameType.METHOD])
    session.require(
        not is_amqp, "AMQP in the clear is answered", expected="no AMQP", actual=repr(received[:100])
    )
    session.connect()


@verifies("AMQP-TLS-003", source=PEERS, variant=VARIANT)
def test_a_client_without_certificate_is_refused(session: AmqpSession) -> None:
    """No certificate is shown: connection.start does not come."""
    require_refused(session, "", "without a certificate")


@verifies("AMQP-TLS-004", source=PEERS, variant=VARIANT)
def test_a_certificate_of_another_authority_is_refused(session: AmqpSession) -> None:
    """The certificate names a user, and is of an authority that the server does not know."""
    require_refused(session, FOREIGN, "with a certificate of another authority")


@verifies("AMQP-TLS-005", source=PEERS, variant=VARIANT)
def test_an_expired_certificate_is_refused(session: AmqpSession) -> None:
    """The certificate names a user, and was valid until a year ago."""
    require_refused(session, EXPIRED, "with an expired certificate")


@verifies("AMQP-TLS-006", source=EXTERNAL, variant=VARIANT)
def test_external_logs_in_the_user_of_the_certificate(session: AmqpSession) -> None:
    """EXTERNAL is offered; the user id of a message must be that of the certificate."""
    client = session.connect_with_certificate(CERTIFIED, mechanism="EXTERNAL")
    assert client.start is not None
    offered = client.start.arguments["mechanisms"]
    session.require(
        "EXTERNAL" in offered.split(), "EXTERNAL is not offered", expected="EXTERNAL", actual=offered
    )
    queue = session.stage.queue("ORDERS")
    client.call("confirm.select")
    for user, answer in ((CERTIFIED, "basic.ack"), ("guest", "channel.close")):
        properties = {"user_id": user}
        client.send(Method.make("basic.publish", 1, routing_key=queue, properties=properties, body=b"m"))
        client.expect(answer)


@verifies("AMQP-TLS-007", source=EXTERNAL, variant=VARIANT)
def test_external_of_nobody_is_refused(session: AmqpSession) -> None:
    """The certificate is trusted, and names no user."""
    client = session.connect_with_certificate(STRANGER, handshake=False)
    _log_in(session, client, mechanism="EXTERNAL")
    expect_end(session, client, "EXTERNAL with a certificate that names no user", ACCESS_REFUSED)


@verifies("AMQP-TLS-008", source='RabbitMQ, "Access Control", "Authentication Mechanisms"', variant=VARIANT)
def test_a_certificate_is_no_password(session: AmqpSession) -> None:
    """PLAIN for the user of the certificate, with another password."""
    client = session.connect_with_certificate(CERTIFIED, handshake=False)
    _log_in(session, client, mechanism="PLAIN", user=CERTIFIED, password=secrets.token_hex(8))
    expect_end(session, client, "another password", ACCESS_REFUSED)


def _log_in(session: AmqpSession, client: AmqpConnection, **login: str) -> None:
    """As far as connection.start-ok."""
    client.send(ProtocolHeader.make())
    client.expect("connection.start")
    client.send(start_ok(session.url_with_certificate(CERTIFIED), login))


def require_refused(session: AmqpSession, certificate: str, client: str) -> None:
    """AMQP does not begin; and does for a client with the right certificate, before and afterwards."""
    session.connect()
    try:
        operation = _answer(session, certificate)
    except (AccessRefusedError, TargetUnreachable, ConnectionClosed):
        session.count_observation()
        session.connect("afterwards")
        return
    actual = "no end of the connection" if operation is None else str(operation)
    raise Failed(f"a client {client} is not refused", expected="an alert of TLS", actual=actual)


def _answer(session: AmqpSession, certificate: str) -> object:
    """What comes for the protocol header; None for silence."""
    connection = session.connect_with_certificate(certificate, handshake=False)
    connection.send(ProtocolHeader.make())
    return connection.take(ENDED_S)
