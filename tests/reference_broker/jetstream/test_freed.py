"""Streams and consumers that were deleted are freed at once: they do not wait for the garbage collector.

Otherwise a broker with many short-lived ones holds megabytes of those that are gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import ref

import pytest

from tests.collector import without_garbage_collector
from tests.reference_broker.jetstream.disk import Kept


@pytest.fixture(autouse=True)
def collector_is_off() -> Iterator[None]:
    with without_garbage_collector():
        yield


def api(kept: Kept, subject: str, body: str = "") -> None:
    kept.client().ask(f"PUB $JS.API.{subject} _INBOX.a {len(body)}\n{body}")


@pytest.fixture
def kept() -> Kept:
    kept = Kept()
    api(
        kept,
        "STREAM.CREATE.S",
        '{"name":"S","subjects":["s"],"storage":"file","allow_atomic":true,"allow_msg_schedules":true,"allow_msg_ttl":true}',
    )
    for name, config in (
        ("PULL", '"ack_policy":"explicit"'),
        ("PUSH", '"deliver_subject":"dlv","idle_heartbeat":1000000000,"flow_control":true'),
    ):
        body = f'{{"stream_name":"S","config":{{"durable_name":"{name}",{config}}}}}'
        api(kept, f"CONSUMER.DURABLE.CREATE.S.{name}", body)
    kept.client().ask("SUB dlv 1\nSUB _INBOX.a 2\nPUB s 1\nx")
    api(kept, "CONSUMER.MSG.NEXT.S.PULL", '{"batch":10,"expires":3600000000000,"idle_heartbeat":1000000000}')
    assert sorted(kept.service.streams["S"].consumers) == ["PULL", "PUSH"]
    return kept


@pytest.mark.parametrize("name", ["PULL", "PUSH"])
def test_a_deleted_consumer(kept: Kept, name: str) -> None:
    consumer = ref(kept.service.streams["S"].consumers[name])
    api(kept, f"CONSUMER.DELETE.S.{name}")
    assert name not in kept.service.streams["S"].consumers
    assert consumer() is None


def test_a_deleted_stream_and_its_consumers(kept: Kept) -> None:
    stream = kept.service.streams["S"]
    gone: list[ref[object]] = [ref(stream), *map(ref[object], stream.consumers.values())]
    del stream
    api(kept, "STREAM.DELETE.S")
    assert not kept.service.streams
    assert [one() for one in gone] == [None, None, None]
