"""A plan comes from its seed, heals before it ends, and has every kind that was asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.cluster.plan import (
    FaultScope,
    FaultType,
    is_power_loss_of_majority,
    make_plan,
    parse_faults,
)
from plumbline.errors import UsageProblem
from plumbline.wire.units import SECOND

ALL = tuple(kind for kind in FaultType if kind is not FaultType.NONE)


def test_the_same_seed_gives_the_same_plan() -> None:
    assert make_plan(ALL, 3, 60 * SECOND, 7) == make_plan(ALL, 3, 60 * SECOND, 7)
    assert make_plan(ALL, 3, 60 * SECOND, 7) != make_plan(ALL, 3, 60 * SECOND, 8)


@given(st.integers(0, 10_000), st.sampled_from([3, 5]), st.integers(10, 300))
def test_faults_follow_each_other_and_heal_before_the_end(seed: int, nodes: int, seconds: int) -> None:
    plan = make_plan(ALL, nodes, seconds * SECOND, seed)
    assert plan
    at = 0
    for fault in plan:
        assert at < fault.start_ns < fault.end_ns < seconds * SECOND
        at = fault.end_ns
        assert set(fault.nodes) <= set(range(nodes))
        assert fault.nodes
        if fault.fault in (FaultType.PARTITION, FaultType.DELAY):
            assert fault.routes
            assert all(one != other for one, other in fault.routes)


def test_a_long_plan_has_every_kind_and_scope() -> None:
    plan = make_plan(ALL, 5, 3600 * SECOND, 1)
    assert {fault.fault for fault in plan} == set(ALL)
    assert {fault.scope for fault in plan} == set(FaultScope)


def test_halves_are_cut_both_ways_and_one_way_is_not() -> None:
    plan = make_plan([FaultType.PARTITION], 3, 600 * SECOND, 1)
    for fault in plan:
        back = {(other, one) for one, other in fault.routes}
        assert (back == set(fault.routes)) is (fault.scope is not FaultScope.ONE_WAY)


@pytest.mark.parametrize("nodes", [3, 5])
def test_in_a_ring_every_node_reaches_a_majority_of_its_own(nodes: int) -> None:
    plan = make_plan([FaultType.PARTITION], nodes, 600 * SECOND, 1)
    rings = [fault for fault in plan if fault.scope is FaultScope.RING]
    assert rings
    for fault in rings:
        reached = [
            frozenset(other for other in range(nodes) if (one, other) not in fault.routes)
            for one in range(nodes)
        ]
        assert all(len(others) > nodes // 2 for others in reached)
        assert len(set(reached)) == nodes


def test_a_node_is_killed_while_others_are_paused() -> None:
    for fault in make_plan([FaultType.PAUSE_KILL, FaultType.PAUSE_POWER], 5, 600 * SECOND, 1):
        assert len(fault.nodes) == 2
        assert len(fault.killed) == 1
        assert not set(fault.killed) & set(fault.nodes)


def test_a_power_loss_of_most_nodes_is_known_before_it_strikes() -> None:
    plan = make_plan([FaultType.POWER], 3, 600 * SECOND, 1)
    assert is_power_loss_of_majority(plan, 3)
    small = [fault for fault in plan if fault.scope in (FaultScope.ONE, FaultScope.MINORITY)]
    assert small
    assert not is_power_loss_of_majority(small, 3)
    assert not is_power_loss_of_majority(make_plan([FaultType.KILL], 3, 600 * SECOND, 1), 3)


def test_no_fault_is_an_empty_plan() -> None:
    assert make_plan([FaultType.NONE], 3, 60 * SECOND, 1) == ()


def test_faults_are_read_from_a_list() -> None:
    assert parse_faults("kill, pause,kill") == (FaultType.KILL, FaultType.PAUSE)
    with pytest.raises(UsageProblem, match="write one or more of none, kill, pause"):
        parse_faults("kill,flood")
