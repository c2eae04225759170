"""``python -m tests.durability --kills 200``: kill -9 a broker under load, and judge what is left.

Histories are judged by unique payloads: what a consumer has confirmed against what was published; and for
NATS also what the stream holds.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Protocol

from msgspec import Struct

from plumbline.monitors.histories import History, Judgement, PublishAttempt, judge_history
from plumbline.monitors.histories import HistoryDelivery as Delivery
from tests.durability.amqp_load import AmqpConsumer, AmqpPublisher
from tests.durability.load import Consumer, Publisher, set_up, stored

LEAST_LIFE_S, MOST_LIFE_S = 0.0, 0.06  # after the first acknowledgement
READY_S = 120.0  # a busy machine, and a store that has grown
DRAIN_S = 120.0
Shown = Callable[[int], None]  # is called after each kill, with the number of kills
EACH_LIFE = 1000  # publishes of one life at most


class Result(Struct, frozen=True):
    """The judgements by what was judged, and how much there was to judge."""

    kills: int
    acknowledged: int
    deliveries: int
    judgements: Mapping[str, Judgement]
    warnings: tuple[str, ...]  # what the broker cut off at its starts

    @property
    def is_good(self) -> bool:
        return self.acknowledged > 0 and not any(one.has_fault for one in self.judgements.values())

    def __str__(self) -> str:
        judged = "".join(f"{name + ':':<10}{judgement}\n" for name, judgement in self.judgements.items())
        return (
            f"{self.kills} kills, {self.acknowledged} publishes acknowledged, {self.deliveries} deliveries\n"
            f"{judged}{len(self.warnings)} damaged ends were cut"
            + "".join(f"\n  {one}" for one in self.warnings[:3])
        )


class AnyPublisher(Protocol):
    """Publishes during one life of a broker after the other."""

    published: list[PublishAttempt]
    answers: int

    async def run(self, url: str, acknowledged: asyncio.Event) -> None: ...


class AnyConsumer(Protocol):
    """Consumes during one life of a broker after the other."""

    delivered: list[Delivery]

    async def run(self, url: str, *, until_empty: bool = False) -> None: ...


class Broker:
    """A reference broker in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        self.command = [sys.executable, "-m", "plumbline", "broker", *arguments]
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


def show_nothing(kills: int) -> None:
    """For tests: they are short."""


async def run_nats(
    folder: Path,
    *,
    kills: int,
    seed: int,
    each_life: int = EACH_LIFE,
    options: Sequence[str] = (),
    show: Shown = show_nothing,
) -> Result:
    """Kill a NATS broker ``kills`` times. ``options`` go to ``plumbline broker nats``."""
    random = Random(seed)
    broker = Broker("nats", "-js", "-p", "-1", "-sd", str(folder), *options)
    publisher = Publisher(Random(random.random()), each_life)
    consumer = Consumer(Random(random.random()))
    log: list[Delivery] = []

    async def begin(url: str) -> None:
        await set_up(url)

    async def end(url: str) -> None:
        log.extend(await stored(url))

    await _run(broker, publisher, consumer, kills, random, begin, end, show)
    published = tuple(publisher.published)
    judgements = {
        "stream": judge_history(History(published, tuple(log))),
        "consumer": judge_history(History(published, tuple(consumer.delivered))),
    }
    return Result(kills, publisher.answers, len(consumer.delivered), judgements, tuple(broker.warnings))


async def run_amqp(
    folder: Path, *, kills: int, seed: int, each_life: int = EACH_LIFE, show: Shown = show_nothing
) -> Result:
    """Kill an AMQP broker ``kills`` times."""
    random = Random(seed)
    broker = Broker("amqp", "-p", "-1", "-d", str(folder))
    publisher = AmqpPublisher(Random(random.random()), each_life)
    consumer = AmqpConsumer(Random(random.random()))
    await _run(broker, publisher, consumer, kills, random, _nothing, _nothing, show)
    judged = judge_history(History(tuple(publisher.published), tuple(consumer.delivered)))
    return Result(
        kills, publisher.answers, len(consumer.delivered), {"consumer": judged}, tuple(broker.warnings)
    )


async def _nothing(url: str) -> None:
    """AMQP clients declare their queue themselves."""


async def _run(
    broker: Broker,
    publisher: AnyPublisher,
    consumer: AnyConsumer,
    kills: int,
    random: Random,
    begin: Callable[[str], Coroutine[None, None, None]],
    end: Callable[[str], Coroutine[None, None, None]],
    show: Shown,
) -> None:
    try:
        url = await broker.start()
        await begin(url)
        for number in range(kills):
            acknowledged = asyncio.Event()
            clients = [
                asyncio.create_task(publisher.run(url, acknowledged)),
                asyncio.create_task(consumer.run(url)),
            ]
            await asyncio.wait_for(acknowledged.wait(), READY_S)
            await asyncio.sleep(random.uniform(LEAST_LIFE_S, MOST_LIFE_S))  # the moment of the kill
            await broker.kill()
            await asyncio.gather(*clients)
            show(number + 1)
            url = await broker.start()
        await asyncio.wait_for(consumer.run(url, until_empty=True), DRAIN_S)
        await end(url)
    finally:
        if broker.process is not None:
            await broker.kill()
