"""The bench of the proxy measures what it says."""

from __future__ import annotations

import pytest

from plumbline.servers.nats.nats_server import NatsServer, ServerBinary
from tests.bench.proxy import STRICT, Volume, compare, table


def test_the_bench_measures_each_way(server_binary: ServerBinary) -> None:
    if server_binary.name != "packaged":
        pytest.skip("the bench is started with one server: it does not measure the server")
    with NatsServer(server_binary.path, {"jetstream": False}) as server:
        host, port = server.url.removeprefix("nats://").split(":")
        figures = compare((host, int(port)), rounds=1, volume=Volume(2000, 200, 20))
    assert {"no proxy", STRICT, "record"} <= set(figures)
    for name, (only,) in figures.items():
        assert min(only.stream, only.exchanges, only.busy_trip, only.lone_trip) > 0
        assert (only.memory > 0) == (name != "no proxy")
    assert len(list(table(figures))) >= 2 + len(figures)
