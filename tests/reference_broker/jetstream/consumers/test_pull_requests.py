"""Pull requests on the pure core: who is served, when a request ends, with which status."""

from __future__ import annotations

import pytest

from plumbline.reference_broker.nats.levels import NEWEST, Level
from plumbline.wire.units import MILLISECOND, SECOND
from tests.reference_broker.jetstream.bench import INBOX, LEVELS, OLDEST, Bench, shown


@pytest.fixture(params=LEVELS, ids=("2.9", "newest"))
def bench(request: pytest.FixtureRequest) -> Bench:
    """A stream ``bar`` with a pull consumer ``dur``."""
    return prepared(request.param)


def prepared(level: Level) -> Bench:
    bench = Bench(level)
    bench.stream("bar", subjects=["bar"])
    bench.consumer("bar", "dur")
    return bench


def test_empty_pull_request_gets_one_message(bench: Bench) -> None:
    bench.request("bar", b"helo")
    (message,) = bench.pull("bar", "dur")
    assert (message.target, message.subject, message.payload) == (INBOX, b"bar", b"helo")
    assert message.reply == b"$JS.ACK.bar.dur.1.1.1.%d.0" % bench.now


def test_a_request_without_expires_lingers(bench: Bench) -> None:
    bench.pull("bar", "dur")
    assert bench.advance(3600) == []
    assert "waiting 1" in bench.state("bar", "dur")
    bench.request("bar", b"late")
    assert shown(bench.sent) == ["bar late"]


def test_pull_requests_are_served_in_order(bench: Bench) -> None:
    bench.pull("bar", "dur", inbox=b"_INBOX.first")
    bench.pull("bar", "dur", inbox=b"_INBOX.second")
    bench.request("bar", b"m1")
    assert [sent.target for sent in bench.sent] == [b"_INBOX.first"]
    assert "waiting 1" in bench.state("bar", "dur")


def test_lingering_batches_are_served_in_turn(bench: Bench) -> None:
    bench.pull("bar", "dur", b"3", inbox=b"_INBOX.1")
    bench.pull("bar", "dur", b"3", inbox=b"_INBOX.2")
    for number in range(4):
        bench.request("bar", b"%d" % number)
    assert [sent.target for sent in bench.sent] == [b"_INBOX.1", b"_INBOX.2", b"_INBOX.1", b"_INBOX.2"]


def test_pull_request_without_inbox_gets_no_message(bench: Bench) -> None:
    bench.subscriptions.append(b"gone")
    bench.pull("bar", "dur", b"2", inbox=b"gone")
    bench.subscriptions.remove(b"gone")
    bench.request("bar", b"m1")
    state = "delivered 0/0 ack_floor 0/0 ack_pending 0 redelivered 0 waiting 0 pending 1"
    assert bench.state("bar", "dur") == state
    assert shown(bench.pull("bar", "dur")) == ["bar m1"]


def test_lost_inbox_passes_turn_to_next_request(bench: Bench) -> None:
    bench.subscriptions.append(b"gone")
    bench.pull("bar", "dur", inbox=b"gone")
    bench.pull("bar", "dur")
    bench.subscriptions.remove(b"gone")
    bench.request("bar", b"m1")
    assert [sent.target for sent in bench.sent] == [INBOX]
    assert "delivered 1/1" in bench.state("bar", "dur")


def test_no_wait_on_empty_consumer_gets_404(bench: Bench) -> None:
    (status,) = bench.pull("bar", "dur", {"batch": 1, "no_wait": True})
    assert status.header_block == b"NATS/1.0 404 No Messages\r\n\r\n"
    assert status.reply is None
    assert "waiting 0" in bench.state("bar", "dur")


@pytest.mark.parametrize(
    ("level", "end"),
    [
        (OLDEST, "408 Request Timeout Nats-Pending-Messages=3 Nats-Pending-Bytes=0"),
        (NEWEST, "404 No Messages"),
    ],
)
def test_partial_no_wait_pull_ends_with_status_of_level(level: Level, end: str) -> None:
    bench = prepared(level)
    bench.request("bar", b"1")
    bench.request("bar", b"2")
    assert shown(bench.pull("bar", "dur", {"batch": 5, "no_wait": True})) == ["bar 1", "bar 2", end]


def test_no_wait_with_enough_messages_ends_without_a_status(bench: Bench) -> None:
    bench.request("bar", b"1")
    assert shown(bench.pull("bar", "dur", {"no_wait": True})) == ["bar 1"]


@pytest.mark.parametrize(
    ("level", "end"),
    [
        (OLDEST, "408 Request Timeout Nats-Pending-Messages=2 Nats-Pending-Bytes=0"),
        (NEWEST, "404 No Messages"),
    ],
)
def test_no_wait_with_expires_waits_for_the_first_message_only(level: Level, end: str) -> None:
    bench = prepared(level)
    assert bench.pull("bar", "dur", {"batch": 3, "no_wait": True, "expires": SECOND}) == []
    bench.request("bar", b"q")
    assert shown(bench.sent) == ["bar q", end]


def test_no_wait_with_expires_times_out_when_nothing_comes(bench: Bench) -> None:
    bench.pull("bar", "dur", {"batch": 2, "no_wait": True, "expires": SECOND // 2})
    (status,) = bench.advance(1)
    assert (str(status), status.at) == (
        "408 Request Timeout Nats-Pending-Messages=2 Nats-Pending-Bytes=0",
        0.5,
    )


def test_no_wait_gets_408_requests_pending_if_earlier_requests_wait(bench: Bench) -> None:
    bench.consumer("bar", "held", max_ack_pending=1)
    bench.request("bar", b"1")
    bench.request("bar", b"2")
    assert shown(bench.pull("bar", "held", b"5")) == ["bar 1"]
    assert shown(bench.pull("bar", "held", {"no_wait": True})) == ["408 Requests Pending"]


def test_expired_request_gets_408_with_pending_counts(bench: Bench) -> None:
    bench.pull("bar", "dur", {"batch": 5, "max_bytes": 1000, "expires": SECOND})
    bench.request("bar", b"m1")
    bench.advance(2)
    message, status = bench.sent
    used = len("bar") + len(message.reply or b"") + len(b"m1")
    expected = f"408 Request Timeout Nats-Pending-Messages=4 Nats-Pending-Bytes={1000 - used}"
    assert (str(status), status.at) == (expected, 1.0)
    assert "waiting 0" in bench.state("bar", "dur")


def test_a_negative_expires_times_out_at_once(bench: Bench) -> None:
    bench.pull("bar", "dur", {"batch": 1, "expires": -5})
    assert shown(bench.advance(0)) == ["408 Request Timeout Nats-Pending-Messages=1 Nats-Pending-Bytes=0"]


def test_beyond_max_waiting_a_request_is_refused(bench: Bench) -> None:
    bench.consumer("bar", "two", max_waiting=2)
    bench.pull("bar", "two")
    bench.pull("bar", "two")
    assert shown(bench.pull("bar", "two")) == ["409 Exceeded MaxWaiting"]
    assert "waiting 2" in bench.state("bar", "two")


def test_expired_requests_and_lost_inboxes_make_room_below_max_waiting(bench: Bench) -> None:
    bench.consumer("bar", "one", max_waiting=1)
    bench.pull("bar", "one", {"batch": 1, "expires": SECOND})
    bench.advance(1)
    bench.subscriptions.append(b"gone")
    assert bench.pull("bar", "one", inbox=b"gone") == []
    bench.subscriptions.remove(b"gone")
    assert bench.pull("bar", "one") == []


@pytest.mark.parametrize(("level", "answers"), [(OLDEST, 1), (NEWEST, 0)])
def test_a_full_queue_is_silent_to_heartbeats_since_2_11(level: Level, answers: int) -> None:
    bench = prepared(level)
    bench.consumer("bar", "one", max_waiting=1)
    bench.pull("bar", "one")
    request = {"batch": 1, "expires": 2 * SECOND, "idle_heartbeat": SECOND}
    assert len(bench.pull("bar", "one", request)) == answers


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"batch": 6}, "409 Exceeded MaxRequestBatch of 5"),
        ({"batch": 1, "expires": 5 * SECOND}, "409 Exceeded MaxRequestExpires of 1.5s"),
        ({"batch": 1, "max_bytes": 200}, "409 Exceeded MaxRequestMaxBytes of 100"),
        (
            {"batch": 1, "idle_heartbeat": SECOND, "expires": 1500 * MILLISECOND},
            "400 Bad Request - heartbeat value too large",
        ),
        ({"batch": 1, "idle_heartbeat": SECOND}, "400 Bad Request - heartbeat value too large"),
    ],
)
def test_requests_beyond_the_limits_of_the_consumer_are_refused(
    bench: Bench, body: dict[str, int], status: str
) -> None:
    bench.consumer("bar", "lim", max_batch=5, max_expires=1500 * MILLISECOND, max_bytes=100)
    assert shown(bench.pull("bar", "lim", body)) == [status]
    assert "waiting 0" in bench.state("bar", "lim")


@pytest.mark.parametrize("body", [b"{bad", b'{"batch":"x"}', b"{" * 5000])
def test_a_malformed_body_is_a_bad_request(bench: Bench, body: bytes) -> None:
    (status,) = bench.pull("bar", "dur", body)
    assert status.status.startswith("400 Bad Request - ")


def test_a_message_that_does_not_fit_max_bytes_ends_the_request(bench: Bench) -> None:
    for _ in range(3):
        bench.request("bar", b"x" * 50)
    *messages, status = bench.pull("bar", "dur", {"batch": 5, "max_bytes": 250})
    used = sum(len(m.subject) + len(m.reply or b"") + len(m.payload) for m in messages)
    assert len(messages) == 2
    expected = f"409 Message Size Exceeds MaxBytes Nats-Pending-Messages=3 Nats-Pending-Bytes={250 - used}"
    assert str(status) == expected
    assert "pending 1" in bench.state("bar", "dur")


@pytest.mark.parametrize(("level", "statuses"), [(OLDEST, 0), (NEWEST, 1)])
def test_full_batch_with_max_bytes_gets_409_batch_completed_since_2_10(level: Level, statuses: int) -> None:
    bench = prepared(level)
    bench.request("bar", b"x")
    _, *rest = bench.pull("bar", "dur", {"batch": 1, "max_bytes": 10000})
    assert [status.status for status in rest] == ["409 Batch Completed"] * statuses


def test_a_batch_that_uses_up_its_bytes_exactly_is_complete(bench: Bench) -> None:
    bench.request("bar", b"x")
    (message,) = bench.pull("bar", "dur")
    bench.send(message.reply or b"", b"-NAK")
    size = len("bar") + len(message.reply or b"") + 1
    assert shown(bench.pull("bar", "dur", {"batch": 5, "max_bytes": size})) == ["bar x"]
    assert "waiting 0" in bench.state("bar", "dur")


def test_a_broker_that_is_woken_late_sends_what_was_due_first_first(bench: Bench) -> None:
    bench.pull("bar", "dur", {"batch": 1, "expires": 3 * SECOND, "idle_heartbeat": SECOND})
    bench.now += 4 * SECOND
    bench.jetstream.wake(bench.now)
    assert [sent.status for sent in bench.sent] == ["100 Idle Heartbeat", "408 Request Timeout"]


def test_idle_heartbeats_come_at_their_interval_and_after_each_message(bench: Bench) -> None:
    bench.pull("bar", "dur", {"batch": 2, "expires": 3 * SECOND, "idle_heartbeat": SECOND})
    bench.advance(0.5)
    bench.request("bar", b"x")
    bench.advance(5)
    assert [(str(one), one.at) for one in bench.sent] == [
        ("bar x", 0.5),
        ("100 Idle Heartbeat Nats-Last-Consumer=1 Nats-Last-Stream=1", 1.5),
        ("100 Idle Heartbeat Nats-Last-Consumer=1 Nats-Last-Stream=1", 2.5),
        ("408 Request Timeout Nats-Pending-Messages=1 Nats-Pending-Bytes=0", 3.0),
    ]


def test_deleting_consumer_or_stream_ends_waiting_requests(bench: Bench) -> None:
    bench.pull("bar", "dur")
    bench.consumer("bar", "other")
    bench.pull("bar", "other", {"batch": 2, "expires": SECOND}, inbox=b"_INBOX.other")
    bench.api("CONSUMER.DELETE.bar.other")
    bench.api("STREAM.DELETE.bar")
    assert [(sent.target, str(sent)) for sent in bench.sent] == [
        (b"_INBOX.other", "409 Consumer Deleted"),
        (INBOX, "409 Consumer Deleted"),
    ]
    assert bench.advance(3600) == []
    assert bench.jetstream.next_wake() is None


def test_a_push_consumer_cannot_be_pulled(bench: Bench) -> None:
    bench.consumer("bar", "push", deliver_subject="dlv")
    assert shown(bench.pull("bar", "push")) == ["409 Consumer is push based"]


@pytest.mark.parametrize(("level", "taken"), [(OLDEST, True), (NEWEST, False)])
@pytest.mark.parametrize("names", ["bar.NOPE", "NOPE.dur", "bar"])
def test_pull_without_consumer_is_not_handled_by_jetstream_since_2_11(
    level: Level, taken: bool, names: str
) -> None:
    bench = prepared(level)
    assert bench.send(f"$JS.API.CONSUMER.MSG.NEXT.{names}", b"", INBOX) is taken
    assert bench.sent == []


def test_a_pull_without_reply_is_ignored(bench: Bench) -> None:
    bench.send("$JS.API.CONSUMER.MSG.NEXT.bar.dur", b"1")
    assert "waiting 0" in bench.state("bar", "dur")


def test_max_ack_pending_holds_back_until_an_ack_and_no_wait_waits_with_it(bench: Bench) -> None:
    bench.consumer("bar", "held", max_ack_pending=2)
    for number in range(3):
        bench.request("bar", b"%d" % number)
    first, second = bench.pull("bar", "held", {"batch": 3, "no_wait": True, "expires": SECOND})
    bench.send(second.reply or b"")
    assert [str(sent) for sent in bench.sent] == ["bar 0", "bar 1", "bar 2"]
    assert "ack_floor 0/0 ack_pending 2" in bench.state("bar", "held")
    bench.send(first.reply or b"")
    assert "ack_floor 2/2 ack_pending 1" in bench.state("bar", "held")


def test_headers_are_relayed_unchanged(bench: Bench) -> None:
    block = b"NATS/1.0\r\nX:  1 \r\nx: 2\r\n\r\n"
    bench.request("bar", b"hh", block)
    (message,) = bench.pull("bar", "dur")
    assert (message.header_block, message.payload) == (block, b"hh")


def test_headers_only_sends_the_size_instead_of_the_payload(bench: Bench) -> None:
    bench.request("bar", b"12345678", b"NATS/1.0\r\nK: V\r\n\r\n")
    bench.request("bar", b"123")
    bench.consumer("bar", "heads", headers_only=True)
    with_headers, without = bench.pull("bar", "heads", b"2")
    assert with_headers.header_block == b"NATS/1.0\r\nK: V\r\nNats-Msg-Size: 8\r\n\r\n"
    assert without.header_block == b"NATS/1.0\r\nNats-Msg-Size: 3\r\n\r\n"
    assert with_headers.payload == without.payload == b""
