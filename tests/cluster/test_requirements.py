"""Every rule is a check of one requirement, and no other requirement of clusters is listed."""

from __future__ import annotations

import subprocess

import pytest

from plumbline.cluster.judging import ClusterRule
from plumbline.cluster.nats.history import ClusterHistory
from plumbline.cluster.nats.judging import judge
from plumbline.cluster.verdicts import CHECKS, REQUIREMENTS, catalogue, check_results
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
