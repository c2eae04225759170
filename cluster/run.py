"""One run: nodes start, processes publish while faults strike by plan, all heals, every node is read, and the
history is judged."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from plumbline.cluster.history import Attempt, AttemptOutcome, ClusterHistory, NodeLog
from plumbline.cluster.judging import ClusterJudgement, judge
from plumbline.cluster.nats.nodes import RelayedCluster
from plumbline.cluster.nats.reading import OwnCopy, Requests, read_copy, unready
from plumbline.cluster.nats.workload import LeaderReader, Processes, Publisher
from plumbline.cluster.plan import FaultType, PlannedFault, make_plan
from plumbline.cluster.relays import CUT
from plumbline.errors import TargetUnreachable
from plumbline.interrupts import uninterrupted
from plumbline.servers.process import ServerError
from plumbline.wire.units import SECOND

PUBLISHERS = 6
HEALED_WITHIN_S = 120.0
LOOK_EVERY_S = 0.25
LOOKS = 2  # one after another with the same state
CREATED_WITHIN_S = 30.0
STATUS_EVERY_S = 5.0
LATENCY = "latency 100ms 50ms"
DUPLICATE_WINDOW_NS = 3600 * SECOND


class ClusterOptions(Struct, frozen=True):
    """What a user asked for. ``sync``: ``sync_interval`` of JetStream; "" for the server's default."""

    nodes: int
    faults: tuple[FaultType, ...]
    duration_ns: int
    rate: float  # publishes a second, of all processes together
    seed: int
    sync: str = "always"


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
    history: ClusterHistory
    zero: int  # the start of the workload, on the clock of the history


Report = Callable[[str], None]


def new_seed() -> int:
    """For a run that names none."""
    return random.SystemRandom().randrange(1_000_000)


def run_cluster(binary: Path, options: ClusterOptions, report: Report) -> ClusterRun:
    """Raises ``PlumblineError`` if the cluster does not start, ``KeyboardInterrupt`` when all has ended."""
    jetstream = {"jetstream": {"sync_interval": options.sync}} if options.sync else {}
    cluster = RelayedCluster(binary, jetstream, options.nodes)
    try:
        cluster.launch()
        cluster.await_ready()
        return asyncio.run(_Run(cluster, options, report).run())
    except BaseExceptionGroup as several:  # of a task group: the first one says why
        raise several.exceptions[0] from None
    finally:
        with uninterrupted():
            cluster.stop()


class _Run:
    """The part that runs in the event loop."""

    def __init__(self, cluster: RelayedCluster, options: ClusterOptions, report: Report) -> None:
        self._cluster = cluster
        self._options = options
        self._report = report
        self._stream = f"PLC{options.seed}"
        self._subject = f"plc.{options.seed}"
        self._shared = Processes(options.nodes, cluster.url_of, self._stream, self._subject, options.seed)
        self._zero = 0
        self._timeline: list[tuple[int, str]] = []
        self._times: list[tuple[PlannedFault, int, int]] = []
        self._broken = ""  # why a node does not start again, if so

    async def run(self) -> ClusterRun:
        await self._create_stream()
        self._zero = time.monotonic_ns()
        publishers = [
            Publisher(number, self._shared, self._options.rate / PUBLISHERS) for number in range(PUBLISHERS)
        ]
        readers = [LeaderReader(node, self._shared) for node in range(self._options.nodes)]
        async with asyncio.TaskGroup() as group:
            publishing = [group.create_task(one.run()) for one in publishers]
            reading = [group.create_task(one.run()) for one in readers]
            status = group.create_task(self._show_status())
            await self._strike()
            self._shared.publishing = False
            published = self._now()
            await asyncio.gather(*publishing)
            healed = self._now()
            copies, problem = await self._await_whole()
            whole_after = None if problem else (self._now() - healed) / SECOND
            self._shared.reading = False
            status.cancel()
            await asyncio.gather(*reading)
        history = await self._read_all(copies, problem)
        self._note("every node was read")
        judged = judge(history)
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

    # -- before ------------------------------------------------------------------------------

    async def _create_stream(self) -> None:
        """Raises ``TargetUnreachable``."""
        config = {
            "name": self._stream,
            "subjects": [f"{self._subject}.>"],
            "storage": "file",
            "retention": "limits",
            "num_replicas": self._options.nodes,
            "duplicate_window": DUPLICATE_WINDOW_NS,
            "allow_direct": True,
        }
        requests = Requests(f"_INBOX.{self._stream}.C")
        try:
            await requests.connect(self._cluster.url_of(0))
            answer = await requests.api(f"STREAM.CREATE.{self._stream}", config, CREATED_WITHIN_S)
        except OSError as problem:
            raise TargetUnreachable(
                f"the stream could not be created: {str(problem) or 'no answer'}"
            ) from None
        finally:
            requests.close()
        if "error" in answer:
            raise TargetUnreachable(f"the stream could not be created: {answer['error']}")

    # -- faults ------------------------------------------------------------------------------

    async def _strike(self) -> None:
        options = self._options
        for fault in make_plan(options.faults, options.nodes, options.duration_ns, options.seed):
            await self._until(fault.start_ns)
            self._note(f"{fault} begins")
            struck = self._now()
            await asyncio.to_thread(self._begin, fault)
            await self._until(fault.end_ns)
            healed = self._now()
            self._times.append((fault, struck, healed))
            try:
                await asyncio.to_thread(self._end, fault)
            except ServerError as problem:  # it is a finding: a node has to survive this
                self._broken = str(problem)
                self._note(f"{fault}: a node does not start again")
                return
            self._note(f"{fault} has ended")
        await self._until(options.duration_ns)
        self._note("publishing ends")

    async def _until(self, at_ns: int) -> None:
        """A time of the plan, or now if it is past."""
        await asyncio.sleep(max(at_ns - self._now(), 0) / SECOND)

    def _begin(self, fault: PlannedFault) -> None:
        match fault.fault:
            case FaultType.KILL:
                self._cluster.kill(fault.nodes)
            case FaultType.PAUSE:
                self._cluster.pause(fault.nodes)
            case FaultType.PARTITION:
                self._cluster.relays.set_faults({route: [CUT] for route in fault.routes})
            case FaultType.DELAY:
                self._cluster.relays.set_faults({route: [LATENCY] for route in fault.routes})
            case FaultType.NONE:
                pass

    def _end(self, fault: PlannedFault) -> None:
        match fault.fault:
            case FaultType.KILL:
                self._cluster.restart(fault.nodes)
            case FaultType.PAUSE:
                self._cluster.go_on(fault.nodes)
            case FaultType.PARTITION | FaultType.DELAY:
                self._cluster.relays.set_faults({})
            case FaultType.NONE:
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

    # -- after -------------------------------------------------------------------------------

    async def _await_whole(self) -> tuple[Sequence[OwnCopy | None], str]:
        """What each node states of its copy, once all are healthy and state the same; else what was missing
        when the time was over."""
        deadline = time.monotonic() + HEALED_WITHIN_S
        same, before = 0, None
        while True:
            healthy, copies = await asyncio.to_thread(self._look)
            lasts = {copy and (copy[1], copy[2]) for copy in copies}
            is_whole = healthy and len(lasts) == 1 and None not in lasts
            same = same + 1 if is_whole and copies == before else 0
            before = copies
            unready = "" if same < LOOKS - 1 else await self._unready(copies)
            if same >= LOOKS - 1 and not unready:
                return copies, ""
            if self._broken:
                return copies, f"a node does not start again: {self._broken}"
            if time.monotonic() > deadline:
                states = [f"node {node + 1}: {_stated(copy)}" for node, copy in enumerate(copies)]
                return copies, "; ".join(
                    [*([] if healthy else ["not all nodes are healthy"]), *states, unready]
                )
            await asyncio.sleep(LOOK_EVERY_S)

    async def _unready(self, copies: Sequence[OwnCopy | None]) -> str:
        """Which node does not serve the stream yet, and why; "" if all do."""
        for node, copy in enumerate(copies):
            url = self._cluster.url_of(node)
            if copy is None or not url:
                return f"node {node + 1} has no copy"
            if problem := await unready(node, url, self._stream, copy):
                return f"node {node + 1}: {problem}"
        return ""

    def _look(self) -> tuple[bool, list[OwnCopy | None]]:
        return self._cluster.is_healthy(), self._cluster.copies(self._stream)

    async def _read_all(self, copies: Sequence[OwnCopy | None], problem: str) -> ClusterHistory:
        """Every node is read; a stream that no node has is gone."""
        logs: list[NodeLog] = []
        for node, copy in enumerate(copies):
            url = self._cluster.url_of(node)
            if copy is None or not url:
                logs.append(NodeLog(node, {}, complete=False, problem="it has no copy of the stream"))
            else:
                logs.append(await read_copy(node, url, self._stream, copy))
        shared = self._shared
        return ClusterHistory(
            attempts=shared.attempts,
            reads=shared.reads,
            logs=logs,
            stream_exists=any(copy is not None for copy in copies),
            is_whole=not problem,
            problem=problem,
        )


def _stated(copy: OwnCopy | None) -> str:
    return "no copy of the stream" if copy is None else f"{copy[2]} messages, {copy[0]} to {copy[1]}"


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
