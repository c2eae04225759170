"""Each defect turns its requirements red; every MUST has one. ``make mutation`` prints the table."""

from __future__ import annotations

import pytest

from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.verdicts import Level
from tests.mutation.detection import all_defects, detect, detect_without_sockets, needs_sockets, speaks

pytestmark = pytest.mark.slow  # make test-all runs it, and make mutation with sockets and a real clock


@pytest.mark.parametrize(
    ("protocol", "name"),
    [(speaks(defect), defect.name) for defect in all_defects() if not needs_sockets(defect)],
)
def test_the_suite_sees_the_defect_at_the_requirement_it_breaks(protocol: str, name: str) -> None:
    detection = detect_without_sockets(name, protocol)
    assert not detection.missed, detection.evidence
    assert not detection.crash


@pytest.mark.parametrize(
    ("protocol", "name"), [(speaks(defect), defect.name) for defect in all_defects() if needs_sockets(defect)]
)
def test_the_suite_sees_the_defect_of_a_process(protocol: str, name: str) -> None:
    detection = detect(name, protocol)
    assert not detection.missed, detection.evidence


def test_every_must_that_is_checked_has_a_defect() -> None:
    broken = {requirement for defect in all_defects() for requirement in defect.breaks}
    musts = {
        requirement.id
        for requirement in Catalogue.load().requirements
        if requirement.level is Level.MUST and not requirement.excluded
    }
    assert musts - broken == set()


def test_a_defect_breaks_only_requirements_that_there_are() -> None:
    known = Catalogue.load().by_id
    unknown = {defect.name: defect.breaks for defect in all_defects() if not set(defect.breaks) <= set(known)}
    assert unknown == {}
