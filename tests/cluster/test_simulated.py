"""The judge convicts a simulated cluster of each defect with every seed, and without a defect of nothing."""

from __future__ import annotations

import pytest

from plumbline.cluster.history import Retention
from plumbline.cluster.judging import ClusterJudgement, ClusterRule
from plumbline.cluster.nats.judging import judge
from plumbline.cluster.verdicts import NATS_CHECKS
from tests.cluster.seeds import convictions, main
from tests.cluster.simulated.cluster import SimulatedCluster
from tests.cluster.simulated.nodes import SimulatedDefect

EXPECTED = {
    SimulatedDefect.ACKS_BEFORE_MAJORITY: ClusterRule.LOST,
    SimulatedDefect.FORGETS_MESSAGE_IDS: ClusterRule.DUPLICATED,
    SimulatedDefect.TRUNCATES_TAIL: ClusterRule.LOST,
    SimulatedDefect.STALE_READS: ClusterRule.STALE_READ,
    SimulatedDefect.VOTES_BLINDLY: ClusterRule.LOST,
    SimulatedDefect.SKIPS_ENTRY: ClusterRule.SAME_LOG,
    SimulatedDefect.ACKS_TOO_HIGH: ClusterRule.PLACE,
    SimulatedDefect.ACKS_TOO_LOW: ClusterRule.ORDER,
    SimulatedDefect.ACKS_ONE_SEQUENCE_TWICE: ClusterRule.ONE_MESSAGE,
    SimulatedDefect.REFUSES_AND_STORES: ClusterRule.UNEXPECTED,
    SimulatedDefect.CHANGES_ENTRY: ClusterRule.SAME_MESSAGE,
    SimulatedDefect.STAYS_BEHIND: ClusterRule.AVAILABLE,
    SimulatedDefect.LOSES_TAIL_WHEN_KILLED: ClusterRule.LOST,
    SimulatedDefect.FORGETS_ACKS: ClusterRule.SETTLED,
    SimulatedDefect.CONFIRMS_ACKS_EARLY: ClusterRule.SETTLED,
    SimulatedDefect.REDELIVERS_AFTER_ACK_WAIT: ClusterRule.SETTLED,
    SimulatedDefect.SKIPS_UNDELIVERED: ClusterRule.DELIVERED,
    SimulatedDefect.NEVER_REDELIVERS: ClusterRule.REDELIVERED,
    SimulatedDefect.ACKS_ALL_AT_CHANGE: ClusterRule.REDELIVERED,
    SimulatedDefect.LOWERS_FLOOR: ClusterRule.FLOOR,
    SimulatedDefect.FLOOR_OF_DELIVERED: ClusterRule.FLOOR_ABOVE,
    SimulatedDefect.LOSES_CONSUMER: ClusterRule.CONSUMER_AVAILABLE,
    SimulatedDefect.COMPARES_WITH_COMMITTED: ClusterRule.COMPARE_AND_SET,
    SimulatedDefect.COMPARES_NOT_AFTER_CHANGE: ClusterRule.COMPARE_AND_SET,
    SimulatedDefect.OLD_VALUES: ClusterRule.LAST_VALUE,
    SimulatedDefect.WATCH_SKIPS: ClusterRule.WATCH,
    SimulatedDefect.KEEPS_ACKNOWLEDGED: ClusterRule.REMOVED,
    SimulatedDefect.REMOVES_DELIVERED: ClusterRule.LOST,
}
OF_WORK_QUEUES = (SimulatedDefect.KEEPS_ACKNOWLEDGED, SimulatedDefect.REMOVES_DELIVERED)


WHOLE_S = 60  # virtual seconds
UNTIL_CONVICTED_S = (20, 60, 300)  # a fault may have to strike a leader, and that takes its time


def judged(seed: int, defect: SimulatedDefect | None = None, seconds: int = WHOLE_S) -> ClusterJudgement:
    retention = Retention.WORK_QUEUE if defect in OF_WORK_QUEUES else Retention.LIMITS
    return judge(SimulatedCluster(seed, defect, seconds, retention).run())


SEEDS = [pytest.param(seed, marks=[pytest.mark.slow] if seed else []) for seed in range(10)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("defect", EXPECTED, ids=lambda defect: defect.name.lower())
def test_a_defect_is_convicted(defect: SimulatedDefect, seed: int) -> None:
    assert any(judged(seed, defect, seconds).of(EXPECTED[defect]) for seconds in UNTIL_CONVICTED_S)


def test_every_rule_and_every_defect_has_the_other() -> None:
    assert set(EXPECTED) == set(SimulatedDefect)
    assert set(EXPECTED.values()) == set(NATS_CHECKS)


@pytest.mark.parametrize("seed", range(5))
def test_a_cluster_without_a_defect_is_convicted_of_nothing(seed: int) -> None:
    assert convictions(seed, WHOLE_S) == ()
    assert judged(seed).acknowledged > 100


@pytest.mark.slow
@pytest.mark.timeout(600)  # of a busy machine
def test_fifty_seeds_without_a_defect_convict_nothing() -> None:
    """``make simulate`` has ten thousand."""
    assert [seed for seed in range(50) if convictions(seed, WHOLE_S)] == []


@pytest.mark.parametrize(
    ("options", "code"),
    [((), 0), (("--defect", "truncates_tail", "--seconds", "300"), 1)],
    ids=["no defect", "a defect"],
)
def test_many_seeds_end_with_the_number_of_convictions(
    options: tuple[str, ...], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--seeds", "2", "--processes", "1", *options]) == code
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == f"2 of 2 seeds, {2 * code} convicted"
