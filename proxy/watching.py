"""A proxy that keeps the decoded operations in memory, for tests of clients.

    with watched("nats://127.0.0.1:4222", faults=["delay 300ms HMSG where status = 408"]) as proxy:
        client = connect(proxy.url)
        proxy.wait(lambda: any(seen.operation.verb == "SUB" for seen in proxy.observations), within=2)

Two relays stand in a row: the faults are behind the one that watches. So what is kept is what the client
sent and what it was sent, when, and ``inject`` adds what no server sent. With a certificate, clients use TLS
with the first relay; all else is in the clear.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from msgspec import Struct

from plumbline.captures.dialects import StreamDecoder, known
from plumbline.monitors import Observation
from plumbline.proxy.addresses import ENCRYPTED, Endpoint
from plumbline.proxy.faults.injection import Faults
from plumbline.proxy.faults.language import Fault, parse_fault
from plumbline.proxy.info import client_changes, rewrite_info
from plumbline.proxy.link import Link
from plumbline.proxy.pipe import Pipe
from plumbline.proxy.record import ANY_PORT
from plumbline.proxy.relay import NullTap, Relay
from plumbline.proxy.tls.contexts import tls_settings
from plumbline.proxy.tls.opening import TlsOpenings
from plumbline.tls import TlsOptions
from plumbline.wire.errors import ProtocolError
from plumbline.wire.sender import Direction

REFUSED = "refused"  # the connection's name in remarks about clients that were turned away


class Remark(Struct, frozen=True):
    """What happened and is no operation. ``at`` in ns since 1970."""

    at: int
    connection: str
    text: str


class WatchedProxy:
    """``broker`` is the URL behind it. ``observations`` and ``remarks`` only grow, in the order of time."""

    def __init__(
        self,
        url: str,
        faults: Sequence[str] = (),
        certificate: tuple[ssl.SSLContext, Path] | None = None,
    ) -> None:
        self.broker = url
        scheme, _, rest = url.partition("://")
        address, slash, path = rest.partition("/")
        self._credentials, self._path = "".join(address.rpartition("@")[:2]), slash + path
        server = Endpoint.parse(f"{scheme}://{address}")
        self._dialect = known()[server.protocol]
        self.authority = certificate[1] if certificate else None
        self._tls = tls_settings(server, certificate[0] if certificate else None, TlsOptions())
        self._changed = threading.Condition()
        self._decoders: dict[tuple[str, Direction], StreamDecoder | None] = {}
        self._counts: dict[str, int] = {}
        self._links: dict[str, Link] = {}  # those that are open, by their names, the last one last
        self.observations: list[Observation] = []
        self.clear_text: list[bytes] = []  # of each client that sent something where TLS has to begin
        self.remarks: list[Remark] = []
        chosen = _numbered(faults)
        self._local = Endpoint.parse(ANY_PORT, server.protocol)
        self._disturbing = Relay(server, self._local, record_first=True)
        self._entrances: list[Relay] = []
        self._running = ExitStack()  # the threads, while the proxy runs
        self._open_entrance()
        self._faults = Faults(
            self._disturbing.loop,
            self._dialect,
            0,
            lambda link, direction, text: self.note(str(link.number), text),
            self._disturbing.finished.append,
        )
        self._faults.may_change = True
        self._disturbing.disturb = self._faults.attach
        try:
            self._faults.change(chosen)
        except Exception:
            for relay in (self._disturbing, *self._entrances):
                relay.close()
            raise

    def _open_entrance(self) -> Relay:
        """Another address. Its connections are ``1``, ``2``, ... at the first, ``b1``, ``b2``, ... at the
        second one."""
        prefix = "" if not self._entrances else chr(ord("a") + len(self._entrances))
        address = self._disturbing.address
        tap = _WatchingTap(self, prefix)
        entrance = Relay(address, self._local, tap, record_first=True)
        if self._tls is not None:
            entrance.opening = TlsOpenings(self._tls, tap.greeted, {}, self.on_clear_text)
        self._entrances.append(entrance)
        return entrance

    @property
    def url(self) -> str:
        """For clients, with the credentials and the path of the server's."""
        return self._url_of(self._entrances[0])

    def _url_of(self, entrance: Relay) -> str:
        protocol = entrance.server.protocol
        if self._tls is not None:
            protocol = {spoken: scheme for scheme, spoken in ENCRYPTED.items()}[protocol]
        return f"{protocol}://{self._credentials}{entrance.address}{self._path}"

    def add_address(self) -> str:
        """The URL of another address of the same broker, as of another server of a cluster."""
        entrance = self._open_entrance()
        self._run_relay(entrance)
        return self._url_of(entrance)

    # -- what is done to the traffic ---------------------------------------------------------

    def set_faults(self, *faults: str) -> None:
        """From now on these faults and no others. Raises ``FaultError``."""
        chosen = _numbered(faults)
        self._in_loop(self._disturbing, lambda: self._faults.change(chosen))

    def reset_connections(self) -> None:
        """Every connection is reset, as when a machine between client and server restarts."""
        why = "cut by the scenario"

        def reset(_relay: Relay, link: Link) -> None:
            if link.pipes:
                link.abort(Direction.TO_CLIENT, why)
            else:  # still connecting, or in the handshake of TLS
                link.give_up(why)

        self._for_each_link(reset)

    def close_connections(self) -> None:
        """Every connection ends as if each side had closed it: the client reads the end of the stream."""
        self._for_each_link(lambda relay, link: relay.end(link))

    def refuse_connections(self) -> None:
        """From now on a client that connects to the first address reads the end of the stream at once.
        Connections that are open stay. Each refusal is a remark of the connection ``REFUSED``, once the
        client has closed, too."""
        first = self._entrances[0]

        def refuse() -> None:
            first.on_turned_away = lambda: self.note(REFUSED, "refused by the scenario")

        self._in_loop(first, refuse)

    def accept_connections(self) -> None:
        """Clients may connect to the first address again."""
        first = self._entrances[0]

        def accept() -> None:
            first.on_turned_away = None

        self._in_loop(first, accept)

    def silence_connections(self) -> None:
        """No byte passes any more on the connections that are open, and none of them is closed. The next
        connection is whole."""

        def silence() -> None:
            for link in self._disturbing.links:
                for pipe in link.pipes:
                    pipe.disturbance = _Silence(pipe)

        self._in_loop(self._disturbing, silence)

    def inject(self, data: bytes, connection: str | None = None) -> None:
        """Sends to the client (of that connection, or the last one) what no server sent: whole operations."""
        with self._changed:
            chosen = [name for name in self._links if connection in (None, name)]
            if not chosen:
                return
            link = self._links[chosen[-1]]

        def send() -> None:
            if not link.closed:
                self.on_data(chosen[-1], Direction.TO_CLIENT, data, time.time_ns())
                link.pipes[Direction.TO_CLIENT].forward(data)

        self._in_loop(link, send)

    def is_open(self, connection: str) -> bool:
        """Whether more can come of that connection."""
        with self._changed:
            return connection in self._links

    def _for_each_link(self, act: Callable[[Relay, Link], None]) -> None:
        """In the loop of each relay that clients connect to."""

        def act_on(relay: Relay) -> None:
            for link in relay.links:
                act(relay, link)

        for entrance in list(self._entrances):
            self._in_loop(entrance, partial(act_on, entrance))

    # -- what was seen -----------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], bool], within: float) -> bool:
        """Whether ``condition()`` came true in time; it is asked again after everything that passes."""
        with self._changed:
            return self._changed.wait_for(condition, within)

    def _in_loop(self, relay: Relay | Link, action: Callable[[], None]) -> None:
        done = threading.Event()

        def act() -> None:
            action()
            done.set()

        relay.loop.call(act)
        done.wait(2.0)

    def note(self, connection: str, text: str) -> None:
        """Keeps a remark."""
        with self._changed:
            self.remarks.append(Remark(time.time_ns(), connection, text))
            self._changed.notify_all()

    def on_clear_text(self, data: bytes) -> None:
        """A client did not begin TLS."""
        with self._changed:
            self.clear_text.append(data)
            self._changed.notify_all()

    def on_open(self, connection: str, link: Link) -> None:
        """A client connected, and the server was reached."""
        with self._changed:
            self._links[connection] = link
        self.note(connection, "connected")

    def on_closed(self, connection: str) -> None:
        """Nothing more comes of that connection."""
        with self._changed:
            self._links.pop(connection, None)
            self._changed.notify_all()

    def on_data(self, connection: str, direction: Direction, data: bytes, now: int) -> None:
        """Keeps the operations that ``data`` completes."""
        key = (connection, direction)
        if key not in self._decoders:
            self._decoders[key] = self._dialect.decoder(direction)
        decoder = self._decoders[key]
        if decoder is None:
            return
        try:
            operations, error = decoder.feed(data), None
        except ProtocolError as problem:
            operations, error = problem.operations, problem
            self._decoders[key] = None
        with self._changed:
            for operation in operations:
                index = self._counts[connection] = self._counts.get(connection, 0) + 1
                self.observations.append(
                    Observation(operation, direction.sender, connection, index, now, "broker")
                )
            if error is not None:
                text = f"{direction.sender} sent malformed protocol data: {error}"
                self.remarks.append(Remark(now, connection, text))
            self._changed.notify_all()

    @contextmanager
    def running(self) -> Iterator[None]:
        """In threads, until the block ends."""
        with self._running:
            for relay in (self._disturbing, *self._entrances):
                self._run_relay(relay)
            yield

    def _run_relay(self, relay: Relay) -> None:
        thread = threading.Thread(target=relay.run, name="plumbline-watch", daemon=True)
        thread.start()
        self._running.callback(thread.join)
        self._running.callback(relay.stop)


class _Silence:
    """A direction in which nothing passes, no end of the server either; see ``pipe.TrafficHook``.

    The server, which hears nothing, may end the connection: on a network that is silent the client does not
    learn that. What the client ends is over.
    """

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self.delayed = 0

    def forward(self, data: bytes) -> None:
        """Lost."""

    def forward_end(self) -> None:
        if self._pipe.direction is Direction.TO_SERVER:
            for pipe in self._pipe.link.pipes:
                pipe.forward_end()

    def forward_reset(self, why: str) -> None:
        if self._pipe.direction is Direction.TO_SERVER:
            self._pipe.link.abort_now(self._pipe.direction, why)

    def end(self) -> None:
        """There is nothing to forget."""


class _WatchingTap(NullTap):
    """See ``relay.Tap``. ``prefix``: of the names of its connections."""

    def __init__(self, proxy: WatchedProxy, prefix: str) -> None:
        self._proxy = proxy
        self._prefix = prefix

    def _name(self, link: Link) -> str:
        return f"{self._prefix}{link.number}"

    def connected(self, link: Link, now: int) -> None:
        self._proxy.on_open(self._name(link), link)

    def greeted(self, link: Link, info: bytes, note: str) -> None:
        """TLS has begun, and before it the client was sent this INFO, which asks for it."""
        self._proxy.note(self._name(link), note)
        if info:
            sent = rewrite_info(info, client_changes(info, encrypted=True))
            self.data(link, Direction.TO_CLIENT, sent, time.time_ns())

    def refused(self, link: Link, now: int, why: str) -> None:
        self._proxy.note(self._name(link), f"no connection: {why}")

    def data(self, link: Link, direction: Direction, data: bytes, now: int) -> None:
        self._proxy.on_data(self._name(link), direction, data, now)

    def ended(self, link: Link, direction: Direction, now: int) -> None:
        self._proxy.note(self._name(link), f"closed by the {direction.sender}")

    def reset(self, link: Link, direction: Direction, now: int, why: str) -> None:
        self._proxy.note(self._name(link), f"reset: {why}")

    def closed(self, link: Link) -> None:
        self._proxy.on_closed(self._name(link))


def _numbered(faults: Sequence[str]) -> dict[str, Fault]:
    return {str(number): parse_fault(text) for number, text in enumerate(faults, 1)}


@contextmanager
def watched(
    url: str, faults: Sequence[str] = (), certificate: tuple[ssl.SSLContext, Path] | None = None
) -> Iterator[WatchedProxy]:
    """A watching proxy before ``url``, while the block runs. Raises ``FaultError``, ``AddressError``.

    ``certificate``: as ``proxy.tls.certificates`` generates it, for clients that use TLS.
    """
    proxy = WatchedProxy(url, faults, certificate)
    with proxy.running():
        yield proxy
