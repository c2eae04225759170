"""The bench of the proxy measures what it says."""

from __future__ import annotations

import pytest

from ci.servers import NatsServer, ServerBinary
from tests.bench.proxy import STRICT, compare


def test_the_bench_measures_each_way(server_binary: ServerBinary) -> None:
    if server_binary.name != "packaged":
        pytest.skip("the bench is started with one server: it says nothing of the server")
    with NatsServer(server_binary.path, {"jetstream": False}) as server:
        host, port = server.url.removeprefix("nats://").split(":")
        figures = compare((host, int(port)), rounds=1, messages=2000, trips=20)
    assert {"no proxy", STRICT, "record"} <= set(figures)
    for name, (only,) in figures.items():
        assert only.rate > 0
        assert only.round_trip > 0
        assert (only.memory > 0) == (name != "no proxy")
