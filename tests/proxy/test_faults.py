"""Faults: what they do to bytes and operations, the same for the same seed, and on record in the capture."""

from __future__ import annotations

import gc
import json
import socket
import threading
import time
import urllib.error
import urllib.request
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from plumbline.captures.files import read
from plumbline.captures.rolling import CaptureFiles
from plumbline.proxy.addresses import Endpoint
from plumbline.proxy.faults.control import ControlApi
from plumbline.proxy.faults.injection import FaultyDirection
from plumbline.proxy.faults.language import Fault, FaultError, FaultKind, parse_fault
from plumbline.proxy.link import RESET_ON_CLOSE
from plumbline.proxy.record import RecordingProxy, recorded
from plumbline.proxy.recorder import Recording
from plumbline.wire.amqp import PROTOCOL_HEADER, Method
from plumbline.wire.nats import Pub
from plumbline.wire.sender import Direction
from tests.proxy.peers import PATIENCE_S, connect, echo, receive, server


@contextmanager
def disturbed(place: Path, *faults: str, seed: int = 0) -> Iterator[tuple[RecordingProxy, socket.socket]]:
    """A client of an echo server, with faults between them."""
    with (
        server(echo) as url,
        recorded(url.replace("tcp", "nats"), place, faults=faults, seed=seed) as proxy,
        connect(proxy.relay.address) as client,
    ):
        yield proxy, client


def notes(place: Path) -> list[str]:
    return [row.remark[1] for row in read([place]) if row.fields["op"] == "note"]


def numbered(*numbers: int) -> bytes:
    return b"".join(Pub.make("a", b"%d" % number).raw for number in numbers)


def exchanged(place: Path, *faults: str, seed: int = 0, count: int = 6, expected: int) -> list[int]:
    """Which of the operations numbered from 1 to ``count`` reach the server, in which order."""
    with disturbed(place, *faults, seed=seed) as (_, client):
        data = numbered(*range(1, count + 1))
        client.sendall(data[:20])
        client.sendall(data[20:])
        came = receive(client, expected * len(numbered(1)))
    return [int(part.split(b"\r\n")[1]) for part in came.split(b"PUB")[1:]]


def test_latency_delays_each_way(tmp_path: Path) -> None:
    with disturbed(tmp_path, "latency 100ms ±20ms on upstream", "latency 50ms on downstream") as (_, client):
        started = time.monotonic()
        client.sendall(b"PING\r\n")
        assert receive(client, 6) == b"PING\r\n"
        assert time.monotonic() - started >= 0.13
    assert notes(tmp_path) == [
        "plumbline: fault 1: latency 100ms ±20ms on upstream",
        "plumbline: fault 2: latency 50ms on downstream",
    ]


def test_bandwidth_delays_without_loss(tmp_path: Path) -> None:
    with disturbed(tmp_path, "bandwidth 200k on upstream") as (_, client):
        data = bytes(range(256)) * 256
        started = time.monotonic()
        client.sendall(data)
        assert receive(client, len(data)) == data
        assert time.monotonic() - started >= len(data) / 200_000 * 0.9


def test_slices_are_forwarded_one_at_a_time(tmp_path: Path) -> None:
    with disturbed(tmp_path, "slice 4 every 20ms on downstream") as (_, client):
        started = time.monotonic()
        client.sendall(b"0123456789")
        came = b""
        while len(came) < 10:
            came += client.recv(100)  # on a busy machine two slices are there at once
            assert len(came) in (4, 8, 10)
        assert came == b"0123456789"
        assert time.monotonic() - started >= 0.04


@pytest.mark.parametrize(
    ("fault", "came"),
    [
        ("drop PUB the 2nd on upstream", [1, 3, 4, 5, 6]),
        ("drop PUB every 3rd on upstream", [1, 2, 4, 5]),
        ("drop where payload = 4 on upstream", [1, 2, 3, 5, 6]),
        ("duplicate PUB the 2nd on upstream", [1, 2, 2, 3, 4, 5, 6]),
        ("reorder PUB the 2nd on upstream", [1, 3, 2, 4, 5, 6]),
        ("reorder PUB the 6th on upstream", [1, 2, 3, 4, 5, 6]),
        ("delay 50ms PUB the 2nd on upstream", [1, 2, 3, 4, 5, 6]),
    ],
)
def test_operations(tmp_path: Path, fault: str, came: list[int]) -> None:
    assert exchanged(tmp_path, fault, expected=len(came)) == came
    assert all(note.startswith(f"plumbline: fault 1: {fault} operation ") for note in notes(tmp_path))
    assert notes(tmp_path)


def test_acknowledgements_are_dropped_by_name(tmp_path: Path) -> None:
    subject = "$JS.ACK.S.C.1.1.1.1000000000000000000.0"
    with disturbed(tmp_path, "drop +ACK every 2nd on upstream") as (_, client):
        kept = [Pub.make(subject, b"-NAK"), Pub.make(subject, b"+ACK"), Pub.make("other", b"+ACK")]
        client.sendall(kept[0].raw + kept[1].raw + Pub.make(subject).raw + kept[2].raw)
        wanted = b"".join(operation.raw for operation in kept)
        assert receive(client, len(wanted)) == wanted


def test_same_seed_gives_same_faults(tmp_path: Path) -> None:
    def run(name: str, seed: int) -> list[int]:
        fault = "duplicate PUB with 50% on upstream"
        with disturbed(tmp_path / name, fault, seed=seed) as (_, client):
            client.sendall(numbered(*range(10, 90)) + b"PING\r\n")
            came = b""
            while not came.endswith(b"PING\r\n"):
                came += client.recv(65536)
        return [int(part.split(b"\r\n")[1]) for part in came.split(b"PUB")[1:]]

    first, again, other = run("first", 1), run("again", 1), run("other", 2)
    assert first == again != other
    assert 100 < len(first) < 140


def test_undecodable_bytes_are_forwarded_unchanged(tmp_path: Path) -> None:
    with disturbed(tmp_path, "drop PUB on upstream") as (_, client):
        client.sendall(numbered(1) + b"nonsense\r\n" + numbered(2))
        wanted = b"nonsense\r\n" + numbered(2)
        assert receive(client, len(wanted)) == wanted


def test_a_limit_closes_after_its_bytes(tmp_path: Path) -> None:
    with disturbed(tmp_path, "limit 10 on downstream") as (_, client):
        client.sendall(b"0123456789abc")
        assert receive(client, 100) == b"0123456789"


def test_a_closed_connection_is_kept_by_no_clock(tmp_path: Path) -> None:
    forgotten = threading.Event()
    with disturbed(tmp_path, "limit 24h") as (proxy, client):
        client.sendall(b"x")
        assert receive(client, 1) == b"x"
        known = [one for one in gc.get_objects() if isinstance(one, FaultyDirection) and not one.gone]
        weakref.finalize(known.pop(), forgotten.set)
        known.clear()
        client.close()
        until = time.monotonic() + PATIENCE_S
        while not forgotten.is_set() and time.monotonic() < until:
            with connect(proxy.relay.address) as another:  # the proxy drops closed ones at the next
                another.sendall(b"x")
            gc.collect()
        assert forgotten.is_set()


def test_a_reset_resets_after_its_time(tmp_path: Path) -> None:
    with disturbed(tmp_path, "reset 100ms") as (_, client), pytest.raises(ConnectionResetError):
        client.recv(1)
    assert any("reset 100ms" in note for note in notes(tmp_path))


def test_a_reset_of_the_server_follows_the_bytes_that_are_delayed(tmp_path: Path) -> None:
    def answer_and_reset(peer: socket.socket) -> None:
        peer.recv(1)  # and leaves the rest unread
        peer.sendall(b"-ERR 'refused'\r\n")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        peer.close()

    with (
        server(answer_and_reset) as url,
        recorded(url.replace("tcp", "nats"), tmp_path, faults=("latency 100ms",), seed=0) as proxy,
        connect(proxy.relay.address) as client,
    ):
        client.sendall(b"PING\r\n")
        assert receive(client, 16) == b"-ERR 'refused'\r\n"
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_timeout_swallows_and_closes(tmp_path: Path) -> None:
    with disturbed(tmp_path, "timeout 200ms on downstream") as (_, client):
        started = time.monotonic()
        client.sendall(b"hello")
        assert receive(client, 5) == b""
        assert time.monotonic() - started >= 0.2


def test_an_end_is_passed_on_later(tmp_path: Path) -> None:
    with disturbed(tmp_path, "slow_close 200ms on upstream") as (_, client):
        started = time.monotonic()
        client.sendall(b"hello")
        client.shutdown(socket.SHUT_WR)
        assert receive(client, 100) == b"hello"
        assert time.monotonic() - started >= 0.2


def test_a_delayed_flood_stops_the_sender(tmp_path: Path) -> None:
    with disturbed(tmp_path, "latency 30s on upstream") as (proxy, client):
        client.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.sendall(bytes(64 << 20))
        (link,) = proxy.relay.links
        assert link.unsent < 1 << 20


def ask(url: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {} if body is None else {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}{path}", data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_faults_come_change_and_go_while_connections_live(tmp_path: Path) -> None:
    with server(echo) as url, recorded(url.replace("tcp", "nats"), tmp_path) as proxy:
        control = ControlApi(proxy.relay, proxy.faults, 0)
        try:
            with connect(proxy.relay.address) as client:
                client.sendall(numbered(1))
                assert receive(client, len(numbered(1))) == numbered(1)
                fault = {"name": "lossy", "fault": "drop PUB the 2nd on upstream"}
                assert ask(control.url, "POST", "/faults", fault) == (200, {"lossy": fault["fault"]})
                assert ask(control.url, "POST", "/faults", fault) == (
                    409,
                    {"error": "a fault with this name already exists: lossy", "status": 409},
                )
                client.sendall(numbered(1, 2, 3))
                assert receive(client, len(numbered(1, 3))) == numbered(1, 3)
                changed = {"fault": "duplicate PUB the 1st on upstream"}
                assert ask(control.url, "POST", "/faults/lossy", changed)[0] == 200
                client.sendall(numbered(4, 5))
                assert receive(client, len(numbered(4, 4, 5))) == numbered(4, 4, 5)
                assert ask(control.url, "DELETE", "/faults/lossy") == (200, {})
                client.sendall(numbered(6))
                assert receive(client, len(numbered(6))) == numbered(6)
                (seen,) = ask(control.url, "GET", "/connections")[1]
                assert seen["connection"] == 1
                assert seen["to_client"] == len(numbered(1, 1, 3, 4, 4, 5, 6))
            assert ask(control.url, "DELETE", "/faults/lossy") == (
                404,
                {"error": "no fault lossy", "status": 404},
            )
            assert ask(control.url, "POST", "/faults", {"name": "x", "fault": "lag 5"})[0] == 400
            assert ask(control.url, "POST", "/faults", [])[0] == 400
            assert ask(control.url, "GET", "/nothing")[0] == 404
            assert ask(control.url, "GET", "/faults") == (200, {})
        finally:
            control.close()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latency 50ms ±10ms on downstream", (FaultKind.LATENCY, Direction.TO_CLIENT, 0.05, 0.01, 0)),
        ("latency 1.5s", (FaultKind.LATENCY, None, 1.5, 0, 0)),
        ("bandwidth 100k/s on upstream", (FaultKind.BANDWIDTH, Direction.TO_SERVER, 0, 0, 100_000)),
        ("slice 10 every 5ms", (FaultKind.SLICE, None, 0.005, 0, 10)),
        ("reset 10k", (FaultKind.RESET, None, 0, 0, 10_000)),
        ("reset 10kB", (FaultKind.RESET, None, 0, 0, 10_240)),
        ("limit 2M", (FaultKind.LIMIT, None, 0, 0, 2_000_000)),
        ("limit 2mib", (FaultKind.LIMIT, None, 0, 0, 2_097_152)),
        ("limit 2m", (FaultKind.LIMIT, None, 120.0, 0, 0)),
    ],
)
def test_the_language(text: str, expected: tuple[object, ...]) -> None:
    fault = parse_fault(text)
    assert (fault.kind, fault.direction, fault.time, fault.jitter, fault.size) == expected


def test_the_language_of_choices() -> None:
    fault: Fault = parse_fault('drop PUB where subject ~ "a.*" and size > 3 on upstream every 10th')
    assert (fault.kind, fault.every, fault.only) == (FaultKind.DROP, 10, 0)
    assert fault.where({"op": "PUB", "subject": "a.b", "size": 4})
    assert not fault.where({"op": "PUB", "subject": "a.b", "size": 3})
    assert not fault.where({"op": "MSG", "subject": "a.b", "size": 4})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lag 50ms", "lag 50ms: expected one of latency, bandwidth"),
        ("latency soon", "latency soon: expected latency 50ms ±10ms"),
        (
            "latency 5ms every 2nd",
            "latency 5ms every 2nd: latency applies to bytes, so every, the and where are not allowed",
        ),
        ("drop PUB on sideways", "drop PUB on sideways: on sideways: expected upstream or downstream"),
        ("drop PUB with 101%", "drop PUB with 101%: with 101%: the most is 100%"),
        ("drop PUB every 0th", "drop PUB every 0th: numbers start at 1st"),
        ("drop a b", "drop a b: expected an operation, such as MSG, basic.ack or +ACK, not 'a b'"),
        ("drop PUB where size >", "expected a value"),
    ],
)
def test_invalid_fault_is_rejected(text: str, message: str) -> None:
    with pytest.raises(FaultError) as error:
        parse_fault(text)
    assert str(error.value).startswith(message)


def test_operations_of_amqp_are_dropped_whole(tmp_path: Path) -> None:
    first, second = (
        Method.make("basic.publish", 1, routing_key=key, properties={}, body=b"x" * 5000)
        for key in ("a", "b")
    )
    faults = ['drop basic.publish where routing_key = "a" on upstream']
    with (
        server(echo) as url,
        recorded(url.replace("tcp", "amqp"), tmp_path, faults=faults) as proxy,
        connect(proxy.relay.address) as client,
    ):
        client.sendall(PROTOCOL_HEADER + first.raw + second.raw)
        wanted = PROTOCOL_HEADER + second.raw
        assert receive(client, len(wanted)) == wanted


CONNECT = b'CONNECT {"user":"u","pass":"TOPSECRET","auth\\u005ftoken":"TOPSECRET"}\r\n'


@pytest.mark.parametrize(
    "fault", [f"{kind} CONNECT" for kind in ("delay 1ms", "duplicate", "drop", "reorder")]
)
def test_a_note_on_a_connect_has_no_secret(tmp_path: Path, fault: str) -> None:
    with disturbed(tmp_path, fault) as (_, client):
        client.sendall(CONNECT + b"PING\r\n")
        receive(client, 6)
    (note,) = (note for note in notes(tmp_path) if "fault 1" in note)
    assert note.startswith(f"plumbline: fault 1: {fault} operation 1: CONNECT")
    assert '"pass":"*********"' in note
    assert "TOPSECRET" not in "".join(notes(tmp_path))


def test_a_note_on_a_login_to_amqp_has_no_secret(tmp_path: Path) -> None:
    login = Method.make("connection.start-ok", mechanism="PLAIN", response="\0u\0TOPSECRET", locale="en_US")
    with (
        server(echo) as url,
        recorded(url.replace("tcp", "amqp"), tmp_path, faults=["delay 1ms connection.start-ok"]) as proxy,
        connect(proxy.relay.address) as client,
    ):
        client.sendall(PROTOCOL_HEADER + login.raw)
        receive(client, len(PROTOCOL_HEADER + login.raw))
    assert any("connection.start-ok" in note for note in notes(tmp_path))
    assert "TOPSECRET" not in "".join(notes(tmp_path))


def test_a_note_does_not_have_the_secret_that_a_fault_sets(tmp_path: Path) -> None:
    with disturbed(tmp_path, 'rewrite CONNECT set json.pass="TOP SECRET" json.user="bob"') as (_, client):
        client.sendall(CONNECT)
        receive(client, 20)
    (note,) = (note for note in notes(tmp_path) if "fault 1" in note)
    assert note.startswith(
        'plumbline: fault 1: rewrite CONNECT set json.pass=*** json.user="bob" operation 1'
    )


def test_with_secrets_kept_a_note_has_them(tmp_path: Path) -> None:
    files = CaptureFiles(tmp_path, "test")
    with server(echo) as url:
        proxy = RecordingProxy(
            Endpoint.parse(url.replace("tcp", "nats")),
            Endpoint.parse("127.0.0.1:0", "nats"),
            files,
            Recording("nats", redact=False),
            faults=[parse_fault("duplicate CONNECT")],
        )
        thread = threading.Thread(target=proxy.run)
        thread.start()
        with connect(proxy.relay.address) as client:
            client.sendall(CONNECT)
            receive(client, 2 * len(CONNECT))
        proxy.relay.stop()
        thread.join()
    assert any("TOPSECRET" in note for note in notes(tmp_path))
