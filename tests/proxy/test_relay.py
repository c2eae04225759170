"""Between two raw sockets: what comes out is what went in, and an end is passed on as the end that it was."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plumbline.proxy.link import Link
from plumbline.proxy.pipe import MAX_READ_BYTES
from plumbline.proxy.relay import NullTap, Relay
from tests.proxy.peers import PATIENCE_S, connect, echo, receive, relayed, reset, server

BLOCK = Random(1).randbytes(1 << 20)


@pytest.mark.parametrize("record_first", [True, False])
def test_random_bytes_in_random_segments_come_out_as_they_went_in(record_first: bool) -> None:
    random = Random(4)
    sent = hashlib.sha256()
    size = 32 * 1024 * 1024
    with (
        server(echo) as url,
        relayed(url, record_first=record_first) as relay,
        connect(relay.address) as client,
    ):

        def send() -> None:
            left = size
            while left:
                data = random.randbytes(min(left, random.choice((1, 17, 1460, 9000, 300_000))))
                sent.update(data)
                client.sendall(data)
                left -= len(data)

        writer = threading.Thread(target=send)
        writer.start()
        came = hashlib.sha256(receive(client, size))
        writer.join()
        assert came.hexdigest() == sent.hexdigest()
        assert (relay.counters.to_server, relay.counters.to_client) == (size, size)


@settings(max_examples=25)
@given(st.binary(min_size=1, max_size=2000), st.lists(st.integers(0, 2000), max_size=8))
def test_relay_forwards_any_segmentation_unchanged(data: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    with server(echo) as url, relayed(url) as relay, connect(relay.address) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start, end in pairwise(places):
            client.sendall(data[start:end])
        assert receive(client, len(data)) == data


def test_the_end_of_one_direction_leaves_the_other_open() -> None:
    def answer_after_the_end(peer: socket.socket) -> None:
        question = receive(peer, 1 << 30)
        peer.sendall(b"you sent " + question)

    with server(answer_after_the_end) as url, relayed(url) as relay, connect(relay.address) as client:
        client.sendall(b"hello")
        client.shutdown(socket.SHUT_WR)
        assert receive(client, 1000) == b"you sent hello"
        assert client.recv(1) == b""


def test_a_server_that_ends_first_is_still_written_to() -> None:
    came: list[bytes] = []
    ended = threading.Event()

    def end_then_listen(peer: socket.socket) -> None:
        peer.sendall(b"bye")
        peer.shutdown(socket.SHUT_WR)
        came.append(receive(peer, 1000))
        ended.set()

    with server(end_then_listen) as url, relayed(url) as relay, connect(relay.address) as client:
        assert receive(client, 1000) == b"bye"
        client.sendall(b"one more thing")
        client.close()
        assert ended.wait(PATIENCE_S)
        assert came == [b"one more thing"]


def test_a_reset_by_the_client_reaches_the_server_as_a_reset() -> None:
    saw: list[str] = []
    seen, ready = threading.Event(), threading.Event()

    def wait_for_the_worst(peer: socket.socket) -> None:
        receive(peer, 1)
        ready.set()
        try:
            saw.append(repr(peer.recv(1)))
        except ConnectionResetError:
            saw.append("reset")
        seen.set()

    with server(wait_for_the_worst) as url, relayed(url) as relay:
        client = connect(relay.address)
        client.sendall(b"x")
        assert ready.wait(PATIENCE_S)
        reset(client)
        assert seen.wait(PATIENCE_S)
        assert saw == ["reset"]


def test_a_reset_by_the_server_reaches_the_client_after_its_last_words() -> None:
    def say_and_reset(peer: socket.socket) -> None:
        peer.recv(1)
        peer.sendall(b"-ERR 'no'\r\n")
        receive(peer, 1)
        reset(peer)

    with server(say_and_reset) as url, relayed(url) as relay, connect(relay.address) as client:
        client.sendall(b"x")
        assert receive(client, 11) == b"-ERR 'no'\r\n"
        client.sendall(b"y")
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def fill(client: socket.socket, relay: Relay) -> int:
    """Sends ``BLOCK`` over and over until nothing more is taken. Returns how many bytes went."""
    client.settimeout(0.2)
    sent, deadline = 0, time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            sent += client.send(BLOCK[sent % len(BLOCK) :])
        except TimeoutError:
            if any(link.unsent for link in relay.links):
                break
    client.settimeout(PATIENCE_S)
    return sent


def test_a_reader_that_stops_stops_the_writer_and_memory_stays_bounded() -> None:
    release = threading.Event()
    size = 64 * len(BLOCK)

    def read_late(peer: socket.socket) -> None:
        release.wait(PATIENCE_S)
        peer.sendall(hashlib.sha256(receive(peer, size)).digest())

    with server(read_late) as url, relayed(url) as relay, connect(relay.address) as client:
        sent = fill(client, relay)
        assert sent < size
        (link,) = relay.links
        assert 0 < link.unsent <= MAX_READ_BYTES
        release.set()
        while sent < size:
            sent += client.send(BLOCK[sent % len(BLOCK) :])
        assert receive(client, 32) == hashlib.sha256(BLOCK * 64).digest()


def test_a_client_is_closed_when_the_server_cannot_be_reached() -> None:
    why: list[str] = []

    class Asks(NullTap):
        def refused(self, link: Link, now: int, text: str) -> None:
            why.append(text)

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        with relayed(url, Asks()) as relay, connect(relay.address) as client:
            assert client.recv(1) == b""
            assert relay.counters.refused == 1
    assert why == ["ECONNREFUSED: Connection refused"]


def test_ipv6_on_both_sides() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 on this machine: {error}")
    with server(echo, socket.AF_INET6) as url, relayed(url, listen="[::1]:0") as relay:
        assert str(relay.address).startswith("[::1]:")
        with connect(relay.address) as client:
            client.sendall(b"six")
            assert receive(client, 3) == b"six"


def test_unix_sockets_on_both_sides_and_the_path_is_gone_afterwards(tmp_path: Path) -> None:
    place = tmp_path / "front"
    with (
        server(echo, socket.AF_UNIX, str(tmp_path / "back")) as url,
        relayed(url, listen=f"unix:{place}") as relay,
        connect(relay.address) as client,
    ):
        client.sendall(b"local")
        assert receive(client, 5) == b"local"
    assert not place.exists()


def test_five_hundred_clients_at_once() -> None:
    with server(echo) as url, relayed(url) as relay:
        clients = [connect(relay.address) for _ in range(500)]
        for number, client in enumerate(clients):
            client.sendall(b"%06d" % number * 100)
        for number, client in enumerate(clients):
            assert receive(client, 600) == b"%06d" % number * 100
        assert relay.counters.open == 500
        for client in clients:
            client.close()


def test_stop_forwards_received_bytes_first() -> None:
    release, received = threading.Event(), threading.Event()
    total: list[int] = []

    def read_late(peer: socket.socket) -> None:
        release.wait(PATIENCE_S)
        total.append(len(receive(peer, 1 << 30)))
        received.set()

    with server(read_late) as url, relayed(url) as relay, connect(relay.address) as client:
        fill(client, relay)
        (link,) = relay.links
        assert link.unsent > 0
        relay.stop()
        release.set()
        assert received.wait(PATIENCE_S)
        assert total == [relay.counters.to_server]


def test_a_drain_waits_until_clients_have_left() -> None:
    with server(echo) as url, relayed(url) as relay, connect(relay.address) as client:
        client.sendall(b"a")
        assert receive(client, 1) == b"a"
        relay.stop(drain_s=PATIENCE_S)
        client.sendall(b"b")
        assert receive(client, 1) == b"b"
