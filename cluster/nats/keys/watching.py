"""Clients that watch a bucket: an ordered consumer, made again after the last revision that was seen.

It is made again when its connection is lost, when it is silent, and when its consumer sequence has a gap.
Sources: ADR-8, "Watch"; ADR-17, "Behavior".
"""

from __future__ import annotations

import asyncio
import json
import time
from random import Random

from plumbline.cluster.history import AttemptOutcome, message_text
from plumbline.cluster.nats.answers import read_answer
from plumbline.cluster.nats.connection import Message, NodeConnection
from plumbline.cluster.nats.keys.history import KeyWatch, WatchedUpdate
from plumbline.cluster.nats.keys.workload import KeyProcesses
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats import Pub, Sub
from plumbline.wire.nats.jetstream import AckSubject
from plumbline.wire.units import SECOND

WATCHERS = 2
HEARTBEAT_NS = SECOND // 2
SILENT_NS = 3 * SECOND  # without a message or a heartbeat, the consumer is made again
CREATED_WITHIN_NS = 3 * SECOND
RETRY_S = 0.2
TICK_S = 0.02
ALL_WITHIN_S = 30.0  # after the faults, the last acknowledged update has to come
IDLE = b"NATS/1.0 100"
ANSWERS = 2  # sid; 1 is for deliveries: only a subscription to exactly the deliver_subject counts


class KeyWatcher:
    """One client with one watch."""

    def __init__(self, number: int, shared: KeyProcesses) -> None:
        self._shared = shared
        self._node = number % shared.processes.nodes
        self._random = Random(f"watcher {shared.processes.seed} {number}")
        self._inbox = f"_INBOX.{shared.stream}.N{number}"
        self._connection: NodeConnection | None = None
        self._consumers = 0  # that were asked for so far
        self._created = False  # the latest one
        self._expected = 1  # consumer sequence
        self._heard = 0
        self.watch = KeyWatch([])

    async def run(self) -> None:
        """Until reading ends, and the last acknowledged update came, or it does not come for long."""
        deadline = 0.0
        try:
            while True:
                await self._watching()
                if not self._shared.watching:
                    deadline = deadline or time.monotonic() + ALL_WITHIN_S
                    if self._has_all() or time.monotonic() > deadline:
                        break
                await asyncio.sleep(TICK_S)
            if not self._has_all() and not self._is_alive():
                self.watch.problem = "its consumer could not be made again"
        finally:
            self._drop()

    def _has_all(self) -> bool:
        acknowledged = (one.revision for one in self._shared.updates if one.outcome is AttemptOutcome.OK)
        return self.watch.last >= max(acknowledged, default=0)

    def _is_alive(self) -> bool:
        return self._created and time.monotonic_ns() - self._heard < SILENT_NS

    async def _watching(self) -> None:
        """Makes the consumer again if it is gone or silent."""
        connection, now = self._connection, time.monotonic_ns()
        waits_ns = SILENT_NS if self._created else CREATED_WITHIN_NS
        if connection is not None and connection.is_open and now - self._heard < waits_ns:
            return
        self._drop()
        url = self._shared.processes.url_of(self._node)
        try:
            if not url:
                raise ConnectionRefusedError
            self._consumers += 1
            self._connection = await NodeConnection.open(url, f"{self._prefix}.D", self._received)
        except OSError:
            self._node = self._random.randrange(self._shared.processes.nodes)
            await asyncio.sleep(RETRY_S)
        else:
            self._create(self._connection)

    def _drop(self) -> None:
        self._created = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._node = self._random.randrange(self._shared.processes.nodes)

    @property
    def _prefix(self) -> str:
        """Of the subjects of the latest consumer: nothing else comes on its connection."""
        return f"{self._inbox}.{self._consumers}"

    def _create(self, connection: NodeConnection) -> None:
        self._created, self._expected, self._heard = False, 1, time.monotonic_ns()
        config = {
            "deliver_subject": f"{self._prefix}.D",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.watch.last + 1,
            "ack_policy": "none",
            "max_deliver": 1,
            "mem_storage": True,
            "num_replicas": 1,
            "flow_control": True,
            "idle_heartbeat": HEARTBEAT_NS,
        }
        request = json.dumps({"stream_name": self._shared.stream, "config": config}).encode()
        api = f"$JS.API.CONSUMER.CREATE.{self._shared.stream}"
        answer = f"{self._prefix}.A"
        connection.send(Sub.make(answer, ANSWERS).raw + Pub.make(api, request, answer).raw)

    def _received(self, message: Message, now: int) -> None:
        if message.subject == f"{self._prefix}.A":
            self._created = read_answer(message.payload).error is None and not message.header_block
            return
        self._heard = now
        if message.header_block.startswith(IDLE):
            if message.reply and self._connection is not None:  # flow control
                self._connection.send(Pub.make(message.reply).raw)
            return
        try:
            delivered = AckSubject.parse(message.reply or "")
        except ProtocolError:
            return
        if delivered.consumer_seq != self._expected:
            self._drop()  # a gap
            return
        self._expected += 1
        key, value = message.subject.rpartition(".")[2], message_text(message.payload)
        self.watch.updates.append(WatchedUpdate(key, value, delivered.stream_seq, self._consumers, now))
