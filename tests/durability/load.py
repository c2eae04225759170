"""The clients of a broker that is about to be killed: they write down what they know, and nothing else.

A publisher sends unique payloads with message ids, many at a time, and publishes again what had no answer. A
consumer pulls and acknowledges with a reply. Both end when the connection does.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from random import Random

from plumbline.monitors.histories import HistoryDelivery, PublishAttempt, PublishOutcome, Settlement
from plumbline.wire.nats import Connect, Decoder, HMsg, HPub, Msg, Operation, Pub, Sender, Sub, Unsub

STREAM, CONSUMER, SUBJECT = "K", "D", "k.x"
WINDOW = 64  # publishes that wait for their answer
ANSWER_S = 120.0  # on a busy machine, where 20 s were too few
_NUMBERS = itertools.count(1)


class Lost(Exception):
    """The broker has gone."""


class Link:
    """One connection: operations out, messages in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = Decoder(Sender.SERVER)
        self._ready: list[Operation] = []
        self.inbox = f"_INBOX.{next(_NUMBERS)}"

    @classmethod
    async def open(cls, url: str) -> Link:
        host, _, port = url.removeprefix("nats://").rpartition(":")
        link = cls(*await asyncio.open_connection(host, int(port)))
        fields = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
        link.send(Connect.make(fields), Sub.make(f"{link.inbox}.>", 1))
        return link

    def send(self, *operations: Operation) -> None:
        if not self._writer.is_closing():  # what the server sent before it ended is still to be read
            self._writer.write(b"".join(operation.raw for operation in operations))

    async def message(self) -> Msg | HMsg:
        """The next message. Raises ``Lost``."""
        while True:
            while self._ready:
                operation = self._ready.pop(0)
                if isinstance(operation, Msg | HMsg):
                    return operation
            try:
                async with asyncio.timeout(ANSWER_S):
                    data = await self._reader.read(1 << 16)
            except ConnectionError as error:
                raise Lost from error
            if not data:
                raise Lost
            self._ready += self._decoder.feed(data)

    async def ask(self, subject: str, body: object = None) -> dict[str, object]:
        """The answer to one API request; nothing else may be under way."""
        self.send(Pub.make(subject, b"" if body is None else json.dumps(body).encode(), f"{self.inbox}.api"))
        answer: dict[str, object] = json.loads((await self.message()).payload)
        assert "error" not in answer, answer
        return answer

    def close(self) -> None:
        self._writer.close()


class Publisher:
    """Publishes ``m0``, ``m1`` ... over all the lives of the broker."""

    def __init__(self, random: Random, each_life: int) -> None:
        self.published: list[PublishAttempt] = []
        self.answers = 0
        self._random = random
        self._each_life = each_life
        self._next = 0
        self._todo: list[str] = []

    async def run(self, url: str, acknowledged: asyncio.Event) -> None:
        """One life of the broker; sets ``acknowledged`` at the first answer."""
        link = await Link.open(url)
        waiting: set[str] = set()
        self._todo += [f"m{self._next + number}" for number in range(self._each_life)]
        self._next += self._each_life
        try:
            while True:
                while self._todo and len(waiting) < WINDOW:
                    name = self._todo.pop(0)
                    waiting.add(name)
                    payload = name.encode() + b" " * self._random.choice((0, 5, 100, 5000))
                    link.send(HPub.make(SUBJECT, [("Nats-Msg-Id", name)], payload, f"{link.inbox}.{name}"))
                answer = await link.message()
                name = answer.subject.removeprefix(f"{link.inbox}.")
                assert b'"seq":' in answer.payload, answer
                assert b'"error"' not in answer.payload, answer
                waiting.discard(name)
                self.answers += 1
                self.published.append(PublishAttempt(name))
                acknowledged.set()
        except Lost:
            pass
        finally:
            link.close()
            self.published += [PublishAttempt(name, PublishOutcome.UNKNOWN) for name in sorted(waiting)]
            # Most are tried again, as a client would; the others are never reported.
            self._todo[:0] = [name for name in sorted(waiting) if self._random.random() < 0.8]


class Consumer:
    """Pulls and acknowledges over all the lives of the broker."""

    def __init__(self, random: Random) -> None:
        self.delivered: list[HistoryDelivery] = []
        self._random = random

    async def run(self, url: str, *, until_empty: bool = False) -> None:
        """One life of the broker; the last one until nothing is left."""
        link = await Link.open(url)
        acked: dict[str, HistoryDelivery] = {}  # by the inbox of the reply
        number = 0
        try:
            while True:
                body = {"batch": 20, "expires": 1_000_000_000 if until_empty else 200_000_000}
                pull = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{CONSUMER}"
                link.send(Pub.make(pull, json.dumps(body).encode(), f"{link.inbox}.pull"))
                got, ended = 0, False
                while not (ended or got == 20) or acked:
                    message = await link.message()
                    if message.subject in acked:
                        self.delivered.append(acked.pop(message.subject))
                    elif message.reply is None:
                        ended |= message.subject.endswith(".pull")
                    else:
                        got += 1
                        name = message.payload.split()[0].decode()
                        position = int(message.reply.split(".")[5])
                        for inbox in [inbox for inbox, one in acked.items() if one.id == name]:
                            # Redelivered before its acknowledgement was heard: which of them counts?
                            acked.pop(inbox)
                            self.delivered.append(HistoryDelivery(name, position, Settlement.UNKNOWN))
                        if not until_empty and self._random.random() < 0.1:
                            self.delivered.append(HistoryDelivery(name, position, Settlement.OPEN))
                            continue  # a client that has forgotten it
                        number += 1
                        inbox = f"{link.inbox}.{number}"
                        acked[inbox] = HistoryDelivery(name, position)
                        link.send(Pub.make(message.reply, b"+ACK", inbox))
                if until_empty and not got and await self._is_done(link):
                    return
        except Lost:
            if until_empty:
                raise
        finally:
            link.close()
            self.delivered += [
                HistoryDelivery(one.id, one.position, Settlement.UNKNOWN) for one in acked.values()
            ]

    async def _is_done(self, link: Link) -> bool:
        info = await link.ask(f"$JS.API.CONSUMER.INFO.{STREAM}.{CONSUMER}")
        return info["num_pending"] == 0 and info["num_ack_pending"] == 0


async def set_up(url: str) -> None:
    """The stream and its consumer."""
    link = await Link.open(url)
    await link.ask(
        f"$JS.API.STREAM.CREATE.{STREAM}", {"name": STREAM, "subjects": ["k.*"], "storage": "file"}
    )
    config = {"durable_name": CONSUMER, "ack_policy": "explicit", "ack_wait": 500_000_000}
    config |= {"max_ack_pending": -1}
    await link.ask(
        f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.{CONSUMER}", {"stream_name": STREAM, "config": config}
    )
    link.close()


async def stored(url: str) -> list[HistoryDelivery]:
    """Every message of the stream, as an ordered reading of it finds them."""
    link = await Link.open(url)
    info = await link.ask(f"$JS.API.STREAM.INFO.{STREAM}")
    state = info["state"]
    assert isinstance(state, dict)
    found: list[HistoryDelivery] = []
    # Interest of exactly the deliver_subject counts, and only once.
    link.send(Unsub.make(1), Sub.make(f"{link.inbox}.api", 2), Sub.make(f"{link.inbox}.log", 3))
    config: dict[str, object] = {"deliver_subject": f"{link.inbox}.log", "ack_policy": "none"}
    # There is more than a connection may owe: without flow control a late reader is a slow consumer.
    config |= {"flow_control": True, "idle_heartbeat": 1_000_000_000}
    await link.ask(f"$JS.API.CONSUMER.CREATE.{STREAM}", {"stream_name": STREAM, "config": config})
    while len(found) < state["messages"]:
        message = await link.message()
        reply = message.reply
        if reply is None:
            continue  # a heartbeat
        if reply.startswith("$JS.ACK."):
            found.append(HistoryDelivery(message.payload.split()[0].decode(), int(reply.split(".")[5])))
        else:
            link.send(Pub.make(reply, b""))
    link.close()
    return found
