"""TLS ends and begins at the proxy: the capture can be read, the wire cannot."""

from __future__ import annotations

import asyncio
import contextlib
import select
import shutil
import socket
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nats
import pytest

from plumbline.captures.files import read
from plumbline.captures.filters import parse
from plumbline.proxy.addresses import Endpoint
from plumbline.proxy.record import recorded
from plumbline.proxy.tls.contexts import ProxySide, TlsSettings, client_context, tls_settings
from plumbline.servers.nats.nats_server import NatsServer, ServerBinary
from plumbline.tls import TlsError, TlsOptions, TlsSocket, server_context
from plumbline.wire.amqp import PROTOCOL_HEADER, Heartbeat
from tests.certificates import Certificates
from tests.patience import HANGS_AFTER_S
from tests.proxy.peers import PATIENCE_S, connect, receive, server


class Certificate:
    """A self-signed certificate for 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("no openssl to make a certificate with: apt-get install openssl")
        self.certificate, self.key = folder / "cert.pem", folder / "key.pem"
        kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        named = ["-subj", "/CN=proxy", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
        files = ["-keyout", str(self.key), "-out", str(self.certificate)]
        subprocess.run(
            ["openssl", "req", *kind, *named, *files], check=True, capture_output=True, timeout=HANGS_AFTER_S
        )

    def shown(self) -> ssl.SSLContext:
        return client_context(self.certificate, self.key)

    def trusted(self) -> ssl.SSLContext:
        return server_context(self.certificate, trusts_anyone=False)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate(tmp_path_factory.mktemp("tls"))


async def exchange(url: str, trusted: ssl.SSLContext | None) -> None:
    options = {"tls": trusted} if trusted else {}
    async with await nats.connect(url, name="inside", **options) as client:
        came = await client.subscribe("a.*")
        await client.publish("a.b", b"secret matter" * 5000)
        message = await came.next_msg(HANGS_AFTER_S)
        assert message.data == b"secret matter" * 5000


@pytest.mark.parametrize("client_tls", [True, False])
@pytest.mark.parametrize("server_tls", [True, False])
def test_a_nats_session_is_recorded_whichever_side_is_encrypted(
    server_binary: ServerBinary, certificate: Certificate, tmp_path: Path, client_tls: bool, server_tls: bool
) -> None:
    files = {"cert_file": str(certificate.certificate), "key_file": str(certificate.key)}
    config = {"jetstream": False, **({"tls": files} if server_tls else {})}
    tls = TlsSettings(
        client=certificate.shown() if client_tls else None,
        server=certificate.trusted() if server_tls else None,
        server_name="127.0.0.1",
        after_info=True,
    )
    with NatsServer(server_binary.path, config) as real, recorded(real.url, tmp_path, tls=tls) as proxy:
        assert proxy.url.startswith("tls://" if client_tls else "nats://")
        asyncio.run(exchange(proxy.url, certificate.trusted() if client_tls else None))
        assert proxy.counters.refused == 0
    rows = list(read([tmp_path]))
    wanted = parse('op in (INFO, CONNECT) or (subject ~ "a.*" and op in (PUB, MSG))')
    verbs = [row.fields["op"] for row in rows if wanted(row.fields)]
    assert verbs[0] == "INFO"
    assert [verb for verb in verbs if verb != "INFO"] == ["CONNECT", "PUB", "MSG"]
    (note,) = [str(row) for row in rows if "in the clear" in str(row) or "TLSv1" in str(row)]
    assert ("client TLSv1.3" in note) == client_tls
    assert ("server TLSv1.3" in note) == server_tls
    assert ("INFO was rewritten" in note) == (client_tls != server_tls)


def test_an_amqps_session_is_encrypted_from_its_first_byte(certificate: Certificate, tmp_path: Path) -> None:
    stream = PROTOCOL_HEADER + Heartbeat.make().raw

    def talk(peer: socket.socket) -> None:
        with certificate.shown().wrap_socket(peer, server_side=True) as encrypted:
            assert encrypted.recv(100) == PROTOCOL_HEADER[:8]
            encrypted.sendall(Heartbeat.make().raw)
            assert encrypted.recv(100) == Heartbeat.make().raw

    with server(talk) as url:
        endpoint = url.replace("tcp", "amqps")
        tls = TlsSettings(client=certificate.shown(), server=certificate.trusted(), server_name="127.0.0.1")
        with recorded(endpoint, tmp_path, tls=tls) as proxy, connect(proxy.relay.address) as plain:
            assert proxy.url.startswith("amqps://")
            with certificate.trusted().wrap_socket(plain, server_hostname="127.0.0.1") as client:
                client.sendall(stream[:8])
                assert receive(client, 8) == Heartbeat.make().raw
                client.sendall(stream[8:])
                assert client.recv(1) == b""
    assert [row.fields["op"] for row in read([tmp_path]) if row.number] == [
        "protocol-header",
        "heartbeat",
        "heartbeat",
    ]


def test_much_data_passes_and_slow_readers_stop_writers(certificate: Certificate, tmp_path: Path) -> None:
    size = 8 << 20

    def echo_all(peer: socket.socket) -> None:
        data = receive(peer, size)
        peer.sendall(data)

    tls = TlsSettings(client=certificate.shown())
    with (
        server(echo_all) as url,
        recorded(url, tmp_path, tls=tls) as proxy,
        connect(proxy.relay.address) as plain,
        certificate.trusted().wrap_socket(plain, server_hostname="127.0.0.1") as client,
    ):
        data = bytes(range(256)) * (size // 256)
        client.sendall(data)
        assert receive(client, size) == data


def test_a_server_that_cannot_be_trusted_is_refused(certificate: Certificate, tmp_path: Path) -> None:
    def show(peer: socket.socket) -> None:
        with certificate.shown().wrap_socket(peer, server_side=True):
            pass

    tls = TlsSettings(server=server_context(None, trusts_anyone=False), server_name="127.0.0.1")
    with (
        server(show) as url,
        recorded(url, tmp_path, tls=tls) as proxy,
        connect(proxy.relay.address) as client,
    ):
        assert client.recv(1) == b""
    assert proxy.counters.refused == 1
    assert any("certificate verify failed" in str(row) for row in read([tmp_path]))


def test_a_client_that_does_not_want_tls_is_closed(certificate: Certificate, tmp_path: Path) -> None:
    tls = TlsSettings(client=certificate.shown())
    with (
        server(lambda peer: peer.recv(1)) as url,
        recorded(url, tmp_path, tls=tls) as proxy,
        connect(proxy.relay.address) as client,
    ):
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            while client.recv(100):
                pass
    assert proxy.counters.refused == 1


def test_settings() -> None:
    plain = Endpoint.parse("nats://localhost")
    assert tls_settings(plain, None, TlsOptions()) is None
    found = tls_settings(Endpoint.parse("tls://localhost"), None, TlsOptions(trusts_anyone=True))
    assert found is not None
    assert found.after_info
    assert found.client is None
    with pytest.raises(TlsError, match="no certificate and key:"):
        client_context(Path("nowhere.pem"), None)
    with pytest.raises(TlsError, match="needs TLS on at least one side"):
        tls_settings(plain, None, TlsOptions(), first=[ProxySide.CLIENT])


def test_the_end_of_a_peer_after_our_own_is_an_end(tmp_path: Path) -> None:
    """OpenSSL reports the second close_notify as an error, and the relay passed on a reset."""
    certificates = Certificates(tmp_path)
    of_client = ssl.create_default_context(cafile=str(certificates.pem("ca")))
    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    of_server.load_cert_chain(certificates.pem("server"), certificates.key("server"))
    ours, theirs = socket.socketpair()
    with ThreadPoolExecutor() as pool, ours, theirs:
        accepting = pool.submit(of_server.wrap_socket, theirs, server_side=True)
        with of_client.wrap_socket(ours, server_hostname="localhost") as encrypted:
            encrypted.setblocking(False)  # as in the relay
            end = TlsSocket(encrypted)
            with accepting.result(timeout=PATIENCE_S) as peer:
                peer.settimeout(PATIENCE_S)
                end.shutdown(socket.SHUT_WR)
                assert peer.recv(1) == b""
                with contextlib.suppress(OSError):
                    peer.unwrap()
                assert select.select([encrypted], [], [], PATIENCE_S)[0]
                assert end.recv(1) == b""
