"""What is fuzzed: a broker, or a recording proxy in front of one, each with its honest client."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from tests.fuzz.live.amqp_input import VIRTUAL_HOST, amqp_input, left_behind
from tests.fuzz.live.honest import Honest
from tests.fuzz.live.honest_amqp import HonestAmqp
from tests.fuzz.live.honest_nats import HonestNats
from tests.fuzz.live.nats_input import nats_input
from tests.fuzz.live.programs import Broken, Program

# Bytes that a broker keeps for a client that does not read. The default of NATS is 64 MiB for each.
MOST_UNREAD = 1 << 20


class Kind(Struct, frozen=True):
    """One protocol: what differs."""

    make_input: Callable[[Random], bytes]
    honest: Callable[[int], Honest]
    broker: Callable[[Path], list[str]]  # arguments of ``plumbline``, with a folder for the store
    left: Callable[[bytes, bytes], set[tuple[str, str]]]


def _nats_broker(folder: Path) -> list[str]:
    config = folder / "config.json"
    config.write_text(json.dumps({"max_pending": MOST_UNREAD}))
    return ["broker", "nats", "-js", "-p", "-1", "-sd", str(folder / "store"), "-c", str(config)]


def _amqp_broker(folder: Path) -> list[str]:
    config = folder / "config.json"
    config.write_text(json.dumps({"max_pending": MOST_UNREAD}))
    store = ["-d", str(folder / "store"), "-c", str(config)]
    return ["broker", "amqp", "-p", "-1", "--vhost", VIRTUAL_HOST, *store]


KINDS = {
    "nats": Kind(nats_input, HonestNats, _nats_broker, lambda *_: set()),  # the honest client can list them
    "amqp": Kind(amqp_input, HonestAmqp, _amqp_broker, left_behind),
}


class Subject(Protocol):
    """A program that is fuzzed. All methods raise ``Broken`` if a rule does not hold."""

    program: Program  # whose memory is measured
    kind: Kind
    honest: Honest
    address: tuple[str, int]  # for fuzzers
    left: set[tuple[str, str]]  # what they may have made

    async def start(self) -> None:
        """Starts it, and sets up what the honest client needs."""

    async def round(self) -> None:
        """The honest client's part, and checks."""

    async def finish(self) -> None:
        """Ends it as a user does; what is left is right."""

    async def kill(self) -> None:
        """Ends all processes, whatever they do."""


class BrokerSubject:
    """``plumbline broker``."""

    def __init__(self, name: str, folder: Path, seed: int, options: list[str]) -> None:
        self.kind = KINDS[name]
        self.program = Program(*self.kind.broker(folder), *options)
        self.honest = self.kind.honest(seed)
        self.address = ("", 0)
        self.url = ""
        self.left: set[tuple[str, str]] = set()

    async def start(self) -> None:
        await self._start()
        await self.honest.connect(self.url)
        await self.honest.set_up()

    async def _start(self) -> None:
        self.url = (await self.program.start()).split()[0]
        self.address = address_of(self.url)

    async def round(self) -> None:
        await self.honest.round()

    async def finish(self) -> None:
        """Everything is there after a restart, and the store is not damaged."""
        await self.honest.sweep(self.left)
        self.honest.close()
        await self.program.stop()
        await self._start()
        await self.honest.connect(self.url)
        await self.honest.read_all()
        self.honest.close()
        await self.program.stop()
        if self.program.warnings:
            raise Broken("warnings after a restart:\n" + "\n".join(self.program.lines))

    async def kill(self) -> None:
        self.honest.close()
        await self.program.kill()


def address_of(url: str) -> tuple[str, int]:
    """Host and port."""
    place = urlsplit(url)
    assert place.hostname is not None
    assert place.port is not None
    return place.hostname, place.port
