"""Consumers on the pure core: where they start, what they count, messages that vanish, how they end."""

from __future__ import annotations

import pytest

from plumbline.reference_broker.nats.levels import NEWEST, Level
from plumbline.wire.units import SECOND
from tests.reference_broker.jetstream.bench import LEVELS, OLDEST, START, Bench, shown


@pytest.fixture(params=LEVELS, ids=("2.9", "newest"))
def bench(request: pytest.FixtureRequest) -> Bench:
    """A stream ``O`` with six messages on ``o.a`` and ``o.b`` in turn, one second apart."""
    bench = Bench(request.param)
    bench.stream("O", subjects=["o.*"])
    for number in range(1, 7):
        bench.request(f"o.{'ba'[number % 2]}", b"%d" % number)
        bench.advance(1)
    return bench


@pytest.mark.parametrize(
    ("config", "pending", "delivered"),
    [
        ({}, 6, ["1", "2", "3", "4", "5", "6"]),
        ({"deliver_policy": "last"}, 1, ["6"]),
        ({"deliver_policy": "new"}, 0, []),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 4}, 3, ["4", "5", "6"]),
        ({"deliver_policy": "last_per_subject", "filter_subject": "o.*"}, 2, ["5", "6"]),
        ({"deliver_policy": "last", "filter_subject": "o.a"}, 1, ["5"]),
        ({"filter_subject": "o.b"}, 3, ["2", "4", "6"]),
    ],
)
def test_deliver_policy_sets_start_sequence(
    bench: Bench, config: dict[str, object], pending: int, delivered: list[str]
) -> None:
    bench.consumer("O", "C", **config)
    assert f"pending {pending}" in bench.state("O", "C")
    messages = [one.payload.decode() for one in bench.pull("O", "C", b"20")]
    assert messages == delivered
    bench.request("o.a", b"7")
    if config.get("filter_subject") != "o.b":
        assert bench.sent[-1].payload == b"7"


@pytest.mark.parametrize(("level", "first"), [((2, 10), "7"), ((2, 11), "8")], ids=("2.10", "2.11"))
def test_a_start_beyond_the_end_is_waited_for_since_2_11(level: Level, first: str) -> None:
    bench = Bench(level)
    bench.stream("O", subjects=["o"])
    for number in range(1, 7):
        bench.request("o", b"%d" % number)
    bench.consumer("O", "C", deliver_policy="by_start_sequence", opt_start_seq=8)
    for number in (7, 8):
        bench.request("o", b"%d" % number)
    assert [one.payload.decode() for one in bench.pull("O", "C", b"1")] == [first]


def test_by_start_time_starts_with_the_first_message_stored_then_or_later(bench: Bench) -> None:
    when = "2026-11-21T07:13:06.5Z"  # START is 07:13:04
    bench.consumer("O", "C", deliver_policy="by_start_time", opt_start_time=when)
    assert [one.payload for one in bench.pull("O", "C", b"9")] == [b"4", b"5", b"6"]
    assert START == 1_795_245_184_000_000_000


def test_filter_subjects_since_2_10() -> None:
    bench = Bench(NEWEST)
    bench.stream("L", subjects=["l.*"])
    for subject in ("l.a", "l.b", "l.c", "l.a"):
        bench.request(subject, subject.encode())
    bench.consumer("L", "C", filter_subjects=["l.a", "l.c"])
    assert "pending 3" in bench.state("L", "C")
    assert [one.payload for one in bench.pull("L", "C", b"9")] == [b"l.a", b"l.c", b"l.a"]


def test_a_filtered_consumer_counts_deliveries_and_positions_apart(bench: Bench) -> None:
    bench.consumer("O", "C", filter_subject="o.b")
    first, _ = bench.pull("O", "C", b"2")
    assert bench.state("O", "C") == (
        "delivered 2/4 ack_floor 0/0 ack_pending 2 redelivered 0 waiting 0 pending 1"
    )
    bench.send(first.reply or b"")
    assert "ack_floor 1/3" in bench.state("O", "C")


@pytest.mark.parametrize(("level", "floor"), [(OLDEST, "0/0"), (NEWEST, "0/6")])
def test_a_consumer_of_new_messages_starts_at_the_end(level: Level, floor: str) -> None:
    bench = Bench(level)
    bench.stream("O", subjects=["o"])
    for _ in range(6):
        bench.request("o")
    bench.consumer("O", "C", deliver_policy="new")
    assert bench.state("O", "C").startswith(f"delivered 0/6 ack_floor {floor}")


def test_deleted_messages_leave_no_gap_in_consumer_sequences(bench: Bench) -> None:
    bench.api("STREAM.MSG.DELETE.O", {"seq": 1})
    bench.api("STREAM.MSG.DELETE.O", {"seq": 3})
    bench.consumer("O", "C")
    replies = [(one.reply or b"").split(b".") for one in bench.pull("O", "C", b"3")]
    assert [(tokens[5], tokens[6], tokens[8]) for tokens in replies] == [
        (b"2", b"1", b"3"),
        (b"4", b"2", b"2"),
        (b"5", b"3", b"1"),
    ]


def test_messages_deleted_before_they_are_delivered_are_not_pending(bench: Bench) -> None:
    bench.consumer("O", "C")
    bench.pull("O", "C")
    bench.api("STREAM.MSG.DELETE.O", {"seq": 4})
    assert "pending 4" in bench.state("O", "C")


def test_a_message_deleted_while_it_is_pending_counts_as_acknowledged(bench: Bench) -> None:
    bench.consumer("O", "C", max_ack_pending=1)
    bench.pull("O", "C", b"2")
    bench.api("STREAM.MSG.DELETE.O", {"seq": 1})
    bench.advance(0)
    assert shown(bench.sent) == ["o.a 1", "o.b 2"]
    assert "delivered 2/2 ack_floor 1/1 ack_pending 1" in bench.state("O", "C")


def test_a_purge_settles_what_was_pending(bench: Bench) -> None:
    bench.consumer("O", "C")
    bench.pull("O", "C", b"2")
    bench.api("STREAM.PURGE.O")
    assert bench.state("O", "C") == (
        "delivered 2/6 ack_floor 2/6 ack_pending 0 redelivered 0 waiting 0 pending 0"
    )


def test_replay_original_keeps_the_distance_in_time(bench: Bench) -> None:
    bench.consumer("O", "C", replay_policy="original")
    started = bench.now
    bench.pull("O", "C", b"4")
    bench.advance(10)
    assert [one.at for one in bench.sent] == [(started - START) / SECOND + gap for gap in (0, 1, 2, 3)]


def test_idle_ephemeral_consumer_is_deleted(bench: Bench) -> None:
    body = {"stream_name": "O", "config": {"ack_policy": "explicit", "inactive_threshold": 5 * SECOND}}
    name = bench.api("CONSUMER.CREATE.O", body)["name"]
    assert len(name) == 8
    bench.advance(4)
    bench.pull("O", name, {"batch": 1, "no_wait": True})
    bench.send(bench.sent[-1].reply or b"")
    bench.advance(4)
    assert bench.api("CONSUMER.NAMES.O")["consumers"] == [name]
    bench.advance(2)
    assert bench.api("CONSUMER.NAMES.O")["consumers"] == []
    assert bench.jetstream.next_wake() is None


def test_a_waiting_request_keeps_an_ephemeral_consumer(bench: Bench) -> None:
    body = {"stream_name": "O", "config": {"deliver_policy": "new", "ack_policy": "explicit"}}
    name = bench.api("CONSUMER.CREATE.O", body)["name"]
    bench.pull("O", name)
    bench.advance(60)
    assert bench.api("CONSUMER.NAMES.O")["consumers"] == [name]


def test_a_durable_consumer_stays(bench: Bench) -> None:
    bench.consumer("O", "C")
    bench.advance(1_000_000)
    assert bench.api("CONSUMER.NAMES.O")["consumers"] == ["C"]


def test_push_consumer_delivers_only_with_interest(bench: Bench) -> None:
    bench.consumer("O", "P", deliver_subject="dlv", ack_policy="none")
    assert bench.sent == []
    bench.subscriptions.append(b"dlv")
    bench.jetstream.on_subscribed(b"dlv", bench.now)
    assert [one.payload for one in bench.sent] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert {one.target for one in bench.sent} == {b"dlv"}
    assert bench.api("CONSUMER.INFO.O.P")["push_bound"] is True
    bench.subscriptions.remove(b"dlv")
    bench.request("o.a", b"7")
    assert "delivered 6/6" in bench.state("O", "P")


def test_last_active_appears_once_there_was_activity(bench: Bench) -> None:
    bench.consumer("O", "C")
    info = bench.api("CONSUMER.INFO.O.C")
    assert "last_active" not in info["delivered"]
    assert "last_active" not in info["ack_floor"]
    (message,) = bench.pull("O", "C")
    bench.send(message.reply or b"")
    info = bench.api("CONSUMER.INFO.O.C")
    assert info["delivered"]["last_active"] == info["ack_floor"]["last_active"] == "2026-11-21T07:13:10Z"


def test_an_option_of_a_later_level_is_passed_over() -> None:
    bench = Bench((2, 10))
    bench.stream("O", subjects=["o"])
    config = bench.consumer("O", "C", pause_until="2099-01-01T00:00:00Z", priority_groups=["g"])["config"]
    assert {"pause_until", "priority_groups"} & set(config) == set()
    bench.request("o", b"1")
    assert [one.payload for one in bench.pull("O", "C", b"1")] == [b"1"]


def test_a_reset_consumer_begins_again_behind_its_ack_floor_or_at_a_sequence() -> None:
    bench = Bench(NEWEST)
    bench.stream("R", subjects=["r"])
    for number in range(1, 7):
        bench.request("r", b"%d" % number)
    bench.consumer("R", "C")
    delivered = bench.pull("R", "C", b"4")
    bench.send(delivered[0].reply or b"", b"+ACK")
    answer = bench.api("CONSUMER.RESET.R.C")
    assert (answer["reset_seq"], answer["delivered"], answer["ack_floor"]) == (
        2,
        {"consumer_seq": 0, "stream_seq": 1},
        {"consumer_seq": 0, "stream_seq": 1},
    )
    assert (answer["num_pending"], answer["num_ack_pending"]) == (5, 0)
    assert [one.payload for one in bench.pull("R", "C", b"2")] == [b"2", b"3"]
    assert bench.api("CONSUMER.RESET.R.C", {"seq": 5})["num_pending"] == 2
    assert [one.payload for one in bench.pull("R", "C", b"9")] == [b"5", b"6"]
    assert bench.api("CONSUMER.RESET.R.C", {"seq": 20})["num_pending"] == 0


@pytest.mark.parametrize(
    ("config", "seq", "reason"),
    [
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 2}, 1, "below start seq"),
        (
            {"deliver_policy": "by_start_time", "opt_start_time": "2027-01-01T00:00:00Z"},
            1,
            "below start time",
        ),
        ({"deliver_policy": "new"}, 1, "not allowed"),
        ({"deliver_policy": "last"}, 1, "not allowed"),
    ],
)
def test_a_consumer_is_not_reset_to_before_its_start(
    config: dict[str, object], seq: int, reason: str
) -> None:
    bench = Bench(NEWEST)
    bench.stream("R", subjects=["r"])
    bench.request("r", b"1")
    bench.consumer("R", "C", **config)
    assert bench.error("CONSUMER.RESET.R.C", {"seq": seq}) == f"10204 invalid reset: {reason}"
    assert bench.error("CONSUMER.RESET.R.C", {"seq": -1}).startswith("10025 invalid JSON")
    assert "reset_seq" in bench.api("CONSUMER.RESET.R.C")
