"""Push consumers on the pure core: interest, idle heartbeats, rate limit, pauses."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from plumbline.reference_broker.nats.jetstream.consumers.rate_limit import RateLimit
from plumbline.reference_broker.nats.levels import NEWEST
from plumbline.wire.nats.jetstream.times import format_time
from plumbline.wire.units import MILLISECOND, SECOND
from tests.reference_broker.jetstream.bench import LEVELS, START, Bench, shown
from tests.reference_broker.jetstream.pushing import DLV, delivered, publish, push, statuses, with_stream


@pytest.fixture(params=LEVELS, ids=("2.9", "newest"))
def bench(request: pytest.FixtureRequest) -> Bench:
    return with_stream(request.param)


# Interest


def test_delivery_waits_for_a_subscriber(bench: Bench) -> None:
    publish(bench, 2)
    info = push(bench)
    assert "push_bound" not in info
    bench.advance(60)
    assert bench.sent == []
    assert bench.state("S", "P").endswith("pending 2")
    bench.subscribe(DLV)
    assert shown(bench.sent) == ["s.a 1", "s.a 2"]
    assert bench.api("CONSUMER.INFO.S.P")["push_bound"] is True


def test_delivery_stops_with_the_last_subscriber_and_goes_on_with_the_next(bench: Bench) -> None:
    bench.subscribe(DLV)
    assert push(bench)["push_bound"] is True
    publish(bench, 1)
    bench.unsubscribe(DLV)
    assert "push_bound" not in bench.api("CONSUMER.INFO.S.P")
    publish(bench, 2)
    assert len(delivered(bench)) == 1
    bench.subscribe(DLV)
    assert [one.payload for one in delivered(bench)] == [b"1", b"1", b"2"]


def test_a_wildcard_subscription_is_no_interest(bench: Bench) -> None:
    bench.subscribe(b"*")
    assert "push_bound" not in push(bench)
    publish(bench, 1)
    assert delivered(bench) == []


def test_new_deliver_subject_gets_pending_messages_again(bench: Bench) -> None:
    bench.subscribe(DLV)
    push(bench, ack_policy="explicit")
    publish(bench, 2)
    body = {
        "stream_name": "S",
        "config": {"durable_name": "P", "deliver_subject": "new", "ack_policy": "explicit"},
    }
    assert bench.error("CONSUMER.DURABLE.CREATE.S.P", body) == "10013 consumer name already in use"
    bench.unsubscribe(DLV)
    bench.api("CONSUMER.DURABLE.CREATE.S.P", body)
    assert len(bench.sent) == 2
    bench.subscribe(b"new")
    again = bench.sent[2:]
    assert [(one.target, one.payload) for one in again] == [(b"new", b"1"), (b"new", b"2")]
    assert [(one.reply or b"").split(b".")[4] for one in again] == [b"2", b"2"]
    bench.subscribe(DLV)
    assert len(bench.sent) == 4


def test_a_deleted_consumer_delivers_no_more(bench: Bench) -> None:
    bench.subscribe(DLV)
    push(bench, idle_heartbeat=SECOND)
    bench.api("CONSUMER.DELETE.S.P")
    publish(bench, 1)
    bench.unsubscribe(DLV)
    bench.subscribe(DLV)
    bench.advance(10)
    assert bench.sent == []
    assert bench.jetstream.targets == {}
    assert bench.jetstream.next_wake() is None


# The end of an ephemeral consumer


def ephemeral(bench: Bench, **config: Any) -> str:
    body = {"stream_name": "S", "config": {"deliver_subject": "dlv", "ack_policy": "none", **config}}
    return str(bench.api("CONSUMER.CREATE.S", body)["name"])


def names(bench: Bench) -> list[str]:
    found: list[str] = bench.api("CONSUMER.NAMES.S")["consumers"]
    return found


def test_an_ephemeral_consumer_stays_while_it_has_a_subscriber(bench: Bench) -> None:
    bench.subscribe(DLV)
    name = ephemeral(bench, inactive_threshold=2 * SECOND)
    bench.advance(100)
    assert names(bench) == [name]
    bench.unsubscribe(DLV)
    bench.advance(1.9)
    assert names(bench) == [name]
    bench.advance(0.1)
    assert names(bench) == []
    assert bench.jetstream.next_wake() is None


def test_a_subscriber_in_time_saves_an_ephemeral_consumer(bench: Bench) -> None:
    name = ephemeral(bench)
    bench.advance(4.9)
    bench.subscribe(DLV)
    bench.advance(100)
    assert names(bench) == [name]


def test_an_ephemeral_consumer_that_never_has_a_subscriber_goes(bench: Bench) -> None:
    ephemeral(bench)
    bench.advance(4.9)
    assert len(names(bench)) == 1
    bench.advance(0.1)
    assert names(bench) == []


# Idle heartbeats


def test_heartbeats_come_when_nothing_else_does(bench: Bench) -> None:
    bench.subscribe(DLV)
    push(bench, idle_heartbeat=SECOND)
    bench.advance(2.5)
    idle = "100 Idle Heartbeat Nats-Last-Consumer=0 Nats-Last-Stream=0"
    assert [(str(one), one.at) for one in bench.sent] == [(idle, 1.0), (idle, 2.0)]
    publish(bench, 1)
    bench.advance(1.5)
    beat = bench.sent[-1]
    assert (str(beat), beat.at) == ("100 Idle Heartbeat Nats-Last-Consumer=1 Nats-Last-Stream=1", 3.5)
    assert (beat.subject, beat.reply, beat.payload) == (DLV, None, b"")


def test_deliveries_put_heartbeats_off(bench: Bench) -> None:
    bench.subscribe(DLV)
    push(bench, idle_heartbeat=SECOND)
    for _ in range(9):
        bench.advance(0.5)
        publish(bench, 1)
    assert statuses(bench) == []


def test_no_heartbeat_without_subscriber(bench: Bench) -> None:
    push(bench, idle_heartbeat=SECOND)
    bench.advance(0.4)
    bench.subscribe(DLV)
    bench.advance(1)
    assert [one.at for one in bench.sent] == [1.0]  # it counts from its creation
    bench.unsubscribe(DLV)
    bench.advance(10)
    assert len(statuses(bench)) == 1


# Rate limit


def test_rate_limit_sends_burst_then_paces(bench: Bench) -> None:
    bench.subscribe(DLV)
    publish(bench, 40, 52_000)
    push(bench, rate_limit_bps=4_000_000)
    bench.advance(10)
    moments = [one.at for one in delivered(bench)]
    assert moments[:20] == [0.0] * 20  # 1 MiB is the largest message
    assert moments[20] > 0
    assert 2.0 < moments[-1] < 2.2  # 2.08 MB less 1 MiB, at 500 kB/s
    assert moments == sorted(moments)
    gaps = [later - earlier for earlier, later in pairwise(moments[21:])]
    assert all(0.1 < gap < 0.11 for gap in gaps)


def test_the_burst_is_the_largest_message_of_the_stream() -> None:
    bench = Bench(NEWEST)
    bench.stream("S", subjects=["s.*"], max_msg_size=1000)
    bench.subscribe(DLV)
    publish(bench, 4, 900)
    push(bench, rate_limit_bps=8000)
    bench.advance(10)
    first, second, *_ = (one.at for one in delivered(bench))
    assert first == 0.0
    assert second > 0.85


def test_a_rate_limit_may_be_lifted(bench: Bench) -> None:
    bench.subscribe(DLV)
    publish(bench, 40, 52_000)
    push(bench, rate_limit_bps=8)
    bench.advance(1)
    push(bench, rate_limit_bps=8, description="the burst is used up all the same")
    bench.advance(1)
    assert len(delivered(bench)) == 20
    push(bench)
    bench.advance(0)
    assert len(delivered(bench)) == 40


def test_a_bucket_fills_up_to_its_burst_and_no_further() -> None:
    bucket = RateLimit(8000, 500)
    assert bucket.due(500, START) == START
    bucket.spend(500, START)
    assert bucket.due(1, START) == START + MILLISECOND
    assert bucket.due(250, START) == START + 250 * MILLISECOND
    later = START + 3600 * SECOND
    assert bucket.due(9000, later) == later  # larger than the bucket: when it is full
    bucket.spend(9000, later)
    assert bucket.due(1, later) == later + 8501 * MILLISECOND


# Pauses


def test_a_paused_consumer_sends_heartbeats_and_no_messages() -> None:
    bench = Bench(NEWEST)
    bench.stream("S", subjects=["s.*"])
    bench.subscribe(DLV)
    push(bench, idle_heartbeat=SECOND, pause_until=format_time(START + 3 * SECOND))
    publish(bench, 2)
    bench.advance(2.5)
    assert delivered(bench) == []
    assert len(statuses(bench)) == 2
    bench.advance(1)
    assert [(one.payload, one.at) for one in delivered(bench)] == [(b"1", 3.0), (b"2", 3.0)]


def test_an_end_of_the_pause_delivers_at_once() -> None:
    bench = Bench(NEWEST)
    bench.stream("S", subjects=["s.*"])
    bench.subscribe(DLV)
    push(bench)
    until = format_time(START + 3600 * SECOND)
    assert bench.api("CONSUMER.PAUSE.S.P", {"pause_until": until})["paused"] is True
    publish(bench, 1)
    assert delivered(bench) == []
    assert bench.api("CONSUMER.PAUSE.S.P", {})["paused"] is False
    bench.advance(0)
    assert len(delivered(bench)) == 1
