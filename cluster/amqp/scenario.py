"""The part of a run that is RabbitMQ's: a quorum queue with a member on every node, drained at the end."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from plumbline.cluster.amqp.connection import CHANNEL, ChannelConnection
from plumbline.cluster.amqp.history import QueueHistory
from plumbline.cluster.amqp.judging import judge
from plumbline.cluster.amqp.nodes import RelayedRabbitMQ
from plumbline.cluster.amqp.workload import QueueConsumer, QueueDrain, QueueProcesses, QueuePublisher
from plumbline.cluster.connection import until_answered
from plumbline.cluster.history import AttemptOutcome
from plumbline.cluster.judging import ClusterJudgement
from plumbline.cluster.plan import OF_POWER, FaultType
from plumbline.cluster.publishing import PUBLISHERS
from plumbline.cluster.scenario import ClusterOptions
from plumbline.cluster.user import UserCluster
from plumbline.errors import TargetUnreachable
from plumbline.wire.amqp import Method
from plumbline.wire.units import SECOND

CONSUMERS = 3
CONSUMED = 0.6  # of what is published
HEALED_WITHIN_S = 180.0
DRAINED_WITHIN_S = 300.0
LOOK_EVERY_S = 0.5
PROBED_WITHIN_S = 10.0
NOT_FOUND = "404"


class QueueScenario:
    """Publishes to one quorum queue by way of the default exchange."""

    # Nodes whose power fails do not start again: they do not fsync what they write at their first start.
    impossible: ClassVar[frozenset[FaultType]] = OF_POWER | {FaultType.LEADER}

    def __init__(self, nodes: RelayedRabbitMQ | UserCluster, options: ClusterOptions) -> None:
        self.nodes = nodes
        self._options = options
        self._queue = f"plc.{options.seed}.{secrets.token_hex(4)}"  # nothing of that name is there
        self.shared = QueueProcesses(options.nodes, self.nodes.processes.url_of, self._queue, options.seed)
        self._problem = ""  # the last one of a node

    async def prepare(self) -> None:
        declare = Method.make(
            "queue.declare",
            CHANNEL,
            queue=self._queue,
            durable=True,
            arguments={"x-queue-type": "quorum", "x-quorum-initial-group-size": self._options.nodes},
        )
        try:
            url = self.nodes.processes.url_of(0)
            connection = await until_answered(
                lambda: ChannelConnection.open(url, [declare], lambda method, now: None)
            )
        except OSError as problem:
            raise TargetUnreachable(
                f"the queue could not be declared: {str(problem) or 'no answer'}"
            ) from None
        connection.close()

    def publishers(self) -> Sequence[Coroutine[Any, Any, None]]:
        rate = self._options.rate / PUBLISHERS
        return [QueuePublisher(number, self.shared, rate).run() for number in range(PUBLISHERS)]

    def readers(self) -> Sequence[Coroutine[Any, Any, None]]:
        rate = self._options.rate * CONSUMED / CONSUMERS
        return [QueueConsumer(number, self.shared, rate).run() for number in range(CONSUMERS)]

    async def step_down(self) -> str:
        raise NotImplementedError("no method of AMQP moves a leader")

    def end_reading(self) -> None:
        self.shared.consuming = False

    async def remove(self) -> None:
        delete = Method.make("queue.delete", CHANNEL, queue=self._queue)
        with suppress(OSError):
            for node in range(self._options.nodes):
                if url := self.nodes.processes.url_of(node):
                    connection = await ChannelConnection.open(url, [delete], lambda method, now: None)
                    connection.close()
                    break

    # -- after -------------------------------------------------------------------------------

    async def await_whole(self, broken: Callable[[], str]) -> str:
        """A publish through every node is confirmed."""
        deadline = time.monotonic() + HEALED_WITHIN_S
        waiting = list(range(self._options.nodes))
        tries = 0
        while True:
            problems = [await self._probe(node, tries) for node in waiting]
            waiting = [node for node, problem in zip(waiting, problems, strict=True) if problem]
            tries += 1
            if not waiting:
                return ""
            if why := broken():
                return f"a node does not start again: {why}"
            if time.monotonic() > deadline:
                return "; ".join(filter(None, problems))
            await asyncio.sleep(LOOK_EVERY_S)

    async def _probe(self, node: int, tries: int) -> str:
        """Publishes one message through this node. Why that did not succeed; "" if it did."""
        publisher = QueuePublisher(PUBLISHERS + node, self.shared, 0)
        url = self.nodes.processes.url_of(node)
        if not url:
            return f"node {node + 1} does not run"
        try:
            attempt = await publisher.publish_one(node, tries, url, PROBED_WITHIN_S)
        except OSError as problem:
            return f"node {node + 1}: {str(problem) or 'no answer'}"
        if attempt.outcome is AttemptOutcome.OK:
            return ""
        return f"node {node + 1}: a publish is not confirmed{': ' * bool(attempt.error)}{attempt.error}"

    async def end(self, problem: str) -> tuple[QueueHistory, ClusterJudgement]:
        """Everything that is in the queue is taken out of it, through the first node that answers."""
        exists, missing = True, ""
        deadline = time.monotonic() + DRAINED_WITHIN_S
        for node in range(self._options.nodes):
            missing = ""
            url = self.nodes.processes.url_of(node)
            if not url:
                missing = f"it could not be drained through node {node + 1}, which does not run"
                continue
            try:
                async with asyncio.timeout(max(deadline - time.monotonic(), 1.0)):
                    await QueueDrain(self.shared, node).run(url)
            except OSError as error:
                missing = f"it could not be drained through node {node + 1}: {str(error) or 'no end'}"
                exists = NOT_FOUND not in missing
            else:
                break
        self._add_elections()
        shared = self.shared
        history = QueueHistory(
            attempts=shared.attempts,
            deliveries=shared.deliveries,
            answers=shared.answers,
            unconfirmed=shared.unconfirmed,
            exists=exists,
            is_whole=not problem,
            is_empty=not missing,
            problem="; ".join(filter(None, [problem, missing])),
        )
        return history, judge(history)

    def _add_elections(self) -> None:
        """From logs, which have the time of day."""
        offset = time.monotonic_ns() - time.time_ns()
        if isinstance(self.nodes, UserCluster):
            return
        for at, node in self.nodes.elections(self._queue):
            self.shared.leaders.append((int(at * SECOND) + offset, f"node {node + 1}"))


def started_queue(binary: Path, options: ClusterOptions) -> QueueScenario:
    """On nodes of our own."""
    return QueueScenario(RelayedRabbitMQ(binary, options.nodes), options)
