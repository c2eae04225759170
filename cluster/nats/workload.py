"""The workload: processes that publish to a replicated stream, and readers of what was acknowledged.

A message is its process and counter; that is the payload, and its ``Nats-Msg-Id``. Of the publishes without
an answer, those with an even counter are published again with the same id.
"""

from __future__ import annotations

import asyncio
import base64
import time
from contextlib import suppress
from random import Random

from plumbline.cluster.history import Attempt, AttemptOutcome
from plumbline.cluster.nats.connection import Message, NodeConnection
from plumbline.cluster.nats.history import LeaderRead
from plumbline.cluster.nats.reading import read_object
from plumbline.cluster.publishing import Processes, Publisher, UrlOf
from plumbline.wire.nats import HPub, Pub

READS_PER_S = 20.0
INFO_EVERY_S = 0.5
NO_RESPONDERS = b"NATS/1.0 503"  # status of a publish that no server took


class StreamProcesses(Processes):
    """``reads`` are in the history, too."""

    def __init__(self, nodes: int, url_of: UrlOf, stream: str, subject: str, seed: int) -> None:
        super().__init__(nodes, url_of, seed)
        self.stream = stream
        self.subject = subject  # without the token of the process
        self.reads: list[LeaderRead] = []
        self.highest = 0  # sequence that was acknowledged
        self.reading = True

    def acknowledge(self, sequence: int) -> None:
        """An acknowledgement came."""
        self.acknowledged += 1
        self.highest = max(self.highest, sequence)


class StreamPublisher(Publisher[NodeConnection]):
    """Its answers are those of the stream, with a token in the reply subject."""

    attempts_of_message = 3

    def __init__(self, number: int, shared: StreamProcesses, rate: float) -> None:
        super().__init__(number, shared, rate)
        self._stream = shared
        self._inbox = f"_INBOX.{shared.stream}.P{number}"

    async def _connect(self, url: str) -> NodeConnection:
        return await NodeConnection.open(url, f"{self._inbox}.*", self._answered)

    def _bytes_of(self, attempt: Attempt, token: int) -> bytes:
        name = attempt.id
        subject = f"{self._stream.subject}.{self.number}"
        return HPub.make(subject, [("Nats-Msg-Id", name)], name.encode(), f"{self._inbox}.{token}").raw

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
        answer = read_object(message.payload)
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
        self._stream.acknowledge(sequence)


class LeaderReader:
    """Asks through one node for messages that were acknowledged, and who leads."""

    def __init__(self, node: int, shared: StreamProcesses) -> None:
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
        answer = read_object(message.payload)
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
