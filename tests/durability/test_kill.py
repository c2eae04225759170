"""kill -9 under load, a few times; ``make kill`` does it 200 times."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.durability.kill import run

pytestmark = pytest.mark.slow  # make test-all runs it


@pytest.mark.parametrize("fsync", ["interval", "always"])
def test_acknowledged_messages_survive_kill_9(tmp_path: Path, fsync: str) -> None:
    result = asyncio.run(run(tmp_path, kills=5, seed=7, options=("--fsync", fsync)))
    assert result.is_good, str(result)
    assert result.acknowledged >= 5
    assert len(result.consumer.ok) > 0
