"""Runs fuzzing connections and the honest client against a subject, and watches its memory."""

from __future__ import annotations

import asyncio
import itertools
import time
import traceback
from collections.abc import Callable, Coroutine
from random import Random
from statistics import median

from msgspec import Struct

from tests.durability.load import Lost
from tests.fuzz.live.connections import Traffic, play
from tests.fuzz.live.programs import Broken
from tests.fuzz.live.subjects import Subject

AT_ONCE = 16  # fuzzing connections
EACH_S = 0.1  # between their starts
SWEEP_S = 5.0
SAMPLE_S = 10.0
LINE_S = 60.0  # between progress lines
SETTLED_S = 300.0  # memory is compared from here on
SETTLED_WINDOW_S = 120.0  # over which it is measured, there and at the end
MOST_GROWTH_SHARE, MOST_GROWTH_BYTES = 0.10, 8 << 20  # the larger one of them
MB = 1 << 20


class Sample(Struct, frozen=True):
    """Memory in bytes, seconds after the start."""

    at: float
    resident: int


class Memory:
    """Samples of one process. Flat: at the end about what it was when it had settled."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def grown(self) -> str:
        """What is wrong, or nothing. Short runs are not judged: everything is new there."""
        end = self.samples[-1].at
        if end < SETTLED_S + 2 * SETTLED_WINDOW_S:
            return ""
        settled = self._between(SETTLED_S, SETTLED_S + SETTLED_WINDOW_S)
        last = self._between(end - SETTLED_WINDOW_S, end)
        allowed = max(settled * MOST_GROWTH_SHARE, MOST_GROWTH_BYTES)
        if last - settled <= allowed:
            return ""
        return f"memory has grown from {settled / MB:.1f} MB to {last / MB:.1f} MB"

    def _between(self, first: float, last: float) -> float:
        return median(one.resident for one in self.samples if first <= one.at <= last)

    def __str__(self) -> str:
        settled = [one.resident for one in self.samples if one.at >= SETTLED_S]
        last = f"{self.samples[-1].resident / MB:.1f} MB at the end" if self.samples else "no sample"
        if not settled:
            return f"memory {last}"
        return (
            f"memory {settled[0] / MB:.1f} MB after 5 min, {last}, at most {max(settled) / MB:.1f} MB since"
        )


class Run:
    """One subject. ``say`` takes progress lines."""

    def __init__(self, subject: Subject, seconds: float, seed: int, say: Callable[[str], None]) -> None:
        self.subject = subject
        self.seconds = seconds
        self.seed = seed
        self.say = say
        self.traffic = Traffic()
        self.memory = Memory()
        self.rounds = 0
        self._began = time.monotonic()

    @property
    def _passed(self) -> float:
        return time.monotonic() - self._began

    def __str__(self) -> str:
        traffic = self.traffic
        return (
            f"{self._passed:.0f} s, {traffic.connections} connections, {traffic.sent / MB:.1f} MB sent, "
            f"{traffic.received / MB:.1f} MB received, {self.rounds} rounds, "
            f"{self.subject.honest.acknowledged} messages acknowledged, {self.memory}"
        )

    async def run(self) -> None:
        """Raises ``Broken``."""
        try:
            await self._honestly(self.subject.start())
            self._began = time.monotonic()
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one) for one in (self._fuzz(), self._watch())]
                await self._be_honest()
                for task in tasks:
                    task.cancel()
            await self._honestly(self.subject.finish())
        except* Broken as group_of_broken:
            raise group_of_broken.exceptions[0] from None
        finally:
            await self.subject.kill()
        if grown := self.memory.grown():
            raise Broken(grown)

    async def _be_honest(self) -> None:
        swept = 0.0
        while self._passed < self.seconds:
            await self._honestly(self.subject.round())
            self.rounds += 1
            if self._passed - swept > SWEEP_S:
                await self._honestly(self.subject.honest.sweep(self.subject.left))
                swept = self._passed

    async def _honestly(self, part: Coroutine[None, None, None]) -> None:
        """Whatever the honest client meets is a broken rule."""
        try:
            await part
        except (AssertionError, Lost, TimeoutError, OSError, ValueError, LookupError) as error:
            await asyncio.sleep(0.5)  # so that the end of the process, if that is the reason, is known
            self.subject.program.check()
            text = "".join(traceback.format_exception(error))
            raise Broken(f"{error}\n{text}") from None

    async def _fuzz(self) -> None:
        """Connection after connection, some at once; a number gives the bytes of each."""
        places = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            random = Random(f"{self.seed} {number}")
            data = self.subject.kind.make_input(random)
            try:
                received = await play(self.subject.address, data, random, self.traffic)
                self.subject.left |= self.subject.kind.left(data, received)
            finally:
                places.release()

        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                await places.acquire()
                group.create_task(one(number))
                await asyncio.sleep(EACH_S)

    async def _watch(self) -> None:
        lines = 0
        while True:
            self.subject.program.check()
            self.memory.samples.append(Sample(self._passed, self.subject.program.resident))
            if self._passed // LINE_S > lines:
                lines = int(self._passed // LINE_S)
                self.say(str(self))
            await asyncio.sleep(min(SAMPLE_S, self.seconds / 5))
