"""Recordings: whole, without secrets, in order; and what becomes of them when things break."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nats
import pytest
from nats.aio.msg import Msg

from plumbline.captures.files import CaptureSource, files_of, read
from plumbline.captures.filters import parse
from plumbline.captures.operations import OperationRow
from plumbline.captures.reader import CaptureParser
from plumbline.proxy.addresses import Endpoint
from plumbline.proxy.record import RecordingProxy, recorded
from plumbline.servers.nats.nats_server import NatsServer
from tests.captures import tshark
from tests.patience import HANGS_AFTER_S
from tests.proxy.peers import PATIENCE_S, Serve, connect, echo, receive, server

COMMAND = [sys.executable, "-m", "plumbline", "record"]
MESSAGES = 200
PASSWORD = "hunter2-is-the-secret"


async def exchange(url: str) -> list[bytes]:
    """Publishes and receives; returns what came."""
    client = await nats.connect(url, user="ann", password=PASSWORD, name="exchange")
    came: list[bytes] = []
    all_came = asyncio.Event()

    async def take(message: Msg) -> None:
        came.append(message.data)
        if len(came) == MESSAGES:
            all_came.set()

    await client.subscribe("ORDERS.*", cb=take)
    for number in range(MESSAGES):
        await client.publish("ORDERS.new", b"order %d" % number, headers={"N": str(number)})
    await asyncio.wait_for(all_came.wait(), PATIENCE_S)
    await client.close()
    return came


def shown(place: Path, where: str) -> list[OperationRow]:
    wanted = parse(where)
    return [row for row in read([place]) if wanted(row.fields)]


@contextmanager
def before(serve: Serve, place: Path, roll_bytes: int = 0) -> Iterator[RecordingProxy]:
    """A recording proxy before a server of ours, which is taken for one of NATS."""
    with server(serve) as url, recorded(url.replace("tcp", "nats"), place, roll_bytes=roll_bytes) as proxy:
        yield proxy


def client_of(url: str) -> socket.socket:
    return connect(Endpoint.parse(url))


@pytest.mark.parametrize("strict", [True, False])
def test_every_operation_of_a_session_is_read_back_in_order(
    nats_server: NatsServer, tmp_path: Path, strict: bool
) -> None:
    with recorded(nats_server.url, tmp_path, strict=strict) as proxy:
        came = asyncio.run(exchange(proxy.url))
    published = shown(tmp_path, 'subject ~ "ORDERS.*" and op = HPUB and sender = client')
    delivered = shown(tmp_path, 'subject ~ "ORDERS.*" and op = HMSG and header.N')
    assert [row.operation.payload for row in published] == came
    assert [row.operation.payload for row in delivered] == came
    numbers = [row.number for row in read([tmp_path]) if row.number]
    assert numbers == list(range(1, len(numbers) + 1))
    remarks = [str(row).partition(":")[0] for row in read([tmp_path]) if row.operation is None]
    assert remarks == ["opened", "note", "closed", "closed"]


def test_no_secret_is_in_the_files_and_the_server_gets_it(tmp_path: Path) -> None:
    heard: list[bytes] = []
    done = threading.Event()
    connect_line = f'CONNECT {{"user":"ann","pass":"{PASSWORD}","verbose":false}}\r\n'.encode()

    def listen(peer: socket.socket) -> None:
        heard.append(receive(peer, len(connect_line)))
        done.set()

    with before(listen, tmp_path) as proxy, connect(proxy.relay.address) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(connect_line), 5):
            client.sendall(connect_line[start : start + 5])
        assert done.wait(PATIENCE_S)
    assert heard == [connect_line]
    (file,) = files_of([tmp_path])
    assert PASSWORD.encode() not in file.read_bytes()
    (row,) = shown(tmp_path, "op = CONNECT")
    assert row.operation.fields == {"user": "ann", "pass": "*" * len(PASSWORD), "verbose": False}


def test_tshark_reads_recorded_bytes(nats_server: NatsServer, tmp_path: Path) -> None:
    tshark.require()
    with recorded(nats_server.url, tmp_path) as proxy:
        asyncio.run(exchange(proxy.url))
    (file,) = files_of([tmp_path])
    segments = tshark.fields(
        file, "tcp.payload", where="tcp.len > 0 and tcp.dstport == " + nats_server.url.rpartition(":")[2]
    )
    theirs = b"".join(bytes.fromhex(payload) for (payload,) in segments)
    ours = b"".join(row.operation.raw for row in shown(tmp_path, "sender = client and number"))
    assert theirs == ours
    assert tshark.fields(file, "frame.number", where="tcp.analysis.flags") == []


def test_files_roll_and_each_can_be_read_by_itself(tmp_path: Path) -> None:
    with before(echo, tmp_path, roll_bytes=20_000) as proxy, connect(proxy.relay.address) as client:
        for _ in range(300):
            client.sendall(b"PUB a 128\r\n" + b"x" * 128 + b"\r\n")
            receive(client, 141)
    files = files_of([tmp_path])
    assert len(files) > 3
    assert len(shown(tmp_path, "op = PUB and sender = client")) == 300
    apart = [shown(file, "op = PUB and sender = client") for file in files]
    assert sum(map(len, apart)) == 300
    assert {row.connection.number for rows in apart for row in rows} == {1}
    for file in files:
        parser = CaptureParser()
        list(parser.feed(file.read_bytes()))
        assert parser.ended


def test_files_that_follow_a_named_one_are_read_after_it(tmp_path: Path) -> None:
    with before(echo, tmp_path / "a.pcapng", roll_bytes=500) as proxy, connect(proxy.relay.address) as client:
        for number in range(9):
            client.sendall(b"PUB a 128\r\n%0128d\r\n" % number)
            receive(client, 141)
    assert [path.name for path in files_of([tmp_path])][:2] == ["a.pcapng", "a-0002.pcapng"]
    rows = shown(tmp_path, "op = PUB and sender = client")
    assert [int(row.operation.payload) for row in rows] == list(range(9))
    assert CaptureSource([tmp_path], since=tmp_path / "a.pcapng").files == files_of([tmp_path])


@contextmanager
def recording(url: str, *flags: str, limit: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command as a process, and the URL it printed; ``limit`` is the most bytes its files may have."""

    def restrict() -> None:
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [*COMMAND, url, "--listen", "127.0.0.1:0", *flags]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=restrict,  # noqa: PLW1509 # no threads of ours at that moment
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().split()[0]
        finally:
            process.kill()


def pour(url: str) -> None:
    """Publishes as fast as it goes, until the connection breaks."""
    block = b"PUB a 128\r\n" + b"x" * 128 + b"\r\n"
    with client_of(url) as client, contextlib.suppress(OSError):
        while True:
            client.sendall(block * 50)


def pour_echoes(client: socket.socket, size: int) -> None:
    """Sends and takes back, until ``size`` bytes came back."""
    for _ in range(0, size, 10_000):
        client.sendall(bytes(10_000))
        if receive(client, 10_000) != bytes(10_000):
            raise BrokenPipeError("an invalid pipe")


@pytest.mark.parametrize("strict", [True, False])
def test_killed_under_load_every_whole_block_is_read(tmp_path: Path, strict: bool) -> None:
    arrived = threading.Event()

    def discard(peer: socket.socket) -> None:
        receive(peer, 1 << 20)
        arrived.set()
        receive(peer, 1 << 40)

    flags = ["-o", str(tmp_path), *(["--strict"] if strict else [])]
    with server(discard) as url, recording(url.replace("tcp", "nats"), *flags) as (process, front):
        load = threading.Thread(target=pour, args=(front,))
        load.start()
        assert arrived.wait(PATIENCE_S)
        process.send_signal(signal.SIGKILL)
        process.wait()
        load.join()
    (file,) = files_of([tmp_path])
    rows = shown(tmp_path, "op = PUB")
    assert len(rows) > 1000
    assert not shown(tmp_path, "op in (lost, undecodable)")
    parser = CaptureParser()
    packets = list(parser.feed(file.read_bytes()))
    assert not parser.ended  # the file shows that it was not closed
    assert len(tshark.fields(file, "frame.number")) == len(packets)


def test_full_disk_closes_everything_and_is_reported(tmp_path: Path) -> None:
    flags = ("-o", str(tmp_path), "--strict")
    with server(echo) as url, recording(url, *flags, limit=100_000) as (process, front):
        with client_of(front) as client, pytest.raises(OSError, match=r"reset|pipe"):
            pour_echoes(client, 1 << 30)
        out, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 4
        assert "the recording stopped" in errors
        assert "File too large" in errors
        assert "received, neither recorded nor forwarded: " in out
        assert "forwarded, not recorded: " not in out
    (file,) = files_of([tmp_path])
    parser = CaptureParser()
    assert len(list(parser.feed(file.read_bytes()))) > 3
    assert parser.held == 0


def test_full_disk_can_forward_and_count_unrecorded_bytes(tmp_path: Path) -> None:
    flags = ("-o", str(tmp_path), "--when-full", "forward", "--strict")
    with server(echo) as url, recording(url, *flags, limit=100_000) as (process, front):
        with client_of(front) as client:
            pour_echoes(client, 300_000)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 4
        assert "the recording stopped" in errors
        assert "forwarded, not recorded: " in out
    assert next(read([tmp_path])).fields["op"] == "opened"


def test_ctrl_c_ends_a_recording_with_its_sum(tmp_path: Path) -> None:
    with server(echo) as url, recording(url, "-o", str(tmp_path / "a.pcapng")) as (process, front):
        with client_of(front) as client:
            client.sendall(b"hello")
            assert receive(client, 5) == b"hello"
            process.send_signal(signal.SIGINT)
            assert client.recv(1) == b""
        out, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, errors) == (0, "")
        assert "1 connection, 5 B to the server, 5 B to clients" in out
    parser = CaptureParser()
    list(parser.feed((tmp_path / "a.pcapng").read_bytes()))
    assert parser.ended == "plumbline: the recording ended: stopped"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nats://127.0.0.1", "--listen", "127.0.0.1:99999"], "127.0.0.1:99999: expected a port, 0 to 65535"),
        (
            ["http://127.0.0.1", "--listen", "127.0.0.1:0"],
            "known are nats://, amqp://, tls://, amqps://, tcp:// and unix:/path",
        ),
        (
            ["nats://127.0.0.1", "--listen", "127.0.0.1:0", "--roll-size", "x"],
            "--roll-size x: expected a number",
        ),
    ],
)
def test_wrong_arguments_exit_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, cwd=tmp_path, check=False,
        timeout=HANGS_AFTER_S,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 2
    assert message in done.stderr
