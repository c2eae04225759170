"""Each defect of the small client library for NATS turns its requirement red, and the whole one is green."""

from __future__ import annotations

import pytest

from plumbline.conformance.clients.gate import catalogue
from plumbline.verdicts import Outcome
from tests.mutation.clients.detection import (
    Detection,
    Twin,
    detect,
    gated,
    musts_without_twin,
    never_alone,
    twins,
    whole,
)

pytestmark = pytest.mark.slow  # make test-all runs it

NATS = [twin for twin in twins() if twin.command[: len(whole().command)] == whole().command]


@pytest.mark.parametrize("twin", NATS, ids=lambda twin: twin.name)
def test_the_gate_sees_the_defect_at_the_requirement_it_breaks(twin: Twin) -> None:
    detection = detect(twin)
    assert not detection.missed, detection.evidence


def test_the_whole_library_is_green() -> None:
    results = gated(whole())
    assert {result.id: result.message for result in results if result.outcome is not Outcome.PASSED} == {}


def test_every_must_of_client_libraries_has_a_defect() -> None:
    assert musts_without_twin() == []


def test_a_defect_breaks_only_requirements_that_there_are() -> None:
    assert {name for twin in twins() for name in twin.breaks} <= set(catalogue().by_id)


def test_a_requirement_without_a_client_of_its_own_is_named() -> None:
    def seen(breaks: str, *red: str) -> Detection:
        return Detection(Twin("name", (breaks,), ()), red, "")

    found = [seen("A", "A", "B"), seen("A", "A"), seen("B", "A", "B"), seen("C", "B")]
    assert never_alone(found) == ["B", "C"]
    assert never_alone([seen("A", "A", "B"), seen("B", "B")]) == ["A"]
