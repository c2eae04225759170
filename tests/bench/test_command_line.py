"""Benches say how they are called, and refuse what they do not understand."""

from __future__ import annotations

import sys

import pytest

from tests.bench.command_line import runs_asked


@pytest.mark.parametrize(("given", "runs"), [([], 25), (["3"], 3)])
def test_a_number_of_runs(monkeypatch: pytest.MonkeyPatch, given: list[str], runs: int) -> None:
    monkeypatch.setattr(sys, "argv", ["wire_nats.py", *given])
    assert runs_asked("What it measures.", 25) == runs


@pytest.mark.parametrize(
    ("given", "code", "printed"),
    [
        ("--help", 0, "usage: python -m tests.bench.wire_nats [-h] [RUNS]\n\nWhat it measures.\n"),
        ("many", 2, "argument RUNS: 'many' is no number from 1 on"),
        ("0", 2, "argument RUNS: '0' is no number from 1 on"),
    ],
)
def test_anything_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: str, code: int, printed: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["tests/bench/wire_nats.py", given])
    with pytest.raises(SystemExit) as ended:
        runs_asked("What it measures.", 25)
    assert ended.value.code == code
    assert printed in "".join(capsys.readouterr())
