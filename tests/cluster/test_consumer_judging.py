"""Each rule of consumers convicts its violation, and nothing that only looks like one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from plumbline.cluster.judging import ClusterRule
from plumbline.cluster.nats.consumers.history import AckKind, ConsumerHistory, ConsumerState, PullDelivery
from plumbline.cluster.nats.consumers.judging import OF_CONSUMERS, findings, undecided

LOG = {1: "0-0", 2: "0-1", 4: "0-2", 5: "1-0"}


def delivery(sequence: int, pulled: int = 1, acknowledged: int = 0, confirmed: int = 0) -> PullDelivery:
    """``acknowledged`` and ``confirmed`` are times; 0: no ack, no answer."""
    ack = AckKind.NONE if not acknowledged else AckKind.DOUBLE if confirmed else AckKind.ACK
    return PullDelivery(sequence, LOG[sequence], 0, pulled, pulled + 1, 1, ack, acknowledged, confirmed)


def state(invoked: int, ack_floor: int, leader: str = "n1") -> ConsumerState:
    return ConsumerState(invoked, invoked + 1, 0, leader, ack_floor)


ALL = [delivery(1, 1, 3, 5), delivery(2, 1, 3, 5), delivery(4, 1, 3, 5)]


def history(
    deliveries: Sequence[PullDelivery] = ALL,
    states: Sequence[ConsumerState] = (),
    last: ConsumerState | None = None,
    *,
    is_drained: bool = True,
) -> ConsumerHistory:
    """Of a consumer of the process 0."""
    return ConsumerHistory(list(deliveries), list(states), last, 0, is_drained)


VIOLATIONS = {
    "again after its confirmation": (ClusterRule.SETTLED, history([*ALL, delivery(2, 6, 7, 8)])),
    "again to another node": (ClusterRule.SETTLED, history([*ALL, delivery(1, 9)])),
    "confirmed twice, and again between": (
        ClusterRule.SETTLED,
        history([*ALL, delivery(1, 6, 7, 8), delivery(1, 2, 3, 20)]),
    ),
    "skipped at the end": (ClusterRule.DELIVERED, history(ALL[:2])),
    "skipped at the begin": (ClusterRule.DELIVERED, history(ALL[1:])),
    "never again": (ClusterRule.REDELIVERED, history([*ALL[:2], delivery(4)])),
    "once again, and then no more": (
        ClusterRule.REDELIVERED,
        history([*ALL[:2], delivery(4), delivery(4, 9)]),
    ),
    "lower floor of one leader": (ClusterRule.FLOOR, history(states=[state(10, 4), state(20, 2)])),
    "lower floor when it leads again": (
        ClusterRule.FLOOR,
        history(states=[state(10, 4), state(20, 4, "n2"), state(30, 2)]),
    ),
    "lower floor at the end": (ClusterRule.FLOOR, history(states=[state(10, 4)], last=state(20, 2, "n2"))),
    "floor of what was delivered": (
        ClusterRule.FLOOR_ABOVE,
        history([*ALL[:2], delivery(4), delivery(4, 9, 30, 31)], [state(20, 4)]),
    ),
    "floor above what never came": (ClusterRule.FLOOR_ABOVE, history(ALL[:2], [state(20, 4)])),
    "floor too high at the end": (
        ClusterRule.FLOOR_ABOVE,
        history([*ALL[:2], delivery(4)], last=state(20, 5)),
    ),
    "not drained": (ClusterRule.CONSUMER_AVAILABLE, history(is_drained=False)),
}

NEAR_MISSES = {
    "all settled": history(states=[state(10, 0), state(20, 4)], last=state(30, 5)),
    "again to a request from before the confirmation": history([*ALL, delivery(2, 5)]),
    "again after an ack without an answer": history([delivery(1, 1, 3), *ALL[1:], delivery(1, 9)]),
    "acknowledged late, by a second delivery": history([*ALL[:2], delivery(4), delivery(4, 9, 10)]),
    "an ack of the first of two deliveries": history([*ALL, delivery(4, 4)]),
    "a message that the filter does not have": history(),
    "an old leader that does not know of the new one": history(
        states=[state(10, 4, "n2"), state(20, 2, "n1")], last=state(30, 4, "n2")
    ),
    "answers that overlap": history(
        states=[ConsumerState(10, 30, 0, "n1", 4), ConsumerState(12, 14, 1, "n1", 2)]
    ),
    "a floor in a gap": history(states=[state(20, 3)]),
    "a floor before the first ack": history(states=[state(1, 0)]),
}


def rules(judged: ConsumerHistory) -> set[ClusterRule]:
    return {finding.rule for finding in findings(judged, LOG)}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_is_found(name: str) -> None:
    rule, judged = VIOLATIONS[name]
    assert rule in rules(judged)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_is_no_finding(name: str) -> None:
    assert rules(NEAR_MISSES[name]) == set()


def test_every_rule_has_a_violation() -> None:
    assert {rule for rule, _ in VIOLATIONS.values()} == set(OF_CONSUMERS)


def test_the_places_of_a_message_are_its_deliveries() -> None:
    places = list(history([delivery(1, 1, 3), delivery(1, 4, 5, 6), delivery(1, 9), *ALL]).places(1))
    assert [one.rpartition("answered by ")[2] for one in places[:3]] == [
        "ack",
        "double ack, confirmed",
        "nothing",
    ]


def test_nothing_is_missed_while_the_consumer_is_not_drained() -> None:
    judged = history([delivery(1)], is_drained=False)
    assert rules(judged) == {ClusterRule.CONSUMER_AVAILABLE}
    assert {ClusterRule.DELIVERED, ClusterRule.REDELIVERED} <= set(undecided(judged))


def test_rules_without_evidence_are_not_decided() -> None:
    assert set(undecided(None)) == set(OF_CONSUMERS)
    empty = set(OF_CONSUMERS) - {ClusterRule.CONSUMER_AVAILABLE, ClusterRule.DELIVERED}
    assert set(undecided(history([]))) == empty
    assert set(undecided(history(ALL, [state(1, 1)]))) == {ClusterRule.REDELIVERED}
