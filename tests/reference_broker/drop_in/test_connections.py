"""TLS and WebSocket of ``plumbline-nats-server``, with the clients that test suites use."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import nats
import pytest

from plumbline.conformance.targets.target import open_target
from plumbline.conformance.targets.urls import parse_url
from tests.certificates import Certificates
from tests.reference_broker.drop_in.process import DropIn, drop_in, ended


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def of_client(certificates: Certificates, name: str = "client") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certificates.pem("ca"))
    if name:
        context.load_cert_chain(certificates.pem(name), certificates.key(name))
    return context


def run(server: DropIn, use: Callable[[DropIn], Awaitable[None]]) -> None:
    async def within() -> None:
        await asyncio.wait_for(use(server), 30)

    asyncio.run(within())


def flags(certificates: Certificates) -> list[str]:
    files = ["--tlscert", certificates.pem("server"), "--tlskey", certificates.key("server")]
    return ["-p", "-1", "--tls", *map(str, files)]


def test_tls_begins_after_info_and_is_required(certificates: Certificates) -> None:
    async def use(server: DropIn) -> None:
        client = await nats.connect(server.url.replace("nats:", "tls:"), tls=of_client(certificates, ""))
        heard = await client.subscribe("a")
        await client.publish("a", b"x" * 100_000)
        assert len((await heard.next_msg(10)).data) == 100_000
        await client.close()
        port = int(server.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        info = await reader.readline()
        assert b'"tls_required":true' in info
        writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert b"PONG" not in await reader.read()
        writer.close()

    with drop_in(*flags(certificates)) as server:
        run(server, use)


def test_a_client_without_a_certificate_is_refused_where_it_is_verified(certificates: Certificates) -> None:
    async def use(server: DropIn) -> None:
        url = server.url.replace("nats:", "tls:")
        client = await nats.connect(url, tls=of_client(certificates))
        await client.close()
        with pytest.raises((OSError, nats.errors.Error, EOFError, asyncio.CancelledError)):
            await nats.connect(url, tls=of_client(certificates, ""), allow_reconnect=False, connect_timeout=2)

    with drop_in(*flags(certificates), "--tlsverify", "--tlscacert", str(certificates.pem("ca"))) as server:
        run(server, use)


@pytest.mark.parametrize("first", ["true", "auto"])
def test_tls_may_begin_before_info(first: str, certificates: Certificates, tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text(
        f'port: -1\ntls {{ cert_file: "{certificates.pem("server")}"\n'
        f'  key_file: "{certificates.key("server")}", handshake_first: {first} }}'
    )

    async def use(server: DropIn) -> None:
        url = server.url.replace("nats:", "tls:")
        client = await nats.connect(url, tls=of_client(certificates, ""), tls_handshake_first=True)
        await client.flush()
        await client.close()
        if first == "auto":
            client = await nats.connect(url, tls=of_client(certificates, ""))
            await client.flush()
            await client.close()

    with drop_in("-c", str(file)) as server:
        run(server, use)


def test_clients_may_choose_where_both_are_allowed(certificates: Certificates, tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text(
        f'port: -1\nallow_non_tls: true\ntls {{ cert_file: "{certificates.pem("server")}"\n'
        f'key_file: "{certificates.key("server")}"}}'
    )

    async def use(server: DropIn) -> None:
        plain = await nats.connect(server.url)
        await plain.flush()
        secure = await nats.connect(server.url.replace("nats:", "tls:"), tls=of_client(certificates, ""))
        await secure.flush()
        await plain.close()
        await secure.close()

    with drop_in("-c", str(file)) as server:
        run(server, use)


def test_files_that_are_no_certificates_end_it(certificates: Certificates) -> None:
    wrong = ["-p", "-1", "--tls", "--tlscert", "nowhere.pem", "--tlskey", "nowhere.pem"]
    result = ended(*wrong)
    assert (result.returncode, "certificate/key pair" in result.stderr) == (1, True)
    assert ended("-p", "-1", "--tls").returncode == 1


@pytest.mark.parametrize("compression", ["true", "false"])
def test_a_client_may_speak_websocket(compression: str, tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text(
        f'port: -1\nhttp: "127.0.0.1:-1"\nwebsocket {{ port: -1, no_tls: true, compression: {compression} }}'
    )
    with drop_in("-c", str(file)) as server:
        port = server.port_of("Listening for websocket clients on ws://")
        target = open_target(parse_url(f"ws://127.0.0.1:{port}"))
        assert target.info["port"] == int(server.url.rpartition(":")[2])
        assert server.get("/varz")["websocket"]["port"] == port
