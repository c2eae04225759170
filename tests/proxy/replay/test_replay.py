"""``plumbline replay``: what the clients of a capture sent, once more, against a real server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

from plumbline.captures.files import read
from plumbline.proxy.addresses import Endpoint
from plumbline.proxy.record import recorded
from plumbline.proxy.tls.contexts import settings_before
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.servers.nats.nats_server import NatsServer, ServerBinary
from plumbline.tls import TlsOptions
from tests.captures.test_trace_writer import talk
from tests.certificates import Certificates
from tests.patience import HANGS_AFTER_S

WAIT_S = 5.0


async def pull(client: Client) -> None:
    """Acknowledgements of every kind: their subjects are of the run."""
    jetstream = client.jetstream()
    await jetstream.add_stream(name="ORDERS", subjects=["ORDERS.>"])
    for number in range(3):
        await jetstream.publish("ORDERS.new", b"order %d" % number)
    # A consumer that is there before counts a message as pending only a moment after its PubAck.
    orders = await jetstream.pull_subscribe("ORDERS.*", durable="DISPATCH", stream="ORDERS")
    first, second, third = await orders.fetch(3, timeout=WAIT_S)
    await first.ack_sync()
    await second.nak()
    (again,) = await orders.fetch(1, timeout=WAIT_S)
    await again.ack_sync()
    await third.ack_sync()
    await jetstream.delete_stream("ORDERS")


def play(url: str, session: Callable[[Client], Awaitable[None]], **options: str) -> None:
    async def run() -> None:
        async with await nats.connect(url, **options) as client:
            await session(client)

    asyncio.run(run())


def replay(captures: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "plumbline", "replay", str(captures), url]
    return subprocess.run(
        [*command, "-o", str(captures / "again"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_AFTER_S,
    )


@contextmanager
def served(captures: Path, url: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The server side of the captures; yields where it listens."""
    command = [sys.executable, "-m", "plumbline", "replay", str(captures), url, "--serve"]
    command += ["-o", str(captures / "again")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert ": waiting for" in line, line
            yield line.partition(": waiting")[0], process
        finally:
            process.terminate()


@pytest.mark.parametrize("pace", ["fast", "original"])
def test_replay_on_same_server_has_no_differences(nats_server: NatsServer, tmp_path: Path, pace: str) -> None:
    with recorded(nats_server.url, tmp_path) as proxy:
        play(proxy.url, pull)
    done = replay(tmp_path, nats_server.url, "--pace", pace)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 of them before all earlier answers had arrived" in done.stdout
    assert "1 connection, 1 the same" in done.stdout
    acks = [row.operation.subject for row in read([tmp_path]) if "$JS.ACK" in row.fields.get("subject", "")]
    again = [
        row.operation.subject
        for row in read([tmp_path / "again"])
        if "$JS.ACK" in row.fields.get("subject", "")
    ]
    assert len(acks) == len(again) == 4
    assert not set(acks) & set(again)


def test_a_connection_that_was_closed_is_closed_before_the_next_one_begins(tmp_path: Path) -> None:
    async def greet(client: Client) -> None:
        greetings = await client.subscribe("greet.*")
        await client.publish("greet.joe", b"hello")
        await greetings.next_msg(HANGS_AFTER_S)

    with NatsBroker.in_thread() as url:
        with recorded(url, tmp_path) as proxy:
            play(proxy.url, greet)
            play(proxy.url, greet)
        done = replay(tmp_path, url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 connections, 2 the same" in done.stdout


def test_a_server_in_another_state_differs(nats_server: NatsServer, tmp_path: Path) -> None:
    async def crowd(client: Client) -> None:
        await client.jetstream().add_stream(name="OTHER", subjects=["ORDERS.new"])

    with recorded(nats_server.url, tmp_path) as proxy:
        play(proxy.url, pull)
    play(nats_server.url, crowd)
    done = replay(tmp_path, nats_server.url)
    assert done.returncode == 1
    assert "payload.error" in done.stdout


def test_secrets_that_the_capture_does_not_have_come_with_the_url(
    server_binary: ServerBinary, tmp_path: Path
) -> None:
    async def talk(client: Client) -> None:
        came = await client.subscribe("a")
        await client.publish("a", b"x")
        await came.next_msg(HANGS_AFTER_S)

    config = {"jetstream": False, "authorization": {"user": "ann", "password": "s3cr3t"}}
    with NatsServer(server_binary.path, config) as server:
        with recorded(server.url, tmp_path) as proxy:
            play(proxy.url, talk, user="ann", password="s3cr3t")
        address = server.url.removeprefix("nats://")
        assert replay(tmp_path, f"nats://{address}").returncode == 1
        allowed = replay(tmp_path, f"nats://ann:s3cr3t@{address}", "--connection", "1")
    assert allowed.returncode == 0, allowed.stdout
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*.pcapng"))
    assert b"s3cr3t" not in kept


def test_unreachable_server_is_reported(nats_server: NatsServer, tmp_path: Path) -> None:
    async def nothing(client: Client) -> None:
        await client.flush()

    with recorded(nats_server.url, tmp_path) as proxy:
        play(proxy.url, nothing)
    done = replay(tmp_path, "nats://127.0.0.1:1")
    assert done.returncode == 3
    assert "127.0.0.1:1 is not reachable: no INFO: " in done.stderr


def test_folder_without_captures_is_rejected(tmp_path: Path) -> None:
    done = replay(tmp_path, "nats://127.0.0.1:1")
    assert done.returncode == 2
    assert "no capture files found" in done.stderr


def test_the_recorded_server_answers_the_same_client(nats_server: NatsServer, tmp_path: Path) -> None:
    with recorded(nats_server.url, tmp_path) as proxy:
        play(proxy.url, pull)
    with served(tmp_path, "nats://127.0.0.1:0") as (url, process):
        play(url, pull)
        out, err = process.communicate(timeout=HANGS_AFTER_S)
    assert process.returncode == 0, out + err
    assert "1 connection, 1 the same" in out


def test_delivery_waits_for_publish_of_other_client(nats_server: NatsServer, tmp_path: Path) -> None:
    with recorded(nats_server.url, tmp_path) as proxy:
        asyncio.run(talk(proxy.url))
    with served(tmp_path, "nats://127.0.0.1:0") as (url, process):
        asyncio.run(talk(url))
        out, err = process.communicate(timeout=HANGS_AFTER_S)
    assert process.returncode == 0, out + err
    assert "2 connections, 2 the same" in out


def test_missing_client_is_reported(nats_server: NatsServer, tmp_path: Path) -> None:
    async def ask(client: Client) -> None:
        await client.subscribe("a")
        await client.flush()

    with recorded(nats_server.url, tmp_path) as proxy:
        play(proxy.url, ask)

    async def hang_up(client: Client) -> None:
        await client.flush()

    with served(tmp_path, "nats://127.0.0.1:0") as (url, process):
        play(url, hang_up)
        out, _ = process.communicate(timeout=HANGS_AFTER_S)
    assert process.returncode == 1
    assert "missing" in out
    assert "> SUB a" in out


@pytest.mark.external
def test_a_replay_to_a_server_with_tls(server_binary: ServerBinary, tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    folder.mkdir()
    files = Certificates(folder)
    config = {"tls": {"cert_file": str(files.pem("server")), "key_file": str(files.key("server"))}}
    options = TlsOptions(files.pem("ca"))
    captures = tmp_path / "captures"
    captures.mkdir()
    with NatsServer(server_binary.path, config) as server:
        url = server.url.replace("nats://", "tls://")
        settings = settings_before(Endpoint.parse(url), options)
        with recorded(url, captures, tls=settings) as proxy:
            play(proxy.url, pull)
        done = replay(captures, url, *options.flags)
        refused = replay(captures, url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 connection, 1 the same" in done.stdout
    assert refused.returncode == 2
    assert "give its certificate authority with --tls-ca FILE" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_served_replay_has_no_tls(tmp_path: Path) -> None:
    done = replay(tmp_path, "tls://127.0.0.1:0", "--serve")
    assert done.returncode == 2
    assert "--serve answers without TLS" in done.stderr
    refused = replay(tmp_path, "nats://127.0.0.1:1", "--tls-name=x")
    assert refused.returncode == 2
    assert "--tls-name needs a URL with tls:// or amqps://" in refused.stderr
