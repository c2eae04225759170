"""The short form of ``python -m tests.fuzz.live``, and proofs that it can fail."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.fuzz.live.__main__ import SUBJECTS
from tests.fuzz.live.programs import Broken, Program
from tests.fuzz.live.running import MB, SETTLED_S, Memory, Run, Sample
from tests.fuzz.test_fuzz import SEED

pytestmark = pytest.mark.slow  # programs that take their time: make test-all runs them
SECONDS = 4
UNTIL_FOUND_S = 60  # a defect is found long before
END_S = 1800


def _play(name: str, folder: Path, *options: str, seconds: float = SECONDS) -> Run:
    run = Run(SUBJECTS[name](folder, SEED, list(options)), seconds, SEED, print)
    asyncio.run(run.run())
    return run


@pytest.mark.parametrize("name", SUBJECTS)
def test_rules_hold_while_fuzzers_are_connected(name: str, tmp_path: Path) -> None:
    run = _play(name, tmp_path)
    assert run.traffic.sent
    assert run.traffic.received
    assert run.subject.honest.acknowledged


@pytest.mark.parametrize(
    ("name", "defect", "found"),
    [
        ("nats", "scope-of-purges-is-everything", "message|state of the stream|answer to a purge"),
        ("amqp", "confirmed-messages-are-lost", "counts of the queue"),
    ],
)
def test_lost_messages_are_found(name: str, defect: str, found: str, tmp_path: Path) -> None:
    seconds = UNTIL_FOUND_S if name == "nats" else SECONDS  # the other one loses them at a restart
    with pytest.raises(Broken, match=found):
        _play(name, tmp_path, "--defect", defect, seconds=seconds)


@pytest.mark.parametrize("name", ["nats", "proxy-amqp"])
def test_end_of_the_process_is_found(name: str, tmp_path: Path) -> None:
    subject = SUBJECTS[name](tmp_path, SEED, [])
    run = Run(subject, UNTIL_FOUND_S, SEED, print)

    async def play() -> None:
        running = asyncio.create_task(run.run())
        while not run.rounds:
            await asyncio.wait([running], timeout=0.05)
        subject.program.send_kill()
        await running

    with pytest.raises(Broken, match="ended with exit code -9"):
        asyncio.run(play())


def test_a_traceback_is_found() -> None:
    program = Program("broker")
    written = "print('Traceback (most recent call last):', file=sys.stderr, flush=True)"
    code = f"import sys, time; print('ready', flush=True); {written}; time.sleep(60)"
    program.command = [sys.executable, "-c", code]

    async def play() -> None:
        await program.start()
        try:
            while True:
                program.check()
                await asyncio.sleep(0.01)  # the line is on its way
        finally:
            await program.kill()

    with pytest.raises(Broken, match="printed a traceback"):
        asyncio.run(play())


@pytest.mark.parametrize(
    ("growth", "is_flat"),
    [(0, True), (0.1 * MB, True), (1 * MB, False)],
    ids=["none", "100 KB a minute", "1 MB a minute"],
)
def test_memory_that_grows_is_found(growth: float, is_flat: bool) -> None:
    memory = Memory()
    memory.samples = [Sample(at, int(60 * MB + growth * at / 60)) for at in range(0, END_S + 1, 10)]
    assert (memory.grown() == "") == is_flat


def test_memory_of_the_first_minutes_does_not_count() -> None:
    memory = Memory()
    memory.samples = [Sample(at, int(min(at, SETTLED_S) * MB)) for at in range(0, END_S + 1, 10)]
    assert not memory.grown()
