"""Delete markers on the pure core: what stays when time has removed a subject's last message."""

from __future__ import annotations

from typing import Any

import pytest

from plumbline.reference_broker.nats.levels import NEWEST
from plumbline.wire.nats.headers import encode_headers
from plumbline.wire.units import SECOND
from tests.reference_broker.jetstream.bench import OLDEST, Bench

REASON = encode_headers([("Nats-Marker-Reason", "MaxAge"), ("Nats-TTL", "2s"), ("Nats-Rollup", "sub")])


def bucket(**config: Any) -> Bench:
    bench = Bench(NEWEST)
    wanted = {"subjects": ["k.*"], "subject_delete_marker_ttl": 2 * SECOND, "max_msgs_per_subject": 3}
    bench.stream("K", **{**wanted, **config})
    return bench


def put(bench: Bench, subject: str, ttl: str = "") -> None:
    bench.request(subject, b"x", encode_headers([("Nats-TTL", ttl)]) if ttl else b"")


def kept(bench: Bench) -> list[tuple[bytes, bytes]]:
    return [
        (message.subject, message.header_block)
        for message in bench.jetstream.streams["K"].store.messages()
        if not message.payload
    ]


def test_the_last_message_of_a_subject_leaves_a_marker_that_goes_too() -> None:
    bench = bucket()
    put(bench, "k.a", "3s")
    put(bench, "k.b")
    bench.advance(3)
    assert kept(bench) == [(b"k.a", REASON)]
    assert bench.stream_state("K").endswith("first 2 last 3")
    bench.advance(2)
    assert kept(bench) == []
    assert bench.stream_state("K").endswith("first 2 last 3")
    bench.advance(10)
    assert bench.stream_state("K").endswith("last 3")


def test_an_older_value_that_stays_needs_no_marker() -> None:
    bench = bucket()
    put(bench, "k.a")
    put(bench, "k.a", "3s")
    bench.advance(5)
    assert kept(bench) == []
    assert bench.stream_state("K").endswith("first 1 last 2")


def test_max_age_leaves_markers() -> None:
    bench = bucket(max_age=3 * SECOND, duplicate_window=SECOND)
    put(bench, "k.a")
    put(bench, "k.b")
    bench.advance(3)
    assert kept(bench) == [(b"k.a", REASON), (b"k.b", REASON)]
    bench.advance(3)
    assert bench.stream_state("K").startswith("msgs 0")


def test_a_purge_leaves_no_marker() -> None:
    bench = bucket()
    put(bench, "k.a")
    bench.api("STREAM.PURGE.K")
    bench.advance(5)
    assert kept(bench) == []


def test_no_message_lives_shorter_than_a_marker() -> None:
    bench = bucket()
    put(bench, "k.a", "1s")
    bench.advance(1.5)
    assert kept(bench) == []
    bench.advance(0.5)
    assert kept(bench) == [(b"k.a", REASON)]


def test_consumers_are_delivered_the_marker() -> None:
    bench = bucket()
    put(bench, "k.a", "3s")
    bench.consumer("K", "C")
    (value,) = bench.pull("K", "C", {"batch": 5, "expires": 60 * SECOND})
    (marker,) = bench.advance(3)
    assert (value.payload, marker.payload, marker.header_block) == (b"x", b"", REASON)


def test_markers_switch_on_what_they_need() -> None:
    config = bucket().api("STREAM.INFO.K")["config"]
    assert (config["allow_msg_ttl"], config["allow_rollup_hdrs"], config["deny_purge"]) == (True, True, False)


@pytest.mark.parametrize(
    ("ttl", "reason"), [(-1, "must not be negative"), (SECOND - 1, "must be at least 1 second")]
)
def test_a_marker_lives_a_second_at_least(ttl: int, reason: str) -> None:
    body = {"name": "K", "subjects": ["k"], "subject_delete_marker_ttl": ttl}
    assert reason in Bench(NEWEST).error("STREAM.CREATE.K", body)


def test_2_9_knows_no_markers() -> None:
    bench = Bench(OLDEST)
    info = bench.stream("K", subjects=["k.*"], subject_delete_marker_ttl=1, max_age=SECOND)
    assert "subject_delete_marker_ttl" not in info["config"]
    put(bench, "k.a")
    bench.advance(3)
    assert bench.stream_state("K").startswith("msgs 0")
