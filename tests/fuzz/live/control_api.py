"""The control API of a running proxy: faults that come and go, and requests that make no sense."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

from tests.fuzz.control import TARGETS, WORDS, request
from tests.fuzz.live.programs import Broken
from tests.fuzz.mutations import mutated

ANSWERED_S = 30.0
(CONTROL,) = TARGETS
# Of these an honest client only notices that it takes longer.
HARMLESS = (
    "latency 5ms ±5ms",
    "slice 300 every 1ms",
    "bandwidth 500k",
    "slow_close 50ms",
    "latency 20ms on upstream",
)
FAULTS = (
    *HARMLESS,
    "slice 1",
    "bandwidth 1",
    "bandwidth 0 with 50%",
    "latency 24h on downstream with 30%",
    "limit 1k",
    "limit 100ms",
    "reset 1k",
    "reset 100ms with 50%",
    "timeout 100ms",
    "timeout 24h with 20%",
    "drop PUB every 2nd",
    "duplicate HPUB",
    "reorder MSG with 50%",
    "delay 100ms MSG",
    "drop basic.publish every 2nd",
    "duplicate queue.declare with 50%",
    "reorder basic.deliver",
    "delay 200ms basic.publish",
    "drop PUB where size > 100",
    'rewrite PUB set subject="s.b"',
    'rewrite basic.publish set routing_key="q" with 50%',
)


class ControlClient:
    """Requests, each on a connection of its own."""

    def __init__(self, address: tuple[str, int], random: Random) -> None:
        self.address = address
        self.requests = 0
        self._random = random

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer to a request that is right. Raises ``Broken`` unless its status is 200."""
        head, _, text = (await self.exchange(request(method, path, body))).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise Broken(f"{method} {path} {body}: {head[:200]!r} {text[:200]!r}")
        return json.loads(text)

    async def exchange(self, data: bytes) -> bytes:
        """All that the API sends back to these bytes. Raises ``Broken`` if it does not end."""
        self.requests += 1
        received = b""
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(ANSWERED_S):
                reader, writer = await asyncio.open_connection(*self.address)
                writer.write(data)
                writer.write_eof()
                while some := await reader.read(1 << 16):
                    received += some
        except TimeoutError:
            raise Broken(f"the control API does not answer {data[:200]!r}") from None
        except OSError:
            pass  # it may leave what it does not understand
        finally:
            if writer is not None:
                writer.close()
        return received

    async def disturb(self) -> None:
        """One request: a mutation, or a fault under a name of its own. Raises ``Broken``."""
        random = self._random
        if random.randrange(2):
            sent = mutated(random, CONTROL.seeds(), WORDS)
        else:
            name = random.choice(("a", "b", random.randbytes(8).hex()))
            fault = random.choice(FAULTS)
            sent = random.choice(
                (
                    request("POST", "/faults", {"name": name, "fault": fault}),
                    request("POST", f"/faults/{name}", {"fault": fault}),
                    request("DELETE", f"/faults/{name}"),
                    request("POST", "/proxies/nats/toxics", {"name": name, "type": "latency"}),
                    request("POST", "/proxies/amqp/toxics", {"name": name, "type": "slicer"}),
                    request("POST", "/reset"),
                )
            )
        received = await self.exchange(sent)
        if received.startswith((b"HTTP/1.1 500", b"HTTP/1.1 503")):
            raise Broken(f"control API: {received[:300]!r} to {sent[:300]!r}")

    async def reset(self) -> None:
        """Switches all faults off. Raises ``Broken`` if one is left."""
        if await self.ask("POST", "/reset") or await self.ask("GET", "/faults"):
            raise Broken("POST /reset left faults")
        for proxy in (await self.ask("GET", "/proxies")).values():
            if proxy["toxics"]:
                raise Broken("POST /reset left toxics")
