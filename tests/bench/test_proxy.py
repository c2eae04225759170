"""The bench of the proxy measures what it says."""

from __future__ import annotations

from ci.servers import NatsServer
from tests.bench.proxy import compare


def test_the_bench_measures_each_way(nats_server: NatsServer) -> None:
    host, port = nats_server.url.removeprefix("nats://").split(":")
    figures = compare((host, int(port)), rounds=1, messages=20_000, trips=50)
    assert {"no proxy", "record --strict", "record"} <= set(figures)
    for name, (only,) in figures.items():
        assert only.rate > 0
        assert only.round_trip > 0
        assert (only.memory > 0) == (name != "no proxy")
