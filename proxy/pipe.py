"""One direction of a relayed connection, and the sockets at its ends.

A direction holds at most what one read gave: while that cannot be written, its source is not read, so a slow
reader slows the writer as if nothing stood between them. An end of stream is passed on after the last byte,
in its own direction only.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from plumbline.proxy.loop import Loop
from plumbline.wire.sender import Direction

if TYPE_CHECKING:
    from plumbline.proxy.link import Link

READ_FIRST = 16 * 1024
MAX_READ_BYTES = (
    125 * 1024
)  # fits the processor's cache, and what malloc maps for each read is larger: both cost more
TURN_BYTES = 8 * 1024 * 1024  # what all connections together may read in one turn
FEW = TURN_BYTES // MAX_READ_BYTES  # so many may read what they like

_IN, _OUT = select.EPOLLIN, select.EPOLLOUT
_HANGUP_EVENTS = select.EPOLLHUP | select.EPOLLERR


class TrafficHook(Protocol):
    """Takes the place of ``Pipe.forward`` and ``forward_end``, and calls them when it sees fit."""

    delayed: int  # bytes that were received and not yet forwarded

    def forward(self, data: bytes) -> None:
        """Bytes were received."""

    def forward_end(self) -> None:
        """The source has ended."""

    def forward_reset(self, why: str) -> None:
        """The source was reset: calls ``Link.abort_now`` after what is delayed."""

    def end(self) -> None:
        """The connection is closed: nothing is kept for it any longer."""


class Pipe:
    """One direction of a connection."""

    __slots__ = (
        "_loop", "_passed", "_recv", "_send", "_size", "blocked", "bytes", "direction", "disturbance",
        "ended", "is_paused", "link", "pending", "record_alone", "shut", "sink", "source",
    )  # fmt: skip

    def __init__(self, link: Link, direction: Direction, source: SocketEnd, sink: SocketEnd) -> None:
        self.link = link
        self.direction = direction
        self.source = source
        self.sink = sink
        self.pending: deque[memoryview] = deque()
        self.blocked = False  # there is something pending: the source is not read
        self.is_paused = False  # the disturbance has enough: the source is not read
        self.disturbance: TrafficHook | None = None  # stands between receiving and forwarding
        # Records what is alone in its turn, and says whether it may be forwarded. None: wait for the end.
        self.record_alone: Callable[[bytes], bool] | None = None
        self.ended = False  # the source has nothing more to say
        self.shut = False  # and the sink was notified
        self.bytes = 0
        self._recv = source.socket.recv
        self._send = sink.socket.send
        self._size = READ_FIRST
        self._loop = link.loop
        self._passed = link.turn.counters.passed
        source.incoming = self
        sink.outgoing = self

    def read(self) -> None:
        """Takes what is there, to be forwarded at the end of the turn; at once, if the turn is only this."""
        size = self._size
        ready = self._loop.ready
        try:
            data = self._recv(size if ready < FEW else min(size, TURN_BYTES // ready or READ_FIRST))
        except BlockingIOError:
            return
        except OSError as error:
            self.link.abort(self.direction, reason(error))
            return
        if not data:
            self._end()
            return
        if len(data) == size and size < MAX_READ_BYTES:
            self._size = min(size * 2, MAX_READ_BYTES)
        if ready > 1 or self.record_alone is None:
            self.link.turn.received.append((self, data, time.time_ns()))
        elif self.record_alone(data):
            self.count(data)
            (self.disturbance or self).forward(data)
        else:
            self.link.turn.abandon()

    def count(self, data: bytes) -> None:
        """What was received, before anything disturbs it."""
        self._passed[self.direction] += len(data)

    def forward(self, data: bytes) -> None:
        """Writes, or keeps for later what the sink does not take now."""
        link = self.link
        if link.broken or link.closed:
            return
        size = len(data)
        self.bytes += size
        if self.blocked:
            self.pending.append(memoryview(data))
            return
        try:
            sent = self._send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.link.abort(self.direction.other, reason(error))
            return
        if sent < size:
            self.pending.append(memoryview(data)[sent:])
            self._block(now_blocked=True)

    def drain(self) -> None:
        """The sink takes bytes again."""
        pending = self.pending
        while pending:
            try:
                sent = self._send(pending[0])
            except BlockingIOError:
                return
            except OSError as error:
                self.link.abort(self.direction.other, reason(error))
                return
            if sent == len(pending[0]):
                pending.popleft()
            else:
                pending[0] = pending[0][sent:]
        self._block(now_blocked=False)
        if self.ended:
            self._shut()

    def hold(self, *, now_held: bool) -> None:
        """Reads no more from the source, or reads on."""
        if self.is_paused != now_held:
            self.is_paused = now_held
            self.source.update()

    def _block(self, *, now_blocked: bool) -> None:
        self.blocked = now_blocked
        self.source.update()
        self.sink.update()

    def _end(self) -> None:
        if self.ended:
            return
        self.ended = True
        self.source.update()
        self.link.turn.ended.append(self)

    def forward_end(self) -> None:
        """After what was received before it has been forwarded."""
        if not self.blocked and not self.link.closed:
            self._shut()

    def _shut(self) -> None:
        if self.shut:
            return
        self.shut = True
        with contextlib.suppress(OSError):  # gone meanwhile: its own event says so
            self.sink.socket.shutdown(socket.SHUT_WR)
        if all(pipe.shut for pipe in self.link.pipes):
            self.link.close()


class SocketEnd:
    """One socket of a connection: the source of one direction and the sink of the other."""

    __slots__ = ("_is_mute", "_loop", "_mask", "fd", "incoming", "outgoing", "socket")

    incoming: Pipe
    outgoing: Pipe

    def __init__(self, loop: Loop, sock: socket.socket) -> None:
        self._loop = loop
        self.socket = sock
        self.fd = sock.fileno()
        self._mask = 0
        self._is_mute = False

    def start(self) -> None:
        """Both directions are there: read from now on."""
        self._mask = _IN
        self._loop.add(self.fd, _IN, self.ready, self.incoming.link)

    def update(self) -> None:
        """Waits for what the two directions want."""
        incoming = self.incoming
        mask = 0 if incoming.ended or incoming.blocked or incoming.is_paused else _IN
        if self.outgoing.blocked:
            mask |= _OUT
        if mask != self._mask and not self._is_mute and not incoming.link.closed:
            self._mask = mask
            self._loop.modify(self.fd, mask)

    def unregister(self) -> None:
        """Hears no more events."""
        self._is_mute = True
        self._loop.remove(self.fd)

    def ready(self, mask: int) -> None:
        """The event mask of epoll."""
        incoming = self.incoming
        if mask == _IN and not incoming.link.closed:
            incoming.read()
            return
        if mask & _OUT:
            self.outgoing.drain()
        if mask & _HANGUP_EVENTS and incoming.ended:
            if self.outgoing.shut:
                self.unregister()  # all of both directions has passed, and it is gone
            else:
                incoming.link.abort(incoming.direction, "connection reset")
        elif mask & (_IN | _HANGUP_EVENTS) and not incoming.link.closed:
            incoming.read()


def reason(error: OSError) -> str:
    """Its name and its words, such as ``ECONNREFUSED: Connection refused``."""
    code = error.errno or 0
    return errno.errorcode.get(code, "") + (f": {error.strerror}" if error.strerror else "") or str(error)
