"""What becomes of connections and of the capture when a side is killed, or the disk is full."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plumbline.captures.files import read
from plumbline.captures.pcapng import packet
from plumbline.captures.reader import CaptureParser
from plumbline.captures.rolling import CaptureFiles
from plumbline.proxy.record import recorded
from plumbline.servers.nats.nats_server import NatsServer, ServerBinary
from plumbline.wire.nats import Pub
from tests.proxy.peers import PATIENCE_S, connect, receive

MESSAGE = Pub.make("load", b"x" * 128).raw
CONNECT = b'CONNECT {"verbose":false}\r\nPING\r\n'
ENDS = {"closed", "reset"}


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def greeted(client: socket.socket, *lines: bytes) -> None:
    """Past the handshake, with these lines taken by the server."""
    client.sendall(CONNECT + b"".join(lines) + b"PING\r\n")
    received = b""
    while received.count(b"PONG\r\n") < 2:
        received += client.recv(65536)


def heard(client: socket.socket) -> bytes:
    """All that comes until the connection is gone, in whatever way."""
    parts = []
    try:
        while data := client.recv(1 << 16):
            parts.append(data)
    except ConnectionResetError:
        pass
    return b"".join(parts)


@pytest.mark.parametrize("strict", [True, False])
def test_a_server_that_is_killed_takes_its_connections_along(
    server_binary: ServerBinary, tmp_path: Path, strict: bool
) -> None:
    with (
        NatsServer(server_binary.path, {"jetstream": False}) as server,
        recorded(server.url, tmp_path, strict=strict) as proxy,
        connect(proxy.relay.address) as subscriber,
        connect(proxy.relay.address) as publisher,
    ):
        greeted(subscriber, b"SUB load 1\r\n")
        greeted(publisher)
        came: list[bytes] = []
        listener = threading.Thread(target=lambda: came.append(heard(subscriber)))
        listener.start()
        while proxy.counters.to_client < 1 << 18:
            publisher.sendall(MESSAGE * 100)
        os.kill(server.pid, signal.SIGKILL)
        listener.join(PATIENCE_S)
        assert not listener.is_alive()
        heard(publisher)
        subscriber.close()  # it has received the end; its own direction is open until it closes
        publisher.close()
        until(lambda: proxy.counters.open == 0)
        with connect(proxy.relay.address) as late:
            assert heard(late) == b""
        until(lambda: proxy.counters.refused == 1)
    rows = list(read([tmp_path]))
    for number in (1, 2):
        assert {row.fields["op"] for row in rows if row.connection.number == number} & ENDS
    assert any("the server refused: ECONNREFUSED" in str(row) for row in rows)
    delivered = b"".join(row.operation.raw for row in rows if row.fields["op"] == "MSG")
    assert delivered.startswith(came[0][: len(delivered)])
    assert len(came[0]) - len(delivered) < len(MESSAGE) * 2  # the last one may be cut short
    assert not [row for row in rows if row.fields["op"] in ("lost", "undecodable")]


CLIENT = f"""
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as peer:
    peer.sendall({CONNECT!r})
    while True:
        peer.sendall({MESSAGE!r} * 50)
"""


def test_a_client_that_is_killed_is_gone_for_the_server_too(nats_server: NatsServer, tmp_path: Path) -> None:
    host, port = nats_server.url.removeprefix("nats://").split(":")
    with (
        recorded(nats_server.url, tmp_path) as proxy,
        socket.create_connection((host, int(port)), timeout=PATIENCE_S) as witness,
    ):
        greeted(witness, b"SUB load 1\r\n")
        address = proxy.relay.address
        command = [sys.executable, "-c", CLIENT, address.host, str(address.port)]
        with subprocess.Popen(command) as client:
            came = receive(witness, 1 << 18)
            client.send_signal(signal.SIGKILL)
        until(lambda: proxy.counters.open == 0)
        witness.sendall(b"PING\r\n")
        while b"PONG\r\n" not in came:  # messages that the server had not read yet may come behind it
            came += witness.recv(1 << 20)
    rows = list(read([tmp_path]))
    assert {row.fields["op"] for row in rows} & ENDS
    published = [row for row in rows if row.fields["op"] == "PUB"]
    # What the client sent is recorded: as much as reached the server, or more, if its connection was reset.
    assert 0 < came.count(b"MSG load ") <= len(published)
    assert len(published) > (1 << 18) // (len(MESSAGE) + 20)
    assert not [row for row in rows if row.fields["op"] in ("lost", "undecodable")]


def test_a_block_that_the_disk_took_in_part_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    files = CaptureFiles(tmp_path, "a disk that fills")
    parts: list[bytes] = []
    size = sum(packet(parts, 1, bytes(40), bytes(500), ()) for _ in range(3))
    files.append(parts, size)
    with monkeypatch.context() as disk:
        write = os.write
        disk.setattr(os, "writev", lambda file, blocks: write(file, b"".join(blocks)[:100]))
        disk.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            files.append(parts, size)
    files.abandon(2, 3, "the recording stopped: No space left on device")
    parser = CaptureParser()
    assert len(list(parser.feed(files.path.read_bytes()))) == 3
    assert parser.held == 0
    assert parser.ended == "the recording stopped: No space left on device"
