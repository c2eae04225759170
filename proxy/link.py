"""One relayed connection: two sockets, and the two directions between them.

    client --(TO_SERVER)--> server
    client <--(TO_CLIENT)-- server

How bytes and an end of stream pass in one direction is in ``pipe``. A reset is passed on at once, but
after the bytes that a fault delays in its direction: a network does not change their order.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from plumbline.proxy.counters import Counters
from plumbline.proxy.loop import Loop, LoopTimer
from plumbline.proxy.pipe import MAX_READ_BYTES, Pipe, SocketEnd, reason
from plumbline.wire.sender import Direction

CONNECT_WITHIN_S = 10.0
RETRY_S = 0.01  # a Unix socket whose backlog is full
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: close sends RST


SocketAddress = tuple[socket.AddressFamily, Any]  # as getaddrinfo gives them


class RelayTurn(Protocol):
    """What the connections leave for the end of the turn."""

    received: list[tuple[Pipe, bytes, int]]
    ended: list[Pipe]
    aborted: list[tuple[Link, Direction, str]]
    refused: list[tuple[Link, str]]
    opening: Opening | None

    counters: Counters

    def connected(self, link: Link) -> None:
        """The server was reached."""

    def abandon(self) -> None:
        """What cannot be recorded may not pass."""

    def closed(self, link: Link) -> None:
        """Both sockets are closed."""


class Opening(Protocol):
    """What happens on a new connection before anything is relayed, such as a TLS handshake."""

    def __call__(self, link: Link, client: socket.socket, server: socket.socket) -> None:
        """Calls ``link.start`` or ``link.give_up``, at once or later."""


class Link:
    """One client, its connection to the server, and the two directions between them."""

    def __init__(self, number: int, client: socket.socket, peer: Any, loop: Loop, turn: RelayTurn) -> None:
        self.number = number  # from 1, in the order of arrival
        self.loop = loop
        self.turn = turn
        self.client_address = peer
        self.server_address: Any = None
        self.closed = False
        self.broken = False  # a side is gone, and the end of the turn closes the other
        self._resetting: Direction | None = None  # the direction in which a reset waits for delayed bytes
        self.pipes: tuple[Pipe, ...] = ()
        self._client = client
        self._server: socket.socket | None = None
        self._timer: LoopTimer | None = None
        self._addresses: list[SocketAddress] = []
        self._why = ""
        self.on_close: Callable[[], None] = lambda: None

    @property
    def unsent(self) -> int:
        """Bytes that were received and not yet written."""
        pending = sum(len(data) for pipe in self.pipes for data in pipe.pending)
        return pending + sum(pipe.disturbance.delayed for pipe in self.pipes if pipe.disturbance)

    def connect(self, addresses: Sequence[SocketAddress]) -> None:
        """Tries these addresses of the server in turn."""
        self._addresses = list(addresses)
        self._try_next()

    def _try_next(self) -> None:
        if not self._addresses:
            self.turn.refused.append((self, self._why))
            return
        family, address = self._addresses.pop(0)
        try:
            self._server = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._connect_failed(reason(error))
            return
        self._server.setblocking(False)
        code = self._server.connect_ex(address)
        if code == errno.EAGAIN:  # a Unix socket with a full backlog
            self._drop_server()
            self._addresses.insert(0, (family, address))
            self._timer = self.loop.after(RETRY_S, self._try_next, self)
        elif code in (0, errno.EINPROGRESS):
            self.server_address = address
            self._timer = self.loop.after(CONNECT_WITHIN_S, self._connect_timed_out, self)
            self.loop.add(self._server.fileno(), select.EPOLLOUT, self._connect_finished, self)
        else:
            self._connect_failed(reason(OSError(code, os.strerror(code))))

    def _connect_timed_out(self) -> None:
        self._drop_server()
        self._connect_failed(f"no answer within {CONNECT_WITHIN_S:g} s")

    def _connect_failed(self, why: str) -> None:
        self._why = why
        self._try_next()

    def _connect_finished(self, _mask: int) -> None:
        assert self._server is not None
        if self._timer is not None:
            self._timer.cancel()
        code = self._server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._drop_server()
            self._connect_failed(reason(OSError(code, os.strerror(code))))
            return
        self.loop.remove(self._server.fileno())
        for sock in (self._client, self._server):
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opening = self.turn.opening
        if opening is None:
            self.start(self._client, self._server)
        else:
            self._timer = self.loop.after(
                CONNECT_WITHIN_S, lambda: self.give_up("no handshake in time"), self
            )
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
        client, server = (SocketEnd(self.loop, side) for side in (client_side, server_side))
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
        """One side is gone: the other one sees a reset, in that direction, after bytes that are delayed."""
        pipe = self.pipes[direction]
        if pipe.disturbance is None or not pipe.disturbance.delayed or self._resetting is direction.other:
            self.abort_now(direction, why)
        elif self._resetting is None:
            self._resetting = direction
            pipe.source.unregister()
            pipe.disturbance.forward_reset(why)

    def abort_now(self, direction: Direction, why: str) -> None:
        """At the end of the turn one side sees a reset, in that direction, whatever is delayed."""
        if not self.broken and not self.closed:
            self.broken = True
            for pipe in self.pipes:
                pipe.source.unregister()
            self.turn.aborted.append((self, direction, why))

    def unread_bytes(self, direction: Direction) -> list[bytes]:
        """What the side that is gone had sent, and has not been read."""
        pipe, chunks = self.pipes[direction], []
        with contextlib.suppress(OSError):
            while not pipe.ended and (chunk := pipe.source.socket.recv(MAX_READ_BYTES)):
                chunks.append(chunk)
        return chunks

    def send_unread(self, direction: Direction, data: bytes) -> None:
        """Writes them, if the other side takes them at once."""
        if not self.pipes[direction].blocked:
            with contextlib.suppress(OSError):
                self.pipes[direction].sink.socket.send(data)

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
        for pipe in self.pipes:
            if pipe.disturbance is not None:
                pipe.disturbance.end()
        self.on_close()
        self._drop_server()
        self.loop.remove(self._client.fileno())
        self._client.close()
        self.turn.closed(self)
