"""``plumbline replay`` to a hostile server ends soon, and records no more than its bound."""

from __future__ import annotations

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plumbline.bounds import REPLAY_ARRIVED_BYTES, REPLAY_UNANSWERED
from plumbline.captures.files import read
from plumbline.proxy.addresses import Endpoint
from plumbline.proxy.record import recorded
from plumbline.proxy.replay import playback
from plumbline.proxy.replay import server as replayed
from plumbline.proxy.replay.client import ReplayCredentials, ReplayStoppedError
from plumbline.proxy.replay.playback import Pace, Replay
from plumbline.proxy.replay.server import ReplayedServer
from plumbline.reference_broker.nats.server import NatsBroker
from tests.hostile import nats_servers
from tests.hostile.running import MOST_MEMORY, replay
from tests.hostile.sockets import serving
from tests.proxy.peers import PATIENCE_S, connect, receive, reset, server

REQUESTS = 2 * REPLAY_UNANSWERED
PUB, MSG = b"PUB a 1\r\nx\r\n", b"MSG a 1 1\r\nx\r\n"


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A client that subscribes, publishes and waits for each answer."""
    folder = tmp_path_factory.mktemp("capture")
    with (
        NatsBroker.in_thread() as url,
        recorded(url, folder) as proxy,
        connect(proxy.relay.address) as client,
    ):
        while not client.recv(1 << 16).endswith(b"\r\n"):
            pass
        client.sendall(b'CONNECT {"verbose":false}\r\nSUB a 1\r\n')
        for _ in range(REQUESTS):
            client.sendall(PUB)
            assert receive(client, len(MSG)) == MSG
    return folder


@pytest.mark.parametrize("name", ["info-flood", "ping-flood", "small-messages", "large-messages"])
def test_a_server_that_floods_ends_the_replay(name: str, capture: Path, tmp_path: Path) -> None:
    with serving(nats_servers.SERVERS[name]) as address:
        cost = replay(tmp_path, capture, f"nats://{address}")
    assert cost.code == 3
    assert "the server floods: " in cost.err
    assert cost.largest < MOST_MEMORY
    written = sum(file.stat().st_size for file in (tmp_path / "again").iterdir())
    assert written < 16 * REPLAY_ARRIVED_BYTES  # what was on its way is recorded, too


def test_a_server_that_answers_nothing_ends_the_replay(
    capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playback, "PATIENCE_S", 0.05)
    with serving(nats_servers.SERVERS["silent"]) as address:
        again = Replay(Endpoint.parse(f"nats://{address}"), ReplayCredentials(), Pace.FAST)
        with pytest.raises(ReplayStoppedError, match=f"{REPLAY_UNANSWERED} times nothing came"):
            again.run(read([capture]))
    assert again.late == REPLAY_UNANSWERED - 1


def answering_every_second(peer: socket.socket) -> None:
    """A server that loses every second message."""
    peer.sendall(b"INFO {}\r\n")
    lines = peer.makefile("rb")
    for number, line in enumerate(line for line in lines if line.startswith(b"PUB")):
        assert line == PUB.splitlines(keepends=True)[0]
        if number % 2:
            peer.sendall(MSG)


def test_an_answer_that_is_missing_now_and_then_ends_nothing(
    capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playback, "PATIENCE_S", 0.2)
    with server(answering_every_second) as url:
        again = Replay(Endpoint.parse(url.replace("tcp", "nats")), ReplayCredentials(), Pace.FAST)
        again.run(read([capture]))
    assert again.late >= REPLAY_UNANSWERED - 1


def test_a_client_that_floods_the_replayed_server_is_closed(
    capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replayed, "REPLAY_ARRIVED_BYTES", 1 << 20)
    server = ReplayedServer(list(read([capture])), Pace.FAST)
    with ThreadPoolExecutor() as pool, socket.create_connection(address_of(server), PATIENCE_S) as client:
        running = pool.submit(server.run)
        with contextlib.suppress(OSError):
            while True:
                client.sendall(PUB * 10_000)
        running.result(PATIENCE_S)
    assert server.unheard == ["connection 1: the client floods, and was closed"]


def test_a_client_that_resets_ends_its_conversation_only(capture: Path) -> None:
    server = ReplayedServer(list(read([capture])), Pace.FAST)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(server.run)
        client = socket.create_connection(address_of(server), PATIENCE_S)
        client.sendall(PUB * 10_000)
        reset(client)
        running.result(PATIENCE_S)
    assert server.accepted == 1


def address_of(server: ReplayedServer) -> tuple[str, int]:
    return server.address.host, server.address.port
