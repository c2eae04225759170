"""Of a stream that removes what was acknowledged: what is lost, what is left, and what is neither."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from plumbline.cluster.history import Attempt, AttemptOutcome, Retention
from plumbline.cluster.judging import ClusterRule
from plumbline.cluster.nats.consumers.history import AckKind, ConsumerHistory, PullDelivery
from plumbline.cluster.nats.history import ClusterHistory, LeaderRead, NodeLog
from plumbline.cluster.nats.judging import judge

WORK_QUEUE, INTEREST = Retention.WORK_QUEUE, Retention.INTEREST
# The consumer takes the messages of process 0; the sequences are 1 to 3.
PUBLISHED = [
    Attempt(process, counter, 0, 10 * at, 10 * at + 5, AttemptOutcome.OK, at)
    for at, (process, counter) in enumerate([(0, 0), (1, 0), (0, 1)], 1)
]


def delivery(message: str, sequence: int, acknowledged: int = 0, confirmed: int = 0) -> PullDelivery:
    """``acknowledged`` and ``confirmed`` are times; 0: no ack, no answer."""
    ack = AckKind.NONE if not acknowledged else AckKind.DOUBLE if confirmed else AckKind.ACK
    return PullDelivery(sequence, message, 0, 40, 50, 1, ack, acknowledged, confirmed)


FIRST, LAST = delivery("0-0", 1, 60, 70), delivery("0-1", 3, 60, 70)


def history(
    retention: Retention,
    left: dict[int, str],
    deliveries: Sequence[PullDelivery] = (FIRST, LAST),
    reads: Sequence[LeaderRead] = (),
    *,
    first_node: dict[int, str] | None = None,
) -> ClusterHistory:
    """``left``: what every node has at the end; the first one may have something else."""
    logs = [NodeLog(node, dict(left)) for node in range(3)]
    if first_node is not None:
        logs[0] = NodeLog(0, first_node)
    consumer = ConsumerHistory(list(deliveries), [], process=0)
    return ClusterHistory(PUBLISHED, list(reads), logs, consumer=consumer, retention=retention)


VIOLATIONS = {
    "removed before its ack": (
        ClusterRule.LOST,
        history(WORK_QUEUE, {2: "1-0"}, [FIRST, delivery("0-1", 3)]),
    ),
    "removed and never delivered": (ClusterRule.LOST, history(WORK_QUEUE, {2: "1-0"}, [FIRST])),
    "not taken and removed from a work queue": (ClusterRule.LOST, history(WORK_QUEUE, {})),
    "left after its ack": (ClusterRule.REMOVED, history(WORK_QUEUE, {1: "0-0", 2: "1-0"})),
    "left on one node": (
        ClusterRule.REMOVED,
        history(WORK_QUEUE, {2: "1-0"}, first_node={1: "0-0", 2: "1-0"}),
    ),
    "left on one node only": (
        ClusterRule.SAME_LOG,
        history(WORK_QUEUE, {2: "1-0"}, first_node={1: "0-0", 2: "1-0"}),
    ),
    "kept without interest": (ClusterRule.REMOVED, history(INTEREST, {2: "1-0"})),
    "delivered with another sequence": (
        ClusterRule.PLACE,
        history(WORK_QUEUE, {2: "1-0"}, [delivery("0-1", 1, 60, 70), LAST]),
    ),
    "delivered with two sequences": (
        ClusterRule.DUPLICATED,
        history(WORK_QUEUE, {2: "1-0"}, [FIRST, LAST, delivery("0-1", 4, 60, 70)]),
    ),
    "not found before its ack": (
        ClusterRule.STALE_READ,
        history(WORK_QUEUE, {2: "1-0"}, reads=[LeaderRead(50, 59, 0, 1, None)]),
    ),
}
NEAR_MISSES = {
    "a work queue without what was acknowledged": history(WORK_QUEUE, {2: "1-0"}),
    "an interest stream without anything": history(INTEREST, {}),
    "an ack without an answer, and left": history(
        WORK_QUEUE, {2: "1-0", 3: "0-1"}, [FIRST, delivery("0-1", 3, 60)]
    ),
    "an ack without an answer, and removed": history(WORK_QUEUE, {2: "1-0"}, [FIRST, delivery("0-1", 3, 60)]),
    "not found after its ack was sent": history(
        WORK_QUEUE, {2: "1-0"}, reads=[LeaderRead(55, 65, 0, 1, None)]
    ),
    "not found without interest": history(INTEREST, {}, reads=[LeaderRead(55, 65, 0, 2, None)]),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_is_found(name: str) -> None:
    rule, judged = VIOLATIONS[name]
    assert judge(judged).of(rule)


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_is_no_finding(name: str) -> None:
    assert judge(NEAR_MISSES[name]).findings == ()


def test_a_stream_with_limits_keeps_what_was_acknowledged() -> None:
    kept = {1: "0-0", 2: "1-0", 3: "0-1"}
    assert judge(history(Retention.LIMITS, kept)).findings == ()
    assert judge(history(Retention.LIMITS, {2: "1-0"})).of(ClusterRule.LOST)


def test_an_empty_stream_decides_every_rule_of_logs_if_messages_were_delivered() -> None:
    undecided = judge(history(INTEREST, {})).undecided
    assert not {ClusterRule.SAME_LOG, ClusterRule.DUPLICATED, ClusterRule.REMOVED} & set(undecided)
