"""The workload: processes that publish to a replicated stream, and readers of what was acknowledged.

A message is its process and counter; that is the payload, and its ``Nats-Msg-Id``. Of the publishes without
an answer, those with an even counter are published again with the same id.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from random import Random

from plumbline.cluster.history import Attempt, AttemptOutcome, message_text
from plumbline.cluster.nats.answers import read_answer
from plumbline.cluster.nats.connection import Message, NodeConnection
from plumbline.cluster.nats.history import LeaderRead
from plumbline.cluster.nats.reading import number_in
from plumbline.cluster.publishing import Processes, Publisher, UrlOf
from plumbline.wire.nats import HPub, Pub
from plumbline.wire.nats.jetstream import NO_MESSAGE_FOUND

READS_PER_S = 20.0
INFO_EVERY_S = 0.5
INFO = 0  # instead of a sequence: who leads is asked
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
        token = number_in(message.subject.rpartition(".")[2])
        if not 0 <= token < len(self._attempts):
            return  # it answers nothing
        attempt = self._attempts[token]
        was_open = self._open.pop(token, None) is not None
        if attempt.outcome is AttemptOutcome.OK:
            return
        if message.header_block.startswith(NO_RESPONDERS):
            attempt.completed = now
            attempt.outcome = AttemptOutcome.FAILED
            attempt.error = "503: no server took it"
            return
        answer = read_answer(message.payload)
        attempt.completed = now
        if answer.error is not None or answer.seq <= 0:
            attempt.error = str(answer.error or "an acknowledgement without a sequence")[:200]
            if was_open:
                self._publish_again(attempt)
            return
        attempt.outcome = AttemptOutcome.OK
        attempt.error = ""
        attempt.sequence = answer.seq
        attempt.duplicate = answer.duplicate
        self._stream.acknowledge(answer.seq)


class LeaderReader:
    """Asks through one node for messages that were acknowledged, and who leads."""

    def __init__(self, node: int, shared: StreamProcesses) -> None:
        self._node = node
        self._shared = shared
        self._inbox = f"_INBOX.{shared.stream}.R{node}"
        self._random = Random(f"reader {shared.seed} {node}")
        self._asked: dict[str, tuple[int, int]] = {}  # token -> when, which sequence or INFO
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
        self._request(connection, "STREAM.MSG.GET", b'{"seq":%d}' % sequence, sequence)
        now = time.monotonic()
        if now - self._asked_info > INFO_EVERY_S:
            self._asked_info = now
            self._request(connection, "STREAM.INFO", b"", INFO)

    def _request(self, connection: NodeConnection, api: str, request: bytes, what: int) -> None:
        token = str(self._count)
        self._count += 1
        self._asked[token] = (time.monotonic_ns(), what)
        subject = f"$JS.API.{api}.{self._shared.stream}"
        connection.send(Pub.make(subject, request, f"{self._inbox}.{token}").raw)

    def _answered(self, message: Message, now: int) -> None:
        token = message.subject.rpartition(".")[2]
        asked = self._asked.pop(token, None)
        if asked is None:
            return
        answer = read_answer(message.payload)
        invoked, sequence = asked
        if sequence == INFO:
            leaders = self._shared.leaders
            if answer.leader and (not leaders or leaders[-1][1] != answer.leader):
                leaders.append((now, answer.leader))
        elif answer.message is not None:
            found = message_text(answer.message.data)
            self._shared.reads.append(LeaderRead(invoked, now, self._node, sequence, found))
        elif answer.err_code == NO_MESSAGE_FOUND:
            self._shared.reads.append(LeaderRead(invoked, now, self._node, sequence, None))
