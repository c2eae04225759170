"""Acknowledgements on the pure core: payloads, policies, redelivery, the counters of the deep dive."""

from __future__ import annotations

import pytest

from plumbline.reference_broker.nats.levels import NEWEST, Level
from plumbline.wire.units import MILLISECOND, SECOND
from tests.reference_broker.jetstream.bench import LEVELS, OLDEST, Bench, Sent, shown

REPLY = b"_INBOX.ack"


@pytest.fixture(params=LEVELS, ids=("2.9", "newest"))
def bench(request: pytest.FixtureRequest) -> Bench:
    """A stream ``A`` with five messages and a pull consumer ``C``."""
    return prepared(request.param)


def prepared(level: Level) -> Bench:
    bench = Bench(level)
    bench.stream("A", subjects=["a"])
    for number in range(1, 6):
        bench.request("a", b"m%d" % number)
    bench.consumer("A", "C")
    return bench


def ack(bench: Bench, message: Sent, payload: bytes = b"") -> list[Sent]:
    """Acknowledge with a reply subject; what was sent."""
    assert message.reply is not None
    before = len(bench.sent)
    bench.send(message.reply, payload, REPLY)
    return bench.sent[before:]


def answered(sent: list[Sent]) -> bool:
    """Whether there was an empty reply, and nothing else."""
    return [(one.target, one.header_block, one.payload) for one in sent] == [(REPLY, b"", b"")]


def test_the_counters_follow_the_deep_dive() -> None:
    # Deep dive, "Acknowledgement Models", with the figures of real servers.
    bench = Bench()
    bench.stream("ORDERS", subjects=["ORDERS.*"], storage="file")
    bench.consumer("ORDERS", "DISPATCH")
    states = [bench.stream_state("ORDERS"), bench.state("ORDERS", "DISPATCH")]
    bench.request("ORDERS.processed", b"order 4")
    states += [bench.stream_state("ORDERS"), bench.state("ORDERS", "DISPATCH")]
    (first,) = bench.pull("ORDERS", "DISPATCH")
    states.append(bench.state("ORDERS", "DISPATCH"))
    ack(bench, first)
    states.append(bench.state("ORDERS", "DISPATCH"))
    bench.request("ORDERS.processed", b"order 5")
    bench.pull("ORDERS", "DISPATCH")
    states.append(bench.state("ORDERS", "DISPATCH"))
    for _ in range(2):
        bench.pull("ORDERS", "DISPATCH")
        (again,) = bench.advance(30)
        states.append(bench.state("ORDERS", "DISPATCH"))
    assert again.reply is not None
    assert again.reply.split(b".")[4:7] == [b"3", b"2", b"4"]
    ack(bench, again)
    states.append(bench.state("ORDERS", "DISPATCH"))
    assert states == [
        "msgs 0 bytes 0 first 0 last 0",
        "delivered 0/0 ack_floor 0/0 ack_pending 0 redelivered 0 waiting 0 pending 0",
        "msgs 1 bytes 53 first 1 last 1",
        "delivered 0/0 ack_floor 0/0 ack_pending 0 redelivered 0 waiting 0 pending 1",
        "delivered 1/1 ack_floor 0/0 ack_pending 1 redelivered 0 waiting 0 pending 0",
        "delivered 1/1 ack_floor 1/1 ack_pending 0 redelivered 0 waiting 0 pending 0",
        "delivered 2/2 ack_floor 1/1 ack_pending 1 redelivered 0 waiting 0 pending 0",
        "delivered 3/2 ack_floor 1/1 ack_pending 1 redelivered 1 waiting 0 pending 0",
        "delivered 4/2 ack_floor 1/1 ack_pending 1 redelivered 1 waiting 0 pending 0",
        "delivered 4/2 ack_floor 4/2 ack_pending 0 redelivered 0 waiting 0 pending 0",
    ]


@pytest.mark.parametrize("payload", [b"", b"+ACK", b"+OK", b"+TERM"])
def test_payloads_that_acknowledge_move_the_floor_and_are_answered(bench: Bench, payload: bytes) -> None:
    (message,) = bench.pull("A", "C")
    assert answered(ack(bench, message, payload))
    assert "ack_floor 1/1 ack_pending 0" in bench.state("A", "C")
    bench.pull("A", "C", b"9")
    assert [sent.payload for sent in bench.advance(60)].count(b"m1") == 0


@pytest.mark.parametrize("payload", [b"+ACK ", b"+ack", b"junk", b"+WPI", b"-nak"])
def test_other_payloads_acknowledge_nothing_yet_are_answered(bench: Bench, payload: bytes) -> None:
    (message,) = bench.pull("A", "C")
    assert answered(ack(bench, message, payload))
    assert "ack_floor 0/0 ack_pending 1" in bench.state("A", "C")


@pytest.mark.parametrize(("level", "pending"), [(OLDEST, 1), (NEWEST, 0)])
def test_term_reason_since_2_10_is_in_advisory(level: Level, pending: int) -> None:
    bench = prepared(level)
    bench.subscriptions.append(b"$JS.EVENT.>")
    (message,) = bench.pull("A", "C")
    sent = ack(bench, message, b"+TERM because reasons")
    assert f"ack_pending {pending}" in bench.state("A", "C")
    advisories = [one for one in sent if b"because reasons" in one.payload]
    assert len(advisories) == 1 - pending


def test_nak_brings_the_message_back_before_new_ones(bench: Bench) -> None:
    (message,) = bench.pull("A", "C")
    assert answered(ack(bench, message, b"-NAK"))
    again, new = bench.pull("A", "C", b"2")
    assert [again.payload, new.payload] == [b"m1", b"m2"]
    assert again.reply is not None
    assert again.reply.split(b".")[4:7] == [b"2", b"1", b"2"]
    assert "ack_pending 2 redelivered 1" in bench.state("A", "C")


@pytest.mark.parametrize("payload", [b'-NAK {"delay": 600000000}', b"-NAK 600ms"])
def test_nak_with_a_delay_lets_the_others_go_first(bench: Bench, payload: bytes) -> None:
    (message,) = bench.pull("A", "C")
    ack(bench, message, payload)
    before = len(bench.sent)
    bench.pull("A", "C", b"5")
    bench.advance(1)
    deliveries = [(one.payload, one.at) for one in bench.sent[before:]]
    assert deliveries == [(b"m2", 0.0), (b"m3", 0.0), (b"m4", 0.0), (b"m5", 0.0), (b"m1", 0.6)]


def test_nak_with_an_unreadable_argument_is_a_plain_nak(bench: Bench) -> None:
    (message,) = bench.pull("A", "C")
    ack(bench, message, b"-NAK garbage")
    assert shown(bench.pull("A", "C")) == ["a m1"]


def test_nak_after_an_ack_is_ignored(bench: Bench) -> None:
    (message,) = bench.pull("A", "C")
    ack(bench, message)
    assert answered(ack(bench, message, b"-NAK"))
    assert shown(bench.pull("A", "C")) == ["a m2"]


def test_acknowledging_twice_is_harmless_and_answered(bench: Bench) -> None:
    (message,) = bench.pull("A", "C")
    assert answered(ack(bench, message))
    state = bench.state("A", "C")
    assert answered(ack(bench, message))
    assert bench.state("A", "C") == state


def test_progress_restarts_ack_wait(bench: Bench) -> None:
    bench.consumer("A", "P", ack_wait=10 * SECOND)
    (message,) = bench.pull("A", "P")
    bench.advance(9)
    ack(bench, message, b"+WPI")
    bench.pull("A", "P", {"batch": 9, "expires": 3600 * SECOND})
    again = [one.at for one in bench.advance(30) if one.payload == b"m1"]
    assert again[0] == 19.0


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"+NXT", ["a m2"]),
        (b"+NXT 3", ["a m2", "a m3", "a m4"]),
        (b'+NXT {"batch":2}', ["a m2", "a m3"]),
    ],
)
def test_next_acknowledges_and_pulls_to_the_reply(bench: Bench, payload: bytes, expected: list[str]) -> None:
    (message,) = bench.pull("A", "C")
    sent = ack(bench, message, payload)
    assert shown(sent) == expected
    assert {one.target for one in sent} == {REPLY}
    assert "ack_floor 1/1" in bench.state("A", "C")


def test_next_no_wait_on_empty_consumer_gets_404(bench: Bench) -> None:
    messages = bench.pull("A", "C", b"5")
    assert shown(ack(bench, messages[-1], b'+NXT {"no_wait":true}')) == ["404 No Messages"]


def test_next_without_reply_only_acknowledges(bench: Bench) -> None:
    (message,) = bench.pull("A", "C")
    bench.send(message.reply or b"", b"+NXT")
    assert bench.state("A", "C").startswith("delivered 1/1 ack_floor 1/1 ack_pending 0")


def test_an_ack_without_reply_is_not_answered(bench: Bench) -> None:
    (message,) = bench.pull("A", "C")
    before = len(bench.sent)
    assert bench.send(message.reply or b"", b"+ACK")
    assert bench.sent[before:] == []
    assert "ack_pending 0" in bench.state("A", "C")


@pytest.mark.parametrize(
    "subject",
    [
        "$JS.ACK.A.NOPE.1.1.1.1.4",
        "$JS.ACK.NOPE.C.1.1.1.1.4",
        "$JS.ACK.A.C.1.1.1",
        "$JS.ACK._.HASH.A.C.1.1.1.1.4.rnd",
        "$JS.ACK.A.C.x.1.1.1.4",
    ],
)
def test_ack_without_consumer_is_not_handled_by_jetstream(bench: Bench, subject: str) -> None:
    bench.pull("A", "C")
    assert bench.send(subject, b"+ACK", REPLY) is False
    assert "ack_pending 1" in bench.state("A", "C")


@pytest.mark.parametrize(("level", "floor", "answers"), [(OLDEST, "1/999", 1), (NEWEST, "0/0", 0)])
def test_an_ack_beyond_the_stream_is_ignored_since_2_10(level: Level, floor: str, answers: int) -> None:
    bench = prepared(level)
    bench.pull("A", "C")
    before = len(bench.sent)
    assert bench.send("$JS.ACK.A.C.1.999.1.1.4", b"+ACK", REPLY)
    assert len(bench.sent) - before == answers
    assert f"ack_floor {floor} ack_pending 1" in bench.state("A", "C")


def test_the_first_delivery_acknowledges_after_a_redelivery(bench: Bench) -> None:
    (first,) = bench.pull("A", "C")
    bench.advance(30)
    bench.pull("A", "C")
    ack(bench, first)
    expected = "delivered 2/1 ack_floor 2/1 ack_pending 0 redelivered 0 waiting 0 pending 4"
    assert bench.state("A", "C") == expected


def test_explicit_acks_out_of_order_hold_the_floor_until_the_gap_closes(bench: Bench) -> None:
    messages = bench.pull("A", "C", b"5")
    seen = []
    for index in (2, 0, 1, 4, 3):
        ack(bench, messages[index])
        seen.append(bench.state("A", "C").split(" redelivered")[0].removeprefix("delivered 5/5 "))
    assert seen == [
        "ack_floor 0/0 ack_pending 4",
        "ack_floor 1/1 ack_pending 3",
        "ack_floor 3/3 ack_pending 2",
        "ack_floor 3/3 ack_pending 1",
        "ack_floor 5/5 ack_pending 0",
    ]


def test_ack_all_acknowledges_everything_up_to_the_message(bench: Bench) -> None:
    bench.consumer("A", "ALL", ack_policy="all")
    messages = bench.pull("A", "ALL", b"5")
    ack(bench, messages[3])
    assert "ack_floor 4/4 ack_pending 1" in bench.state("A", "ALL")
    assert answered(ack(bench, messages[1]))
    assert "ack_floor 4/4 ack_pending 1" in bench.state("A", "ALL")
    bench.advance(30)
    assert shown(bench.pull("A", "ALL", b"5")) == ["a m5"]


def test_ack_none_counts_as_acknowledged_when_delivered(bench: Bench) -> None:
    bench.consumer("A", "NONE", ack_policy="none")
    (message, _) = bench.pull("A", "NONE", b"2")
    assert message.reply is not None
    assert message.reply.startswith(b"$JS.ACK.A.NONE.1.1.1.")
    expected = "delivered 2/2 ack_floor 2/2 ack_pending 0 redelivered 0 waiting 0 pending 3"
    assert bench.state("A", "NONE") == expected
    assert bench.advance(3600) == []


@pytest.mark.parametrize(("level", "taken"), [(OLDEST, True), (NEWEST, False)])
def test_an_ack_on_ack_none_has_no_responder_since_2_10(level: Level, taken: bool) -> None:
    bench = prepared(level)
    bench.consumer("A", "NONE", ack_policy="none")
    (message,) = bench.pull("A", "NONE")
    assert bench.send(message.reply or b"", b"", REPLY) is taken


def test_unacknowledged_messages_come_again_after_ack_wait_in_order(bench: Bench) -> None:
    bench.consumer("A", "W", ack_wait=10 * SECOND)
    before = len(bench.sent)
    bench.pull("A", "W", b"2")
    bench.pull("A", "W", {"batch": 5, "expires": 3600 * SECOND})
    bench.advance(10)
    redelivered = [one for one in bench.sent[before:] if one.reply and one.reply.split(b".")[4] == b"2"]
    assert [(one.payload, one.at) for one in redelivered] == [(b"m1", 10.0), (b"m2", 10.0)]


def test_backoff_sets_the_distance_of_redeliveries(bench: Bench) -> None:
    steps = [SECOND, 5 * SECOND]
    bench.consumer("A", "B", backoff=steps, max_deliver=6, filter_subject="a", max_ack_pending=1)
    bench.pull("A", "B", {"batch": 5, "expires": 3600 * SECOND})
    bench.advance(30)
    times = [one.at for one in bench.sent if one.payload == b"m1"]
    assert times == [0.0, 1.0, 6.0, 11.0, 16.0]
    assert bench.api("CONSUMER.INFO.A.B")["config"]["ack_wait"] == SECOND


def test_after_max_deliver_a_message_is_given_up(bench: Bench) -> None:
    bench.subscriptions.append(b"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>")
    bench.consumer("A", "M", max_deliver=2, ack_wait=SECOND)
    bench.pull("A", "M", b"2")
    bench.pull("A", "M", {"batch": 20, "expires": 3600 * SECOND})
    bench.advance(60)
    counts = [one.payload for one in bench.sent if one.payload.startswith(b"m")]
    assert sorted(counts) == sorted([b"m1", b"m2", b"m3", b"m4", b"m5"] * 2)
    assert sum(one.target.startswith(b"$JS.EVENT") for one in bench.sent) == 5
    expected = "delivered 10/5 ack_floor 0/0 ack_pending 0 redelivered 5 waiting 1 pending 0"
    assert bench.state("A", "M") == expected


def test_naks_and_samples_send_advisories(bench: Bench) -> None:
    bench.subscriptions.append(b"$JS.EVENT.>")
    bench.consumer("A", "S", sample_freq="50")
    messages = bench.pull("A", "S", b"5")
    ack(bench, messages[0], b"-NAK")
    bench.advance(0.5)
    for message in messages[1:]:
        ack(bench, message)
    targets = [one.target for one in bench.sent]
    assert targets.count(b"$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED.A.S") == 1
    samples = [one for one in bench.sent if one.target == b"$JS.EVENT.METRIC.CONSUMER.ACK.A.S"]
    assert len(samples) == 2
    assert b'"ack_time":%d' % (500 * MILLISECOND) in samples[0].payload
