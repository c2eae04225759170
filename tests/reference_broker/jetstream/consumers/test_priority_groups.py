"""Priority groups (ADR-42) on the pure core: overflow, pinned and prioritized clients."""

from __future__ import annotations

from typing import Any

import pytest

from plumbline.wire.nats.headers import Headers
from plumbline.wire.units import SECOND
from tests.reference_broker.jetstream.bench import INBOX, Bench, Sent, shown

OTHER = b"_INBOX.other"


def prepared(policy: str, **config: Any) -> Bench:
    bench = Bench()
    bench.stream("S", subjects=["s"])
    for number in range(3):
        bench.request("s", b"%d" % number)
    bench.consumer("S", "C", priority_policy=policy, priority_groups=["g"], **config)
    return bench


def pin_of(message: Sent) -> str | None:
    return Headers.parse(message.header_block).get("Nats-Pin-Id")


@pytest.mark.parametrize(
    ("policy", "body", "reason"),
    [
        ("overflow", {"batch": 1}, "Priority Group missing"),
        ("overflow", {"batch": 1, "group": "x"}, "Invalid Priority Group"),
        ("overflow", {"group": "g", "id": "x"}, "Not a Pinned Client Priority consumer"),
        ("pinned_client", {"group": "g", "min_pending": 1}, "Not a Overflow Priority consumer"),
        ("prioritized", {"group": "g", "priority": 10}, "Priority must be between 0 and 9"),
    ],
)
def test_requests_must_fit_the_policy(policy: str, body: dict[str, Any], reason: str) -> None:
    assert shown(prepared(policy).pull("S", "C", body)) == [f"400 Bad Request - {reason}"]


def test_overflow_serves_a_request_once_enough_is_pending() -> None:
    bench = prepared("overflow")
    assert bench.pull("S", "C", {"group": "g", "min_pending": 4}) == []
    bench.request("s", b"3")
    assert shown(bench.sent) == ["s 0"]


def test_overflow_passes_over_a_request_and_serves_the_next() -> None:
    bench = prepared("overflow")
    bench.pull("S", "C", {"group": "g", "min_ack_pending": 1})
    assert [sent.target for sent in bench.pull("S", "C", {"group": "g"}, inbox=OTHER)] == [OTHER, INBOX]


def test_the_first_client_served_is_pinned_until_it_is_silent_for_too_long() -> None:
    bench = prepared("pinned_client", priority_timeout=10 * SECOND)
    (first,) = bench.pull("S", "C", {"group": "g"})
    pin = pin_of(first)
    assert pin
    assert bench.pull("S", "C", {"group": "g"}, inbox=OTHER) == []
    assert shown(bench.pull("S", "C", {"group": "g", "id": "x"})) == ["423 Nats-Pin-Id mismatch"]
    (second,) = bench.pull("S", "C", {"group": "g", "id": pin})
    assert pin_of(second) == pin
    assert bench.advance(9) == []
    (third,) = bench.advance(1)
    assert third.target == OTHER
    assert pin_of(third) not in (None, pin)


def test_a_stream_may_capture_the_advisory_of_a_pin() -> None:
    bench = Bench()
    bench.stream("S", subjects=["s", "$JS.EVENT.ADVISORY.CONSUMER.PINNED.>"], no_ack=True)
    bench.send("s", b"0")
    bench.consumer("S", "C", priority_policy="pinned_client", priority_groups=["g"])
    first, advisory = bench.pull("S", "C", {"group": "g", "batch": 2})
    assert [first.subject, advisory.subject] == [b"s", b"$JS.EVENT.ADVISORY.CONSUMER.PINNED.S.C"]
    assert pin_of(first) == pin_of(advisory)


def test_unpin_lets_another_client_in() -> None:
    bench = prepared("pinned_client")
    bench.pull("S", "C", {"group": "g"})
    bench.pull("S", "C", {"group": "g"}, inbox=OTHER)
    bench.api("CONSUMER.UNPIN.S.C", {"group": "g"})
    assert [sent.target for sent in bench.sent] == [INBOX, OTHER]
    state = bench.api("CONSUMER.INFO.S.C")["priority_groups"]
    assert state == [
        {"group": "g", "pinned_client_id": pin_of(bench.sent[1]), "pinned_ts": "2026-11-21T07:13:04Z"}
    ]


def test_a_request_with_an_old_pin_is_turned_away_when_its_turn_comes() -> None:
    bench = prepared("pinned_client", priority_timeout=SECOND, deliver_policy="new")
    bench.pull("S", "C", {"group": "g", "id": "old"}, inbox=OTHER)
    bench.request("s", b"x")
    expected = "423 Nats-Wrong-Pin-Id Nats-Pending-Messages=1 Nats-Pending-Bytes=0"
    assert shown(bench.sent) == [expected]
    assert "pending 1" in bench.state("S", "C")


def test_prioritized_serves_the_lowest_number_first_and_equals_in_turn() -> None:
    bench = prepared("prioritized", deliver_policy="new")
    for inbox, priority in ((b"_INBOX.5", 5), (b"_INBOX.1a", 1), (b"_INBOX.1b", 1)):
        bench.pull("S", "C", {"batch": 2, "group": "g", "priority": priority}, inbox=inbox)
    for _ in range(6):
        bench.request("s")
    order = [sent.target.removeprefix(b"_INBOX.") for sent in bench.sent]
    assert order == [b"1a", b"1b", b"1a", b"1b", b"5", b"5"]


@pytest.mark.parametrize("policy", ["", "overflow", "prioritized"])
def test_another_policy_applies_to_the_requests_that_wait(policy: str) -> None:
    bench = Bench()
    bench.stream("S", subjects=["s"])
    bench.consumer("S", "C", priority_policy="pinned_client", priority_groups=["g"])
    bench.pull("S", "C", {"group": "g"})
    bench.consumer("S", "C", priority_policy=policy, priority_groups=["g"] if policy else [])
    bench.request("s", b"0")
    (message,) = bench.sent
    assert shown([message]) == ["s 0"]
    assert not message.header_block
