"""Processes that publish at a rate, wait for each answer without stopping, and reconnect to any node.

A process has one connection at a time. It goes to another node when its connection is lost or silent. What a
protocol adds: how to connect, what bytes a publish is, and what an answer means.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import ClassVar, Generic, TypeVar

from plumbline.bounds import CLUSTER_DELIVERIES, CLUSTER_DELIVERIES_OF_MESSAGE
from plumbline.cluster.connection import BaseConnection
from plumbline.cluster.history import Attempt
from plumbline.errors import TargetUnreachable
from plumbline.wire.units import SECOND

PUBLISHERS = 6
TICK_S = 0.01
RECONNECT_S = 0.1

Connection = TypeVar("Connection", bound=BaseConnection)
UrlOf = Callable[[int], str]


class Processes:
    """What the processes share: where nodes are, and what is known. ``attempts`` are in the history."""

    def __init__(self, nodes: int, url_of: UrlOf, seed: int) -> None:
        self.nodes = nodes
        self.url_of = url_of
        self.seed = seed
        self.attempts: list[Attempt] = []
        self.leaders: list[tuple[int, str]] = []  # when another leader was seen (monotonic ns)
        self.publishing = True
        self.acknowledged = 0

    def refuse_flood(self, deliveries: int) -> None:
        """Raises ``TargetUnreachable`` for more deliveries than an erroneous server can explain."""
        sent = len(self.attempts)
        if deliveries > CLUSTER_DELIVERIES + CLUSTER_DELIVERIES_OF_MESSAGE * sent:
            raise TargetUnreachable(f"the cluster floods: {deliveries} deliveries, {sent} messages were sent")


class Publisher(Generic[Connection]):
    """One process. A message is its process and counter."""

    most_unanswered: ClassVar[int] = 500  # of one process; then it waits
    unanswered_ns: ClassVar[int] = 4 * SECOND  # after that an attempt has no answer
    silent_ns: ClassVar[int] = 2 * SECOND  # without any byte, while something is unanswered: it goes away
    attempts_of_message: ClassVar[int] = 1

    def __init__(self, number: int, shared: Processes, rate: float) -> None:
        self.number = number
        self.connections = 0  # that were opened so far
        self._shared = shared
        self._rate = rate
        self._node = number % shared.nodes
        self._random = Random(f"publisher {shared.seed} {number}")
        self._connection: Connection | None = None
        self._attempts: list[Attempt] = []  # by their tokens
        self._open: dict[int, Attempt] = {}  # not answered yet, in the order of sending
        self._again: deque[tuple[int, int]] = deque()  # counters to publish again, and the attempts they had
        self._tries: dict[int, int] = {}
        self._counter = 0

    # -- what each protocol adds -------------------------------------------------------------

    async def _connect(self, url: str) -> Connection:
        """Ready to publish. Raises ``OSError``."""
        raise NotImplementedError

    def _bytes_of(self, attempt: Attempt, token: int) -> bytes:
        """What publishes it. Its answer has this token."""
        raise NotImplementedError

    # -- its life ----------------------------------------------------------------------------

    async def publish_one(self, node: int, counter: int, url: str, within: float) -> Attempt:
        """Publishes one message through a node, and awaits its answer for so many seconds. Raises ``OSError``
        if it cannot connect."""
        self._node, self._counter = node, counter
        self._connection = await self._connect(url)
        try:
            self._publish(1)
            for _ in range(int(within / TICK_S)):
                if not self._open or not self._connection.is_open:
                    break
                await asyncio.sleep(TICK_S)
        finally:
            self._drop()
        return self._attempts[-1]

    async def run(self) -> None:
        """Until ``publishing`` ends, and the last attempt has an answer or none in time."""
        credit, before = 0.0, time.monotonic()
        shared = self._shared
        try:
            while shared.publishing or self._open:
                await self._connected()
                now = time.monotonic()
                credit = min(credit + (now - before) * self._rate, max(self._rate * TICK_S * 10, 1))
                before = now
                if shared.publishing and self._connection is not None:
                    room = self.most_unanswered - len(self._open)
                    count = 0 if self._connection.is_congested else min(int(credit), room)
                    credit -= count
                    self._publish(count)
                self._give_up_old()
                await asyncio.sleep(TICK_S)
        finally:
            self._drop()

    async def _connected(self) -> None:
        """Connects to the next node that answers, if there is no connection. Tries once."""
        if self._connection is not None and self._connection.is_open:
            return
        self._connection = None
        url = self._shared.url_of(self._node)
        with suppress(OSError):
            if url:
                self.connections += 1
                self._connection = await self._connect(url)
        if self._connection is None:
            self._node = self._random.randrange(self._shared.nodes)
            await asyncio.sleep(RECONNECT_S)

    def _publish(self, count: int) -> None:
        if self._connection is None or count <= 0:
            return
        written: list[bytes] = []
        for counter in self._next_counters(count):
            attempt = Attempt(
                self.number, counter, self._node, time.monotonic_ns(), connection=self.connections
            )
            token = len(self._attempts)
            self._attempts.append(attempt)
            self._shared.attempts.append(attempt)
            self._open[token] = attempt
            written.append(self._bytes_of(attempt, token))
        self._connection.send(b"".join(written))

    def _next_counters(self, count: int) -> Iterator[int]:
        for _ in range(count):
            if self._again:
                counter, tries = self._again.popleft()
                self._tries[counter] = tries + 1
                yield counter
            else:
                yield self._counter
                self._counter += 1

    def _give_up_old(self) -> None:
        """Attempts without an answer; and the connection, if it is silent."""
        now = time.monotonic_ns()
        while self._open:
            token, oldest = next(iter(self._open.items()))
            if now - oldest.invoked < self.unanswered_ns:
                break
            del self._open[token]
            self._publish_again(oldest)
        connection = self._connection
        if connection is not None and not connection.is_open:
            self._drop()
        elif connection is not None and self._open:
            oldest = next(iter(self._open.values()))
            if now - max(oldest.invoked, connection.heard) > self.silent_ns:
                self._drop()

    def _drop(self) -> None:
        """No more answers are expected from this connection; those that come later are taken all the same."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._node = self._random.randrange(self._shared.nodes)
        for attempt in self._open.values():
            attempt.error = attempt.error or "the connection was lost"
            self._publish_again(attempt)
        self._open.clear()

    def _publish_again(self, attempt: Attempt) -> None:
        """A message with an even counter; the others are left, so both kinds are in the history."""
        tries = self._tries.get(attempt.counter, 1)
        if attempt.counter % 2 == 0 and tries < self.attempts_of_message:
            self._again.append((attempt.counter, tries))
