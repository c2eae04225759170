"""The reference brokers in one process: no sockets, and a clock that waiting moves.

A client waits for nothing: where it would wait, the clock goes on to its deadline or to the next timer of a
broker. What needs a real process or a real socket (a signal, TLS) cannot run here.
"""

from __future__ import annotations

import heapq
import itertools
import math
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

from plumbline.conformance.outcomes import Inconclusive
from plumbline.conformance.sessions import pump
from plumbline.conformance.targets.own_server import OwnServer
from plumbline.conformance.targets.urls import AnyUrl
from plumbline.reference_broker.outputs import CloseOutput, SendOutput
from plumbline.reference_broker.shell import LINGER_S, Core
from plumbline.reference_broker.write_queue import Files, WriteQueue, apply

START_NS = 1_795_245_184_000_000_000  # since the epoch
NS = 1_000_000_000
SEND_NS = 100_000  # what each write of a client takes, so that a check that only asks and asks ends, too
HOST = "127.0.0.1"
FIRST_PORT = 20001
ALARM = "low on memory"
MAX_PENDING = 4 * 1024 * 1024  # unread bytes beyond which a client is slow, as the AMQP broker's option


class ServerCrashError(Exception):
    """The core raised an exception. The text has its traceback."""


class World:
    """The clock and the servers. Nothing happens in it but when a client calls."""

    def __init__(self) -> None:
        self.now = START_NS
        self.servers: dict[int, VirtualServer] = {}  # by port
        self.crash = ""  # the traceback of the first core that raised an exception
        self.used: set[VirtualServer] = set()  # those that accepted a connection
        self.make_core: Callable[[VirtualServer, Callable[[], Core]], Core] = lambda server, make: make()
        self._ports = itertools.count(FIRST_PORT)

    def monotonic(self) -> float:
        """Seconds."""
        return (self.now - START_NS) / NS

    def sleep(self, seconds: float) -> None:
        self.advance_to(self.now + max(round(seconds * NS), 0))

    def ns_of(self, monotonic: float) -> int:
        """The first moment that is not before ``monotonic``, as ``monotonic()`` gives it."""
        return START_NS + math.ceil(monotonic * NS)

    def free_port(self) -> int:
        """One that no server has had."""
        return next(self._ports)

    def open_link(self, url: AnyUrl) -> VirtualLink:
        """As ``conformance.targets.links.open_link``."""
        server = self.servers.get(url.port)
        if server is None or server.has_ended:
            raise ConnectionRefusedError(111, "Connection refused")
        return server.accept()

    def next_wake(self) -> int | None:
        """When the next timer of any server is due."""
        servers = list(self.servers.values())  # one that crashes is taken out
        times = [due for server in servers if (due := server.next_wake()) is not None]
        return min(times, default=None)

    def advance_to(self, end: int) -> None:
        """Let time pass; servers are woken in the order in which they asked for it."""
        while self.step(end):
            pass

    def step(self, end: int) -> bool:
        """Let time pass until the next timer has run, or until ``end``: False."""
        due = self.next_wake()
        if due is None or due > end:
            self.now = max(self.now, end)
            return False
        self.now = max(self.now, due)
        for server in list(self.servers.values()):
            when = server.next_wake()
            if when is not None and when <= self.now:
                server.wake()
        return True


class CoreFactory(Protocol):
    """Makes a core. ``files``: what is stored; None: nothing is."""

    def __call__(self, write_queue: WriteQueue | None, files: Files | None, now: int, port: int) -> Core: ...


class VirtualServer:
    """A core and its connections. ``files`` is a folder that is none; without, nothing is stored.

    The core is made when somebody connects first, since most checks use one server of many.
    """

    def __init__(self, world: World, factory: CoreFactory, files: Files | None = None) -> None:
        self.world = world
        self.has_ended = False
        self.port = world.free_port()
        self._factory = factory
        self._core: Core | None = None
        self._files = files
        self._write_queue = None if files is None else WriteQueue()
        self._links: dict[int, VirtualLink] = {}
        self._lingering: list[tuple[int, int]] = []  # when, and which connection
        self._opened = 0
        world.servers[self.port] = self

    @property
    def core(self) -> Core:
        """The core, which is made at first use. Raises as the core does."""
        if self._core is None:
            make = partial(self._factory, self._write_queue, self._files, self.world.now, self.port)
            self._core = self.world.make_core(self, make)
            self._write()
        return self._core

    def start(self) -> None:
        """Make the core now. Raises ``ServerCrashError``."""
        try:
            self.core  # noqa: B018
        except Exception as error:  # whatever a mutant does
            self.world.crash = self.world.crash or traceback.format_exc(limit=-3)
            self.has_ended = True
            raise ServerCrashError(self.world.crash) from error

    def accept(self) -> VirtualLink:
        """Raises ``ConnectionRefusedError`` if it does not start."""
        try:
            self.start()
        except ServerCrashError:
            raise ConnectionRefusedError(111, "Connection refused") from None
        self.world.used.add(self)
        self._opened += 1
        number = self._opened
        link = self._links[number] = VirtualLink(self, number)
        self._event(lambda now: self.core.on_connected(number, now, HOST))
        return link

    def receive(self, number: int, data: bytes) -> None:
        """Bytes of a client."""
        self._event(lambda now: self.core.on_data(number, data, now))

    def hang_up(self, number: int) -> None:
        """A client is gone."""
        if self._links.pop(number, None) is not None and not self.has_ended:
            self._event(lambda now: self.core.on_disconnected(number, now))

    def next_wake(self) -> int | None:
        if self.has_ended or self._core is None:
            return None
        times = [when for when, _ in self._lingering[:1]]
        if (due := self._core_due(self._core)) is not None:
            times.append(due)
        return min(times, default=None)

    def _core_due(self, core: Core) -> int | None:
        """When the core has something to do. One that raises an exception has crashed."""
        try:
            return core.next_wake()
        except Exception:  # whatever a mutant does
            self.world.crash = self.world.crash or traceback.format_exc(limit=-3)
            self.kill()
            return None

    def wake(self) -> None:
        now = self.world.now
        while self._lingering and self._lingering[0][0] <= now:
            self.hang_up(heapq.heappop(self._lingering)[1])
        if self._core is None or self.has_ended:
            return
        due = self._core_due(self._core)
        if due is not None and due <= now:
            self._event(self._core.wake)

    def stop(self) -> None:
        """In order."""
        if (end := getattr(self._core, "stop", None)) is not None and not self.has_ended:
            self._event(end)
        self.kill()

    def block(self) -> None:
        """Publishers of an AMQP broker wait."""
        self._event(partial(self._amqp.block, ALARM))

    def unblock(self) -> None:
        """They go on."""
        self._event(self._amqp.unblock)

    @property
    def _amqp(self) -> Any:
        """The core, which has what only one of AMQP has."""
        return self.core

    def kill(self) -> None:
        """At once. What the core has entered was written when it was."""
        self.has_ended = True
        self.world.servers.pop(self.port, None)
        for link in self._links.values():
            link.peer_has_closed = True
        self._links.clear()

    def _event(self, happen: Callable[[int], Sequence[Any]]) -> None:
        if self.has_ended:
            return
        try:
            outputs = tuple(happen(self.world.now))
            self._write()
        except Exception:  # whatever a mutant does
            self.world.crash = self.world.crash or traceback.format_exc(limit=-3)
            self.kill()
            return
        self._carry_out(outputs)

    def _carry_out(self, outputs: Iterable[Any]) -> None:
        for output in outputs:
            link = self._links.get(output.connection)
            if link is None or link.peer_has_closed:
                continue
            if isinstance(output, SendOutput):
                link.waiting += output.data
                self._watch(link, output.connection)
            elif isinstance(output, CloseOutput):
                link.peer_has_closed = True
                heapq.heappush(self._lingering, (self.world.now + round(LINGER_S * NS), output.connection))

    def _watch(self, link: VirtualLink, number: int) -> None:
        """A core that delivers hears of a client that does not take what it is sent."""
        slow = getattr(self._core, "on_client_slow", None)
        if slow is not None and not link.is_slow and len(link.waiting) > MAX_PENDING:
            link.is_slow = True
            slow(number)

    def take_up(self, link: VirtualLink, number: int) -> None:
        """A slow client has taken what it was sent."""
        link.is_slow = False
        ready: Callable[[int, int], Sequence[Any]] | None = getattr(self._core, "on_client_ready", None)
        if ready is not None:
            self._event(partial(ready, number))

    def _write(self) -> None:
        if self._write_queue is not None and self._files is not None and self._write_queue:
            apply(self._files, self._write_queue.take())


class VirtualLink:
    """A connection, as ``conformance.targets.links.Link``."""

    def __init__(self, server: VirtualServer, number: int) -> None:
        self.waiting = bytearray()
        self.is_slow = False  # more is waiting than a server keeps for it
        self.peer_has_closed = False
        self._server = server
        self._number = number
        self._timeout: float | None = None
        self._is_closed = False

    def is_readable(self) -> bool:
        return bool(self.waiting) or self.peer_has_closed

    def recv(self, size: int) -> bytes:
        world = self._server.world
        if not self.is_readable() and self._timeout != 0:
            end = sys.maxsize if self._timeout is None else world.now + round(self._timeout * NS)
            while not self.is_readable() and world.step(end):
                pass
            if not self.is_readable():
                raise TimeoutError("timed out")
        if not self.is_readable():
            raise BlockingIOError
        data = bytes(self.waiting[:size])
        del self.waiting[:size]
        if self.is_slow and not self.waiting:
            self._server.take_up(self, self._number)
        return data

    def sendall(self, data: bytes) -> None:
        world = self._server.world
        if self.peer_has_closed or self._is_closed:
            raise BrokenPipeError(32, "Broken pipe")
        if data:
            world.advance_to(world.now + SEND_NS)
            self._server.receive(self._number, data)

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        pass

    def fileno(self) -> int:
        return self._number

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._server.hang_up(self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class VirtualPump:
    """As ``conformance.sessions.pump.Pump``."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._links: dict[VirtualLink, pump.Readable] = {}

    def add(self, connection: pump.Readable, link: VirtualLink) -> None:
        self._links[link] = connection

    def remove(self, link: VirtualLink) -> None:
        del self._links[link]

    def run(self, until: Callable[[], bool], deadline: float) -> bool:
        world, end = self._world, self._world.ns_of(deadline)
        while not until():
            if ready := [link for link in self._links if link.is_readable()]:
                for link in ready:
                    if (connection := self._links.get(link)) is not None:
                        connection.readable()
            elif world.now >= end:
                return until()
            else:
                world.step(end)
        return True

    def close(self) -> None:
        self._links.clear()


class VirtualOwnServer(OwnServer):
    """A server of one check or one variant, whose store is a folder that is none."""

    def __init__(self, world: World, factory: CoreFactory, scheme: str) -> None:
        self.url = ""
        self.certificates = None  # no TLS: there are no sockets
        self._world = world
        self._factory = factory
        self._scheme = scheme
        self._files: Files = {}
        self._server: VirtualServer | None = None

    def start(self) -> str:
        self._server = VirtualServer(self._world, self._factory, self._files)
        try:
            self._server.start()
        except ServerCrashError as error:
            raise Inconclusive("the server does not start", actual=str(error)) from None
        self.url = f"{self._scheme}{HOST}:{self._server.port}"
        return self.url

    @property
    def is_running(self) -> bool:
        return self._server is not None and not self._server.has_ended

    def raise_alarm(self) -> None:
        """As ``OwnAmqpServer.raise_alarm``."""
        if self._server is not None:
            self._server.block()

    def end_alarm(self) -> None:
        """As ``OwnAmqpServer.end_alarm``."""
        if self._server is not None:
            self._server.unblock()

    def _end(self, number: signal.Signals) -> None:
        if self._server is None:
            return
        if number == signal.SIGKILL:
            self._server.kill()
        else:
            self._server.stop()
        self._server = None

    def close(self) -> None:
        self.kill()

    def exit_output(self, within: float) -> str:
        return self._world.crash if self._server is not None and self._server.has_ended else ""
