"""Every rule is a check of one requirement, and no other requirement of clusters is listed."""

from __future__ import annotations

import subprocess

import pytest

from plumbline.cluster.history import ClusterHistory
from plumbline.cluster.judging import ClusterRule, judge
from plumbline.cluster.verdicts import CHECKS, REQUIREMENTS, catalogue, check_results
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.verdicts import Outcome
from tests.cli.command import PLUMBLINE


def test_every_requirement_has_a_rule() -> None:
    assert set(CHECKS) == set(ClusterRule)
    assert sorted(requirement for requirement, _ in CHECKS.values()) == sorted(catalogue().by_id)


def test_the_published_set_names_every_requirement_of_clusters() -> None:
    known = catalogue()
    assert known.published(folder=REQUIREMENTS).ids == set(known.by_id)


def test_verify_knows_no_requirement_of_clusters() -> None:
    assert not set(catalogue().by_id) & set(Catalogue.load().by_id)


@pytest.mark.parametrize("words", [("list", "JS-CLUS-*"), ("explain", "JS-CLUS-001")])
def test_the_requirements_of_clusters_are_shown(words: tuple[str, ...]) -> None:
    shown = subprocess.run([*PLUMBLINE, *words], capture_output=True, text=True, check=True).stdout
    assert "JS-CLUS-001" in shown
    assert "acknowledged" in shown


@pytest.mark.parametrize(("version", "count"), [("2.10.22", 1), ("2.10.23", 0)])
def test_a_known_failure_is_named_for_its_release(version: str, count: int) -> None:
    gone = judge(ClusterHistory([], [], [], stream_exists=False, is_whole=False))
    results = {
        result.requirements[0]: result for result in check_results(gone, catalogue(), (), 1.0, version)
    }
    assert results["JS-CLUS-010"].outcome is Outcome.FAILED
    assert len(results["JS-CLUS-010"].known) == count
