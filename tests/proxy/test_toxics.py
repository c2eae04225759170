"""The control API in the shape of toxiproxy's: by hand, and with toxiproxy's own command line."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plumbline.proxy.faults.control import ControlApi
from plumbline.proxy.faults.toxics import Toxic
from plumbline.proxy.record import RecordingProxy, recorded
from tests.conftest import servers_required
from tests.patience import HANGS_AFTER_S
from tests.proxy.peers import connect, echo, receive, server
from tests.proxy.test_faults import ask, notes, numbered

COMMAND = "go install github.com/Shopify/toxiproxy/v2/cmd/cli@latest"
NAMED_BY = "PLUMBLINE_TOXIPROXY_CLI"


@contextmanager
def controlled(place: Path, *faults: str) -> Iterator[tuple[RecordingProxy, str]]:
    with server(echo) as url, recorded(url.replace("tcp", "nats"), place, faults=faults) as proxy:
        control = ControlApi(proxy.relay, proxy.faults, 0)
        try:
            yield proxy, control.url
        finally:
            control.close()


def taken(client: socket.socket) -> float:
    """Seconds until a byte comes back."""
    started = time.monotonic()
    client.sendall(b"x")
    assert receive(client, 1) == b"x"
    return time.monotonic() - started


def test_toxics_are_listed_added_changed_and_removed(tmp_path: Path) -> None:
    with controlled(tmp_path, "drop PUB the 2nd on upstream") as (proxy, url):
        known = ask(url, "GET", "/proxies")[1]
        assert known["nats"] | {"toxics": []} == {
            "name": "nats",
            "listen": str(proxy.relay.address),
            "upstream": str(proxy.relay.server),
            "enabled": True,
            "toxics": [],
        }
        assert known["nats"]["toxics"][0]["attributes"] == {"fault": "drop PUB the 2nd on upstream"}
        with connect(proxy.relay.address) as client:
            asked = {"type": "latency", "attributes": {"latency": 200}}
            made = {
                "name": "latency_downstream",
                "type": "latency",
                "stream": "downstream",
                "toxicity": 1.0,
                "attributes": {"latency": 200, "jitter": 0},
            }
            assert ask(url, "POST", "/proxies/nats/toxics", asked) == (200, made)
            assert taken(client) >= 0.2
            assert ask(url, "POST", "/proxies/nats/toxics", asked)[0] == 409
            changed = made | {"attributes": {"latency": 400, "jitter": 0}}
            one = "/proxies/nats/toxics/latency_downstream"
            assert ask(url, "PATCH", one, {"attributes": {"latency": 400}}) == (200, changed)
            assert ask(url, "GET", one) == (200, changed)
            assert taken(client) >= 0.4
            assert ask(url, "POST", one, {"toxicity": 2})[0] == 400
            assert remove(url, one) == 204
            assert taken(client) < 0.2
            assert [toxic["name"] for toxic in ask(url, "GET", "/proxies/nats/toxics")[1]] == ["1"]
        assert ask(url, "GET", one)[0] == 404
        assert ask(url, "GET", "/proxies/other")[0] == 404
        assert ask(url, "POST", "/proxies/nats/toxics", {"type": "lag"})[0] == 400
        wrong = {"type": "latency", "attributes": {"latency": "soon"}}
        assert ask(url, "POST", "/proxies/nats/toxics", wrong)[0] == 400
    assert any("latency 200.000000ms" in note for note in notes(tmp_path))


def remove(url: str, path: str) -> int:
    """The status alone: there is no content."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=HANGS_AFTER_S) as peer:
        peer.sendall(f"DELETE {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        answer = receive(peer, 1 << 16)
    assert answer.endswith(b"\r\n\r\n")
    return int(answer.split()[1])


def test_our_own_faults_can_be_toxics(tmp_path: Path) -> None:
    with controlled(tmp_path) as (proxy, url), connect(proxy.relay.address) as client:
        own = {"name": "lossy", "type": "fault", "attributes": {"fault": "drop PUB every 2nd on upstream"}}
        assert ask(url, "POST", "/proxies/nats/toxics", own)[0] == 200
        client.sendall(numbered(1, 2, 3))
        assert receive(client, 2 * len(numbered(1))) == numbered(1, 3)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"type": "bandwidth", "attributes": {"rate": 64}}, "bandwidth 64000.000000 on downstream"),
        ({"type": "slow_close", "attributes": {"delay": 5}}, "slow_close 5.000000ms on downstream"),
        ({"type": "timeout", "stream": "upstream"}, "timeout 0ms on upstream"),
        ({"type": "reset_peer"}, "reset 1ms on downstream"),
        ({"type": "limit_data", "attributes": {"bytes": 9}}, "limit 9.000000 on downstream"),
        (
            {"type": "slicer", "attributes": {"average_size": 3, "delay": 500}, "toxicity": 0.5},
            "slice 3.000000 every 0.500000ms on downstream with 50%",
        ),
    ],
)
def test_each_type_is_a_fault(asked: dict[str, object], text: str) -> None:
    assert Toxic.of(asked).fault().text == text


@pytest.fixture
def cli() -> str:
    found = os.environ.get(NAMED_BY) or shutil.which("toxiproxy-cli")
    if found is None:
        reason = f"no toxiproxy-cli: {COMMAND}, then name it in {NAMED_BY}"
        if servers_required() and NAMED_BY in os.environ:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found


def test_the_command_line_of_toxiproxy_works(cli: str, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        command = [cli, "-h", url, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANGS_AFTER_S)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with controlled(tmp_path) as (proxy, url), connect(proxy.relay.address) as client:
        assert "nats" in run("list")
        run("toxic", "add", "-t", "latency", "-a", "latency=300", "-n", "slow", "nats")
        assert taken(client) >= 0.3
        assert "latency=300" in run("inspect", "nats")
        run("toxic", "update", "-n", "slow", "-a", "latency=1", "nats")
        assert taken(client) < 0.3
        run("toxic", "remove", "-n", "slow", "nats")
        assert "slow" not in run("inspect", "nats")
