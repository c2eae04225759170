"""kill -9 under load, a few times; ``make kill`` does it 200 times."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.durability.kill import run_amqp, run_nats
from tests.durability.record_kill import run_recorder

pytestmark = pytest.mark.slow  # make test-all runs it


@pytest.mark.parametrize("fsync", ["interval", "always"])
def test_acknowledged_messages_of_a_stream_survive_kill_9(tmp_path: Path, fsync: str) -> None:
    result = asyncio.run(run_nats(tmp_path, kills=5, seed=7, options=("--fsync", fsync)))
    assert result.is_good, str(result)
    assert result.acknowledged >= 5
    assert len(result.judgements["consumer"].ok) > 0


def test_confirmed_messages_of_a_queue_survive_kill_9(tmp_path: Path) -> None:
    result = asyncio.run(run_amqp(tmp_path, kills=5, seed=7))
    assert result.is_good, str(result)
    assert result.acknowledged >= 5
    assert len(result.judgements["consumer"].ok) > 0


def test_what_a_recorder_let_pass_survives_kill_9(tmp_path: Path) -> None:
    result = run_recorder(tmp_path, kills=4, seed=7)
    assert result.is_good, str(result)
