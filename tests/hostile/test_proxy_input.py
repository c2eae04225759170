"""Faults and control requests that would stop the proxy: refused, held, or the end of one connection only."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from plumbline.bounds import DELAYED_BYTES, DELAYED_ENTRIES, MAX_CONTROL_BODY, MAX_FAULT_SIZE
from plumbline.proxy.faults import control as control_module
from plumbline.proxy.faults.control import ControlApi
from plumbline.proxy.faults.injection import FaultyDirection
from plumbline.proxy.faults.language import FaultError, parse_fault
from plumbline.proxy.faults.toxics import Toxic
from plumbline.proxy.link import Link
from plumbline.proxy.loop import LONGEST_SLEEP_S, Loop
from plumbline.proxy.pipe import MAX_READ_BYTES
from plumbline.proxy.record import RecordingProxy, recorded
from plumbline.proxy.recorder import Recorder
from plumbline.wire.sender import Direction
from tests.proxy.peers import PATIENCE_S, connect, echo, receive, server

DAY = "24h"
PING = b"PING\r\n"


@contextmanager
def controlled(place: Path, *faults: str) -> Iterator[tuple[RecordingProxy, str]]:
    with server(echo) as url, recorded(url.replace("tcp", "nats"), place, faults=faults) as proxy:
        control = ControlApi(proxy.relay, proxy.faults, 0)
        try:
            yield proxy, control.url
        finally:
            control.close()


def ask(
    url: str, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, Any]]:
    """Status and answer of one request, with exactly these headers besides ``Host`` and the length."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_S)
    try:
        connection.request(
            method, path, body, {name.replace("_", "-"): text for name, text in headers.items()}
        )
        answer = connection.getresponse()
        found: dict[str, Any] = json.loads(answer.read())
        return answer.status, found
    finally:
        connection.close()


JSON = {"Content_Type": "application/json"}
FAULT = json.dumps({"name": "x", "fault": "drop PUB every 1st"}).encode()


@pytest.mark.parametrize(
    "text",
    [
        "latency 1000000000s",
        "latency 1ms ±25h",
        "slice 1 every 2d",
        "limit 25h",
        "timeout 86401s",
        "slow_close 24h1ns",
        "delay 1000h PUB",
        f"bandwidth {MAX_FAULT_SIZE + 1}",
        "drop PUB every " + "9" * 5000 + "th",
        "drop PUB the " + "9" * 20 + "th",
    ],
)
def test_a_fault_has_bounds(text: str) -> None:
    with pytest.raises(FaultError):
        parse_fault(text)


def test_a_day_is_within_the_bounds() -> None:
    assert parse_fault(f"latency {DAY} ±{DAY}").time == 24 * 3600


@pytest.mark.parametrize("value", [10**400, float("inf"), float("nan"), -1, True, 10**16])
def test_a_toxic_has_the_same_bounds(value: float) -> None:
    with pytest.raises(ValueError, match="rate is a number"):
        Toxic.of({"type": "bandwidth", "attributes": {"rate": value}}).fault()


@pytest.mark.parametrize(
    "fault", ["latency 24h", "slow_close 24h", "timeout 24h", "limit 24h", "slice 1 every 24h"]
)
def test_the_longest_time_of_a_fault_can_be_waited_for(fault: str, tmp_path: Path) -> None:
    with controlled(tmp_path, f"{fault} on upstream") as (proxy, url):
        with connect(proxy.relay.address) as client:
            client.sendall(PING)
            assert ask(url, "GET", "/faults")[0] == 200
            assert ask(url, "POST", "/reset")[0] == 200
        with connect(proxy.relay.address) as client:
            client.sendall(PING)
            assert receive(client, len(PING)) == PING


def test_the_loop_sleeps_no_longer_than_epoll_can() -> None:
    loop = Loop()
    loop.after(10**12, loop.stop)
    assert loop._timeout() == LONGEST_SLEEP_S
    loop.close()


def test_a_rate_of_0_holds_until_it_is_removed(tmp_path: Path) -> None:
    with controlled(tmp_path, "bandwidth 0 on downstream") as (proxy, url):
        assert Toxic.of({"type": "bandwidth", "attributes": {"rate": 0}}).fault().size == 0
        with connect(proxy.relay.address) as client, connect(proxy.relay.address) as other:
            client.sendall(PING)
            other.sendall(PING)
            other.shutdown(socket.SHUT_WR)
            wait_for_bytes(proxy, 2 * len(PING))
            assert [pipe.bytes for link in proxy.relay.links for pipe in link.pipes[1:]] == [0, 0]
            assert ask(url, "DELETE", "/faults/1") == (200, {})
            assert receive(client, len(PING)) == PING
            assert receive(other, 100) == PING


def wait_for_bytes(proxy: RecordingProxy, count: int) -> None:
    """Until the server has sent so many."""
    wait_until(proxy, lambda: proxy.counters.to_client >= count)


def wait_until(proxy: RecordingProxy, is_so: Callable[[], bool]) -> None:
    """Looked at in the loop's own turns."""
    came = threading.Event()

    def look() -> None:
        if is_so():
            came.set()
        else:
            proxy.relay.loop.after(0.01, look)

    proxy.relay.loop.call(look)
    assert came.wait(PATIENCE_S)


def flood(proxy: RecordingProxy, client: socket.socket, data: bytes) -> Link:
    """Sends until the proxy reads no more."""
    client.settimeout(1)
    with pytest.raises(TimeoutError):
        client.sendall(data)
    (link,) = proxy.relay.links
    wait_until(proxy, lambda: link.pipes[Direction.TO_SERVER].is_paused)
    return link


@pytest.mark.parametrize("method", ["forward", "_run", "forward_end"])
def test_an_error_in_one_connection_closes_that_one(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    original = getattr(FaultyDirection, method)

    def broken(self: FaultyDirection, *arguments: Any) -> None:
        if self.pipe.link.number == 1:
            raise ZeroDivisionError("as a test asks for")
        original(self, *arguments)

    monkeypatch.setattr(FaultyDirection, method, broken)
    with controlled(tmp_path, "latency 1ms") as (proxy, _):
        with connect(proxy.relay.address) as first, connect(proxy.relay.address) as second:
            first.sendall(PING)
            if method == "forward_end":
                first.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionResetError):
                receive(first, 100)
            second.sendall(PING)
            assert receive(second, len(PING)) == PING
        assert proxy.counters.failed == 1
    assert "connection 1 was closed: internal error in Plumbline: ZeroDivisionError" in capfd.readouterr().err


def test_an_error_while_recording_closes_that_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Recorder.data

    def broken(self: Recorder, link: Any, *arguments: Any) -> None:
        if link.number == 1:
            raise ZeroDivisionError
        original(self, link, *arguments)

    monkeypatch.setattr(Recorder, "data", broken)
    monkeypatch.setattr(Recorder, "data_one_way", lambda *_: None)
    with controlled(tmp_path) as (proxy, _):
        with connect(proxy.relay.address) as first, connect(proxy.relay.address) as second:
            first.sendall(PING)
            with pytest.raises(ConnectionResetError):
                receive(first, 100)
            second.sendall(PING)
            assert receive(second, len(PING)) == PING
        assert proxy.counters.failed == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Host": "evil.example:80"},
    ],
)
def test_requests_of_web_pages_change_nothing(headers: dict[str, str], tmp_path: Path) -> None:
    with controlled(tmp_path) as (_, url):
        for method, path in (("POST", "/faults"), ("POST", "/reset"), ("GET", "/faults")):
            body = FAULT if path == "/faults" and method == "POST" else None
            assert ask(url, method, path, body, **JSON, **headers)[0] == 403
        assert ask(url, "GET", "/faults") == (200, {})


@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_a_person_may_look_with_a_browser(site: str, tmp_path: Path) -> None:
    with controlled(tmp_path) as (_, url):
        assert ask(url, "GET", "/faults", Sec_Fetch_Site=site) == (200, {})


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (FAULT, {}),
        (FAULT, {"Content_Type": "text/plain"}),
        (FAULT, {"Content_Type": "application/x-www-form-urlencoded"}),
        (b"[" * 60_000, JSON),
        (b"\xff", JSON),
        (b"9" * 5000, JSON),
        (b"{}", {**JSON, "Content_Length": "\xb2"}),
        (b"{}", {**JSON, "Content_Length": "-2"}),
        (b"{}", {**JSON, "Content_Length": "9" * 5000}),
        (b"{}", {**JSON, "Content_Length": str(MAX_CONTROL_BODY + 1)}),
        (b"2\r\n{}\r\n0\r\n\r\n", {**JSON, "Transfer_Encoding": "chunked"}),
    ],
)
def test_a_body_is_json_of_a_bounded_length(
    body: bytes, headers: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with controlled(tmp_path) as (_, url):
        assert ask(url, "POST", "/faults", body, **headers)[0] == 400
        assert ask(url, "POST", "/faults", FAULT, Content_Type="application/json; charset=utf-8")[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_a_connection_of_the_control_api_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_module, "MAX_CONTROL_CONNECTION_S", 0.2)
    with controlled(tmp_path) as (_, url):
        address = urlsplit(url)
        for beginning in (
            b"",
            b"GET /fau",
            b"POST /faults HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Length: 9\r\n\r\n",
        ):
            with socket.create_connection((address.hostname, address.port), timeout=PATIENCE_S) as peer:
                peer.sendall(beginning)
                assert receive(peer, 1 << 16) == b""


def test_the_control_api_serves_a_bounded_number_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "MAX_CONTROL_CONNECTIONS", 2)
    with controlled(tmp_path) as (_, url):
        address = urlsplit(url).hostname, urlsplit(url).port
        waiting = [socket.create_connection(address, timeout=PATIENCE_S) for _ in range(3)]
        assert waiting[2].recv(1) == b""
        for peer in waiting:
            peer.close()


def test_an_error_of_a_control_request_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    with controlled(tmp_path) as (proxy, url):
        monkeypatch.setattr(proxy.faults, "change", broken)
        status, answer = ask(url, "POST", "/faults", FAULT, **JSON)
        assert (status, "ZeroDivisionError" in answer["error"]) == (500, True)
        with connect(proxy.relay.address) as client:
            client.sendall(PING)
            assert receive(client, len(PING)) == PING


@pytest.mark.parametrize("fault", ["bandwidth 1 on upstream", "slice 1 every 1s on upstream"])
def test_pieces_that_wait_cost_no_memory_each(fault: str, tmp_path: Path) -> None:
    with (
        server(echo) as url,
        recorded(url.replace("tcp", "nats"), tmp_path, faults=[fault]) as proxy,
        connect(proxy.relay.address) as client,
    ):
        tracemalloc.start()
        try:
            link = flood(proxy, client, bytes(64 << 20))
            assert link.unsent > DELAYED_BYTES
            assert tracemalloc.get_traced_memory()[0] < 4 * DELAYED_BYTES
        finally:
            tracemalloc.stop()


def test_operations_that_wait_are_bounded(tmp_path: Path) -> None:
    with (
        server(echo) as url,
        recorded(
            url.replace("tcp", "nats"), tmp_path, faults=["latency 1h on upstream", "drop PUB"]
        ) as proxy,
        connect(proxy.relay.address) as client,
    ):
        waiting = flood(proxy, client, PING * (64 << 17)).unsent // len(PING)
        assert DELAYED_ENTRIES < waiting < DELAYED_ENTRIES + MAX_READ_BYTES // len(PING)


def test_names_of_faults_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    with controlled(tmp_path) as (_, url):
        tracemalloc.start()
        try:
            for number in range(300):
                body = json.dumps({"name": "x" * 30_000 + str(number), "type": "latency"}).encode()
                assert ask(url, "POST", "/proxies/nats/toxics", body, **JSON)[0] == 200
                assert ask(url, "POST", "/reset")[0] == 200
            assert tracemalloc.get_traced_memory()[0] < 2 << 20
        finally:
            tracemalloc.stop()
