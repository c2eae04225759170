"""One run: nodes start, processes publish while faults strike by plan, all heals, everything is read, and the
history is judged. ``Scenario`` says what is of one protocol."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from random import Random

from msgspec import Struct

from plumbline.cluster.damage import damage
from plumbline.cluster.history import Attempt, AttemptOutcome
from plumbline.cluster.judging import ClusterJudgement
from plumbline.cluster.plan import FaultType, PlannedFault, make_plan
from plumbline.cluster.relays import CUT
from plumbline.cluster.scenario import ClusterOptions, RunHistory, Scenario
from plumbline.interrupts import uninterrupted
from plumbline.servers.process import ServerError
from plumbline.wire.units import SECOND

STATUS_EVERY_S = 5.0
LATENCY = "latency 100ms 50ms"


class FaultTimes(Struct, frozen=True):
    """What a fault did, in ns from the start of the workload. ``recovered``: when the first publish that was
    sent after ``healed`` was acknowledged; None: never. ``acknowledged``: publishes that were sent and
    acknowledged while it was active."""

    fault: str
    struck: int
    healed: int
    recovered: int | None
    acknowledged: int

    @property
    def recovery_s(self) -> float | None:
        return None if self.recovered is None else (self.recovered - self.healed) / SECOND


class ClusterRun(Struct, frozen=True):
    """The end of a run. ``timeline``: ns from the start of the workload, in order."""

    judgement: ClusterJudgement
    faults: tuple[FaultTimes, ...]
    timeline: tuple[tuple[int, str], ...]
    published_s: float  # how long was published
    whole_after_s: float | None  # after the last fault has ended; None: never
    history: RunHistory
    zero: int  # the start of the workload, on the clock of the history


Report = Callable[[str], None]


def new_seed() -> int:
    """For a run that names none."""
    return secrets.randbelow(1_000_000)


def run_cluster(scenario: Scenario, options: ClusterOptions, report: Report) -> ClusterRun:
    """Raises ``PlumblineError`` if the cluster does not start, ``KeyboardInterrupt`` when all has ended."""
    try:
        scenario.nodes.launch()
        scenario.nodes.await_ready()
        return asyncio.run(_Run(scenario, options, report).run())
    except BaseExceptionGroup as several:  # of a task group: the first one says why
        raise several.exceptions[0] from None
    finally:
        with uninterrupted():
            scenario.nodes.stop()


class _Run:
    """The part that runs in the event loop."""

    def __init__(self, scenario: Scenario, options: ClusterOptions, report: Report) -> None:
        self._scenario = scenario
        self._options = options
        self._report = report
        self._shared = scenario.shared
        self._zero = 0
        self._timeline: list[tuple[int, str]] = []
        self._times: list[tuple[PlannedFault, int, int]] = []
        self._broken = ""  # why a node does not start again, if so

    async def run(self) -> ClusterRun:
        await self._scenario.prepare()
        try:
            return await self._run()
        finally:
            if self._scenario.nodes.is_lasting:
                await self._scenario.remove()

    async def _run(self) -> ClusterRun:
        self._zero = time.monotonic_ns()
        async with asyncio.TaskGroup() as group:
            publishing = [group.create_task(one) for one in self._scenario.publishers()]
            reading = [group.create_task(one) for one in self._scenario.readers()]
            status = group.create_task(self._show_status())
            await self._strike()
            self._shared.publishing = False
            published = self._now()
            await asyncio.gather(*publishing)
            healed = self._now()
            problem = await self._scenario.await_whole(lambda: self._broken)
            whole_after = None if problem else (self._now() - healed) / SECOND
            self._scenario.end_reading()
            status.cancel()
            await asyncio.gather(*reading)
        history, judged = await self._scenario.end(problem)
        self._note("everything was read")
        leaders = [(at - self._zero, f"{name} leads") for at, name in self._shared.leaders]
        return ClusterRun(
            judgement=judged,
            faults=tuple(fault_times(self._times, self._shared.attempts, self._zero)),
            timeline=tuple(sorted([*self._timeline, *leaders])),
            published_s=published / SECOND,
            whole_after_s=whole_after,
            history=history,
            zero=self._zero,
        )

    def _now(self) -> int:
        return time.monotonic_ns() - self._zero

    def _note(self, text: str) -> None:
        now = self._now()
        self._timeline.append((now, text))
        self._report(f"{now / SECOND:7.1f} s  {text}")

    # -- faults ------------------------------------------------------------------------------

    async def _strike(self) -> None:
        options = self._options
        for fault in make_plan(options.faults, options.nodes, options.duration_ns, options.seed):
            await self._until(fault.start_ns)
            self._note(f"{fault} begins")
            struck = self._now()
            try:
                await self._begin(fault)
                await self._until(fault.end_ns)
                healed = self._now()
                await self._end(fault)
            except ServerError as problem:  # it is a finding: a node has to survive this
                self._times.append((fault, struck, self._now()))
                self._broken = str(problem)
                self._note(f"{fault}: a node does not start again")
                return
            self._times.append((fault, struck, healed))
            self._note(f"{fault} has ended")
        await self._until(options.duration_ns)
        self._note("publishing ends")

    async def _until(self, at_ns: int) -> None:
        """A time of the plan, or now if it is past."""
        await asyncio.sleep(max(at_ns - self._now(), 0) / SECOND)

    async def _begin(self, fault: PlannedFault) -> None:
        nodes = self._scenario.nodes
        match fault.fault:
            case FaultType.KILL:
                await asyncio.to_thread(nodes.processes.kill, fault.nodes)
            case FaultType.PAUSE:
                nodes.processes.pause(fault.nodes)
            case FaultType.PARTITION:
                await asyncio.to_thread(nodes.relays.set_faults, {route: [CUT] for route in fault.routes})
            case FaultType.DELAY:
                await asyncio.to_thread(nodes.relays.set_faults, {route: [LATENCY] for route in fault.routes})
            case FaultType.ROLLING:
                for node in fault.nodes:
                    await asyncio.to_thread(nodes.processes.shut_down, [node])
                    await asyncio.to_thread(nodes.processes.restart, [node])
                    self._note(f"node {node + 1} runs again")
            case FaultType.LEADER:
                self._note(await self._scenario.step_down())
            case FaultType.PAUSE_KILL:
                nodes.processes.pause(fault.nodes)
                await self._until((fault.start_ns + fault.end_ns) // 2)
                await asyncio.to_thread(nodes.processes.kill, fault.killed)
                nodes.processes.go_on(fault.nodes)
                self._note(f"{fault}: killed, and the others go on")
            case FaultType.DAMAGE:
                await asyncio.to_thread(nodes.processes.kill, fault.nodes)
                random = Random(f"damage {self._options.seed} {fault.start_ns}")
                for node in fault.nodes:
                    for done in damage(nodes.store_files(node), random):
                        self._note(f"node {node + 1}: {done}")
            case FaultType.POWER:
                await self._lose_power(fault.nodes)
            case FaultType.PAUSE_POWER:
                nodes.processes.pause(fault.nodes)
                await self._until((fault.start_ns + fault.end_ns) // 2)
                await self._lose_power(fault.killed)
                nodes.processes.pause(self._others(fault))
                nodes.processes.go_on(fault.nodes)
                await asyncio.to_thread(nodes.processes.restart, fault.killed)
                self._note(f"{fault}: they are the only ones that run")
            case FaultType.NONE:
                pass

    async def _lose_power(self, struck: Sequence[int]) -> None:
        """They end, and their stores have what is on disk only."""
        nodes = self._scenario.nodes
        await asyncio.to_thread(nodes.processes.kill, struck)
        for node in struck:
            lost = await asyncio.to_thread(nodes.lose_power, node)
            self._note(f"node {node + 1}: {lost}")

    def _others(self, fault: PlannedFault) -> list[int]:
        """Nodes that a fault of two kinds of nodes does not name."""
        return [node for node in range(self._options.nodes) if node not in (*fault.nodes, *fault.killed)]

    async def _end(self, fault: PlannedFault) -> None:
        nodes = self._scenario.nodes
        match fault.fault:
            case FaultType.KILL | FaultType.DAMAGE | FaultType.POWER:
                await asyncio.to_thread(nodes.processes.restart, fault.nodes)
            case FaultType.PAUSE_KILL:
                await asyncio.to_thread(nodes.processes.restart, fault.killed)
            case FaultType.PAUSE:
                nodes.processes.go_on(fault.nodes)
            case FaultType.PAUSE_POWER:
                nodes.processes.go_on(self._others(fault))
            case FaultType.PARTITION | FaultType.DELAY:
                await asyncio.to_thread(nodes.relays.set_faults, {})
            case FaultType.ROLLING | FaultType.LEADER | FaultType.NONE:
                pass

    async def _show_status(self) -> None:
        before = 0
        while True:
            await asyncio.sleep(STATUS_EVERY_S)
            shared = self._shared
            count = shared.acknowledged
            each = (count - before) / STATUS_EVERY_S
            before = count
            rate = f" ({each:.0f}/s)" if shared.publishing else "; waiting until every node is up to date"
            self._report(f"{self._now() / SECOND:7.1f} s  {count} acknowledged{rate}")


def fault_times(
    times: Sequence[tuple[PlannedFault, int, int]], attempts: Sequence[Attempt], zero: int
) -> list[FaultTimes]:
    """What the acknowledgements say about each fault. ``zero``: the start of the workload."""
    acknowledged = sorted(
        (one.invoked - zero, one.completed - zero)
        for one in attempts
        if one.outcome is AttemptOutcome.OK and not one.duplicate
    )
    found: list[FaultTimes] = []
    for fault, struck, healed in times:
        after = [completed for invoked, completed in acknowledged if invoked >= healed]
        during = sum(struck <= invoked and completed <= healed for invoked, completed in acknowledged)
        found.append(FaultTimes(str(fault), struck, healed, min(after, default=None), during))
    return found
