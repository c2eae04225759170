"""Every rule is a check of one requirement, and no other requirement of clusters is listed."""

from __future__ import annotations

import subprocess

import pytest

from plumbline.cluster.judging import ClusterRule
from plumbline.cluster.verdicts import CHECKS, REQUIREMENTS, catalogue
from plumbline.conformance.requirements.catalogue import Catalogue
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
