"""The monitoring port: what nats-server serves, with its names, and figures that are right."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import nats
import pytest

from plumbline.reference_broker.http import HttpRequest
from plumbline.reference_broker.nats.drop_in.monitoring import uptime
from plumbline.servers.nats.nats_server import ServerBinary
from tests.nats_py import flushed
from tests.reference_broker.drop_in.process import DropIn, drop_in

# Fields of a cluster, of Go and of what one process does not have.
NOT_OURS = {
    "varz": {
        "stalled_clients",
        "config_digest",
        "feature_flags",
        "disk_io_wait_stats",
        "tls_ocsp_peer_verify",
    },
    "connz": {"rtt"},
    "subsz": set(),
    "jsz": set(),
}


async def _use(server: DropIn) -> dict[str, Any]:
    pages: dict[str, Any] = {}
    client = await nats.connect(server.url, name="me")
    await client.subscribe("a.*", cb=_ignore)
    await client.subscribe("q", "workers", cb=_ignore)
    for subject in ("a.b", "q", "unused"):
        await client.publish(subject, b"12345")
    await flushed(client)
    jetstream = client.jetstream()
    await jetstream.add_stream(name="S", subjects=["s"])
    await jetstream.publish("s", b"1")
    for page in (
        "varz",
        "connz?subs=detail",
        "jsz?accounts=1&streams=1&consumers=1&config=1",
        "subsz?subs=1",
    ):
        pages[page.partition("?")[0]] = await asyncio.to_thread(server.get, f"/{page}")
    await client.close()
    return pages


async def _ignore(message: object) -> None:
    """The message is counted by the server."""


def test_pages_show_connections_and_counts() -> None:
    with drop_in("-m", "-1", "-js") as server:
        pages = asyncio.run(_use(server))
        connection = pages["connz"]["connections"][0]
        assert (connection["name"], connection["subscriptions"]) == ("me", 3)
        assert [one["subject"] for one in connection["subscriptions_list_detail"]][:2] == ["a.*", "q"]
        assert (pages["varz"]["in_msgs"], pages["varz"]["connections"]) == (connection["in_msgs"], 1)
        assert connection["in_msgs"] == 5
        assert connection["out_msgs"] == 4
        assert connection["in_bytes"] > 15
        assert (pages["jsz"]["streams"], pages["jsz"]["messages"]) == (1, 1)
        assert pages["jsz"]["account_details"][0]["stream_detail"][0]["name"] == "S"
        assert server.get("/healthz") == {"status": "ok"}
        assert server.get("/accountz")["accounts"] == ["$SYS", "$G"]
        assert server.get("/connz")["connections"] == []


def test_fields_are_those_of_the_real_server(server_binary: ServerBinary, tmp_path: Path) -> None:
    """Those of an older server are a part of them."""
    flags = ("-p", "-1", "-m", "-1", "-a", "127.0.0.1", "-js", "-sd", str(tmp_path))
    with drop_in(*flags, command=[str(server_binary.path)]) as real:
        theirs = asyncio.run(_use(real))
    with drop_in("-m", "-1", "-js") as server:
        ours = asyncio.run(_use(server))
    for page, fields in theirs.items():
        assert set(fields) - set(ours[page]) - NOT_OURS[page] == set(), page
    ours_connection, their_connection = ours["connz"]["connections"][0], theirs["connz"]["connections"][0]
    assert set(their_connection) - set(ours_connection) - NOT_OURS["connz"] == set()
    for name in ("in_msgs", "out_msgs", "in_bytes", "subscriptions", "name", "lang", "kind", "type"):
        assert ours_connection[name] == their_connection[name], name


def test_a_request_may_come_in_parts_and_nonsense_is_refused() -> None:
    request = HttpRequest()
    assert not request.feed(b"GET /connz?subs=1&cid=2 HT")
    assert request.feed(b"TP/1.1\r\nHost: x\r\n\r\n")
    assert (request.status, request.path, request.query) == (200, "/connz", {"subs": "1", "cid": "2"})
    for data, status in ((b"nonsense\r\n\r\n", 400), (b"POST / HTTP/1.1\r\n\r\n", 405), (b"x" * 20000, 400)):
        request = HttpRequest()
        assert (request.feed(data), request.status) == (True, status)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (61, "1m1s"), (3600, "1h0m0s"), (90061, "1d1h1m1s")]
)
def test_uptime_is_written_as_the_server_writes_it(seconds: int, text: str) -> None:
    assert uptime(seconds * 10**9) == text
