"""What a purge does to sequences and to consumers, which servers of 2.9 did otherwise."""

from __future__ import annotations

import pytest

from plumbline.reference_broker.nats.levels import NEWEST, Level
from plumbline.wire.nats.headers import encode_headers
from tests.reference_broker.jetstream.bench import LEVELS, OLDEST, Bench


def filled(level: Level, *subjects: str) -> Bench:
    """A stream O with a message on each of these subjects and a consumer C of all of them."""
    bench = Bench(level)
    bench.stream("O", subjects=["o.>"])
    for subject in subjects:
        bench.request(subject)
    bench.consumer("O", "C")
    return bench


@pytest.mark.parametrize("level", LEVELS)
def test_a_purge_beyond_the_end_moves_the_sequences_on(level: Level) -> None:
    bench = filled(level, "o.a")
    assert bench.api("STREAM.PURGE.O", {"seq": 9})["purged"] == 1
    assert bench.stream_state("O") == "msgs 0 bytes 0 first 9 last 8"
    assert bench.state("O", "C").startswith("delivered 0/8 ack_floor 0/8")
    assert bench.request("o.a")["seq"] == 9


@pytest.mark.parametrize(
    ("level", "state"),
    [
        (OLDEST, "delivered 2/2 ack_floor 2/1 ack_pending 0 redelivered 0 waiting 0 pending 0"),
        (NEWEST, "delivered 2/2 ack_floor 1/1 ack_pending 1 redelivered 0 waiting 0 pending 0"),
    ],
)
def test_a_purge_of_a_part_keeps_the_rest_pending(level: Level, state: str) -> None:
    bench = filled(level, "o.a", "o.a")
    bench.pull("O", "C", b"2")
    bench.api("STREAM.PURGE.O", {"seq": 2})
    assert bench.state("O", "C") == state


@pytest.mark.parametrize("level", LEVELS)
def test_purge_of_other_subject_keeps_consumer_state(level: Level) -> None:
    bench = filled(level, "o.a")
    bench.api("STREAM.PURGE.O", {"filter": "o.b"})
    assert bench.state("O", "C") == (
        "delivered 0/0 ack_floor 0/0 ack_pending 0 redelivered 0 waiting 0 pending 1"
    )


def test_a_consumer_of_what_was_purged_goes_to_the_end() -> None:
    bench = filled(NEWEST, "o.a")
    bench.consumer("O", "B", filter_subject="o.b")
    bench.api("STREAM.PURGE.O", {"filter": "o.b"})
    assert bench.state("O", "B").startswith("delivered 0/1 ack_floor 0/1")


def test_a_purge_by_sequence_spares_consumers_with_a_filter_in_2_9() -> None:
    bench = filled(OLDEST, "o.a")
    bench.consumer("O", "B", filter_subject="o.a")
    bench.api("STREAM.PURGE.O", {"seq": 2})
    assert bench.state("O", "B").startswith("delivered 0/0 ack_floor 0/0")


@pytest.mark.parametrize("level", LEVELS)
def test_deliver_last_uses_last_sequence_even_if_removed(level: Level) -> None:
    bench = filled(level, "o.a", "o.a")
    bench.api("STREAM.MSG.DELETE.O", {"seq": 2})
    bench.consumer("O", "L", deliver_policy="last")
    assert bench.state("O", "L").endswith("pending 0")


@pytest.mark.parametrize(("with_consumer", "left"), [(True, "msgs 1"), (False, "msgs 0")])
def test_change_to_interest_drops_unwanted_messages(with_consumer: bool, left: str) -> None:
    bench = filled(NEWEST, "o.a", "o.a")
    (first,) = bench.pull("O", "C")
    bench.send(first.reply or b"", b"+ACK")
    if not with_consumer:
        bench.api("CONSUMER.DELETE.O.C")
    config = bench.api("STREAM.INFO.O")["config"]
    bench.api("STREAM.UPDATE.O", {**config, "retention": "interest"})
    assert bench.stream_state("O").startswith(left)


@pytest.mark.parametrize(("discard", "left"), [("old", "msgs 1"), ("new", "msgs 2")])
def test_a_limit_that_is_lowered_removes_nothing_under_discard_new(discard: str, left: str) -> None:
    bench = filled(NEWEST, "o.a", "o.a")
    config = bench.api("STREAM.INFO.O")["config"]
    bench.api("STREAM.UPDATE.O", {**config, "discard": discard, "max_msgs": 1})
    assert bench.stream_state("O").startswith(left)


@pytest.mark.parametrize(("level", "code"), [(OLDEST, 10071), (NEWEST, 10054)])
def test_size_or_expectation_is_refused_first(level: Level, code: int) -> None:
    bench = Bench(level)
    bench.stream("S", max_msg_size=4)
    header = b"NATS/1.0\r\nNats-Expected-Last-Sequence: 7\r\n\r\n"
    assert bench.request("S", b"x", header)["error"]["err_code"] == code


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rollup", ["all", "sub"])
def test_a_message_that_rolls_up_is_pending_once(level: Level, rollup: str) -> None:
    bench = Bench(level)
    bench.stream("O", subjects=["o.>"], allow_rollup_hdrs=True)
    bench.consumer("O", "C")
    for _ in range(2):
        bench.request("o.a", b"x", encode_headers([("Nats-Rollup", rollup)]))
    assert bench.state("O", "C").endswith("waiting 0 pending 1")
