"""Requests to one node, and reading the copy of the stream that the node itself has.

A direct get is answered by a replica, and by that of the node to which the client is connected, if that has
one: nats-server prefers members of a queue group that are local. Whether all answers came from the own copy
is checked by the number of messages that the node states itself (``/jsz``).
Source: ADR-31.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

from plumbline.bounds import CLUSTER_COPY_SEQUENCES
from plumbline.cluster.history import message_text
from plumbline.cluster.nats.answers import Answer, read_answer
from plumbline.cluster.nats.connection import Message, NodeConnection
from plumbline.cluster.nats.history import NodeLog
from plumbline.wire.nats import HPub, Pub

ANSWERED_WITHIN_S = 5.0
WINDOW = 256  # requests without an answer
NOT_FOUND = b"NATS/1.0 404"
STATUS = b"NATS/1.0 "  # a header block with a status; that of a message has none: "NATS/1.0\r\n"
READ_AGAIN = 3  # times, what was not answered

OwnCopy = tuple[int, int, int]  # first and last sequence, number of messages


class Requests:
    """Asks one node. Every request has a reply subject of its own."""

    def __init__(self, inbox: str) -> None:
        self._inbox = inbox
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        self._count = 0
        self._connection: NodeConnection | None = None

    async def connect(self, url: str) -> None:
        """Raises ``OSError``."""
        self._connection = await NodeConnection.open(url, f"{self._inbox}.*", self._answered)

    def close(self) -> None:
        """Idempotent."""
        if self._connection is not None:
            self._connection.close()

    async def message(
        self,
        subject: str,
        payload: bytes,
        within: float = ANSWERED_WITHIN_S,
        headers: Iterable[tuple[str, str]] = (),
    ) -> Message:
        """The answer. Raises ``TimeoutError``."""
        assert self._connection is not None
        token = str(self._count)
        self._count += 1
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[token] = answer
        reply, fields = f"{self._inbox}.{token}", list(headers)
        pub = HPub.make(subject, fields, payload, reply) if fields else Pub.make(subject, payload, reply)
        self._connection.send(pub.raw)
        try:
            async with asyncio.timeout(within):
                return await answer
        finally:
            self._waiting.pop(token, None)

    async def api(self, name: str, request: object = None, within: float = ANSWERED_WITHIN_S) -> Answer:
        """The answer of ``$JS.API.<name>``. Raises ``TimeoutError``."""
        payload = b"" if request is None else json.dumps(request).encode()
        return read_answer((await self.message(f"$JS.API.{name}", payload, within)).payload)

    def _answered(self, message: Message, now: int) -> None:
        waiting = self._waiting.get(message.subject.rpartition(".")[2])
        if waiting is not None and not waiting.done():
            waiting.set_result(message)


def number_in(text: str) -> int:
    """A decimal number of at most 18 digits; -1 for any other text."""
    return int(text) if len(text) <= 18 and text.isascii() and text.isdecimal() else -1


def status_of(message: Message) -> str:
    """The status that its header block begins with, and what follows."""
    return message.header_block[len(STATUS) :].decode(errors="replace").strip()


async def stated_copy(url: str, stream: str) -> OwnCopy | None:
    """What is answered to STREAM.INFO through this node; None if nothing is."""
    requests = Requests(f"_INBOX.{stream}.I")
    try:
        await requests.connect(url)
        state = (await requests.api(f"STREAM.INFO.{stream}")).state
    except OSError:
        return None
    finally:
        requests.close()
    return (state.first_seq, state.last_seq, state.messages) if state is not None else None


async def unready(node: int, url: str, stream: str, own: OwnCopy, *, keeps_all: bool) -> str:
    """Why this node does not serve the stream yet: no leader, replicas behind; "" if it does. ``keeps_all``:
    the last message cannot have been removed."""
    requests = Requests(f"_INBOX.{stream}.U{node}")
    try:
        await requests.connect(url)
        info = await requests.api(f"STREAM.INFO.{stream}")
        if info.cluster is None or not info.leader:
            return "the stream has no leader"
        behind = [one.name for one in info.cluster.replicas or () if not one.current]
        if behind:
            return f"not current: {', '.join(behind)}"
        _, last, count = own
        if count:
            answer = await requests.message(f"$JS.API.DIRECT.GET.{stream}", b'{"seq":%d}' % last)
            is_gone = answer.header_block.startswith(NOT_FOUND) and not keeps_all
            if answer.header_block.startswith(STATUS) and not is_gone:
                return f"a direct get is answered {status_of(answer)}"
    except OSError as error:
        return str(error) or "no answer"
    finally:
        requests.close()
    return ""


async def read_copy(node: int, url: str, stream: str, own: OwnCopy) -> NodeLog:
    """Every message of the copy of a node. ``own``: its first and last sequence and its number of messages,
    as the node states them."""
    first, last, count = own
    if last - first >= CLUSTER_COPY_SEQUENCES:
        problem = f"it states sequences {first} to {last}, which are too many to be read"
        return NodeLog(node, {}, complete=False, problem=problem)
    requests = Requests(f"_INBOX.{stream}.D{node}")
    messages: dict[int, str] = {}
    try:
        await requests.connect(url)
        wanted = list(range(first, last + 1)) if count else []
        for _ in range(READ_AGAIN):
            wanted = await _read(requests, stream, wanted, messages)
            if not wanted:
                break
    except OSError as error:
        return NodeLog(node, messages, complete=False, problem=str(error) or "no answer")
    finally:
        requests.close()
    if wanted:
        return NodeLog(node, messages, complete=False, problem=f"{len(wanted)} reads were not answered")
    if len(messages) != count:
        problem = f"it has {count} messages, and {len(messages)} were read through it"
        return NodeLog(node, messages, complete=False, problem=problem)
    return NodeLog(node, messages)


async def _read(requests: Requests, stream: str, wanted: list[int], messages: dict[int, str]) -> list[int]:
    """Those that were not answered."""
    free = asyncio.Semaphore(WINDOW)
    unanswered: list[int] = []

    async def one(sequence: int) -> None:
        try:
            answer = await requests.message(f"$JS.API.DIRECT.GET.{stream}", b'{"seq":%d}' % sequence)
        except TimeoutError:
            unanswered.append(sequence)
            return
        finally:
            free.release()
        block = answer.header_block
        if not block.startswith(STATUS):
            messages[sequence] = message_text(answer.payload)
        elif not block.startswith(NOT_FOUND):
            unanswered.append(sequence)

    async with asyncio.TaskGroup() as group:
        for sequence in wanted:
            await free.acquire()
            group.create_task(one(sequence))
    return sorted(unanswered)
