"""A proxy that keeps the decoded operations in memory, for tests of clients.

    with watched("nats://127.0.0.1:4222", faults=["delay 300ms HMSG where status = 408"]) as proxy:
        client = connect(proxy.url)
        proxy.wait(lambda: any(seen.operation.verb == "SUB" for seen in proxy.observations), within=2)

Two relays stand in a row: the faults are behind the one that watches. So what is kept is what the client
sent and what it was sent, when, and ``inject`` adds what no server said.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from msgspec import Struct

from plumbline.captures.dialects import StreamDecoder, known
from plumbline.monitors import Observation
from plumbline.proxy.addresses import Endpoint
from plumbline.proxy.faults.injection import Faults
from plumbline.proxy.faults.language import Fault, parse_fault
from plumbline.proxy.link import Link
from plumbline.proxy.record import ANY_PORT
from plumbline.proxy.relay import NullTap, Relay
from plumbline.wire.errors import ProtocolError
from plumbline.wire.sender import Direction


class Remark(Struct, frozen=True):
    """What happened and is no operation. ``at`` in ns since 1970."""

    at: int
    connection: str
    text: str


class WatchedProxy:
    """``broker`` is the URL behind it. ``observations`` and ``remarks`` only grow, in the order of time."""

    def __init__(self, url: str, faults: Sequence[str] = ()) -> None:
        self.broker = url
        scheme, _, rest = url.partition("://")
        address, slash, path = rest.partition("/")
        self._credentials, self._path = "".join(address.rpartition("@")[:2]), slash + path
        server = Endpoint.parse(f"{scheme}://{address}")
        self._dialect = known()[server.protocol]
        self._changed = threading.Condition()
        self._decoders: dict[tuple[int, Direction], StreamDecoder | None] = {}
        self._counts: dict[int, int] = {}
        self.observations: list[Observation] = []
        self.remarks: list[Remark] = []
        chosen = _numbered(faults)
        local = Endpoint.parse(ANY_PORT, server.protocol)
        self._disturbing = Relay(server, local, record_first=True)
        self._watching = Relay(self._disturbing.address, local, _WatchingTap(self), record_first=True)
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
            for relay in (self._disturbing, self._watching):
                relay.close()
            raise

    @property
    def url(self) -> str:
        """For clients, with the credentials and the path of the server's."""
        protocol, address = self._watching.server.protocol, self._watching.address
        return f"{protocol}://{self._credentials}{address}{self._path}"

    # -- what is done to the traffic ---------------------------------------------------------

    def set_faults(self, *faults: str) -> None:
        """From now on these faults and no others. Raises ``FaultError``."""
        chosen = _numbered(faults)
        self._in_loop(self._disturbing, lambda: self._faults.change(chosen))

    def reset_connections(self) -> None:
        """Every connection is reset, as when a machine between client and server restarts."""

        def abort() -> None:
            for link in self._watching.links:
                link.abort(Direction.TO_CLIENT, "cut by the scenario")

        self._in_loop(self._watching, abort)

    def inject(self, data: bytes, connection: str | None = None) -> None:
        """Sends to the client (of that connection, or the last one) what no server said: whole operations."""

        def send() -> None:
            links = [link for link in self._watching.links if connection in (None, str(link.number))]
            if links:
                self.on_data(links[-1], Direction.TO_CLIENT, data, time.time_ns())
                links[-1].pipes[Direction.TO_CLIENT].forward(data)

        self._in_loop(self._watching, send)

    # -- what was seen -----------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], bool], within: float) -> bool:
        """Whether ``condition()`` came true in time; it is asked again after everything that passes."""
        with self._changed:
            return self._changed.wait_for(condition, within)

    def _in_loop(self, relay: Relay, action: Callable[[], None]) -> None:
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

    def on_data(self, link: Link, direction: Direction, data: bytes, now: int) -> None:
        """Keeps the operations that ``data`` completes."""
        key = (link.number, direction)
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
        connection = str(link.number)
        with self._changed:
            for operation in operations:
                index = self._counts[link.number] = self._counts.get(link.number, 0) + 1
                self.observations.append(
                    Observation(operation, direction.sender, connection, index, now, "broker")
                )
            if error is not None:
                text = f"{direction.sender} sent malformed protocol data: {error}"
                self.remarks.append(Remark(now, connection, text))
            self._changed.notify_all()

    @contextmanager
    def running(self) -> Iterator[None]:
        """In two threads, until the block ends."""
        with ExitStack() as stack:
            for relay in (self._disturbing, self._watching):
                thread = threading.Thread(target=relay.run, name="plumbline-watch", daemon=True)
                thread.start()
                stack.callback(thread.join)
                stack.callback(relay.stop)
            yield


class _WatchingTap(NullTap):
    """See ``relay.Tap``."""

    def __init__(self, proxy: WatchedProxy) -> None:
        self._proxy = proxy

    def connected(self, link: Link, now: int) -> None:
        self._proxy.note(str(link.number), "connected")

    def refused(self, link: Link, now: int, why: str) -> None:
        self._proxy.note(str(link.number), f"the server refused: {why}")

    def data(self, link: Link, direction: Direction, data: bytes, now: int) -> None:
        self._proxy.on_data(link, direction, data, now)

    def ended(self, link: Link, direction: Direction, now: int) -> None:
        self._proxy.note(str(link.number), f"closed by the {direction.sender}")

    def reset(self, link: Link, direction: Direction, now: int, why: str) -> None:
        self._proxy.note(str(link.number), f"reset: {why}")


def _numbered(faults: Sequence[str]) -> dict[str, Fault]:
    return {str(number): parse_fault(text) for number, text in enumerate(faults, 1)}


@contextmanager
def watched(url: str, faults: Sequence[str] = ()) -> Iterator[WatchedProxy]:
    """A watching proxy before ``url``, while the block runs. Raises ``FaultError``, ``AddressError``."""
    proxy = WatchedProxy(url, faults)
    with proxy.running():
        yield proxy
