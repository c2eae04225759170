"""Failures of released servers are reported as known, and only for these servers."""

from __future__ import annotations

import pytest

from plumbline.conformance.explore.commands import CreateConsumer, CreateStream, Publish, Purge, Restart
from plumbline.conformance.explore.known import KnownDivergence, known_divergences
from plumbline.conformance.explore.programs import Program
from plumbline.conformance.explore.trial import TrialDifference

PROGRAM: Program = (
    CreateStream("ORDERS"),
    CreateConsumer("ORDERS", "DISPATCH", {"ack_policy": "explicit"}),
    Publish("ORDERS", "b"),
    Purge("ORDERS", {}, "a"),
)


def difference(message: str = "num_pending: expected 1, found 0") -> TrialDifference:
    return TrialDifference(0, "expect consumer", PROGRAM[-1], message, "", "")


def explaining(shown: TrialDifference, program: Program, level: tuple[int, ...]) -> list[KnownDivergence]:
    return [fault for fault in known_divergences() if fault.explains(shown, program, level)]


def test_known_divergence_explains_difference_on_affected_versions() -> None:
    (fault,) = explaining(difference(), PROGRAM, (2, 9, 10))
    assert "moves consumers" in fault.reason


@pytest.mark.parametrize(
    ("shown", "program", "level"),
    [
        (difference(), PROGRAM, (2, 9, 12)),
        (difference("the target closed the connection"), PROGRAM, (2, 9, 10)),
        (difference(), (*PROGRAM[:-1], Purge("ORDERS")), (2, 9, 10)),
    ],
    ids=["a later server", "something else", "another program"],
)
def test_a_fault_explains_nothing_else(
    shown: TrialDifference, program: Program, level: tuple[int, ...]
) -> None:
    assert explaining(shown, program, level) == []


def test_intermittent_divergence_does_not_explain_steady_difference() -> None:
    program: Program = (CreateStream("ORDERS", {"storage": "file"}), Restart())
    lost = TrialDifference(
        0, "expect consumer", Restart(), "delivered: expected 2/2, found 0/0", "", "", restarted=True
    )
    level = (2, 10, 29)
    (fault,) = [
        one for one in known_divergences() if one.explains(lost, program, level, is_reproducible=False)
    ]
    assert fault.sometimes
    assert explaining(lost, program, level) == []


def test_known_divergences_have_reason_and_pattern() -> None:
    faults = known_divergences()
    assert faults
    assert all(fault.reason and fault.shows and fault.given for fault in faults)
