"""Clients of one pull consumer: they ask for batches, acknowledge or do not, and ask what it states.

Each pull request has a subscription of its own, so every delivery names the request that it answers. Of the
deliveries, some are left without an ack, some get one without a reply subject, most a double ack.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from random import Random

from plumbline.cluster.history import message_text
from plumbline.cluster.nats.answers import Answer, read_answer
from plumbline.cluster.nats.connection import Message, NodeConnection
from plumbline.cluster.nats.consumers.history import AckKind, ConsumerState, PullDelivery
from plumbline.cluster.nats.reading import Requests
from plumbline.cluster.publishing import Processes
from plumbline.wire.errors import ErrorKind, ProtocolError
from plumbline.wire.nats import Pub, Sub, Unsub
from plumbline.wire.units import SECOND

CLIENTS = 3
CONSUMER = "PLC"
PROCESS = 0  # the publisher whose messages it takes
ACK_WAIT_NS = 3 * SECOND
BATCH = 50
EXPIRES_NS = SECOND
PULLED_WITHIN_NS = 3 * SECOND  # without a status or a whole batch, a request is given up
SILENT_NS = 3 * SECOND  # without any byte, a client goes to another node
LEFT, PLAIN = 0.1, 0.2  # of the deliveries: without an ack; with one that has no answer
TICK_S = 0.02
RETRY_S = 0.2
INFO_EVERY_NS = SECOND // 5
LOOK_EVERY_S = 0.3
LOOKS = 2  # one after another with nothing left
QUIET_S = 15.0  # without a delivery, several times the ack wait: nothing comes any more
DRAINED_WITHIN_S = 120.0
UNANSWERED_S = 15.0  # without an answer to CONSUMER.INFO, it cannot be drained
STATUS = b"NATS/1.0 "  # a header block with a status


class ConsumerProcesses:
    """What the clients share."""

    def __init__(self, processes: Processes, stream: str, subject: str) -> None:
        self.processes = processes  # of the same run
        self.stream = stream
        self.subject = subject  # without the token of the process
        self.deliveries: list[PullDelivery] = []
        self.states: list[ConsumerState] = []
        self.consuming = True
        self.draining = False  # every delivery gets a double ack

    def config(self, replicas: int) -> dict[str, object]:
        """Of the consumer, for CONSUMER.DURABLE.CREATE."""
        config = {
            "durable_name": CONSUMER,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT_NS,
            "filter_subject": f"{self.subject}.{PROCESS}",
            "replay_policy": "instant",
            "num_replicas": replicas,
        }
        return {"stream_name": self.stream, "config": config}


class PullClient:
    """One client. It has one connection at a time, and one pull request."""

    def __init__(self, number: int, shared: ConsumerProcesses) -> None:
        self._shared = shared
        self._node = number % shared.processes.nodes
        self._inbox = f"_INBOX.{shared.stream}.K{number}.{'D' if shared.draining else 'W'}"
        self._random = Random(f"consumer {shared.processes.seed} {number}")
        self._connection: NodeConnection | None = None
        self._sid = 1  # of the latest pull request; 1 is for answers
        self._pulled: dict[str, int] = {}  # sid -> when, on this connection
        self._missing = 0  # messages of the latest request that did not come
        self._next_ns = 0  # when to ask again
        self._asked_ns = 0  # for the state
        self._requests = 0
        self._acks: dict[str, PullDelivery] = {}  # double acks without an answer
        self._infos: dict[str, int] = {}

    async def run(self) -> None:
        """Until ``consuming`` ends."""
        try:
            while self._shared.consuming:
                await self._connected()
                self._shared.processes.refuse_flood(len(self._shared.deliveries))
                if self._connection is not None:
                    self._step(self._connection, time.monotonic_ns())
                await asyncio.sleep(TICK_S)
        finally:
            self._drop()

    async def _connected(self) -> None:
        """Connects to a node, if there is no connection. Tries once."""
        if self._connection is not None:
            if self._connection.is_open and time.monotonic_ns() - self._connection.heard < SILENT_NS:
                return
            self._drop()
        url = self._shared.processes.url_of(self._node)
        with suppress(OSError):
            if url:
                self._connection = await NodeConnection.open(url, f"{self._inbox}.*", self._received)
        if self._connection is None:
            self._node = self._random.randrange(self._shared.processes.nodes)
            await asyncio.sleep(RETRY_S)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._node = self._random.randrange(self._shared.processes.nodes)
        self._pulled.clear()
        self._acks.clear()
        self._infos.clear()
        self._missing = 0

    def _step(self, connection: NodeConnection, now: int) -> None:
        if now - self._asked_ns > INFO_EVERY_NS:
            self._asked_ns = now
            api = f"$JS.API.CONSUMER.INFO.{self._shared.stream}.{CONSUMER}"
            connection.send(Pub.make(api, b"", f"{self._inbox}.{self._token(self._infos, now)}").raw)
        is_over = not self._missing or now - self._pulled.get(str(self._sid), 0) > PULLED_WITHIN_NS
        if not is_over or now < self._next_ns:
            return
        ended = Unsub.make(self._sid).raw if str(self._sid) in self._pulled else b""
        self._sid += 1
        self._pulled[str(self._sid)] = now
        self._missing = BATCH
        reply = f"{self._inbox}.P.{self._sid}"
        request = b'{"batch":%d,"expires":%d}' % (BATCH, EXPIRES_NS)
        api = f"$JS.API.CONSUMER.MSG.NEXT.{self._shared.stream}.{CONSUMER}"
        connection.send(ended + Sub.make(reply, self._sid).raw + Pub.make(api, request, reply).raw)

    def _token(self, waiting: dict[str, int], value: int) -> str:
        self._requests += 1
        waiting[str(self._requests)] = value
        return str(self._requests)

    # -- what comes --------------------------------------------------------------------------

    def _received(self, message: Message, now: int) -> None:
        pulled = self._pulled.get(message.sid)
        if pulled is not None:
            self._delivered(message, now, pulled)
            return
        token = message.subject.rpartition(".")[2]
        confirmed = self._acks.pop(token, None)
        if confirmed is not None and not message.header_block.startswith(STATUS):
            confirmed.confirmed = now
        invoked = self._infos.pop(token, None)
        if invoked is not None:
            answer = read_answer(message.payload)
            if answer.leader and answer.ack_floor is not None:
                floor = answer.ack_floor.stream_seq
                self._shared.states.append(ConsumerState(invoked, now, self._node, answer.leader, floor))

    def _delivered(self, message: Message, now: int, pulled: int) -> None:
        if message.header_block.startswith(STATUS):  # the request has ended
            if message.sid == str(self._sid):
                self._missing = 0
                is_late = message.header_block.startswith(b"NATS/1.0 408")
                self._next_ns = now if is_late else now + int(RETRY_S * SECOND)
            return
        if message.sid == str(self._sid):
            self._missing -= 1
        reply = message.reply or ""
        count, sequence = _place(reply)
        text = message_text(message.payload)
        one = PullDelivery(sequence, text, self._node, pulled, now, count)
        self._shared.deliveries.append(one)
        chance = 1.0 if self._shared.draining else self._random.random()
        if chance < LEFT or self._connection is None:
            return
        one.settlement = AckKind.ACK if chance < LEFT + PLAIN else AckKind.DOUBLE
        one.acknowledged = time.monotonic_ns()
        answer = None
        if one.settlement is AckKind.DOUBLE:
            self._requests += 1
            self._acks[str(self._requests)] = one
            answer = f"{self._inbox}.{self._requests}"
        self._connection.send(Pub.make(reply, b"+ACK", answer).raw)


async def drain(shared: ConsumerProcesses) -> tuple[ConsumerState | None, str]:
    """Takes everything that is left. What the consumer states then; and why that was not possible, or ""."""
    shared.draining = shared.consuming = True
    clients = [asyncio.create_task(PullClient(number, shared).run()) for number in range(CLIENTS)]
    try:
        return await _await_drained(shared)
    finally:
        shared.consuming = False
        await asyncio.gather(*clients)


async def _await_drained(shared: ConsumerProcesses) -> tuple[ConsumerState | None, str]:
    began = answered = came = time.monotonic()
    count, looks, problem = len(shared.deliveries), 0, "no answer"
    last: ConsumerState | None = None
    node = 0
    while True:
        now = time.monotonic()
        shared.processes.refuse_flood(len(shared.deliveries))
        if len(shared.deliveries) != count:
            count, came = len(shared.deliveries), now
        invoked = time.monotonic_ns()
        node = (node + 1) % shared.processes.nodes
        state = await _state(shared, node)
        left = [state.num_pending, state.num_ack_pending]
        if state.leader and None not in left and state.ack_floor is not None:
            answered = now
            floor = state.ack_floor.stream_seq
            last = ConsumerState(invoked, time.monotonic_ns(), node, state.leader, floor)
            looks = looks + 1 if left == [0, 0] else 0
            problem = f"{left[0]} messages are pending and {left[1]} without an ack, by its own word"
            if looks >= LOOKS or now - came > QUIET_S:
                return last, ""
        elif state.error is not None:
            problem = str(state.error)
        if now - answered > UNANSWERED_S or now - began > DRAINED_WITHIN_S:
            return last, problem
        await asyncio.sleep(LOOK_EVERY_S)


async def _state(shared: ConsumerProcesses, node: int) -> Answer:
    """The answer to CONSUMER.INFO through this node; empty if there is none."""
    requests = Requests(f"_INBOX.{shared.stream}.L{node}")
    try:
        await requests.connect(shared.processes.url_of(node))
        return await requests.api(f"CONSUMER.INFO.{shared.stream}.{CONSUMER}")
    except OSError:
        return Answer()
    finally:
        requests.close()


def _place(reply: str) -> tuple[int, int]:
    """How often it was delivered, and its sequence in the stream. Source: ADR-15, ``$JS.ACK`` subjects:
    ``$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>``, and with domain
    and account before the stream and a random token at the end in the longer form. Raises ``ProtocolError``.
    """
    tokens = reply.split(".")
    first = 4 if len(tokens) == 9 else 6
    try:
        count, sequence = map(int, tokens[first : first + 2])
    except ValueError:
        raise ProtocolError(
            ErrorKind.ARGUMENTS, "the reply subject of a delivery is none of an ack"
        ) from None
    return count, sequence
