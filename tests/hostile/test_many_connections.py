"""More connections than descriptors: a broker serves within its limit, and its store is not touched by it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.reference_broker.nats.server import NatsBroker
from tests.patience import HANGS_AFTER_S

DESCRIPTORS = 400  # so 144 connections: 256 are reserved
MOST = 144
CLIENTS = 600
FEW = f'ulimit -Sn {DESCRIPTORS // 2}; ulimit -Hn {DESCRIPTORS}; exec "$@"'
CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


@contextmanager
def running(*arguments: str) -> Iterator[tuple[tuple[str, int], subprocess.Popen[str]]]:
    """A broker as a program of its own, with few descriptors: its address and the process."""
    with subprocess.Popen(
        ["sh", "-c", FEW, "sh", sys.executable, "-m", "plumbline", "broker", *arguments, "-p", "-1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as broker:
        assert broker.stdout
        url = urlsplit(broker.stdout.readline().split()[0])
        try:
            yield (str(url.hostname), int(url.port or 0)), broker
        finally:
            broker.terminate()


def read_until(peer: socket.socket, end: bytes) -> bytes:
    data = b""
    while end not in data and (more := peer.recv(65536)):
        data += more
    return data


def acknowledged(peer: socket.socket, subject: str, body: bytes) -> dict[str, object]:
    """The answer to a publish or request."""
    peer.sendall(b"PUB %b r %d\r\n%b\r\n" % (subject.encode(), len(body), body))
    line, _, rest = read_until(peer, b"}\r\n").partition(b"\r\n")
    assert line.startswith(b"MSG r 1 ")
    answer: dict[str, object] = json.loads(rest)
    return answer


def test_a_nats_broker_serves_within_its_limit_and_keeps_its_store(tmp_path: Path) -> None:
    with running("nats", "-sd", str(tmp_path)) as (address, broker), ExitStack() as open_sockets:
        client = open_sockets.enter_context(socket.create_connection(address, timeout=HANGS_AFTER_S))
        client.sendall(CONNECT + b"SUB r 1\r\n")
        read_until(client, b"\r\n")
        acknowledged(client, "$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s"]}')
        others = []
        for number in range(1, CLIENTS):
            others.append(
                open_sockets.enter_context(socket.create_connection(address, timeout=HANGS_AFTER_S))
            )
            if number % 50 == 0:
                assert acknowledged(client, "s", b"x")["seq"] == number // 50
        made = acknowledged(client, "$JS.API.STREAM.CREATE.T", b'{"name":"T","subjects":["t"]}')
        assert "error" not in made
        ends = [read_until(peer, b"\r\n-ERR") for peer in others[-10:]]
        assert all(
            end.startswith(b"INFO {") and b"-ERR 'maximum connections exceeded'" in end for end in ends
        )
        assert sum(b"-ERR" not in read_until(peer, b"\r\n") for peer in others[: MOST - 1]) == MOST - 1
        assert broker.poll() is None
        broker.terminate()
        warnings = broker.communicate()[1].splitlines()
    assert warnings[0].startswith(f"warning: 1 connection refused: {MOST} are open")
    assert 1 < len(warnings) < 15


def test_an_amqp_broker_closes_what_is_too_much(tmp_path: Path) -> None:
    with running("amqp", "-d", str(tmp_path)) as (address, broker), ExitStack() as open_sockets:
        others = [
            open_sockets.enter_context(socket.create_connection(address, timeout=HANGS_AFTER_S))
            for _ in range(CLIENTS)
        ]
        assert all(peer.recv(1) == b"" for peer in others[-10:])
        others[0].sendall(b"AMQP\x00\x00\x09\x01")
        assert others[0].recv(1) == b"\x01"
        assert broker.poll() is None


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.3.2.1"])
def test_loopback_needs_no_warning(host: str) -> None:
    assert NatsBroker(host=host).exposure() == []
    assert AmqpBroker(host=host).exposure() == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "broker.example", ""])
def test_a_broker_that_others_reach_without_credentials_warns(host: str) -> None:
    assert "anybody can use this broker" in NatsBroker(host=host).exposure()[0]
    assert NatsBroker(host=host, authorization={"token": "t"}).exposure() == []
    assert "anybody can use this broker" in AmqpBroker(host=host).exposure()[0]
    assert AmqpBroker(host=host, users={"me": "secret"}).exposure() == []


def test_the_warning_is_printed_before_clients_connect() -> None:
    with running("nats", "-a", "0.0.0.0") as (_, broker):
        assert broker.stderr
        assert broker.stderr.readline().startswith("warning: 0.0.0.0 can be reached from other machines")
