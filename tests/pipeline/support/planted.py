"""Captures of sound traffic with violations planted in it: which rule, on which operation, is known exactly.

Every kind of violation is one short episode, on names of its own, that breaks one rule once. ``write`` puts
each kind at each place of the traffic: first thing on a connection, cut to pieces of a few bytes, across two
files, and last. The seed fixes everything; the size is a parameter.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from plumbline.captures.packets import ACK, FIN, MAX_DATA, SYN, PacketFlow
from plumbline.captures.pcapng import MARK, interface, packet, section_header, statistics
from plumbline.wire.sender import Direction
from tests.pipeline.support.amqp_episodes import AMQP, amqp_opening, sound_amqp
from tests.pipeline.support.episodes import Episode, Names, Step
from tests.pipeline.support.nats_episodes import NATS, nats_opening, sound_nats

BEGUN_NS = 1_790_000_000_000_000_000  # 2026-09-21
STEP_NS = 20_000
ROLL_BYTES = 256_000_000
PLACES = ("first", "cut", "across-files", "last")
_SERVERS = {"nats": ("10.9.0.1", 4222), "amqp": ("10.9.0.2", 5672)}
_FLUSH_PARTS = 4096


Kind = tuple[str, str, Episode]  # protocol, rule, operations


class Planted(Struct, frozen=True, order=True):
    """What must be found: the operation that breaks the rule, by connection and number."""

    rule: str
    connection: int
    number: int


class _Writer:
    """Files that are rolled when asked, as a recorder rolls them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = 0
        self._parts: list[bytes] = []
        self.written = self.in_file = 0
        self.now = BEGUN_NS
        self.open: list[_Connection] = []
        self._file = self._begin()

    def _begin(self) -> Any:
        self._files += 1
        file = (self._folder / f"planted-{self._files:04}.pcapng").open("wb")
        file.write(section_header("tests") + interface("planted", "planted violations"))
        return file

    def add(self, head: bytes, data: bytes = b"", *comments: str) -> None:
        self.now += STEP_NS
        size = packet(self._parts, self.now, head, data, comments)
        self.written += size
        self.in_file += size
        if len(self._parts) > _FLUSH_PARTS:
            self._flush()

    def _flush(self) -> None:
        self._file.write(b"".join(self._parts))
        self._parts.clear()

    def roll(self) -> None:
        """The next file; open connections are marked in it."""
        self._end()
        self.in_file = 0
        self._file = self._begin()
        for connection in self.open:
            connection.introduce(ACK, ", continued")

    def _end(self) -> None:
        self._flush()
        with self._file as file:
            file.write(statistics(self.now, BEGUN_NS, 0, 0, f"{MARK}the end"))

    def close(self) -> None:
        self._end()


class _Connection:
    """One connection; counts its operations, since each step is one."""

    def __init__(self, number: int, protocol: str, writer: _Writer) -> None:
        client = ("10.9.1.1", 20000 + number)
        self.number, self.protocol, self._writer = number, protocol, writer
        self.operations = 0
        self.flow = PacketFlow(number, client, _SERVERS[protocol])
        self.introduce(SYN)
        writer.add(self.flow.head(Direction.TO_CLIENT, 0, SYN | ACK))
        writer.open.append(self)

    def introduce(self, flags: int, more: str = "") -> None:
        about = f"{MARK}connection {self.number}: {self.protocol}{more}"
        self._writer.add(self.flow.head(Direction.TO_SERVER, 0, flags), b"", about)

    def say(self, step: Step, cut: int = MAX_DATA) -> None:
        self.operations += 1
        direction = Direction.TO_SERVER if step.by_client else Direction.TO_CLIENT
        for at in range(0, len(step.data), cut):
            piece = step.data[at : at + cut]
            self._writer.add(self.flow.head(direction, len(piece)), piece)

    def close(self) -> None:
        self._writer.open.remove(self)
        for direction in Direction:
            self._writer.add(self.flow.head(direction, 0, FIN | ACK))


class _Traffic:
    """Sound connections, and what is planted on them."""

    def __init__(
        self, folder: Path, seed: int, payload_bytes: int, connections: int, protocols: Sequence[str]
    ) -> None:
        self._random = random.Random(seed)
        self.writer = _Writer(folder)
        self._names = Names()
        self.planted: list[Planted] = []
        self._given = 0
        self._payload = self._random.randbytes(payload_bytes)
        self._sound: list[tuple[_Connection, Iterator[Step]]] = []
        for number in range(connections):
            protocol = protocols[number % len(protocols)]
            connection = self.connect(protocol)
            make = sound_amqp if protocol == "amqp" else sound_nats
            self._sound.append((connection, make(self._names, self._payload)))

    def connect(self, protocol: str) -> _Connection:
        self._given += 1
        connection = _Connection(self._given, protocol, self.writer)
        for step in amqp_opening() if protocol == "amqp" else nats_opening():
            connection.say(step)
        return connection

    def sound(self, steps: int) -> None:
        """So many steps of sound traffic, some of them in small segments."""
        for _ in range(steps):
            connection, traffic = self._random.choice(self._sound)
            connection.say(next(traffic), 1448 if connection.number % 3 == 0 else MAX_DATA)
        if self.writer.in_file > ROLL_BYTES:
            self.writer.roll()

    def plant(self, kind: Kind, place: str) -> None:
        """Sound traffic of other connections goes on between the steps."""
        for _ in self._planting(kind, place):
            self.sound(self._random.randrange(3))

    def plant_across_files(self, kinds: Sequence[Kind]) -> None:
        """All up to what is wrong, then the next file, then the rest."""
        begun = [self._planting(kind, "across-files") for kind in kinds]
        for episode in begun:
            while not next(episode):
                self.sound(1)
        self.writer.roll()
        for episode in begun:
            for _ in episode:
                self.sound(1)

    def _planting(self, kind: Kind, place: str) -> Iterator[bool]:
        """Says a step for each that is asked for, which is whether the next one is wrong."""
        protocol, rule, episode = kind
        connection = self.connect(protocol)
        for step in episode(self._names):
            yield step.is_wrong
            connection.say(step, 3 if place == "cut" else MAX_DATA)
            if step.is_wrong:
                self.planted.append(Planted(rule, connection.number, connection.operations))
        connection.close()


def write(
    folder: Path,
    *,
    seed: int = 6,
    size: int = 1_000_000,
    payload_bytes: int = 200,
    connections: int = 6,
    protocols: Sequence[str] = ("nats", "amqp"),
) -> list[Planted]:
    """Writes captures of at least ``size`` bytes into ``folder``; what is to be found in them, sorted."""
    traffic = _Traffic(folder, seed, payload_bytes, connections, protocols)
    kinds = [("nats", *kind) for kind in NATS] + [("amqp", *kind) for kind in AMQP]
    kinds = [kind for kind in kinds if kind[0] in protocols]
    share = size // (len(kinds) * len(PLACES) + 1)
    for place in PLACES:
        if place == "across-files":
            traffic.plant_across_files(kinds)
            continue
        for kind in kinds:
            traffic.plant(kind, place)
            share_ends = traffic.writer.written + share
            while place != "last" and traffic.writer.written < share_ends:
                traffic.sound(64)
    while traffic.writer.written < size:
        traffic.sound(64)
    traffic.writer.close()
    return sorted(traffic.planted)
