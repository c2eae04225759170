"""The AMQP clients of a broker that is about to be killed: they note what they know, and nothing else.

A publisher sends unique persistent messages, many at a time, and waits for confirms. A consumer acknowledges;
since AMQP answers no basic.ack, it asks something else after it on the same channel: with that answer the
acknowledgements before it are done.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any
from urllib.parse import urlsplit

from plumbline.monitors.histories import HistoryDelivery, PublishAttempt, PublishOutcome, Settlement
from plumbline.wire.amqp import PROTOCOL_HEADER, Decoder, Method, Operation, Sender
from tests.durability.load import ANSWER_S, WINDOW, Lost

QUEUE = "k"
CHANNEL = 1
PREFETCH = 200
ASK_AFTER = 10  # acknowledgements


class Link:
    """One connection with one channel."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = Decoder(Sender.SERVER)
        self._ready: list[Operation] = []

    @classmethod
    async def open(cls, url: str, virtual_host: str = "/") -> Link:
        """Raises ``Lost``."""
        place = urlsplit(url)
        assert place.hostname is not None
        assert place.port is not None
        link = cls(*await asyncio.open_connection(place.hostname, place.port))
        try:
            await link._begin(virtual_host)
        except BaseException:
            link.close()
            raise
        return link

    async def _begin(self, virtual_host: str) -> None:
        self._writer.write(PROTOCOL_HEADER)
        await self.next()
        self.send("connection.start-ok", 0, mechanism="PLAIN", response="\0guest\0guest", locale="en_US")
        await self.next()
        self.send("connection.tune-ok", 0, channel_max=10, frame_max=131072, heartbeat=0)
        await self.ask("connection.open", 0, virtual_host=virtual_host)
        await self.ask("channel.open")
        await self.ask("queue.declare", queue=QUEUE, durable=True)

    def send(self, method: str, channel: int = CHANNEL, **arguments: Any) -> None:
        if not self._writer.is_closing():  # what it sent before it ended is still to be read
            self._writer.write(Method.make(method, channel, **arguments).raw)

    async def next(self) -> Method:
        """The next method. Raises ``Lost``."""
        while True:
            while self._ready:
                operation = self._ready.pop(0)
                if isinstance(operation, Method):
                    assert operation.method not in ("connection.close", "channel.close"), str(operation)
                    return operation
            try:
                async with asyncio.timeout(ANSWER_S):
                    data = await self._reader.read(1 << 16)
            except ConnectionError as error:
                raise Lost from error
            if not data:
                raise Lost
            self._ready += self._decoder.feed(data)

    async def ask(self, method: str, channel: int = CHANNEL, **arguments: Any) -> Method:
        """The answer; nothing else may be under way."""
        self.send(method, channel, **arguments)
        answer = await self.next()
        assert answer.method == f"{method}-ok", str(answer)
        return answer

    def close(self) -> None:
        self._writer.close()


class AmqpPublisher:
    """Publishes ``m0``, ``m1`` ... over all lives of the broker, each of them once."""

    def __init__(self, random: Random, each_life: int) -> None:
        self.published: list[PublishAttempt] = []
        self.answers = 0
        self._random = random
        self._each_life = each_life
        self._next = 0

    async def run(self, url: str, acknowledged: asyncio.Event) -> None:
        """One life of the broker; sets ``acknowledged`` at the first confirm."""
        waiting: dict[int, str] = {}
        left, tag = self._each_life, 0
        link: Link | None = None
        try:
            link = await Link.open(url)
            await link.ask("confirm.select")
            while True:
                while left and len(waiting) < WINDOW:
                    tag, left = tag + 1, left - 1
                    waiting[tag] = name = f"m{self._next}"
                    self._next += 1
                    body = name.encode() + b" " * self._random.choice((0, 5, 100, 5000))
                    link.send("basic.publish", routing_key=QUEUE, body=body, properties={"delivery_mode": 2})
                answer = await link.next()
                assert answer.method == "basic.ack", str(answer)
                upto, multiple = answer.arguments["delivery_tag"], answer.arguments["multiple"]
                for one in [one for one in waiting if one == upto or (multiple and one < upto)]:
                    self.published.append(PublishAttempt(waiting.pop(one)))
                    self.answers += 1
                acknowledged.set()
        except Lost:
            pass
        finally:
            if link is not None:
                link.close()
            self.published += [PublishAttempt(name, PublishOutcome.UNKNOWN) for name in waiting.values()]


class AmqpConsumer:
    """Consumes and acknowledges over all the lives of the broker."""

    def __init__(self, random: Random) -> None:
        self.delivered: list[HistoryDelivery] = []
        self._random = random

    async def run(self, url: str, *, until_empty: bool = False) -> None:
        """One life of the broker; the last one until nothing is left."""
        acked: list[str] = []  # since the last question
        asked: list[str] = []  # before it
        link: Link | None = None
        try:
            link = await Link.open(url)
            await link.ask("basic.qos", prefetch_count=PREFETCH)
            await link.ask("basic.consume", queue=QUEUE, consumer_tag="c")
            if until_empty:
                link.send("queue.declare", queue=QUEUE, passive=True)
            while True:
                method = await link.next()
                if method.method == "basic.deliver":
                    name = method.body.split()[0].decode()
                    if not until_empty and self._random.random() < 0.1:
                        self.delivered.append(HistoryDelivery(name, None, Settlement.OPEN))
                        continue  # a client that has forgotten it
                    link.send("basic.ack", delivery_tag=method.arguments["delivery_tag"])
                    acked.append(name)
                else:
                    assert method.method == "queue.declare-ok", str(method)
                    self.delivered += [HistoryDelivery(name) for name in asked]
                    asked = []
                    if until_empty and not acked and not method.arguments["message_count"]:
                        return
                if not asked and (
                    len(acked) >= ASK_AFTER or (until_empty and method.method != "basic.deliver")
                ):
                    asked, acked = acked, []
                    link.send("queue.declare", queue=QUEUE, passive=True)
        except Lost:
            if until_empty:
                raise
        finally:
            if link is not None:
                link.close()
            self.delivered += [HistoryDelivery(name, None, Settlement.UNKNOWN) for name in (*asked, *acked)]
