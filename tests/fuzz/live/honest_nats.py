"""The honest client of a NATS server: a stream, a consumer, and subjects of its own."""

from __future__ import annotations

import base64
import json
from collections import deque
from random import Random
from typing import Any

from plumbline.wire.nats import HMsg, Msg, Pub
from tests.durability.load import Link
from tests.fuzz.live.honest import LEAST_KEPT, MOST_KEPT, Payloads, require_equal

MOST_AT_ONCE = 40
PULL_S = 10
KEPT_S = 300  # a consumer without interest; a harmless fault may be slower than the server's 5 s
NANOSECONDS = 1_000_000_000
CONSUMER = "D"
MOST_PASSES = 5


class HonestNats:
    """See ``Honest``. Nothing else writes to its stream, so sequences have no gaps."""

    def __init__(self, seed: int) -> None:
        self.acknowledged = 0
        self._random = Random(f"honest {seed}")
        self._name = f"HONEST_{self._random.randbytes(6).hex()}"  # which no mutation hits
        self._payloads = Payloads(seed)
        self._held: deque[tuple[int, bytes]] = deque()  # sequence and payload
        self._last = 0
        self._rounds = 0
        self._link: Link | None = None

    @property
    def link(self) -> Link:
        """The connection."""
        assert self._link is not None
        return self._link

    @property
    def _first(self) -> int:
        return self._held[0][0] if self._held else self._last + 1

    async def connect(self, url: str) -> None:
        self.close()
        self._link = await Link.open(url)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    async def set_up(self) -> None:
        await self._ask(f"STREAM.CREATE.{self._name}", {"name": self._name, "subjects": [f"{self._name}.s"]})
        config = {"durable_name": CONSUMER, "ack_policy": "explicit", "ack_wait": 600 * NANOSECONDS}
        body = {"stream_name": self._name, "config": config}
        await self._ask(f"CONSUMER.DURABLE.CREATE.{self._name}.{CONSUMER}", body)

    async def round(self) -> None:
        self._rounds += 1
        published = await self._publish()
        await self._pull(published)
        await self._plain()
        await self._compare_counters()
        await self._compare_one()
        if len(self._held) > MOST_KEPT:
            await self._purge()
        if self._rounds % 20 == 0:
            await self.read_all()

    async def _publish(self) -> list[tuple[int, bytes]]:
        """What was published now: many at a time, acknowledged in order."""
        link = self.link
        payloads = [self._payloads.next() for _ in range(self._random.randrange(1, MOST_AT_ONCE))]
        for place, payload in enumerate(payloads):
            link.send(Pub.make(f"{self._name}.s", payload, f"{link.inbox}.{place}"))
        published = []
        for place, payload in enumerate(payloads):
            answer = await link.message()
            require_equal("subject of a PubAck", answer.subject, f"{link.inbox}.{place}")
            self._last += 1
            require_equal("PubAck", json.loads(answer.payload), {"stream": self._name, "seq": self._last})
            published.append((self._last, payload))
            self._held.append((self._last, payload))
            self.acknowledged += 1
        return published

    async def _pull(self, published: list[tuple[int, bytes]]) -> None:
        """The consumer gives them in order; they are acknowledged."""
        link = self.link
        body = {"batch": len(published), "expires": PULL_S * NANOSECONDS}
        pull = f"$JS.API.CONSUMER.MSG.NEXT.{self._name}.{CONSUMER}"
        link.send(Pub.make(pull, json.dumps(body).encode(), f"{link.inbox}.pull"))
        replies = []
        for expected in published:
            message = await link.message()
            require_equal("message of the consumer", _numbered(message), expected)
            replies.append(message.reply)
        for place, reply in enumerate(replies):
            link.send(Pub.make(reply or "", b"+ACK", f"{link.inbox}.{place}"))
        for place in range(len(replies)):
            answer = await link.message()
            require_equal("answer to +ACK", (answer.subject, answer.payload), (f"{link.inbox}.{place}", b""))

    async def _plain(self) -> None:
        """Messages without a stream."""
        link = self.link
        payloads = [self._payloads.next() for _ in range(5)]
        for payload in payloads:
            link.send(Pub.make(f"{link.inbox}.plain", payload))
        for payload in payloads:
            require_equal("message without a stream", (await link.message()).payload, payload)

    async def _compare_counters(self) -> None:
        info = await self._ask(f"STREAM.INFO.{self._name}")
        state = {
            name: info["state"][name] for name in ("messages", "first_seq", "last_seq", "consumer_count")
        }
        expected = {
            "messages": len(self._held),
            "first_seq": self._first,
            "last_seq": self._last,
            "consumer_count": 1,
        }
        require_equal("state of the stream", state, expected)
        consumer = await self._ask(f"CONSUMER.INFO.{self._name}.{CONSUMER}")
        counters = {name: consumer[name] for name in ("num_pending", "num_ack_pending", "num_redelivered")}
        require_equal("counters of the consumer", set(counters.values()), {0})
        require_equal("ack floor", consumer["ack_floor"]["stream_seq"], self._last)

    async def _compare_one(self) -> None:
        seq, payload = self._random.choice(self._held)
        answer = await self._ask(f"STREAM.MSG.GET.{self._name}", {"seq": seq})
        found = base64.b64decode(answer["message"].get("data", ""))
        require_equal(f"message {seq}", found, payload)

    async def _purge(self) -> None:
        purged = len(self._held) - LEAST_KEPT
        answer = await self._ask(f"STREAM.PURGE.{self._name}", {"keep": LEAST_KEPT})
        require_equal("answer to a purge", answer["purged"], purged)
        for _ in range(purged):
            self._held.popleft()
        await self._compare_counters()

    async def read_all(self) -> None:
        link = self.link
        await self._compare_counters()
        config = {
            "name": "all",
            "deliver_policy": "all",
            "ack_policy": "none",
            "inactive_threshold": KEPT_S * NANOSECONDS,
        }
        await self._ask(f"CONSUMER.CREATE.{self._name}.all", {"stream_name": self._name, "config": config})
        body = {"batch": len(self._held), "expires": PULL_S * NANOSECONDS}
        link.send(
            Pub.make(
                f"$JS.API.CONSUMER.MSG.NEXT.{self._name}.all",
                json.dumps(body).encode(),
                f"{link.inbox}.all",
            )
        )
        for expected in self._held:
            require_equal("stored message", _numbered(await link.message()), expected)
        await self._ask(f"CONSUMER.DELETE.{self._name}.all")

    async def sweep(self, left: set[tuple[str, str]]) -> None:
        for _ in range(MOST_PASSES):  # fuzzers make new ones all the time
            names = (await self._ask("STREAM.NAMES"))["streams"] or []
            others = [name for name in names if name != self._name]
            require_equal("our stream is listed", len(names) - len(others), 1)
            if not others:
                return
            for name in others:
                self.link.send(Pub.make(f"$JS.API.STREAM.DELETE.{name}", b"", f"{self.link.inbox}.api"))
            for _ in others:
                await self.link.message()  # gone, or deleted by a fuzzer before

    async def _ask(self, request: str, body: object = None) -> dict[str, Any]:
        return await self.link.ask(f"$JS.API.{request}", body)


def _numbered(message: Msg | HMsg) -> tuple[int, bytes]:
    """Its stream sequence and its payload."""
    reply = message.reply or ""
    parts = reply.split(".")
    return int(parts[5]) if reply.startswith("$JS.ACK.") else 0, message.payload
