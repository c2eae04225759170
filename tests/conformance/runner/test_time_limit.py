"""The time of a run: counted from the start of the command, with a part kept for what follows the checks."""

from __future__ import annotations

import pytest

from plumbline.bounds import ENDING_S
from plumbline.conformance.runner.time_limit import SHORTEST_S, TimeLimit


@pytest.mark.parametrize(
    ("seconds", "passed", "left"),
    [
        (600.0, 0.0, 600.0 - ENDING_S),
        (600.0, 100.0, 500.0 - ENDING_S),
        (60.0, 10.0, 60.0 - 10.0 - 20.0),  # a third is less than what a long run keeps
        (4.0, 3.5, SHORTEST_S),  # starting took what was there for the checks
        (4.0, 9.0, SHORTEST_S),
    ],
)
def test_checks_end_before_the_run_does(seconds: float, passed: float, left: float) -> None:
    started_at = 1000.0
    assert TimeLimit(seconds, started_at).left_for_checks(started_at + passed) == pytest.approx(left)


def test_a_part_of_the_end_is_kept_for_the_reports() -> None:
    assert TimeLimit(60.0, 1000.0).deletion_ends_at == pytest.approx(1060.0 - 20.0 / 3)


def test_the_sentence_has_the_number_of_the_user() -> None:
    assert TimeLimit(90.0, 0.0).sentence == "the time limit of 1m30s was reached (--max-time)"
