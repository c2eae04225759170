"""The asyncio shell of every broker: sockets, the clock, the wake-up timer and the thread around a pure core.

Knows nothing of the protocol but bytes. What a client is sent in one event is one write; a producer
whose consumer does not keep up is held back for a moment, and a consumer that never does is cut off.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Protocol, cast

from plumbline.bounds import RESERVED_DESCRIPTORS
from plumbline.descriptors import descriptor_limit
from plumbline.reference_broker.outputs import CloseOutput, SendOutput
from plumbline.reference_broker.struct_types import build_struct_types

NS = 1_000_000_000
WRITE_BUFFER = 4 * 1024 * 1024  # beyond this, producers are held back
PAUSE_READING_S = 0.01  # how long, per read: as long as nats-server does
CATCH_UP_S = 0.1  # how long a consumer may lag before max_pending counts
LINGER_S = 1.0  # how long a client we close is read from, so that no reset swallows what was sent to it
EVICTIONS_A_SECOND = 100  # at least
STOP_S = 1.0  # how long clients have to take what they were sent when the broker stops
ACCEPT_AT_ONCE = 16  # connections in one turn of the event loop
BACKLOG = 1024  # connections that wait to be accepted
ACCEPT_TURNS = (
    2  # of the event loop, from accept(2) to connection_made: asyncio's own task, then its callback
)


class Core(Protocol):
    """A broker as a state machine: each call returns what it asks for.

    ``now`` is nanoseconds since the epoch.
    """

    def on_connected(self, connection_id: int, now: int, peer: str) -> Sequence[Any]:
        """A client has connected from the address ``peer``."""
        ...

    def on_data(self, connection_id: int, data: bytes, now: int) -> Sequence[Any]:
        """A client has sent bytes, in any segmentation."""
        ...

    def on_disconnected(self, connection_id: int, now: int) -> Sequence[Any]:
        """A client is gone."""
        ...

    def wake(self, now: int) -> Sequence[Any]:
        """Run what is due."""
        ...

    def next_wake(self) -> int | None:
        """When ``wake`` has something to do; None for never."""
        ...


class Shell:
    """A broker that listens on a socket; as a context manager it starts and gives its URL.

    Who inherits it names the ``scheme`` of its URL and answers to ``on_listening``, ``effect``,
    ``on_client_slow`` and ``on_client_ready`` where there is something to do.
    """

    scheme = ""
    report: Callable[[str], None] = staticmethod(
        lambda line: None
    )  # what whoever runs the broker should read

    def __init__(self, core: Core, *, host: str, port: int, max_pending: int, write_deadline: float) -> None:
        self.core = core
        self.host = host
        self.port = port
        self.max_pending = max_pending  # unread bytes beyond which a connection is a slow consumer
        self.write_deadline = write_deadline  # seconds
        self.clients: dict[int, Client] = {}
        self.max_clients = descriptor_limit()  # until ``start`` knows
        self._refused = 0
        self._opened = 0
        self._server: asyncio.Server | None = None
        self._more_servers: list[asyncio.Server] = []
        self._clock_starts = time.time_ns() - time.monotonic_ns()
        self._wake_handle: asyncio.TimerHandle | None = None
        self._wake_at: int | None = None

    @property
    def is_listening(self) -> bool:
        """Between ``start`` and ``stop``."""
        return self._server is not None

    @property
    def url(self) -> str:
        """Where clients connect to."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return (
            f"{self.scheme}://[{host}]:{self.port}" if ":" in host else f"{self.scheme}://{host}:{self.port}"
        )

    @property
    def shown_url(self) -> str:
        """``url`` without secrets."""
        return self.url

    @classmethod
    def in_thread(cls, *arguments: Any, **options: Any) -> BrokerThread:
        """For programs without an event loop: ``with NatsBroker.in_thread() as url: ...``."""
        build_struct_types()
        broker = cls(*arguments, **options)
        build_struct_types()  # of what was imported for it
        return BrokerThread(broker)

    def on_listening(self) -> None:
        """``port`` is known; no client has connected yet."""

    def open_to_all(self) -> str:
        """Why whoever reaches the port may use the broker; empty if credentials are needed."""
        return ""

    def exposure(self) -> list[str]:
        """What is dangerous about the address that it listens on, in sentences."""
        reason = self.open_to_all()
        if not reason or _is_loopback(self.host):
            return []
        return [f"{self.host} can be reached from other machines, and {reason}: anybody can use this broker"]

    def refusal(self, client_id: int, peer: str) -> bytes:
        """What a client is sent that is one too many, before it is closed."""
        return b""

    async def evict_clients(self, grace_period_s: float, duration_s: float) -> None:
        """Close one client after the other, after a grace period; all of it lasts ``duration_s``."""
        if self.clients:
            await asyncio.sleep(grace_period_s)
        pause = max(duration_s - grace_period_s, 0.0) / max(len(self.clients), 1)
        while self.clients:
            for client in list(self.clients.values())[: 1 if pause * EVICTIONS_A_SECOND > 1 else None]:
                client.transport.close()
            await asyncio.sleep(min(pause, 1.0))

    def effect(self, output: Any) -> None:
        """What a core asks for beyond sending and closing."""
        raise TypeError(f"no such effect: {output!r}")

    def new_client(self) -> Client:
        """Of a connection that is accepted."""
        return Client(self)

    def on_client_slow(self, client: Client) -> None:
        """``client`` does not take what it is sent."""

    def on_client_ready(self, client: Client) -> None:
        """``client`` has taken what it was sent."""

    async def open_more_ports(self) -> None:
        """Before the port of clients is opened: ``listen`` on others. Raises as ``start`` does."""

    async def listen(
        self, new_protocol: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> asyncio.Server:
        """One more port, until ``stop``. Raises ``OSError`` if the address cannot be had."""
        server = await _listen(new_protocol, host, port)
        self._more_servers.append(server)
        return server

    def _close_more_ports(self) -> None:
        while self._more_servers:
            self._more_servers.pop().close()

    async def start(self) -> None:
        """Listen. Raises ``OSError`` if the address cannot be had."""
        limit = descriptor_limit()
        self.max_clients = max(limit - RESERVED_DESCRIPTORS, limit // 4)
        try:
            await self.open_more_ports()
            self._server = await _listen(self.new_client, self.host, self.port)
        except BaseException:
            self._close_more_ports()
            raise
        self.port = port_of(self._server)
        self.on_listening()
        self.schedule()

    async def stop(self) -> None:
        """Close every connection and stop listening; nothing stays behind."""
        if self._server is None:
            return
        loop = asyncio.get_running_loop()
        for listener in self._server.sockets:
            loop.remove_reader(listener.fileno())
        for _ in range(ACCEPT_TURNS):  # asyncio forgets, unclosed, whom it accepted just before close()
            await asyncio.sleep(0)
        self._server.close()
        self._close_more_ports()
        if self._wake_handle is not None:
            self._wake_handle.cancel()
        clients = list(self.clients.values())
        for client in clients:
            client.transport.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await asyncio.gather(*(client.closed.wait() for client in clients))
        for client in clients:
            client.transport.abort()
        await self._server.wait_closed()
        self._server = None

    async def __aenter__(self) -> str:
        await self.start()
        return self.url

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    def refuse(self, client: Client, peer: str) -> None:
        """Close a connection that is one too many: what is left of the descriptors is for files."""
        self._refused += 1
        if not self._refused & (self._refused - 1):  # 1, 2, 4, 8 ...: a flood of them is a few lines
            refused = f"{self._refused} connection{'s' * (self._refused > 1)} refused"
            self.report(
                f"warning: {refused}: {self.max_clients} are open, and the limit of descriptors is near"
            )
        client.transport.write(self.refusal(client.id, peer))
        client.transport.close()

    def advance(self, seconds: float) -> None:
        """Move the broker's clock forward and run what is due by then."""
        self._clock_starts += round(seconds * NS)
        self._wake()

    def now(self) -> int:
        """Nanoseconds since the epoch, never going back."""
        return self._clock_starts + time.monotonic_ns()

    def next_id(self) -> int:
        self._opened += 1
        return self._opened

    def carry_out(self, outputs: Iterable[Any], producer: Client | None = None) -> None:
        """Write and close as the core says."""
        for output in outputs:
            if type(output) is SendOutput:
                if (client := self.clients.get(output.connection)) is not None:
                    client.write(output.data, producer)
            elif type(output) is CloseOutput:
                if (client := self.clients.get(output.connection)) is not None:
                    client.end()
            else:
                self.effect(output)
        self.schedule()

    def schedule(self) -> None:
        """See to it that the core is woken in time; a wake-up too early does no harm."""
        when = self.core.next_wake()
        if when is None or (self._wake_at is not None and self._wake_at <= when):
            return
        if self._wake_handle is not None:
            self._wake_handle.cancel()
        delay = max(when - self.now(), 0) / NS
        self._wake_at = when
        self._wake_handle = asyncio.get_running_loop().call_later(delay, self._wake)

    def _wake(self) -> None:
        if self._wake_handle is not None:
            self._wake_handle.cancel()
        self._wake_handle = self._wake_at = None
        self.carry_out(self.core.wake(self.now()))


class Client(asyncio.Protocol):
    """One accepted connection."""

    transport: asyncio.Transport

    def __init__(self, server: Shell) -> None:
        self.server = server
        self.id = server.next_id()
        self.closed = asyncio.Event()
        self.is_slow = False  # does not take what it is sent as quickly as it comes
        self.held_back: set[Client] = set()  # producers that wait for us
        self.waits_for: set[Client] = set()  # consumers that we wait for
        self._deadline: asyncio.TimerHandle | None = None
        self._release: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._lags_long_from = 0.0
        self._written = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        server = self.server
        peer = self.transport.get_extra_info("peername")
        address = peer[0] if peer else ""
        if len(server.clients) >= server.max_clients:
            server.refuse(self, address)
            return
        self.transport.set_write_buffer_limits(high=min(WRITE_BUFFER, server.max_pending // 2))
        server.clients[self.id] = self
        server.carry_out(server.core.on_connected(self.id, server.now(), address))

    def data_received(self, data: bytes) -> None:
        server = self.server
        server.carry_out(server.core.on_data(self.id, data, server.now()), self)

    def connection_lost(self, exception: Exception | None) -> None:
        if self.server.clients.pop(self.id, None) is None:
            return  # it was refused
        self.resume_writing()
        self.resume_reading()
        if self._linger is not None:
            self._linger.cancel()
        self.closed.set()
        self.server.carry_out(self.server.core.on_disconnected(self.id, self.server.now()))

    def write(self, data: bytes, producer: Client | None) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(data)
        self._written += len(data)
        if not self.is_slow:
            return
        if self.transport.get_write_buffer_size() > self.server.max_pending and self.is_slow_too_long():
            self.transport.abort()  # a slow consumer
        elif producer is not None:
            producer.pause_reading_for(self)

    def end(self) -> None:
        """Close, once everything is written; at once, if the client has reset the connection."""
        try:
            self.transport.write_eof()
        except OSError:
            self.transport.abort()
            return
        self._linger = asyncio.get_running_loop().call_later(LINGER_S, self.transport.close)

    def pause_writing(self) -> None:
        self.is_slow = True
        self._lags_long_from = asyncio.get_running_loop().time() + CATCH_UP_S
        self._check_progress(self._bytes_sent())
        self.server.on_client_slow(self)

    def _bytes_sent(self) -> int:
        """How many bytes the socket has taken so far."""
        return self._written - self.transport.get_write_buffer_size()

    def _check_progress(self, bytes_sent: int) -> None:
        """End a connection that takes nothing at all for as long as a write may last."""

        def look() -> None:
            if self._bytes_sent() == bytes_sent:
                self.transport.abort()
            else:
                self._check_progress(self._bytes_sent())

        self._deadline = asyncio.get_running_loop().call_later(self.server.write_deadline, look)

    def resume_writing(self) -> None:
        self.is_slow = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        for producer in self.held_back:
            producer.waits_for.discard(self)
            if not producer.waits_for:
                producer.resume_reading()
        self.held_back.clear()
        if not self.transport.is_closing():
            self.server.on_client_ready(self)

    def is_slow_too_long(self) -> bool:
        return asyncio.get_running_loop().time() >= self._lags_long_from

    def pause_reading_for(self, slow_client: Client) -> None:
        """Read no more until ``slow_client`` has caught up, or a moment has passed."""
        if self is slow_client or self.transport.is_closing():
            return
        slow_client.held_back.add(self)
        self.waits_for.add(slow_client)
        if self._release is None:
            self.transport.pause_reading()
            self._release = asyncio.get_running_loop().call_later(PAUSE_READING_S, self.resume_reading)

    def resume_reading(self) -> None:
        if self._release is None:
            return
        self._release.cancel()
        self._release = None
        for consumer in self.waits_for:
            consumer.held_back.discard(self)
        self.waits_for.clear()
        if not self.transport.is_closing():
            self.transport.resume_reading()


async def _listen(new_protocol: Callable[[], asyncio.Protocol], host: str, port: int) -> asyncio.Server:
    """Many connections may wait, although few are accepted in one turn.

    asyncio accepts as many at once as the backlog is long, and refuses none of them before it has all.
    """
    loop = asyncio.get_running_loop()
    server = await loop.create_server(new_protocol, host, port, backlog=ACCEPT_AT_ONCE)
    for listener in server.sockets:
        with socket.fromfd(listener.fileno(), listener.family, listener.type) as same:
            same.listen(BACKLOG)
    return server


def port_of(server: asyncio.Server) -> int:
    """The one that it listens on."""
    return int(server.sockets[0].getsockname()[1])


class BrokerThread:
    """A broker on an event loop in a thread of its own; entering gives its URL."""

    def __init__(self, broker: Shell) -> None:
        self.broker = broker
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="broker", daemon=True)

    def start(self) -> str:
        """Start it. Raises ``OSError`` if the address cannot be had."""
        self._thread.start()
        self._started.wait()
        self._report_failure()
        return self.broker.url

    def stop(self) -> None:
        """Stop it and wait until it has ended. Raises what it failed with, if it did."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._report_failure()

    def advance(self, seconds: float) -> None:
        """Move the broker's clock forward; returns once what is due by then has run, or raises as it does."""
        if self._loop is None:
            raise RuntimeError("the broker is not running")

        async def run() -> None:
            self.broker.advance(seconds)

        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def __enter__(self) -> str:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as failure:  # whoever started it must learn of it
            self._failure = failure
            self._started.set()

    def _report_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with self.broker:
            self._started.set()
            await self._stop.wait()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False  # a name, or all addresses
