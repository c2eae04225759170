"""The workload: processes that publish to a replicated stream, and readers of what was acknowledged.

A process has one connection at a time, to any node. It publishes at its rate, waits for each acknowledgement
without stopping, and goes to another node when its connection is lost or silent. A message is its process
and counter; that is the payload, and its ``Nats-Msg-Id``. Of the publishes without an answer, those with an
even counter are published again with the same id; the others are left, so both kinds are in the history.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

from plumbline.cluster.history import Attempt, AttemptOutcome, LeaderRead
from plumbline.cluster.nats.connection import Message, NodeConnection
from plumbline.wire.nats import HPub, Pub
from plumbline.wire.units import SECOND

TICK_S = 0.01
MOST_UNANSWERED = 500  # of one process; then it waits
UNANSWERED_NS = 4 * SECOND  # after that an attempt has no answer
SILENT_NS = 2 * SECOND  # without any byte, while something is unanswered: the process changes its node
RECONNECT_S = 0.1
ATTEMPTS = 3  # of one message
READS_PER_S = 20.0
INFO_EVERY_S = 0.5
NO_RESPONDERS = b"NATS/1.0 503"  # status of a publish that no server took

UrlOf = Callable[[int], str]


class Processes:
    """What the processes share: where nodes are, and what is known of the log. ``attempts`` and ``reads`` are
    the history."""

    def __init__(self, nodes: int, url_of: UrlOf, stream: str, subject: str, seed: int) -> None:
        self.nodes = nodes
        self.url_of = url_of
        self.stream = stream
        self.subject = subject  # without the token of the process
        self.seed = seed
        self.attempts: list[Attempt] = []
        self.reads: list[LeaderRead] = []
        self.leaders: list[tuple[int, str]] = []  # when another leader was seen
        self.highest = 0  # sequence that was acknowledged
        self.publishing = True
        self.reading = True
        self.acknowledged = 0

    def acknowledge(self, sequence: int) -> None:
        """An acknowledgement came."""
        self.acknowledged += 1
        self.highest = max(self.highest, sequence)


class Publisher:
    """One process."""

    def __init__(self, number: int, shared: Processes, rate: float) -> None:
        self._number = number
        self._shared = shared
        self._rate = rate
        self._node = number % shared.nodes
        self._random = Random(f"publisher {shared.seed} {number}")
        self._inbox = f"_INBOX.{shared.stream}.P{number}"
        self._connection: NodeConnection | None = None
        self._attempts: list[Attempt] = []  # by the token of the reply subject
        self._open: dict[int, Attempt] = {}  # not answered yet, in the order of sending
        self._again: deque[tuple[int, int]] = deque()  # counters to publish again, and the attempts they had
        self._tries: dict[int, int] = {}
        self._counter = 0

    @property
    def unanswered(self) -> int:
        return len(self._open)

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
                    room = MOST_UNANSWERED - len(self._open)
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
                self._connection = await NodeConnection.open(url, f"{self._inbox}.*", self._answered)
        if self._connection is None:
            self._node = self._random.randrange(self._shared.nodes)
            await asyncio.sleep(RECONNECT_S)

    def _publish(self, count: int) -> None:
        if self._connection is None or count <= 0:
            return
        written: list[bytes] = []
        subject = f"{self._shared.subject}.{self._number}"
        for counter in self._next_counters(count):
            attempt = Attempt(self._number, counter, self._node, time.monotonic_ns())
            token = len(self._attempts)
            self._attempts.append(attempt)
            self._shared.attempts.append(attempt)
            self._open[token] = attempt
            name = attempt.id
            headers = [("Nats-Msg-Id", name)]
            written.append(HPub.make(subject, headers, name.encode(), f"{self._inbox}.{token}").raw)
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
            if now - oldest.invoked < UNANSWERED_NS:
                break
            del self._open[token]
            self._publish_again(oldest)
        connection = self._connection
        if connection is not None and not connection.is_open:
            self._drop()
        elif connection is not None and self._open:
            oldest = next(iter(self._open.values()))
            if now - max(oldest.invoked, connection.heard) > SILENT_NS:
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
        tries = self._tries.get(attempt.counter, 1)
        if attempt.counter % 2 == 0 and tries < ATTEMPTS:
            self._again.append((attempt.counter, tries))

    def _answered(self, message: Message, now: int) -> None:
        token = int(message.subject.rpartition(".")[2])
        attempt = self._attempts[token]
        was_open = self._open.pop(token, None) is not None
        if attempt.outcome is AttemptOutcome.OK:
            return
        if message.header_block.startswith(NO_RESPONDERS):
            attempt.completed = now
            attempt.outcome = AttemptOutcome.FAILED
            attempt.error = "503: no server took it"
            return
        answer = _object(message.payload)
        sequence = answer.get("seq")
        attempt.completed = now
        if "error" in answer or not isinstance(sequence, int) or not sequence:
            attempt.error = str(answer.get("error", answer))[:200]
            if was_open:
                self._publish_again(attempt)
            return
        attempt.outcome = AttemptOutcome.OK
        attempt.error = ""
        attempt.sequence = sequence
        attempt.duplicate = answer.get("duplicate") is True
        self._shared.acknowledge(sequence)


class LeaderReader:
    """Asks through one node for messages that were acknowledged, and who leads."""

    def __init__(self, node: int, shared: Processes) -> None:
        self._node = node
        self._shared = shared
        self._inbox = f"_INBOX.{shared.stream}.R{node}"
        self._random = Random(f"reader {shared.seed} {node}")
        self._asked: dict[str, tuple[int, int]] = {}  # token -> when, which sequence
        self._count = 0
        self._asked_info = 0.0

    async def run(self) -> None:
        """Until ``reading`` ends."""
        shared = self._shared
        connection: NodeConnection | None = None
        try:
            while shared.reading:
                url = shared.url_of(self._node)
                if connection is None or not connection.is_open:
                    connection = None
                    with suppress(OSError):
                        connection = (
                            None
                            if not url
                            else await NodeConnection.open(url, f"{self._inbox}.*", self._answered)
                        )
                if connection is not None:
                    self._ask(connection)
                await asyncio.sleep(1 / READS_PER_S)
        finally:
            if connection is not None:
                connection.close()

    def _ask(self, connection: NodeConnection) -> None:
        highest = self._shared.highest
        if connection.is_congested or not highest:
            return
        # Mostly the newest one, which a stale leader lacks first.
        sequence = highest if self._random.random() < 0.8 else self._random.randint(1, highest)
        token = str(self._count)
        self._count += 1
        self._asked[token] = (time.monotonic_ns(), sequence)
        api = f"$JS.API.STREAM.MSG.GET.{self._shared.stream}"
        connection.send(Pub.make(api, b'{"seq":%d}' % sequence, f"{self._inbox}.{token}").raw)
        now = time.monotonic()
        if now - self._asked_info > INFO_EVERY_S:
            self._asked_info = now
            connection.send(
                Pub.make(f"$JS.API.STREAM.INFO.{self._shared.stream}", b"", f"{self._inbox}.info").raw
            )

    def _answered(self, message: Message, now: int) -> None:
        token = message.subject.rpartition(".")[2]
        answer = _object(message.payload)
        if token == "info":
            leader = (answer.get("cluster") or {}).get("leader")
            leaders = self._shared.leaders
            if leader and (not leaders or leaders[-1][1] != leader):
                leaders.append((now, str(leader)))
            return
        asked = self._asked.pop(token, None)
        if asked is None:
            return
        invoked, sequence = asked
        if "message" in answer:
            found = base64.b64decode(answer["message"].get("data", "")).decode("utf-8", "replace")
            self._shared.reads.append(LeaderRead(invoked, now, self._node, sequence, found))
        elif (answer.get("error") or {}).get("err_code") == NO_MESSAGE:
            self._shared.reads.append(LeaderRead(invoked, now, self._node, sequence, None))


NO_MESSAGE = 10037  # err_code: "no message found"


def _object(payload: bytes) -> dict[str, Any]:
    try:
        found = json.loads(payload)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
