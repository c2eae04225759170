"""Each rule of the judge of queues convicts its violation, and nothing that only looks like one."""

from __future__ import annotations

import asyncio

import pytest

from plumbline.cluster.amqp.history import Delivery, QueueHistory, Settlement
from plumbline.cluster.amqp.judging import judge
from plumbline.cluster.amqp.scenario import QueueScenario
from plumbline.cluster.history import Attempt, AttemptOutcome
from plumbline.cluster.judging import ClusterRule
from plumbline.cluster.plan import FaultType
from plumbline.cluster.scenario import ClusterOptions
from plumbline.cluster.user import UserCluster
from plumbline.cluster.verdicts import AMQP_CHECKS
from plumbline.wire.units import SECOND

ACK, REQUEUE, NONE = Settlement.ACK, Settlement.REQUEUE, Settlement.NONE


def attempt(
    name: str,
    invoked: int = 0,
    completed: int = 0,
    outcome: AttemptOutcome | None = None,
    connection: int = 1,
) -> Attempt:
    process, counter = map(int, name.split("-"))
    ended = outcome or (AttemptOutcome.OK if completed else AttemptOutcome.INDETERMINATE)
    return Attempt(process, counter, 0, invoked, completed, ended, connection=connection)


def delivery(
    name: str, settlement: Settlement = ACK, channel: int = 1, *, redelivered: bool = False
) -> Delivery:
    return Delivery(name, channel, 0, 100, redelivered, settlement)


A, B = attempt("0-0", 1, 5), attempt("0-1", 10, 15)
OTHER = attempt("1-0", 10, 15)

VIOLATIONS = {
    "lost": (ClusterRule.LOST, QueueHistory([A, B], [delivery("0-0")])),
    "lost with its queue": (ClusterRule.LOST, QueueHistory([A], [], exists=False, is_empty=False)),
    "never published": (ClusterRule.UNEXPECTED, QueueHistory([A], [delivery("0-0"), delivery("7-7")])),
    "returned and delivered": (
        ClusterRule.UNEXPECTED,
        QueueHistory([attempt("0-0", 1, 5, AttemptOutcome.FAILED)], [delivery("0-0")]),
    ),
    "twice as new": (ClusterRule.DUPLICATED, QueueHistory([A], [delivery("0-0"), delivery("0-0")])),
    "requeued for ever": (ClusterRule.REDELIVERED, QueueHistory([A], [delivery("0-0", REQUEUE)])),
    "left for ever": (ClusterRule.REDELIVERED, QueueHistory([A], [delivery("0-0", NONE)])),
    "confirmed twice": (ClusterRule.ONE_CONFIRM, QueueHistory([A], [delivery("0-0")], answers=["again"])),
    "never confirmed": (ClusterRule.UNCONFIRMED, QueueHistory([A, B], [], unconfirmed=[B])),
    "later first": (ClusterRule.ORDER, QueueHistory([A, OTHER], [delivery("1-0"), delivery("0-0")])),
    "channel in another order": (
        ClusterRule.CHANNEL_ORDER,
        QueueHistory([attempt("0-0", 1), attempt("0-1", 2)], [delivery("0-1"), delivery("0-0")]),
    ),
    "queue gone": (ClusterRule.AVAILABLE, QueueHistory([A], [], exists=False)),
    "not drained": (ClusterRule.AVAILABLE, QueueHistory([A], [], is_empty=False)),
}

NEAR_MISSES = {
    "confirmed and delivered": QueueHistory([A, B], [delivery("0-0"), delivery("0-1")]),
    "not confirmed and delivered": QueueHistory([attempt("0-0")], [delivery("0-0")]),
    "not confirmed and not delivered": QueueHistory([A, attempt("0-1")], [delivery("0-0")]),
    "returned": QueueHistory([attempt("0-0", 1, 5, AttemptOutcome.FAILED)], []),
    "redelivered after its acknowledgement": QueueHistory(
        [A], [delivery("0-0"), delivery("0-0", channel=2, redelivered=True)]
    ),
    "redelivered in another order": QueueHistory(
        [A, OTHER],
        [delivery("0-0", REQUEUE), delivery("1-0"), delivery("0-0", redelivered=True)],
    ),
    "another order on another channel": QueueHistory(
        [A, OTHER], [delivery("1-0"), delivery("0-0", channel=2)]
    ),
    "another order of overlapping publishes": QueueHistory(
        [attempt("0-0", 1, 12), OTHER], [delivery("1-0"), delivery("0-0")]
    ),
    "another order of two publishing channels": QueueHistory(
        [attempt("0-0", 1), attempt("0-1", 2, connection=2)], [delivery("0-1"), delivery("0-0")]
    ),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_is_found(name: str) -> None:
    rule, history = VIOLATIONS[name]
    assert rule in {finding.rule for finding in judge(history).findings}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_near_miss_is_no_finding(name: str) -> None:
    assert judge(NEAR_MISSES[name]).findings == ()


def test_nothing_is_lost_while_the_queue_is_not_drained() -> None:
    judged = judge(QueueHistory([A], [], is_empty=False))
    assert {finding.rule for finding in judged.findings} == {ClusterRule.AVAILABLE}
    assert {ClusterRule.LOST, ClusterRule.REDELIVERED} <= set(judged.undecided)


def test_a_run_without_evidence_decides_nothing() -> None:
    assert set(judge(QueueHistory([], [])).undecided) == set(AMQP_CHECKS) - {ClusterRule.AVAILABLE}


def test_a_queue_whose_nodes_do_not_run_is_undecided() -> None:
    urls = ["amqp://127.0.0.1:1", "amqp://127.0.0.1:2", "amqp://127.0.0.1:3"]
    options = ClusterOptions(3, (FaultType.KILL,), 8 * SECOND, 100, 1)
    nodes = UserCluster(urls, ["true"], ["true"])
    nodes.processes.kill(range(3))
    history, judged = asyncio.run(QueueScenario(nodes, options).end("no node starts again"))
    assert not history.is_empty
    assert history.problem.endswith("it could not be drained through node 3, which does not run")
    assert judged.of(ClusterRule.AVAILABLE)
