"""The TLS handshakes of a connection before the relay starts.

NATS begins in the clear: the server says INFO, and only then client and proxy, proxy and server change to
TLS, each if it was asked for; unless a side is encrypted from its first byte (``handshake_first``). INFO is
rewritten for the client where the two sides differ. Other protocols are encrypted from their first byte.
Sources: docs.nats.io, "Client Protocol", INFO; "Enabling TLS", handshake_first; RFC 8446 section 6.1.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable, Generator, Mapping
from typing import Any

from plumbline.proxy.info import client_changes, rewrite_info
from plumbline.proxy.link import Link
from plumbline.proxy.tls.contexts import ProxySide, TlsSettings
from plumbline.tls import TlsSocket
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats import Decoder, Info, Sender

_IN, _OUT = select.EPOLLIN, select.EPOLLOUT
Waits = Generator[tuple[int, int], None, Any]  # for a descriptor and an epoll mask
_HANDSHAKE = 0x16  # the first byte of a TLS client: RFC 8446 section 5.1, ContentType
_MAX_CLEAR_BYTES = 65536  # that are kept of a client that does not begin TLS


class ClearTextError(ValueError):
    """A client sent this where TLS has to begin."""

    def __init__(self, data: bytes) -> None:
        super().__init__(f"the client sent {len(data)} bytes in the clear")
        self.data = data


class TlsOpenings:
    """See ``link.Opening``. ``greeted`` gets the INFO that came, and what was done with it.

    ``changes`` are made to it for the client, besides what it says of TLS. ``on_clear_text`` gets what a
    client sent instead of a handshake.
    """

    def __init__(
        self,
        tls: TlsSettings,
        greeted: Callable[[Link, bytes, str], None],
        changes: Mapping[str, Any],
        on_clear_text: Callable[[bytes], None] = lambda data: None,
    ) -> None:
        self._tls = tls
        self._changes = changes
        self._greeted = greeted
        self._on_clear_text = on_clear_text

    def __call__(self, link: Link, client: socket.socket, server: socket.socket) -> None:
        steps = self._steps(client, server)
        waiting: list[int] = []

        def stop() -> None:
            while waiting:
                link.loop.remove(waiting.pop())
            steps.close()

        def go_on(_mask: int = 0) -> None:
            while waiting:
                link.loop.remove(waiting.pop())
            try:
                fd, mask = next(steps)
            except StopIteration as done:
                link.on_close = lambda: None
                self._start(link, *done.value)
            except (OSError, ValueError, ProtocolError) as error:
                if isinstance(error, ClearTextError):
                    self._on_clear_text(error.data)
                link.give_up(f"TLS: {error}")
            else:
                waiting.append(fd)
                link.loop.add(fd, mask, go_on, link)

        link.on_close = stop
        go_on()

    def _start(self, link: Link, client: Any, server: Any, info: bytes, note: str) -> None:
        link.start(_relay_sockets(client), _relay_sockets(server))
        self._greeted(link, info, note)

    def _steps(self, client: socket.socket, server: socket.socket) -> Waits:
        tls, info = self._tls, b""
        ends: list[Any] = [client, server]
        try:
            if tls.server is not None and not self._waits_for_info(ProxySide.SERVER):
                ends[1] = yield from _handshake(tls.server, server, name=tls.server_name)
            if tls.after_info:
                info = yield from _info(ends[1])
            if tls.server is not None and ends[1] is server:
                ends[1] = yield from _handshake(tls.server, server, name=tls.server_name)
            if tls.client is not None and not self._waits_for_info(ProxySide.CLIENT):
                ends[0] = yield from _client_handshake(tls.client, client)
            if info:
                yield from _sent(ends[0], self._on_info(info))
            if tls.client is not None and ends[0] is client:
                ends[0] = yield from _client_handshake(tls.client, client)
        except BaseException:
            for end in ends:
                if isinstance(end, ssl.SSLSocket):
                    end.close()
            raise
        return *ends, info, self._note(ends, info)

    def _waits_for_info(self, side: ProxySide) -> bool:
        return self._tls.after_info and side not in self._tls.first

    def _on_info(self, info: bytes) -> bytes:
        return rewrite_info(
            info, client_changes(info, encrypted=self._tls.client is not None) | dict(self._changes)
        )

    def _note(self, ends: list[Any], info: bytes) -> str:
        words = [
            f"{side} {end.version()}{', before INFO' * (side in self._tls.first)}"
            if isinstance(end, ssl.SSLSocket)
            else f"{side} in the clear"
            for side, end in zip(ProxySide, ends, strict=True)
        ]
        is_changed = info and self._on_info(info) != info
        return ", ".join(words) + ("; INFO was rewritten for the client" if is_changed else "")


def _info(server: Any) -> Waits:
    """The INFO of a server, and nothing behind it."""
    decoder, received = Decoder(Sender.SERVER), b""
    while True:
        try:
            data = server.recv(65536)
        except (BlockingIOError, ssl.SSLWantReadError):
            yield server.fileno(), _IN
            continue
        if not data:
            raise ValueError("the server closed the connection before INFO")
        received += data
        for operation in decoder.feed(data):
            if not isinstance(operation, Info) or len(operation.raw) != len(received):
                raise ValueError("the server sent more than INFO before TLS")
            return received


def _sent(client: Any, data: bytes) -> Waits:
    while data:
        try:
            data = data[client.send(data) :]
        except (BlockingIOError, ssl.SSLWantWriteError):
            yield client.fileno(), _OUT


def _client_handshake(context: ssl.SSLContext, client: socket.socket) -> Waits:
    """As ``_handshake``, once the client has begun it. Raises ``ClearTextError``."""
    while True:
        try:
            first = client.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            yield client.fileno(), _IN
            continue
        if first and first[0] != _HANDSHAKE:
            raise ClearTextError(client.recv(_MAX_CLEAR_BYTES))
        return (yield from _handshake(context, client))


def _handshake(context: ssl.SSLContext, plain: socket.socket, name: str = "") -> Waits:
    """The encrypted socket; the plain one is its descriptor's owner no more."""
    is_ours = context.protocol == ssl.PROTOCOL_TLS_SERVER
    encrypted = context.wrap_socket(
        plain, server_side=is_ours, server_hostname=name or None, do_handshake_on_connect=False
    )
    try:
        while True:
            try:
                encrypted.do_handshake()
            except ssl.SSLWantReadError:
                yield encrypted.fileno(), _IN
            except ssl.SSLWantWriteError:
                yield encrypted.fileno(), _OUT
            else:
                return encrypted
    except BaseException:
        encrypted.close()
        raise


def _relay_sockets(end: Any) -> Any:
    return TlsSocket(end) if isinstance(end, ssl.SSLSocket) else end
