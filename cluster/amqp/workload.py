"""The workload: processes that publish to a quorum queue with confirms, and consumers that acknowledge.

The message is the body and the message id. It is mandatory, so what no queue took is returned. A consumer
acknowledges most of what it gets, requeues some, leaves some without an answer, and goes to another node from
time to time; it is slower than the publishers, so the queue holds messages when faults strike.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from random import Random

from plumbline.bounds import CLUSTER_REMARKS
from plumbline.cluster.amqp.connection import CHANNEL, ChannelConnection
from plumbline.cluster.amqp.history import Delivery, Settlement
from plumbline.cluster.history import Attempt, AttemptOutcome, message_text
from plumbline.cluster.publishing import RECONNECT_S, TICK_S, Processes, Publisher, UrlOf
from plumbline.wire.amqp import Method
from plumbline.wire.units import SECOND

PREFETCH = 100
REQUEUES = 0.03  # of the deliveries that come for the first time
LEAVES = 0.01
STAYS_S = 2.0, 6.0  # with one node
DRAIN_PREFETCH = 1000
QUIET_S = 1.0  # without a delivery, before the queue may be empty
LATE_S = 30.0  # the same, while a message is missing
PERSISTENT = 2


class QueueProcesses(Processes):
    """``deliveries`` and ``answers`` are in the history, too."""

    def __init__(self, nodes: int, url_of: UrlOf, queue: str, seed: int) -> None:
        super().__init__(nodes, url_of, seed)
        self.queue = queue
        self.deliveries: list[Delivery] = []
        self.answers: list[str] = []  # confirms that answer nothing
        self.unconfirmed: list[Attempt] = []  # on channels that are open at the end
        self.consuming = True
        self._channels = 0

    def next_channel(self) -> int:
        """A number for one more channel of a consumer."""
        self._channels += 1
        return self._channels


class QueuePublisher(Publisher[ChannelConnection]):
    """Its answers are confirms. It waits for them as long as its channel is open."""

    unanswered_ns = 60 * SECOND
    silent_ns = 60 * SECOND

    def __init__(self, number: int, shared: QueueProcesses, rate: float) -> None:
        super().__init__(number, shared, rate)
        self._queue = shared
        self._tags: dict[int, int] = {}  # delivery tag -> token, of this connection
        self._tag = 0

    async def _connect(self, url: str) -> ChannelConnection:
        setup = [Method.make("confirm.select", CHANNEL)]
        self._drop()  # confirms come on the channel of the publish only
        self._tags, self._tag = {}, 0
        return await ChannelConnection.open(url, setup, self._answered)

    def _bytes_of(self, attempt: Attempt, token: int) -> bytes:
        self._tag += 1
        self._tags[self._tag] = token
        return Method.make(
            "basic.publish",
            CHANNEL,
            routing_key=self._queue.queue,
            mandatory=True,
            properties={"delivery_mode": PERSISTENT, "message_id": attempt.id},
            body=attempt.id.encode(),
        ).raw

    def _give_up_old(self) -> None:
        now = time.monotonic_ns()
        if self._connection is not None and self._connection.is_open:
            self._queue.unconfirmed += [
                one for one in self._open.values() if now - one.invoked >= self.unanswered_ns
            ]
        super()._give_up_old()

    def _answered(self, method: Method, now: int) -> None:
        match method.method:
            case "basic.ack" | "basic.nack":
                self._confirmed(method, now)
            case "basic.return":
                self._returned(message_text(method.body))
            case _:
                pass

    def _confirmed(self, method: Method, now: int) -> None:
        tag = method.arguments["delivery_tag"]
        if tag not in self._tags and len(self._queue.answers) < CLUSTER_REMARKS:
            known = "a second time" if 0 < tag <= self._tag else "and it was never sent"
            self._queue.answers.append(f"{method.method} confirms publish {tag} of a channel {known}")
        tags = [one for one in self._tags if one <= tag] if method.arguments["multiple"] else [tag]
        for one in tags:
            attempt = self._attempts[self._tags.pop(one)] if one in self._tags else None
            if attempt is None:
                continue
            attempt.completed = now
            if method.method == "basic.nack":
                attempt.error = "basic.nack"
            elif attempt.outcome is not AttemptOutcome.FAILED:
                attempt.outcome = AttemptOutcome.OK
                attempt.error = ""
                self._shared.acknowledged += 1
        for token in [token for token, one in self._open.items() if one.completed]:
            del self._open[token]

    def _returned(self, message: str) -> None:
        """Its confirm comes next, and says nothing more."""
        for attempt in self._open.values():
            if attempt.id == message:
                attempt.outcome = AttemptOutcome.FAILED
                attempt.error = "basic.return: no queue took it"


class QueueConsumer:
    """Consumes from one node after another until ``consuming`` ends."""

    def __init__(self, number: int, shared: QueueProcesses, rate: float) -> None:
        self._shared = shared
        self._rate = rate
        self._random = Random(f"consumer {shared.seed} {number}")
        self._waiting: list[tuple[Delivery, int]] = []  # deliveries without an answer, and their tags
        self._channel = 0
        self._node = 0

    async def run(self) -> None:
        shared = self._shared
        while shared.consuming:
            self._node = self._random.randrange(shared.nodes)
            if url := shared.url_of(self._node):
                with suppress(OSError):
                    await self._consume(url, self._random.uniform(*STAYS_S))
            await asyncio.sleep(RECONNECT_S)

    async def _consume(self, url: str, for_s: float) -> None:
        self._channel = self._shared.next_channel()
        self._waiting = []
        connection = await ChannelConnection.open(url, consuming(self._shared.queue, PREFETCH), self._take)
        ends = time.monotonic() + for_s
        credit = 0.0
        try:
            while self._shared.consuming and connection.is_open and time.monotonic() < ends:
                self._shared.refuse_flood(len(self._shared.deliveries))
                credit = min(credit + self._rate * TICK_S, PREFETCH)
                count = min(int(credit), len(self._waiting))
                credit -= count
                answers = [self._settle(*self._waiting.pop(0)) for _ in range(count)]
                connection.send(b"".join(answers))
                await asyncio.sleep(TICK_S)
        finally:
            connection.close()

    def _take(self, method: Method, now: int) -> None:
        if method.method == "basic.deliver":
            one = delivery(method, self._channel, self._node, now)
            self._shared.deliveries.append(one)
            self._waiting.append((one, method.arguments["delivery_tag"]))

    def _settle(self, one: Delivery, tag: int) -> bytes:
        chance = self._random.random() if not one.redelivered else 1.0
        if chance < REQUEUES:
            one.settlement = Settlement.REQUEUE
            return Method.make("basic.nack", CHANNEL, delivery_tag=tag, requeue=True).raw
        if chance < REQUEUES + LEAVES:
            return b""
        one.settlement = Settlement.ACK
        return Method.make("basic.ack", CHANNEL, delivery_tag=tag).raw


def consuming(queue: str, prefetch: int) -> list[Method]:
    """The setup of a consumer's channel."""
    return [
        Method.make("basic.qos", CHANNEL, prefetch_count=prefetch),
        Method.make("basic.consume", CHANNEL, queue=queue, consumer_tag="plumbline"),
    ]


def delivery(method: Method, channel: int, node: int, now: int) -> Delivery:
    """A basic.deliver as it goes into the history."""
    redelivered = bool(method.arguments["redelivered"])
    return Delivery(message_text(method.body), channel, node, now, redelivered)


class QueueDrain:
    """Takes and acknowledges everything through one node, until the queue is empty."""

    def __init__(self, shared: QueueProcesses, node: int) -> None:
        self._shared = shared
        self._node = node
        self._channel = shared.next_channel()
        self._stated: list[int] = []  # message counts
        self._tag = 0  # of the latest delivery
        self._acknowledged = 0  # the latest tag
        self._last = time.monotonic()

    async def run(self, url: str) -> None:
        """Returns when it is empty. Raises ``OSError`` (``TimeoutError``) if the node or the queue does not
        answer, ``TargetUnreachable`` if it floods."""
        setup = consuming(self._shared.queue, DRAIN_PREFETCH)
        connection = await ChannelConnection.open(url, setup, self._take)
        count = Method.make("queue.declare", CHANNEL, queue=self._shared.queue, passive=True).raw
        quiet = QUIET_S
        try:
            while True:
                await asyncio.sleep(TICK_S)
                self._shared.refuse_flood(len(self._shared.deliveries))
                if not connection.is_open:
                    raise ConnectionResetError("; ".join(connection.errors) or "the connection was lost")
                if self._tag > self._acknowledged:
                    self._acknowledged = self._tag
                    ack = Method.make("basic.ack", CHANNEL, delivery_tag=self._tag, multiple=True)
                    connection.send(ack.raw)
                elif time.monotonic() - self._last > quiet:
                    if self._stated and self._stated.pop() == 0:
                        if not self._missing() or quiet == LATE_S:
                            return
                        quiet = LATE_S  # what other consumers had may come late
                    connection.send(count)
                    self._last = time.monotonic()
        finally:
            connection.close()

    def _take(self, method: Method, now: int) -> None:
        if method.method == "queue.declare-ok":
            self._stated = [method.arguments["message_count"]]
        elif method.method == "basic.deliver":
            self._last = time.monotonic()
            self._stated = []
            self._tag = method.arguments["delivery_tag"]
            one = delivery(method, self._channel, self._node, now)
            one.settlement = Settlement.ACK
            self._shared.deliveries.append(one)

    def _missing(self) -> bool:
        """Whether a confirmed message did not come, or one that came was never acknowledged."""
        came = {one.message for one in self._shared.deliveries}
        settled = {one.message for one in self._shared.deliveries if one.settlement is Settlement.ACK}
        confirmed = {one.id for one in self._shared.attempts if one.outcome is AttemptOutcome.OK}
        return bool(came - settled or confirmed - came)
