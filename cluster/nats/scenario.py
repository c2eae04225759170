"""The part of a run that is JetStream's: a stream with a replica on every node, read node by node."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from plumbline.cluster.connection import until_answered
from plumbline.cluster.history import Retention
from plumbline.cluster.judging import ClusterJudgement
from plumbline.cluster.nats.consumers.history import ConsumerHistory
from plumbline.cluster.nats.consumers.workload import (
    CLIENTS,
    CONSUMER,
    PROCESS,
    ConsumerProcesses,
    PullClient,
    drain,
)
from plumbline.cluster.nats.history import ClusterHistory, NodeLog
from plumbline.cluster.nats.judging import judge
from plumbline.cluster.nats.keys.history import KeyHistory
from plumbline.cluster.nats.keys.watching import WATCHERS, KeyWatcher
from plumbline.cluster.nats.keys.workload import WRITERS, KeyProcesses, KeyWriter, read_keys
from plumbline.cluster.nats.nodes import RelayedCluster, TracedNatsServer, UserStreams
from plumbline.cluster.nats.reading import OwnCopy, Requests, read_copy, unready
from plumbline.cluster.nats.workload import LeaderReader, StreamProcesses, StreamPublisher
from plumbline.cluster.plan import OF_POWER, FaultType
from plumbline.cluster.publishing import PUBLISHERS
from plumbline.cluster.scenario import ClusterOptions
from plumbline.errors import TargetUnreachable
from plumbline.servers.nats.nats_server import NatsServer
from plumbline.wire.units import SECOND

HEALED_WITHIN_S = 120.0
LOOK_EVERY_S = 0.25
LOOKS = 2  # one after another with the same state
CREATED_WITHIN_S = 30.0
CREATE_AGAIN_AFTER_S = 10.0  # without an answer
NO_PEERS = 10005  # err_code: "no suitable peers for placement"
SAME_WITHIN_S = 30.0
DUPLICATE_WINDOW_NS = 3600 * SECOND


class StreamScenario:
    """Publishes to one stream, which a pull consumer reads; updates and watches keys of a bucket."""

    impossible: ClassVar[frozenset[FaultType]] = frozenset()

    def __init__(self, nodes: RelayedCluster | UserStreams, options: ClusterOptions) -> None:
        self.nodes = nodes
        self._options = options
        mark = secrets.token_hex(4)  # nothing of that name is there
        self._stream = f"PLC{options.seed}x{mark}"
        self._subject = f"plc.{options.seed}.{mark}"
        url_of = self.nodes.processes.url_of
        self.shared = StreamProcesses(options.nodes, url_of, self._stream, self._subject, options.seed)
        self._consumer = ConsumerProcesses(self.shared, self._stream, self._subject)
        self._keys = KeyProcesses(self.shared, self._stream)
        self._watchers = [KeyWatcher(number, self._keys) for number in range(WATCHERS)]
        self._copies: Sequence[OwnCopy | None] = ()

    async def prepare(self) -> None:
        """Raises ``TargetUnreachable``."""
        config = {
            "name": self._stream,
            "subjects": [f"{self._subject}.>"],
            "storage": "file",
            "retention": self._options.retention,
            "num_replicas": self._options.nodes,
            "duplicate_window": DUPLICATE_WINDOW_NS,
            "allow_direct": True,
        }
        requests = Requests(f"_INBOX.{self._stream}.C")
        try:
            await until_answered(lambda: requests.connect(self.nodes.processes.url_of(0)))
            await _create(requests, f"STREAM.CREATE.{self._stream}", config)
            replicas = self._options.nodes
            name = f"CONSUMER.DURABLE.CREATE.{self._stream}.{CONSUMER}"
            await _create(requests, name, self._consumer.config(replicas))
            await _create(requests, f"STREAM.CREATE.{self._keys.stream}", self._keys.config(replicas))
        except OSError as problem:
            raise TargetUnreachable(
                f"the stream could not be created: {str(problem) or 'no answer'}"
            ) from None
        finally:
            requests.close()

    def publishers(self) -> Sequence[Coroutine[Any, Any, None]]:
        rate = self._options.rate / PUBLISHERS
        return [
            *(StreamPublisher(number, self.shared, rate).run() for number in range(PUBLISHERS)),
            *(KeyWriter(number, self._keys).run() for number in range(WRITERS)),
        ]

    def readers(self) -> Sequence[Coroutine[Any, Any, None]]:
        return [
            *(LeaderReader(node, self.shared).run() for node in range(self._options.nodes)),
            *(PullClient(number, self._consumer).run() for number in range(CLIENTS)),
            *(watcher.run() for watcher in self._watchers),
        ]

    async def step_down(self) -> str:
        requests = Requests(f"_INBOX.{self._stream}.S")
        try:
            await requests.connect(self.nodes.processes.url_of(0))
            names = (
                f"STREAM.LEADER.STEPDOWN.{self._stream}",
                f"CONSUMER.LEADER.STEPDOWN.{self._stream}.{CONSUMER}",
            )
            answers = [await requests.api(name) for name in names]
        except OSError as problem:
            return f"no answer to the request to step down: {problem}"
        finally:
            requests.close()
        refused = [str(answer.error) for answer in answers if not answer.success]
        return f"no step down: {'; '.join(refused)}" if refused else "the leaders step down"

    def end_reading(self) -> None:
        self.shared.reading = self._consumer.consuming = self._keys.watching = False

    async def remove(self) -> None:
        requests = Requests(f"_INBOX.{self._stream}.X")
        with suppress(OSError):
            for node in range(self._options.nodes):
                if url := self.nodes.processes.url_of(node):
                    await requests.connect(url)
                    for stream in (self._stream, self._keys.stream):
                        await requests.api(f"STREAM.DELETE.{stream}")
                    break
        requests.close()

    # -- after -------------------------------------------------------------------------------

    async def await_whole(self, broken: Callable[[], str]) -> str:
        """Every node is healthy and states the same of its copy."""
        deadline = time.monotonic() + HEALED_WITHIN_S
        same, before = 0, None
        while True:
            healthy, copies = await asyncio.to_thread(self._look)
            self._copies = copies
            lasts = {copy and (copy[1], copy[2]) for copy in copies}
            is_whole = healthy and len(lasts) == 1 and None not in lasts
            same = same + 1 if is_whole and copies == before else 0
            before = copies
            unready = "" if same < LOOKS - 1 else await self._unready(copies)
            if same >= LOOKS - 1 and not unready:
                return ""
            if why := broken():
                return f"a node does not start again: {why}"
            if time.monotonic() > deadline:
                states = [f"node {node + 1}: {_stated(copy)}" for node, copy in enumerate(copies)]
                return "; ".join([*([] if healthy else ["not all nodes are healthy"]), *states, unready])
            await asyncio.sleep(LOOK_EVERY_S)

    async def _unready(self, copies: Sequence[OwnCopy | None]) -> str:
        """Which node does not serve the stream yet, and why; "" if all do."""
        for node, copy in enumerate(copies):
            url = self.nodes.processes.url_of(node)
            if copy is None or not url:
                return f"node {node + 1} has no copy"
            keeps_all = self._options.retention is Retention.LIMITS
            if problem := await unready(node, url, self._stream, copy, keeps_all=keeps_all):
                return f"node {node + 1}: {problem}"
        return ""

    def _look(self) -> tuple[bool, list[OwnCopy | None]]:
        return self.nodes.is_healthy(), self.nodes.copies(self._stream)

    async def end(self, problem: str) -> tuple[ClusterHistory, ClusterJudgement]:
        """The consumer is drained, and every node read; a stream that no node has is gone."""
        consumer = await self._drained()
        if self._options.retention is not Retention.LIMITS:
            self._copies = await self._same_copies(self._stream)
        logs: list[NodeLog] = []
        for node, copy in enumerate(self._copies):
            url = self.nodes.processes.url_of(node)
            if copy is None or not url:
                logs.append(NodeLog(node, {}, complete=False, problem="it has no copy of the stream"))
            else:
                logs.append(await read_copy(node, url, self._stream, copy))
        history = ClusterHistory(
            attempts=self.shared.attempts,
            reads=self.shared.reads,
            logs=logs,
            stream_exists=any(copy is not None for copy in self._copies),
            is_whole=not problem,
            problem=problem,
            consumer=consumer,
            keys=await self._read_keys(),
            retention=self._options.retention,
        )
        return history, judge(history)

    async def _drained(self) -> ConsumerHistory:
        shared = self._consumer
        last, problem = await drain(shared)
        return ConsumerHistory(shared.deliveries, shared.states, last, PROCESS, not problem, problem)

    async def _same_copies(self, stream: str) -> Sequence[OwnCopy | None]:
        """What each node states of its copy, once all state the same, or after a while."""
        deadline = time.monotonic() + SAME_WITHIN_S
        while True:
            copies = await asyncio.to_thread(self.nodes.copies, stream)
            if len({copy and copy[1:] for copy in copies}) == 1 or time.monotonic() > deadline:
                return copies
            await asyncio.sleep(LOOK_EVERY_S)

    async def _read_keys(self) -> KeyHistory:
        """Each node, once all state the same of the bucket, or after a while."""
        await self._same_copies(self._keys.stream)
        nodes = range(self._options.nodes)
        copies = [await read_keys(self._keys, node) for node in nodes]
        return KeyHistory(self._keys.updates, copies, [watcher.watch for watcher in self._watchers])


async def _create(requests: Requests, name: str, config: object) -> None:
    """Raises ``OSError`` without an answer, ``TargetUnreachable`` at a refusal. Nodes may not know each other
    yet. What exists with this configuration is no error."""
    deadline = time.monotonic() + CREATED_WITHIN_S
    while error := (await until_answered(lambda: requests.api(name, config, CREATE_AGAIN_AFTER_S))).error:
        if error.err_code != NO_PEERS or time.monotonic() > deadline:
            raise TargetUnreachable(f"{name} was refused: {error}")
        await asyncio.sleep(LOOK_EVERY_S)


def started_streams(binary: Path, options: ClusterOptions) -> StreamScenario:
    """On nodes of our own."""
    jetstream = {"jetstream": {"sync_interval": options.sync}} if options.sync else {}
    node = TracedNatsServer if OF_POWER & set(options.faults) else NatsServer
    return StreamScenario(RelayedCluster(binary, jetstream, options.nodes, node=node), options)


def _stated(copy: OwnCopy | None) -> str:
    return "no copy of the stream" if copy is None else f"{copy[2]} messages, {copy[0]} to {copy[1]}"
