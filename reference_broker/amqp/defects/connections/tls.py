"""Defects of a port with TLS: who is let in, and as whom. A broker without TLS stays as it is."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace as altered

from plumbline.reference_broker.amqp.connections.connection import AmqpClientConnection
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.defects import defect, replace

NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL


def _alter_settings(broker: Broker, **fields: Any) -> None:
    if broker.tls is not None:
        replace(broker.tls, "settings", altered(broker.tls.settings, **fields))


def _has_certificate(broker: Broker, connection: AmqpClientConnection) -> bool:
    return connection.id in broker.handshake.certificates


@defect("AMQP-TLS-001")
def no_passwords_inside_tls(broker: Broker) -> None:
    """Who has shown a certificate is offered EXTERNAL alone."""
    original = broker.handshake.mechanisms

    def mechanisms(connection: AmqpClientConnection) -> list[str]:
        return ["EXTERNAL"] if _has_certificate(broker, connection) else original(connection)

    replace(broker.handshake, "mechanisms", mechanisms)
    credentials = broker.handshake.credentials
    replace(
        broker.handshake,
        "credentials",
        lambda mechanism, response: None if broker.tls is not None else credentials(mechanism, response),
    )


@defect("AMQP-TLS-002")
def a_port_with_tls_also_speaks_in_the_clear(broker: Broker) -> None:
    """A client that begins with a protocol header is served without TLS."""
    if broker.tls is not None:
        replace(broker.tls, "is_encrypted", lambda first: not first.startswith(b"AMQP"))


@defect("AMQP-TLS-003")
def a_client_certificate_may_be_missing(broker: Broker) -> None:
    """fail_if_no_peer_cert has no effect."""
    _alter_settings(broker, required=False)


@defect("AMQP-TLS-003", "AMQP-TLS-004", "AMQP-TLS-005", "AMQP-TLS-006")
def client_certificates_are_not_asked_for(broker: Broker) -> None:
    """verify_peer has no effect."""
    _alter_settings(broker, verify=False)


@defect("AMQP-TLS-005")
def expired_certificates_are_accepted(broker: Broker) -> None:
    """Whether a certificate is valid now is not looked at."""
    _alter_settings(broker, verify_flags=NO_CHECK_TIME)


@defect("AMQP-TLS-006")
def external_is_not_offered(broker: Broker) -> None:
    """EXTERNAL is refused, certificate or not."""
    original = broker.handshake.mechanisms
    replace(
        broker.handshake,
        "mechanisms",
        lambda connection: [name for name in original(connection) if name != "EXTERNAL"],
    )


@defect("AMQP-TLS-006", "AMQP-TLS-007")
def external_logs_in_the_default_user(broker: Broker) -> None:
    """Every trusted certificate logs in the same user."""
    if broker.tls is not None:
        replace(broker.tls, "user_of", lambda certificate: "guest" if certificate else None)


@defect("AMQP-TLS-007")
def external_makes_its_users(broker: Broker) -> None:
    """A certificate that names no user logs in all the same."""
    original = broker.handshake.user_of

    def user_of(connection: AmqpClientConnection, mechanism: str, response: str) -> str | None:
        if mechanism == "EXTERNAL" and _has_certificate(broker, connection):
            return broker.handshake.certificates[connection.id]
        return original(connection, mechanism, response)

    replace(broker.handshake, "user_of", user_of)


@defect("AMQP-TLS-008")
def a_certificate_replaces_the_password(broker: Broker) -> None:
    """PLAIN logs in the user of the certificate with any password."""
    original = broker.handshake.user_of

    def user_of(connection: AmqpClientConnection, mechanism: str, response: str) -> str | None:
        named = broker.handshake.certificates.get(connection.id)
        if mechanism == "PLAIN" and named is not None and response.startswith(f"\0{named}\0"):
            return named
        return original(connection, mechanism, response)

    replace(broker.handshake, "user_of", user_of)
