"""One relayed connection: two sockets, and the two directions between them.

    client --(TO_SERVER)--> server
    client <--(TO_CLIENT)-- server

A direction holds at most what one read gave: while that cannot be written, its source is not read, so a slow
reader slows the writer as if nothing stood between them. An end of stream is passed on after the last byte,
in its own direction only; a reset is passed on at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Protocol

from proxy.loop import Loop, Timer

READ_FIRST = 16 * 1024
READ_MOST = 60 * 1024  # fits one packet, and the processor's cache: more costs more for each byte
TURN_BYTES = 8 * 1024 * 1024  # what all connections together may read in one turn
CONNECT_WITHIN_S = 10.0
RETRY_S = 0.01  # a Unix socket whose backlog is full
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: close sends RST

_IN, _OUT = select.EPOLLIN, select.EPOLLOUT
_GONE = select.EPOLLHUP | select.EPOLLERR


class Direction(IntEnum):
    """Where bytes go."""

    TO_SERVER = 0
    TO_CLIENT = 1

    @property
    def other(self) -> Direction:
        """The opposite one."""
        return Direction(1 - self)


Place = tuple[socket.AddressFamily, Any]  # as getaddrinfo gives them


class Turn(Protocol):
    """What the connections leave for the end of the turn."""

    received: list[tuple[Pipe, bytes, int]]
    ended: list[Pipe]
    aborted: list[tuple[Link, Direction, str]]
    refused: list[tuple[Link, str]]
    opening: Opening | None

    def connected(self, link: Link) -> None:
        """The server was reached."""

    def closed(self, link: Link) -> None:
        """Both sockets are closed."""


class Opening(Protocol):
    """What happens on a new connection before anything is relayed, such as a TLS handshake."""

    def __call__(self, link: Link, client: socket.socket, server: socket.socket) -> None:
        """Calls ``link.start`` or ``link.give_up``, at once or later."""


class Disturbance(Protocol):
    """Takes the place of ``Pipe.forward`` and ``pass_end_on``, and calls them when it sees fit."""

    delayed: int  # bytes that were received and not yet forwarded

    def forward(self, data: bytes) -> None:
        """Bytes were received."""

    def pass_end_on(self) -> None:
        """The source has ended."""


class Pipe:
    """One direction of a connection."""

    __slots__ = (
        "_loop", "_recv", "_send", "_size", "blocked", "bytes", "direction", "disturbance", "ended", "held",
        "link", "pending", "shut", "sink", "source",
    )  # fmt: skip

    def __init__(self, link: Link, direction: Direction, source: End, sink: End) -> None:
        self.link = link
        self.direction = direction
        self.source = source
        self.sink = sink
        self.pending: deque[memoryview] = deque()
        self.blocked = False  # there is something pending: the source is not read
        self.held = False  # the disturbance has enough: the source is not read
        self.disturbance: Disturbance | None = None  # stands between receiving and forwarding
        self.ended = False  # the source has nothing more to say
        self.shut = False  # and the sink was told
        self.bytes = 0
        self._recv = source.socket.recv
        self._send = sink.socket.send
        self._size = READ_FIRST
        self._loop = link.loop
        source.incoming = self
        sink.outgoing = self

    def read(self) -> None:
        """Takes what is there, to be forwarded at the end of the turn."""
        size = self._size
        try:
            data = self._recv(min(size, TURN_BYTES // self._loop.ready or READ_FIRST))
        except BlockingIOError:
            return
        except OSError as error:
            self.link.abort(self.direction, _reason(error))
            return
        if not data:
            self._end()
            return
        if len(data) == size and size < READ_MOST:
            self._size = min(size * 2, READ_MOST)
        self.link.turn.received.append((self, data, time.time_ns()))

    def forward(self, data: bytes) -> None:
        """Writes, or keeps for later what the sink does not take now."""
        if self.link.broken or self.link.closed:
            return
        self.bytes += len(data)
        if self.blocked:
            self.pending.append(memoryview(data))
            return
        try:
            sent = self._send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.link.abort(self.direction.other, _reason(error))
            return
        if sent < len(data):
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
                self.link.abort(self.direction.other, _reason(error))
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
        if self.held != now_held:
            self.held = now_held
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

    def pass_end_on(self) -> None:
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


class End:
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
        self._loop.add(self.fd, _IN, self.ready)

    def update(self) -> None:
        """Waits for what the two directions want."""
        incoming = self.incoming
        mask = 0 if incoming.ended or incoming.blocked or incoming.held else _IN
        if self.outgoing.blocked:
            mask |= _OUT
        if mask != self._mask and not self._is_mute and not incoming.link.closed:
            self._mask = mask
            self._loop.modify(self.fd, mask)

    def mute(self) -> None:
        """Hears no more events."""
        self._is_mute = True
        self._loop.remove(self.fd)

    def ready(self, mask: int) -> None:
        """What epoll told."""
        incoming = self.incoming
        if mask & _OUT:
            self.outgoing.drain()
        if mask & _GONE and incoming.ended:
            if self.outgoing.shut:
                self.mute()  # it has said all, was told all, and is gone
            else:
                incoming.link.abort(incoming.direction, "connection reset")
        elif mask & (_IN | _GONE) and not incoming.link.closed:
            incoming.read()


class Link:
    """One client, its connection to the server, and the two directions between them."""

    def __init__(self, number: int, client: socket.socket, peer: Any, loop: Loop, turn: Turn) -> None:
        self.number = number  # from 1, in the order of arrival
        self.loop = loop
        self.turn = turn
        self.client_address = peer
        self.server_address: Any = None
        self.closed = False
        self.broken = False  # a side is gone, and the end of the turn closes the other
        self.pipes: tuple[Pipe, ...] = ()
        self._client = client
        self._server: socket.socket | None = None
        self._timer: Timer | None = None
        self._places: list[Place] = []
        self._why = ""
        self.on_close: Callable[[], None] = lambda: None

    @property
    def unsent(self) -> int:
        """Bytes that were received and not yet written."""
        pending = sum(len(data) for pipe in self.pipes for data in pipe.pending)
        return pending + sum(pipe.disturbance.delayed for pipe in self.pipes if pipe.disturbance)

    def connect(self, places: Sequence[Place]) -> None:
        """Tries these addresses of the server in turn."""
        self._places = list(places)
        self._try_next()

    def _try_next(self) -> None:
        if not self._places:
            self.turn.refused.append((self, self._why))
            return
        family, address = self._places.pop(0)
        try:
            self._server = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._failed(_reason(error))
            return
        self._server.setblocking(False)
        code = self._server.connect_ex(address)
        if code == errno.EAGAIN:  # a Unix socket with a full backlog
            self._drop_server()
            self._places.insert(0, (family, address))
            self._timer = self.loop.after(RETRY_S, self._try_next)
        elif code in (0, errno.EINPROGRESS):
            self.server_address = address
            self._timer = self.loop.after(CONNECT_WITHIN_S, self._too_slow)
            self.loop.add(self._server.fileno(), _OUT, self._answered)
        else:
            self._failed(_reason(OSError(code, os.strerror(code))))

    def _too_slow(self) -> None:
        self._drop_server()
        self._failed(f"no answer within {CONNECT_WITHIN_S:g} s")

    def _failed(self, why: str) -> None:
        self._why = why
        self._try_next()

    def _answered(self, _mask: int) -> None:
        assert self._server is not None
        if self._timer is not None:
            self._timer.cancel()
        code = self._server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._drop_server()
            self._failed(_reason(OSError(code, os.strerror(code))))
            return
        self.loop.remove(self._server.fileno())
        for sock in (self._client, self._server):
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opening = self.turn.opening
        if opening is None:
            self.start(self._client, self._server)
        else:
            self._timer = self.loop.after(CONNECT_WITHIN_S, lambda: self.give_up("no handshake in time"))
            opening(self, self._client, self._server)

    def give_up(self, why: str) -> None:
        """The opening failed: both sides are closed."""
        if not self.closed:
            self.turn.refused.append((self, why))

    def start(self, client_side: Any, server_side: Any) -> None:
        """Relays from now on between these two, which read and write as sockets do."""
        if self._timer is not None:
            self._timer.cancel()
        self._client, self._server = client_side, server_side
        client, server = (End(self.loop, side) for side in (client_side, server_side))
        self.pipes = (
            Pipe(self, Direction.TO_SERVER, client, server),
            Pipe(self, Direction.TO_CLIENT, server, client),
        )
        self.turn.connected(self)
        client.start()
        server.start()

    def _drop_server(self) -> None:
        if self._server is not None:
            self.loop.remove(self._server.fileno())
            self._server.close()
            self._server = None

    def abort(self, direction: Direction, why: str) -> None:
        """One side is gone: at the end of the turn the other one sees a reset, in that direction."""
        if not self.broken and not self.closed:
            self.broken = True
            for pipe in self.pipes:
                pipe.source.mute()
            self.turn.aborted.append((self, direction, why))

    def last_words(self, direction: Direction) -> list[bytes]:
        """What the side that is gone had sent, and nobody has read."""
        pipe, chunks = self.pipes[direction], []
        with contextlib.suppress(OSError):
            while not pipe.ended and (chunk := pipe.source.socket.recv(READ_MOST)):
                chunks.append(chunk)
        return chunks

    def say_last(self, direction: Direction, words: bytes) -> None:
        """Writes them, if the other side takes them at once."""
        if not self.pipes[direction].blocked:
            with contextlib.suppress(OSError):
                self.pipes[direction].sink.socket.send(words)

    def reset(self) -> None:
        """Closes both sockets so that the peers see a reset."""
        for sock in (self._client, self._server):
            if sock is not None and sock.family != socket.AF_UNIX:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.close()

    def close(self) -> None:
        """Closes both sockets. May be called twice."""
        if self.closed:
            return
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.on_close()
        self._drop_server()
        self.loop.remove(self._client.fileno())
        self._client.close()
        self.turn.closed(self)


def _reason(error: OSError) -> str:
    code = error.errno or 0
    return errno.errorcode.get(code, "") + (f": {error.strerror}" if error.strerror else "") or str(error)
