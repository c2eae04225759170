"""The short form of ``make fuzz``, the same in every run with the same seed; and all that was found before.

PLUMBLINE_FUZZ_SEED=7 pytest tests/fuzz makes other inputs.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fuzz.__main__ import LONG
from tests.fuzz.running import FOUND, SUFFIX, attempt, name_of, run_bytes, run_executions
from tests.fuzz.target import MODULES, load

SEED = int(os.environ.get("PLUMBLINE_FUZZ_SEED", "1"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails is saved in the folder that pytest keeps of a failed test."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", MODULES)
def test_rules_hold_for_random_input(name: str) -> None:
    print(f"PLUMBLINE_FUZZ_SEED={SEED}")
    target = load(name)
    run_executions(target, target.executions, SEED)


@pytest.mark.parametrize("name", LONG)
def test_rules_hold_for_long_input(name: str) -> None:
    assert run_bytes(load(name), 300_000, SEED).bytes >= 300_000


@pytest.mark.parametrize("path", sorted(FOUND.glob(f"*{SUFFIX}")), ids=lambda path: path.name)
def test_rules_hold_for_what_was_found(path: Path) -> None:
    attempt(load(name_of(path)), path.read_bytes())
