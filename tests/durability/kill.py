"""``python -m tests.durability --kills 200``: kill -9 a broker under load, and judge what is left.

Two histories are judged by unique payloads: what the stream holds against what was published, and what the
consumer has confirmed against it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

from msgspec import Struct

from plumbline.monitors.histories import History, Judgement, judge_history
from tests.durability.load import Consumer, Publisher, set_up, stored

LEAST_LIFE_S, MOST_LIFE_S = 0.0, 0.06  # after the first acknowledgement
READY_S = 30.0
DRAIN_S = 120.0


class Result(Struct, frozen=True):
    """What came of it: the two judgements, and how much there was to judge."""

    kills: int
    acknowledged: int
    deliveries: int
    log: Judgement
    consumer: Judgement
    warnings: tuple[str, ...]  # what the broker cut off at its starts

    @property
    def is_good(self) -> bool:
        return self.acknowledged > 0 and not self.log.has_fault and not self.consumer.has_fault

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.acknowledged} publishes acknowledged, {self.deliveries} deliveries\n"
            f"stream:   {self.log}\nconsumer: {self.consumer}\n"
            f"{len(self.warnings)} damaged ends were cut" + "".join(f"\n  {one}" for one in self.warnings[:3])
        )


class Broker:
    """A reference broker in a process of its own, with files in ``folder``."""

    def __init__(self, folder: Path, options: Sequence[str] = ()) -> None:
        self.command = [sys.executable, "-m", "plumbline", "broker", "nats", "-js", "-p", "-1"]
        self.command += ["-sd", str(folder), *options]
        self.process: asyncio.subprocess.Process | None = None
        self.warnings: list[str] = []
        self._errors: asyncio.Task[bytes] | None = None

    async def start(self) -> str:
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(*self.command, stdout=pipe, stderr=pipe)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._errors = asyncio.create_task(self.process.stderr.read())
        line = await asyncio.wait_for(self.process.stdout.readline(), READY_S)
        if not line:
            raise RuntimeError(f"the broker did not start: {(await self._errors).decode()}")
        return line.split()[0].decode()

    async def kill(self) -> None:
        assert self.process is not None
        assert self._errors is not None
        self.process.kill()
        await self.process.wait()
        self.warnings += (await self._errors).decode().splitlines()
        self.process = None


async def run(
    folder: Path, *, kills: int, seed: int, each_life: int = 1000, options: Sequence[str] = ()
) -> Result:
    """Kill the broker ``kills`` times. ``options`` go to ``plumbline broker nats``."""
    random = Random(seed)
    publisher = Publisher(Random(random.random()), each_life)
    consumer = Consumer(Random(random.random()))
    broker = Broker(folder, options)
    try:
        url = await broker.start()
        await set_up(url)
        for _ in range(kills):
            acknowledged = asyncio.Event()
            clients = [
                asyncio.create_task(publisher.run(url, acknowledged)),
                asyncio.create_task(consumer.run(url)),
            ]
            await asyncio.wait_for(acknowledged.wait(), READY_S)
            await asyncio.sleep(random.uniform(LEAST_LIFE_S, MOST_LIFE_S))  # the moment of the kill
            await broker.kill()
            await asyncio.gather(*clients)
            url = await broker.start()
        await asyncio.wait_for(consumer.run(url, until_empty=True), DRAIN_S)
        log = await stored(url)
    finally:
        if broker.process is not None:
            await broker.kill()
    published = tuple(publisher.published)
    return Result(
        kills,
        publisher.answers,
        len(consumer.delivered),
        judge_history(History(published, tuple(log))),
        judge_history(History(published, tuple(consumer.delivered))),
        tuple(broker.warnings),
    )
