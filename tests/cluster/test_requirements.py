"""Every rule is a check of one requirement, and no other requirement of clusters is listed."""

from __future__ import annotations

import subprocess

import pytest

from plumbline.cluster.history import Attempt, AttemptOutcome
from plumbline.cluster.judging import ClusterJudgement, ClusterRule
from plumbline.cluster.nats.history import ClusterHistory, NodeLog
from plumbline.cluster.nats.judging import judge
from plumbline.cluster.verdicts import (
    BY_POWER_LOSS,
    BY_POWER_LOSS_OF_MAJORITY,
    CHECKS,
    REQUIREMENTS,
    catalogue,
    check_results,
)
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.verdicts import Outcome
from tests.cli.command import PLUMBLINE
from tests.cluster.known import known_failures


def test_every_requirement_has_a_rule() -> None:
    assert {rule for checks in CHECKS.values() for rule in checks} == set(ClusterRule)
    named = [requirement for checks in CHECKS.values() for requirement, _ in checks.values()]
    assert sorted(named) == sorted(catalogue().by_id)


def test_the_published_set_names_every_requirement_of_clusters() -> None:
    known = catalogue()
    assert known.published(folder=REQUIREMENTS).ids == set(known.by_id)


def test_verify_knows_no_requirement_of_clusters() -> None:
    assert not set(catalogue().by_id) & set(Catalogue.load().by_id)


@pytest.mark.parametrize("group", ["JS-CLUS", "AMQP-CLUS"])
@pytest.mark.parametrize(("command", "named"), [("list", "*"), ("explain", "001")])
def test_the_requirements_of_clusters_are_shown(command: str, named: str, group: str) -> None:
    words = [*PLUMBLINE, command, f"{group}-{named}"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert f"{group}-001" in shown


@pytest.mark.parametrize(("version", "is_known"), [("2.9.10", True), ("2.9.20", True), ("2.9.21", False)])
def test_the_race_of_updates_is_known_up_to_its_fix(version: str, is_known: bool) -> None:
    assert ("JS-CLUS-017" in known_failures(version)) == is_known


@pytest.mark.parametrize(("version", "count"), [("2.10.22", 1), ("2.10.23", 0)])
def test_a_known_failure_is_named_for_its_release(version: str, count: int) -> None:
    gone = judge(ClusterHistory([], [], [], stream_exists=False, is_whole=False))
    results = {
        result.requirements[0]: result
        for result in check_results("nats", gone, catalogue(), (), 1.0, version)
    }
    assert results["JS-CLUS-010"].outcome is Outcome.FAILED
    assert len(results["JS-CLUS-010"].known) == count


LOST = judge(
    ClusterHistory(
        [Attempt(0, 0, 0, 1, 2, AttemptOutcome.OK, 1)], [], [NodeLog(node, {}) for node in range(3)]
    )
)
STORED_TWICE = judge(ClusterHistory([Attempt(0, 0, 0, 1)], [], [NodeLog(0, {1: "0-0", 2: "0-0"})]))
GONE = judge(ClusterHistory([], [], [], stream_exists=False, is_whole=False))


@pytest.mark.parametrize(
    ("judged", "explained", "requirement", "outcome"),
    [
        (LOST, frozenset(), "JS-CLUS-001", Outcome.FAILED),
        (LOST, BY_POWER_LOSS, "JS-CLUS-001", Outcome.UNTESTABLE),
        (STORED_TWICE, BY_POWER_LOSS, "JS-CLUS-004", Outcome.FAILED),
        (GONE, BY_POWER_LOSS, "JS-CLUS-010", Outcome.FAILED),
        (GONE, BY_POWER_LOSS_OF_MAJORITY, "JS-CLUS-010", Outcome.UNTESTABLE),
    ],
)
def test_what_the_documentation_allows_after_a_power_loss_is_no_failure(
    judged: ClusterJudgement, explained: frozenset[ClusterRule], requirement: str, outcome: Outcome
) -> None:
    results = {
        result.requirements[0]: result
        for result in check_results("nats", judged, catalogue(), (), 1.0, "2.15.2", explained)
    }
    found = results[requirement]
    assert found.outcome is outcome
    assert ("Syncing data to disk" in found.message) is (outcome is Outcome.UNTESTABLE)
