"""Accepts clients, connects each to the server, and forwards bytes immediately; reports the traffic to a tap.

Everything that one turn of the loop received is recorded together, then forwarded (``record_first``), or
forwarded, then recorded. The relay decodes nothing and never re-frames.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from plumbline.descriptors import allow_many_descriptors
from plumbline.proxy.addresses import Endpoint, listening_socket
from plumbline.proxy.counters import Counters
from plumbline.proxy.link import Link, Opening
from plumbline.proxy.loop import Loop
from plumbline.proxy.pipe import Pipe
from plumbline.wire.sender import Direction

ACCEPT_AT_ONCE = 256
NO_DESCRIPTORS_S = 0.1  # how long to leave the backlog alone when descriptors ran out
FLUSH_WITHIN_S = 1.0  # at the end, for what was received and not yet written
FLUSH_POLL_S = 0.01
TURNED_AWAY_WITHIN_S = 1.0  # until a client that is turned away has closed its side
DISCARDED_BYTES = 65536


class Tap(Protocol):
    """Gets what passed. Times are nanoseconds since the epoch. A tap must not raise."""

    def connected(self, link: Link, now: int) -> None:
        """The server was reached."""

    def refused(self, link: Link, now: int, why: str) -> None:
        """The server could not be reached; the client is closed."""

    def data(self, link: Link, direction: Direction, data: bytes, now: int) -> None:
        """Bytes were received, to be forwarded in that direction."""

    def data_one_way(self, link: Link, direction: Direction) -> Callable[[bytes], bool] | None:
        """A quicker way for a turn in which only this direction received: ``data`` now, then ``commit``."""

    def ended(self, link: Link, direction: Direction, now: int) -> None:
        """The sender of that direction closed it."""

    def reset(self, link: Link, direction: Direction, now: int, why: str) -> None:
        """The connection is gone; the reset is passed on in that direction."""

    def closed(self, link: Link) -> None:
        """Nothing more comes of that connection."""

    def commit(self) -> bool:
        """Before what was reported in this turn is forwarded. False: do not forward it; close everything."""


class NullTap:
    """A tap that looks away."""

    def connected(self, link: Link, now: int) -> None: ...
    def refused(self, link: Link, now: int, why: str) -> None: ...
    def data(self, link: Link, direction: Direction, data: bytes, now: int) -> None: ...
    def ended(self, link: Link, direction: Direction, now: int) -> None: ...
    def reset(self, link: Link, direction: Direction, now: int, why: str) -> None: ...
    def closed(self, link: Link) -> None: ...

    def data_one_way(self, link: Link, direction: Direction) -> Callable[[bytes], bool] | None:
        return None

    def commit(self) -> bool:
        return True


class Relay:
    """Listens from construction on; forwards while ``run`` runs. Raises ``AddressError``."""

    def __init__(
        self, server: Endpoint, listen: Endpoint, tap: Tap | None = None, *, record_first: bool
    ) -> None:
        self.server = server
        self.tap: Tap = tap or NullTap()
        self.counters = Counters()
        self.loop = Loop(self._end_of_turn, self.fail)
        self.on_error: Callable[[Link, Exception], None] = _print_error
        self.received: list[tuple[Pipe, bytes, int]] = []
        self.ended: list[Pipe] = []
        self.aborted: list[tuple[Link, Direction, str]] = []
        self.refused: list[tuple[Link, str]] = []
        self.opening: Opening | None = None
        self.finished: list[Link] = []  # to be closed at the end of the turn
        self._ended_links: list[Link] = []
        self.disturb: Callable[[Link], None] = lambda link: None  # may set ``Pipe.disturbance``
        self.on_turned_away: Callable[[], None] | None = None  # if set: clients are accepted and closed
        self._turned_away: set[socket.socket] = set()  # those that are not closed yet
        self._server_addresses = server.resolve()
        self._listen = listen
        self._listener: socket.socket | None = listening_socket(listen)
        self._record_first = record_first
        self._links: dict[int, Link] = {}
        self._stopping = False
        allow_many_descriptors()  # two for each client
        self.loop.add(self._listener.fileno(), select.EPOLLIN, self._accept)

    @property
    def address(self) -> Endpoint:
        """Where it listens, with the port that it got."""
        if self._listener is None or self._listen.path:
            return self._listen
        host, port = self._listener.getsockname()[:2]
        return Endpoint(self.server.protocol, host, port)

    @property
    def links(self) -> list[Link]:
        """Those that are open."""
        return list(self._links.values())

    def run(self) -> None:
        """Until ``stop``."""
        try:
            self.loop.run()
        finally:
            self.close()

    def close(self) -> None:
        """Gives back every socket; for one that never ran, too."""
        for link in list(self._links.values()):
            link.close()
        for client in self._turned_away:
            client.close()
        self._turned_away.clear()
        self._close_listener()
        self.loop.close()

    def stop(self, drain_s: float = 0.0) -> None:
        """From any thread or a signal handler: no new clients, and ``run`` returns when those that are there
        have left, or after ``drain_s`` seconds, when what was received has been forwarded. Again: at once."""
        self.loop.call(lambda: self._stop(drain_s))

    # -- clients -----------------------------------------------------------------------------

    def _accept(self, _mask: int) -> None:
        listener = self._listener
        for _ in range(ACCEPT_AT_ONCE):
            if listener is None:
                return
            try:
                client, peer = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                self.loop.remove(listener.fileno())
                self.loop.after(NO_DESCRIPTORS_S, self._accept_again)
                return
            client.setblocking(False)
            if self.on_turned_away is not None:
                self._turn_away(client, self.on_turned_away)
                continue
            self.counters.accepted += 1
            self.counters.open += 1
            link = Link(self.counters.accepted, client, peer, self.loop, self)
            self._links[link.number] = link
            link.connect(self._server_addresses)

    def _turn_away(self, client: socket.socket, report: Callable[[], None]) -> None:
        """Ends the stream to the client, and never resets it: what the client sends is read. Reports it once
        the client has closed, too, or is closed after a while."""

        def close() -> None:
            timer.cancel()
            self._turned_away.discard(client)
            self.loop.remove(client.fileno())
            client.close()
            report()

        def read(_mask: int) -> None:
            try:
                if client.recv(DISCARDED_BYTES):
                    return
            except BlockingIOError:
                return
            except OSError:
                pass  # reset by the client
            close()

        self._turned_away.add(client)
        timer = self.loop.after(TURNED_AWAY_WITHIN_S, close)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)
        self.loop.add(client.fileno(), select.EPOLLIN, read)

    def _accept_again(self) -> None:
        if self._listener is not None:
            self.loop.add(self._listener.fileno(), select.EPOLLIN, self._accept)

    def connected(self, link: Link) -> None:
        """A link reached the server."""
        self.tap.connected(link, time.time_ns())
        if self._record_first:
            for pipe in link.pipes:
                pipe.record_alone = self.tap.data_one_way(link, pipe.direction)
        self.disturb(link)

    def closed(self, link: Link) -> None:
        """A link closed its sockets."""
        del self._links[link.number]
        self._ended_links.append(link)
        self.counters.open -= 1
        if self._stopping and not self._links:
            self.loop.stop()

    def fail(self, link: Link, error: Exception) -> None:
        """An error of Plumbline in what concerns one connection: that one is closed, the others go on."""
        self.counters.failed += 1
        self.on_error(link, error)
        link.reset()

    # -- the turn ----------------------------------------------------------------------------

    def _end_of_turn(self) -> None:
        if self.received or self.ended:
            self._record_and_forward()
        if self.refused or self.aborted or self.finished or self._ended_links:
            self._close_ended()

    def _close_ended(self) -> None:
        """Says goodbye to connections."""
        while self.refused or self.aborted:
            refused, self.refused = self.refused, []
            for link, why in refused:
                self.counters.refused += 1
                self.tap.refused(link, time.time_ns(), why)
                link.close()
            aborted, self.aborted = self.aborted, []
            for link, direction, why in aborted:
                self.counters.reset += 1
                for data in link.unread_bytes(direction):
                    self.tap.data(link, direction, data, time.time_ns())
                    link.send_unread(direction, data)
                self.tap.reset(link, direction, time.time_ns(), why)
                link.reset()
        for link in self.finished:
            self.end(link)
        self.finished.clear()
        for link in self._ended_links:
            self.tap.closed(link)
        self._ended_links.clear()

    def _record_and_forward(self) -> None:
        received, ended = self.received, self.ended
        self.received, self.ended = [], []
        if self._record_first:
            may_go_on = self._record(received, ended)
            if may_go_on:
                self._forward(received, ended)
        else:
            self._forward(received, ended)
            may_go_on = self._record(received, ended)
        if not may_go_on:
            self.abandon()

    def _record(self, received: list[tuple[Pipe, bytes, int]], ended: list[Pipe]) -> bool:
        data = self.tap.data
        for pipe, chunk, now in received:
            try:
                data(pipe.link, pipe.direction, chunk, now)
            except Exception as error:
                self.fail(pipe.link, error)
        for pipe in ended:
            try:
                self.tap.ended(pipe.link, pipe.direction, time.time_ns())
            except Exception as error:
                self.fail(pipe.link, error)
        return self.tap.commit()

    def _forward(self, received: list[tuple[Pipe, bytes, int]], ended: list[Pipe]) -> None:
        for pipe, chunk, _ in received:
            try:
                pipe.count(chunk)
                (pipe.disturbance or pipe).forward(chunk)
            except Exception as error:
                self.fail(pipe.link, error)
        for pipe in ended:
            try:
                (pipe.disturbance or pipe).forward_end()
            except Exception as error:
                self.fail(pipe.link, error)

    def abandon(self) -> None:
        """What cannot be recorded may not pass: everything is closed, and ``run`` returns."""
        self._close_listener()
        for link in list(self._links.values()):
            link.reset()
        self.loop.stop()

    def end(self, link: Link) -> None:
        """Closes a connection in both directions, as if each side had."""
        for pipe in link.pipes:
            if not pipe.ended and not link.closed:
                pipe.ended = True
                self.tap.ended(link, pipe.direction, time.time_ns())
        link.close()

    # -- the end -----------------------------------------------------------------------------

    def _stop(self, drain_s: float) -> None:
        if self._stopping:
            self._finish()
            return
        self._stopping = True
        self._close_listener()
        if not self._links:
            self.loop.stop()
            return
        self.loop.after(drain_s, self._begin_flush)

    def _begin_flush(self) -> None:
        for link in self._links.values():
            for pipe in link.pipes:
                pipe.hold(now_held=True)
        self._flush(time.monotonic() + FLUSH_WITHIN_S)

    def _flush(self, until: float) -> None:
        """Closes each link that owes nothing; all of them at ``until``."""
        owing = [link for link in self._links.values() if link.unsent]
        if owing and time.monotonic() < until:
            self.loop.after(FLUSH_POLL_S, lambda: self._flush(until))
        else:
            self._finish()

    def _finish(self) -> None:
        for link in list(self._links.values()):
            self.end(link)
        self.loop.stop()

    def _close_listener(self) -> None:
        if self._listener is None:
            return
        self.loop.remove(self._listener.fileno())
        self._listener.close()
        self._listener = None
        if self._listen.path:
            with contextlib.suppress(OSError):
                Path(self._listen.path).unlink()


def _print_error(link: Link, error: Exception) -> None:
    with contextlib.suppress(BrokenPipeError):  # the other connections go on without a reader of stderr
        sys.stderr.write(f"plumbline: connection {link.number} was closed: {error_text(error)}\n")


def error_text(error: Exception) -> str:
    """An internal error in one line, with the place where it was raised."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    what = f"internal error in Plumbline: {type(error).__name__}: {error}"
    return f"{what} ({place.filename}:{place.lineno})"
