"""The honest client of an AMQP server, in a virtual host where no fuzzer is."""

from __future__ import annotations

from collections import deque
from random import Random

from tests.durability.amqp_load import CHANNEL, QUEUE, Link
from tests.durability.load import Lost
from tests.fuzz.live.amqp_input import VIRTUAL_HOST
from tests.fuzz.live.honest import LEAST_KEPT, MOST_KEPT, Payloads, require_equal

MOST_AT_ONCE = 40


class HonestAmqp:
    """See ``Honest``. Its durable queue holds some messages all the time."""

    def __init__(self, seed: int) -> None:
        self.acknowledged = 0
        self._random = Random(f"honest {seed}")
        self._payloads = Payloads(seed)
        self._held: deque[bytes] = deque()
        self._link: Link | None = None
        self._url = ""

    @property
    def link(self) -> Link:
        """The connection."""
        assert self._link is not None
        return self._link

    async def connect(self, url: str) -> None:
        self.close()
        self._url = url
        self._link = await Link.open(url)
        await self._link.ask("confirm.select")

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    async def set_up(self) -> None:
        """The connection declares its queue."""

    async def round(self) -> None:
        await self._publish()
        await self._routed()
        await self._compare_count()
        if len(self._held) > MOST_KEPT:
            await self._take(len(self._held) - LEAST_KEPT)

    async def _publish(self) -> None:
        """Many at a time, confirmed one by one or together."""
        link = self.link
        await link.ask("channel.close", reply_code=200)  # so that numbers of confirms begin with 1
        await link.ask("channel.open")
        await link.ask("confirm.select")
        payloads = [self._payloads.next() for _ in range(self._random.randrange(1, MOST_AT_ONCE))]
        for payload in payloads:
            link.send("basic.publish", routing_key=QUEUE, body=payload, properties={"delivery_mode": 2})
        confirmed = 0
        while confirmed < len(payloads):
            answer = await link.next()
            require_equal("answer to a publish", answer.method, "basic.ack")
            tag = answer.arguments["delivery_tag"]
            require_equal("confirmed number", tag > confirmed and tag <= len(payloads), True)
            confirmed = tag
        self._held += payloads
        self.acknowledged += len(payloads)

    async def _routed(self) -> None:
        """Through an exchange and a queue that are declared, used and deleted."""
        link = self.link
        queue = (await link.ask("queue.declare", exclusive=True)).arguments["queue"]
        await link.ask("exchange.declare", exchange="honest", type="topic", auto_delete=False)
        await link.ask("queue.bind", queue=queue, exchange="honest", routing_key="a.#")
        payload = self._payloads.next()
        link.send("basic.publish", exchange="honest", routing_key="a.b", body=payload)
        require_equal("answer to a publish", (await link.next()).method, "basic.ack")
        require_equal("routed message", (await link.ask("basic.get", queue=queue, no_ack=True)).body, payload)
        require_equal(
            "queue.delete", (await link.ask("queue.delete", queue=queue)).arguments, {"message_count": 0}
        )
        await link.ask("exchange.delete", exchange="honest")

    async def _compare_count(self) -> None:
        declared = await self.link.ask("queue.declare", queue=QUEUE, passive=True)
        counts = {name: declared.arguments[name] for name in ("message_count", "consumer_count")}
        require_equal("counts of the queue", counts, {"message_count": len(self._held), "consumer_count": 0})

    async def _take(self, number: int, *, are_new: bool = True) -> None:
        """Gets and acknowledges the oldest ones."""
        link = self.link
        for _ in range(number):
            link.send("basic.get", queue=QUEUE)
        for _ in range(number):
            message = await link.next()
            require_equal("answer to basic.get", message.method, "basic.get-ok")
            require_equal("message of the queue", message.body, self._held.popleft())
            require_equal("redelivered", are_new and message.arguments["redelivered"], False)
            require_equal("left in the queue", message.arguments["message_count"], len(self._held))
            link.send("basic.ack", delivery_tag=message.arguments["delivery_tag"])
        await self._compare_count()

    async def read_all(self) -> None:
        await self._compare_count()
        await self._take(len(self._held), are_new=False)  # a restart may have been between

    async def sweep(self, left: set[tuple[str, str]]) -> None:
        link: Link | None = None
        try:
            for kind, name in sorted(left):
                link = link or await Link.open(self._url, VIRTUAL_HOST)
                link.send(f"{kind}.delete", CHANNEL, **{kind: name})
                try:
                    await link.next()
                except (AssertionError, Lost):  # another connection has it for itself: it goes with that one
                    link.close()
                    link = None
                else:
                    left.discard((kind, name))
        finally:
            if link is not None:
                link.close()
