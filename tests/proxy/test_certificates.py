"""TLS with certificates of the proxy's own, before real servers with TLS: recorded, decoded, diffed."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats
import pika
import pytest
import trustme

from plumbline.captures.diff import compare, differs
from plumbline.captures.files import read
from plumbline.captures.operations import OperationRow
from plumbline.proxy.tls.certificates import generated
from plumbline.servers.amqp.rabbitmq import RabbitMQ, rabbitmq_server
from plumbline.servers.nats.nats_server import MissingServer, NatsServer, ServerBinary
from plumbline.servers.ports import free_ports
from plumbline.tls import TlsError, server_context
from tests.captures.test_amqp_trace import get
from tests.captures.test_trace_writer import COMMAND
from tests.certificates import Certificates
from tests.conftest import servers_required
from tests.patience import HANGS_AFTER_S


class OfServer:
    """A certificate for a real server, by an authority that the proxy trusts."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        leaf = authority.issue_cert("127.0.0.1", "localhost")
        self.authority, self.key, self.certificate = (
            folder / f"{name}.pem" for name in ("authority", "key", "certificate")
        )
        authority.cert_pem.write_to_path(str(self.authority))
        leaf.private_key_pem.write_to_path(str(self.key))
        leaf.cert_chain_pems[0].write_to_path(str(self.certificate))


@pytest.fixture(scope="module")
def of_server(tmp_path_factory: pytest.TempPathFactory) -> OfServer:
    return OfServer(tmp_path_factory.mktemp("server"))


@contextmanager
def proxied(url: str, folder: Path, *flags: str) -> Iterator[tuple[str, ssl.SSLContext]]:
    """``plumbline record --tls``; yields where clients connect, and whom they trust."""
    command = [*COMMAND, "record", url, "--listen", "127.0.0.1:0", "-o", str(folder / "captures"), "--strict"]
    command += ["--tls", "--tls-folder", str(folder / "tls"), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            found = re.search(r"^(\S+://[\d.:]+).*clients trust ([^;\s]+)", line)
            assert found is not None, line
            yield found[1], server_context(Path(found[2]), trusts_anyone=False)
        finally:
            process.terminate()
            process.communicate(timeout=HANGS_AFTER_S)


async def nats_session(url: str, trusted: ssl.SSLContext, **options: Any) -> None:
    async with await nats.connect(url, tls=trusted, name="inside", **options) as client:
        came = await client.subscribe("a.*")
        await client.publish("a.b", b"secret matter")
        assert (await came.next_msg(HANGS_AFTER_S)).data == b"secret matter"


def of_connection(folder: Path, number: int) -> list[OperationRow]:
    return [row for row in read([folder / "captures"]) if row.connection.number == number]


def operations_of_first(folder: Path) -> list[str]:
    """The first connection's operations."""
    verbs = [row.fields["op"] for row in of_connection(folder, 1) if row.number]
    return [verb for verb in verbs if verb not in ("PING", "PONG", "INFO")]


@pytest.mark.parametrize("is_first", [False, True], ids=["after-info", "handshake-first"])
def test_a_nats_session_is_encrypted_on_both_sides(
    server_binary: ServerBinary, of_server: OfServer, tmp_path: Path, is_first: bool
) -> None:
    if is_first and tuple(map(int, server_binary.version.split("."))) < (2, 10, 4):
        pytest.skip(f"nats-server {server_binary.version} has no handshake_first: it came with 2.10.4")
    tls = {"cert_file": str(of_server.certificate), "key_file": str(of_server.key)}
    config = {"jetstream": False, "tls": {**tls, **({"handshake_first": "auto"} if is_first else {})}}
    flags = ["--tls-ca", str(of_server.authority)]
    flags += ["--tls-first", "server", "--tls-first", "client"] if is_first else []
    with NatsServer(server_binary.path, config) as server:
        url = server.url.replace("nats://", "tls://")
        with proxied(url, tmp_path, *flags) as (address, trusted):
            for _ in range(2):
                asyncio.run(nats_session(address, trusted, tls_handshake_first=is_first))
    assert operations_of_first(tmp_path) == ["CONNECT", "SUB", "PUB", "MSG"]
    assert not differs(compare(of_connection(tmp_path, 1), of_connection(tmp_path, 2)))
    note = next(str(row) for row in of_connection(tmp_path, 1) if "TLSv1" in str(row))
    assert ("before INFO" in note) == is_first


def test_a_server_that_asks_for_a_certificate_gets_that_of_the_proxy(
    server_binary: ServerBinary, tmp_path: Path
) -> None:
    files = Certificates(tmp_path)
    tls = {"cert_file": str(files.pem("other")), "key_file": str(files.key("other"))}
    config = {"jetstream": False, "tls": {**tls, "ca_file": str(files.pem("ca")), "verify": True}}
    flags = ["--tls-ca", str(files.pem("ca")), "--tls-name", "mq.example"]
    flags += ["--tls-client-cert", str(files.pem("client")), "--tls-client-key", str(files.key("client"))]
    with NatsServer(server_binary.path, config) as server:
        url = server.url.replace("nats://", "tls://")
        with proxied(url, tmp_path, *flags) as (address, trusted):
            asyncio.run(nats_session(address, trusted))
    assert operations_of_first(tmp_path) == ["CONNECT", "SUB", "PUB", "MSG"]


def test_info_of_plain_side_has_no_tls(
    server_binary: ServerBinary, of_server: OfServer, tmp_path: Path
) -> None:
    if tuple(map(int, server_binary.version.split("."))) < (2, 10, 4):
        pytest.skip(f"nats-server {server_binary.version} has no handshake_first: it came with 2.10.4")
    with NatsServer(server_binary.path, {"jetstream": False}) as server:
        flags = ["--tls-first", "client"]
        with proxied(server.url, tmp_path, *flags) as (address, trusted):
            asyncio.run(nats_session(address, trusted, tls_handshake_first=True))
    assert operations_of_first(tmp_path) == ["CONNECT", "SUB", "PUB", "MSG"]


@pytest.fixture
def amqps(of_server: OfServer, tmp_path: Path) -> Iterator[str]:
    found = rabbitmq_server()
    if isinstance(found, MissingServer):
        if servers_required():
            pytest.fail(str(found), pytrace=False)
        pytest.skip(str(found))
    (port,) = free_ports(1)
    data = tmp_path / "rabbitmq"
    data.mkdir()
    (data / "rabbitmq.conf").write_text(
        f"listeners.ssl.default = 127.0.0.1:{port}\n"
        f"ssl_options.cacertfile = {of_server.authority}\n"
        f"ssl_options.certfile = {of_server.certificate}\n"
        f"ssl_options.keyfile = {of_server.key}\n"
        "ssl_options.verify = verify_none\n"
    )
    with RabbitMQ(found.path, data):
        yield f"amqps://127.0.0.1:{port}"


def amqp_session(url: str, trusted: ssl.SSLContext) -> None:
    host, port = url.partition("://")[2].split(":")
    options = pika.SSLOptions(trusted, host)
    parameters = pika.ConnectionParameters(host, int(port), ssl_options=options, heartbeat=0)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.confirm_delivery()
        channel.basic_publish("", queue, b"secret matter")
        method, _, body = get(channel, queue)
        assert body == b"secret matter"
        channel.basic_ack(method.delivery_tag)


@pytest.mark.external
def test_an_amqps_session_is_recorded_decoded_and_diffed(
    amqps: str, of_server: OfServer, tmp_path: Path
) -> None:
    with proxied(amqps, tmp_path, "--tls-ca", str(of_server.authority)) as (address, trusted):
        assert address.startswith("amqps://")
        for _ in range(2):
            amqp_session(address, trusted)
    verbs = operations_of_first(tmp_path)
    assert verbs[:3] == ["protocol-header", "connection.start", "connection.start-ok"]
    assert [verb for verb in verbs if verb.startswith("basic.")] == [
        "basic.publish",
        "basic.ack",
        "basic.get",
        "basic.get-ok",
        "basic.ack",
    ]
    assert not differs(compare(of_connection(tmp_path, 1), of_connection(tmp_path, 2)))


def accepted(context: ssl.SSLContext, trusted: Path, name: str) -> bool:
    """Whether a client that trusts this file takes what the context shows."""
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as pool:
        ours.settimeout(HANGS_AFTER_S)
        theirs.settimeout(HANGS_AFTER_S)

        def serve() -> None:
            with context.wrap_socket(ours, server_side=True) as shown:
                shown.recv(1)

        served = pool.submit(serve)
        try:
            with server_context(trusted, trusts_anyone=False).wrap_socket(
                theirs, server_hostname=name
            ) as client:
                client.sendall(b"x")
            served.result(HANGS_AFTER_S)
        except ssl.SSLCertVerificationError:
            return False
        return True


def test_the_authority_is_made_once_and_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: generated(folder, ["broker.example"]), range(4)))
    (trusted,) = {path for _, path in made}
    assert all(accepted(context, trusted, "broker.example") for context, _ in made)
    assert not accepted(made[0][0], trusted, "elsewhere.example")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in folder.iterdir()) == ["authority.pem", "ca.pem"]
    assert (folder / "authority.pem").stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" not in trusted.read_bytes()


def test_the_authority_of_mitmproxy_may_be_used(tmp_path: Path) -> None:
    certs = pytest.importorskip("mitmproxy.certs", reason="no mitmproxy: pip install 'plumbline-mq[mitm]'")
    certs.CertStore.from_store(tmp_path, "mitmproxy", 2048)
    context, trusted = generated(tmp_path, ["broker.example"])
    assert trusted == tmp_path / "mitmproxy-ca-cert.pem"
    assert accepted(context, trusted, "broker.example")


def test_folder_without_authority_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "authority.pem").write_text("nothing")
    with pytest.raises(TlsError, match=r"authority\.pem does not contain a certificate and its key"):
        generated(tmp_path, [])
