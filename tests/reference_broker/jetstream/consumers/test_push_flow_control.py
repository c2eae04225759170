"""Flow control of push consumers on the pure core, and acknowledgement by it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from plumbline.reference_broker.nats.jetstream.consumers.flow_control import (
    FIRST_WINDOW,
    LARGEST_WINDOW,
    FlowWindow,
)
from plumbline.reference_broker.nats.levels import NEWEST
from plumbline.wire.nats.headers import encode_headers
from plumbline.wire.units import SECOND
from tests.reference_broker.jetstream.bench import LEVELS, Bench, Sent
from tests.reference_broker.jetstream.pushing import DLV, delivered, publish, push, statuses, with_stream

KILOBYTES_60 = 60_000  # a message of 60 kB, as the servers were watched with


@pytest.fixture(params=LEVELS, ids=("2.9", "newest"))
def bench(request: pytest.FixtureRequest) -> Bench:
    return with_stream(request.param)


def flow(bench: Bench) -> list[Sent]:
    return [one for one in bench.sent if one.status == "100 FlowControl Request"]


def test_a_subscriber_that_does_not_answer_gets_no_more_than_the_window(bench: Bench) -> None:
    bench.subscribe(DLV)
    push(bench, flow_control=True, idle_heartbeat=SECOND)
    publish(bench, 100, KILOBYTES_60)
    assert len(delivered(bench)) == 35  # as on servers: half the window, 18, and then the rest of it
    (request,) = flow(bench)
    assert bench.sent.index(request) == 18
    assert (request.reply or b"").startswith(b"$JS.FC.S.P.")
    bench.advance(1)
    stalled = (request.reply or b"").decode()
    assert str(bench.sent[-1]) == (
        f"100 Idle Heartbeat Nats-Last-Consumer=35 Nats-Last-Stream=35 Nats-Consumer-Stalled={stalled}"
    )
    assert bench.send(request.reply or b"")
    bench.advance(0)
    assert len(delivered(bench)) > 35


def test_an_answer_opens_the_window_and_doubles_it(bench: Bench) -> None:
    bench.subscribe(DLV)
    push(bench, flow_control=True, idle_heartbeat=SECOND)
    publish(bench, 300, KILOBYTES_60)
    reached = [len(delivered(bench))]
    while reached[-1] < 300:
        bench.send(flow(bench)[-1].reply or b"")
        reached.append(len(delivered(bench)))
    steps = [later - earlier for earlier, later in pairwise(reached[:-1])]
    assert steps == sorted(steps)
    assert steps[-1] > 1.9 * steps[0]
    bench.advance(1)
    assert "Stalled" in statuses(bench)[-1]  # the last request is still without its answer
    bench.send(flow(bench)[-1].reply or b"")
    bench.advance(1)
    assert "Stalled" not in statuses(bench)[-1]


def test_an_old_or_foreign_answer_opens_nothing(bench: Bench) -> None:
    bench.subscribe(DLV)
    push(bench, flow_control=True, idle_heartbeat=SECOND)
    push(bench, "Q", deliver_subject="other")
    publish(bench, 50, KILOBYTES_60)
    assert bench.send("$JS.FC.S.P.zzzz")  # somebody listens there, and does not mind
    assert not bench.send("$JS.FC.S.Q.zzzz")  # a consumer without flow control
    assert not bench.send("$JS.FC.S.P")
    assert not bench.send("$JS.FC.S.ABSENT.zzzz")
    assert len(delivered(bench)) == 35


def test_the_window_has_an_upper_bound() -> None:
    window = FlowWindow()
    assert window.size == FIRST_WINDOW
    for number in range(9):
        window.sent(window.size)
        assert window.needs_request()
        window.record_request(b"%d" % number)
        assert not window.answered(b"x")
        assert window.answered(b"%d" % number)
        assert not window.answered(b"%d" % number)
    assert (window.size, window.pending) == (LARGEST_WINDOW, 0)


def test_oversized_message_is_sent_alone() -> None:
    window = FlowWindow()
    assert not window.is_full()
    window.sent(FIRST_WINDOW + 1)
    assert window.is_full()


# Acknowledged by flow control

UP_TO_2 = encode_headers([("Nats-Last-Consumer", "2"), ("Nats-Last-Stream", "2")])


def flow_acknowledged() -> Bench:
    """A consumer with ack_policy flow_control that may have two messages on their way."""
    bench = with_stream(NEWEST)
    bench.subscribe(DLV)
    push(bench, ack_policy="flow_control", max_ack_pending=2)
    return bench


def test_an_answer_to_flow_control_acknowledges_all_up_to_what_it_names() -> None:
    bench = flow_acknowledged()
    publish(bench, 3)
    assert len(delivered(bench)) == 2
    (request,) = flow(bench)
    assert not bench.send(delivered(bench)[0].reply or b"")  # ordinary acknowledgements have no subscriber
    bench.send(request.reply or b"", headers=UP_TO_2)
    assert len(delivered(bench)) == 3
    assert bench.state("S", "P").startswith("delivered 3/3 ack_floor 2/2 ack_pending 1")


@pytest.mark.parametrize("headers", [b"", encode_headers([("Nats-Last-Stream", "x")]), b"nonsense"])
def test_flow_reply_without_sequence_acks_nothing(headers: bytes) -> None:
    bench = flow_acknowledged()
    publish(bench, 3)
    bench.send(flow(bench)[-1].reply or b"", headers=headers)
    assert bench.state("S", "P").startswith("delivered 2/2 ack_floor 0/0 ack_pending 2")


def test_at_the_end_of_the_stream_the_heartbeat_is_followed_by_a_request() -> None:
    bench = flow_acknowledged()
    publish(bench, 1)
    bench.advance(0.9)
    assert statuses(bench) == []
    bench.advance(0.1)
    assert [status.split(" Nats")[0] for status in statuses(bench)] == [
        "100 Idle Heartbeat",
        "100 FlowControl Request",
    ]
    bench.advance(600)
    assert len(delivered(bench)) == 1  # and there is no redelivery
    assert len(flow(bench)) == 1


@pytest.mark.parametrize(
    ("config", "refusal"),
    [
        ({"deliver_subject": ""}, "10218"),
        ({"ack_wait": SECOND}, "10221"),
        ({"backoff": [SECOND]}, "10221"),
        ({"max_deliver": 3}, "10222"),
    ],
)
def test_ack_flow_control_rejects_invalid_config(config: dict[str, Any], refusal: str) -> None:
    bench = flow_acknowledged()
    whole = {"durable_name": "Q", "ack_policy": "flow_control", "deliver_subject": "dlv", **config}
    body = {"stream_name": "S", "config": whole}
    assert bench.error("CONSUMER.DURABLE.CREATE.S.Q", body).startswith(refusal)


def test_older_levels_do_not_know_flow_control_acknowledgements() -> None:
    bench = Bench((2, 12))
    bench.stream("S", subjects=["s.*"])
    config = {"durable_name": "Q", "ack_policy": "flow_control", "deliver_subject": "dlv"}
    assert bench.error("CONSUMER.DURABLE.CREATE.S.Q", {"stream_name": "S", "config": config}) == (
        '10025 invalid JSON: can not unmarshal "\\"flow_control\\""'
    )
