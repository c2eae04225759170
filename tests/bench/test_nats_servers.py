"""What the bench counts is what a broker does; its speed is not judged here."""

from __future__ import annotations

from pathlib import Path

import pytest

from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.servers.nats.nats_server import NatsServer
from tests.bench.nats_servers import (
    BATCH,
    STREAM,
    WINDOW,
    Client,
    core,
    pull_and_ack,
    seconds_to_pong,
    stream_publish,
)

Address = tuple[str, int]


def address_of(url: str) -> Address:
    host, _, port = url.removeprefix("nats://").rpartition(":")
    return host, int(port)


def measure_all(address: Address) -> list[float]:
    return [core(address, 100), stream_publish(address, 2 * WINDOW), pull_and_ack(address, 2 * BATCH)]


def test_every_measure_comes_to_its_end_on_the_reference_broker() -> None:
    with NatsBroker.in_thread(jetstream=True) as url:
        assert min(measure_all(address_of(url))) > 0


def test_every_measure_comes_to_its_end_on_a_real_server(nats_server: NatsServer) -> None:
    assert min(measure_all(address_of(nats_server.url))) > 0


def test_a_stream_that_cannot_be_made_ends_the_measure() -> None:
    with NatsBroker.in_thread(jetstream=True) as url, Client(address_of(url)) as client:
        client.request(f"$JS.API.STREAM.CREATE.{STREAM}", {"name": STREAM, "subjects": ["other"]})
        with pytest.raises(RuntimeError, match="already in use"):
            stream_publish(address_of(url), WINDOW)


def test_the_start_is_measured_with_a_process() -> None:
    assert 0 < seconds_to_pong() < 60


def test_streams_in_files_are_measured_as_well(tmp_path: Path) -> None:
    with NatsBroker.in_thread(jetstream={"store_dir": str(tmp_path)}) as url:
        assert stream_publish(address_of(url), 2 * WINDOW, "file") > 0
        assert pull_and_ack(address_of(url), 2 * BATCH, "file") > 0
