"""TLS in ``plumbline-rabbitmq``, and logins with the certificate of a client."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest
from pika.credentials import ExternalCredentials
from pika.exceptions import AMQPConnectionError, ProbableAuthenticationError

from plumbline.reference_broker.amqp.certificates import user_of
from tests.certificates import CLIENT, Certificates
from tests.reference_broker.amqp.drop_in.process import RabbitDropIn, ended, rabbit_drop_in


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def configuration(certificates: Certificates, *more: str) -> str:
    lines = [
        "listeners.ssl.default = -1",
        f"ssl_options.certfile = {certificates.pem('server')}",
        f"ssl_options.keyfile = {certificates.key('server')}",
        f"ssl_options.cacertfile = {certificates.pem('ca')}",
        *more,
    ]
    return "\n".join(lines) + "\n"


@contextmanager
def connect(
    server: RabbitDropIn,
    certificates: Certificates,
    *,
    client: str = "",
    credentials: pika.PlainCredentials | ExternalCredentials | None = None,
) -> Iterator[pika.BlockingConnection]:
    context = ssl.create_default_context(cafile=str(certificates.pem("ca")))
    if client:
        context.load_cert_chain(certificates.pem(client), certificates.key(client))
    parameters = pika.ConnectionParameters(
        "127.0.0.1",
        server.port_of("started TLS (SSL) listener on"),
        credentials=credentials or pika.PlainCredentials("guest", "guest"),
        ssl_options=pika.SSLOptions(context, "127.0.0.1"),
    )
    connection = pika.BlockingConnection(parameters)
    try:
        yield connection
    finally:
        connection.close()


def test_both_ports_lead_to_one_broker(certificates: Certificates, tmp_path: Path) -> None:
    with (
        rabbit_drop_in(configuration(certificates), folder=tmp_path) as server,
        server.connect() as plain,
        connect(server, certificates) as secure,
    ):
        large = b"x" * 3_000_000
        plain.channel().queue_declare("q", auto_delete=True)
        secure.channel().basic_publish("", "q", large)
        assert secure.channel().basic_get("q", auto_ack=True)[2] == large
        assert sorted(one["ssl"] for one in server.get("/api/connections")) == [False, True]


def test_a_certificate_logs_in_without_a_password(certificates: Certificates, tmp_path: Path) -> None:
    text = configuration(
        certificates,
        "ssl_options.verify = verify_peer",
        "ssl_options.fail_if_no_peer_cert = false",
        "ssl_cert_login_from = common_name",
        "auth_mechanisms.1 = EXTERNAL",
        "auth_mechanisms.2 = PLAIN",
    )
    external = ExternalCredentials()
    with rabbit_drop_in(text, folder=tmp_path) as server:
        refused = pytest.raises(ProbableAuthenticationError)
        with refused, connect(server, certificates, client="client", credentials=external):
            pass  # there is no such user yet
        server.ask("PUT", f"/api/users/{CLIENT}", {"password": "", "tags": ""})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        server.ask("PUT", f"/api/permissions/%2F/{CLIENT}", everything)
        with connect(server, certificates, client="client", credentials=external):
            (shown,) = server.get("/api/connections")
            assert (shown["user"], shown["auth_mechanism"]) == (CLIENT, "EXTERNAL")
        with pytest.raises(AMQPConnectionError), connect(server, certificates, credentials=external):
            pass  # it was not offered
        with connect(server, certificates):
            pass


def test_a_client_without_the_certificate_that_is_asked_for_is_refused(
    certificates: Certificates, tmp_path: Path
) -> None:
    text = configuration(
        certificates,
        "ssl_options.verify = verify_peer",
        "ssl_options.fail_if_no_peer_cert = true",
        "listeners.tcp = none",
    )
    with rabbit_drop_in(text, folder=tmp_path) as server:
        assert not any("started TCP listener" in line for line in server.lines)
        with pytest.raises(AMQPConnectionError), connect(server, certificates):
            pass
        with connect(server, certificates, client="client"):
            pass


def test_files_that_are_none_of_tls_end_it(certificates: Certificates, tmp_path: Path) -> None:
    file = tmp_path / "a.conf"
    file.write_text(configuration(certificates).replace("server.key", "none.key"))
    result = ended("-c", str(file), "-p", "-1")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "error parsing X509 certificate/key pair" in result.stderr


def test_a_distinguished_name_begins_with_what_is_last() -> None:
    subject = ((("countryName", "DE"),), (("organizationName", "Ore, Inc"),), (("commonName", "a"),))
    assert user_of({"subject": subject}, "distinguished_name") == "CN=a,O=Ore\\, Inc,C=DE"
    assert user_of({"subject": subject}, "common_name") == "a"
    assert user_of({}, "distinguished_name") is None
