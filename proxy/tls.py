"""TLS ended and begun by the proxy, so that what it records can be read.

NATS begins in the clear: the server says INFO, and only then client and proxy, proxy and server change to
TLS, each if it was asked for. What INFO says of that is rewritten for the client where the two sides differ.
Other protocols are encrypted from their first byte.
Sources: docs.nats.io, "Client Protocol", INFO; RFC 8446 section 6.1.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from proxy.addresses import Endpoint
from proxy.link import Link
from wire.errors import ProtocolError
from wire.nats import Decoder, Info, Sender

_IN, _OUT = select.EPOLLIN, select.EPOLLOUT
Waits = Generator[tuple[int, int], None, Any]  # for a descriptor and an epoll mask
TOLD_OF_TLS = ("tls_required", "tls_available", "tls_verify")


class TlsError(ValueError):
    """Certificates that cannot be used; the message says which and why."""


class Tls(Struct, frozen=True):
    """Which side is encrypted, and how. None: in the clear."""

    client: ssl.SSLContext | None = None
    server: ssl.SSLContext | None = None
    server_name: str = ""
    after_info: bool = False  # as NATS does


def for_clients(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """What the proxy shows to clients. Raises ``TlsError``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"{certificate}: no certificate with its key: {error}") from None
    return context


def for_server(authority: Path | None, *, trusts_anyone: bool) -> ssl.SSLContext:
    """Whom the proxy trusts. Raises ``TlsError``."""
    try:
        context = ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"{authority}: no certificates: {error}") from None
    if trusts_anyone:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def needed(
    server: Endpoint,
    certificate: Path | None,
    key: Path | None,
    authority: Path | None,
    *,
    trusts_anyone: bool,
) -> Tls | None:
    """What these settings ask for; None if nothing is encrypted. Raises ``TlsError``."""
    if certificate is None and not server.encrypted:
        return None
    return Tls(
        client=for_clients(certificate, key) if certificate else None,
        server=for_server(authority, trusts_anyone=trusts_anyone) if server.encrypted else None,
        server_name=server.host,
        after_info=server.protocol == "nats",
    )


class TlsSocket:
    """An encrypted socket that does not block, with the errors of one in the clear."""

    def __init__(self, encrypted: ssl.SSLSocket) -> None:
        self._encrypted = encrypted
        self.family = encrypted.family
        self.fileno = encrypted.fileno
        self.setsockopt = encrypted.setsockopt

    def recv(self, size: int) -> bytes:
        """As ``socket.recv``; may give up to a record more, since nobody would tell that it is there."""
        try:
            data = self._encrypted.recv(size)
            while data and (more := self._encrypted.pending()):
                data += self._encrypted.recv(more)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        return data

    def send(self, data: bytes | memoryview) -> int:
        """As ``socket.send``."""
        try:
            return self._encrypted.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def close(self) -> None:
        """Leaves nothing unread, such as a close_notify: the system would send a reset for it."""
        with contextlib.suppress(OSError, ValueError):
            while self._encrypted.recv(65536):
                pass
        self._encrypted.close()

    def shutdown(self, how: int) -> None:
        """Says close_notify, then ends the stream; what comes can still be read."""
        with contextlib.suppress(OSError, ValueError):  # the peer has not said its own yet, or is gone
            self._encrypted.unwrap()
        socket.socket.shutdown(self._encrypted, how)


class Openings:
    """See ``link.Opening``. ``greeted`` is told the INFO that came, and what was done with it."""

    def __init__(self, tls: Tls, greeted: Callable[[Link, bytes, str], None]) -> None:
        self._tls = tls
        self._greeted = greeted

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
                link.give_up(f"TLS: {error}")
            else:
                waiting.append(fd)
                link.loop.add(fd, mask, go_on)

        link.on_close = stop
        go_on()

    def _start(self, link: Link, client: Any, server: Any, info: bytes, note: str) -> None:
        link.start(_relayed(client), _relayed(server))
        self._greeted(link, info, note)

    def _steps(self, client: socket.socket, server: socket.socket) -> Waits:
        tls = self._tls
        info = b""
        ends: list[Any] = [client, server]
        try:
            if tls.after_info:
                info = yield from _info(server)
            if tls.server is not None:
                ends[1] = yield from _handshake(tls.server, server, name=tls.server_name)
            if info:
                yield from _sent(client, _told(info, encrypted=tls.client is not None))
            if tls.client is not None:
                ends[0] = yield from _handshake(tls.client, client)
        except BaseException:
            for end in ends:
                if isinstance(end, ssl.SSLSocket):
                    end.close()
            raise
        return *ends, info, self._note(ends, info)

    def _note(self, ends: list[Any], info: bytes) -> str:
        told = [
            f"{side} {end.version()}" if isinstance(end, ssl.SSLSocket) else f"{side} in the clear"
            for side, end in zip(("client", "server"), ends, strict=True)
        ]
        is_changed = info and _told(info, encrypted=self._tls.client is not None) != info
        return ", ".join(told) + ("; INFO was rewritten for the client" if is_changed else "")


def _info(server: socket.socket) -> Waits:
    """The INFO of a server, and nothing behind it."""
    decoder, said = Decoder(Sender.SERVER), b""
    while True:
        yield server.fileno(), _IN
        data = server.recv(65536)
        if not data:
            raise ValueError("the server closed before it said INFO")
        said += data
        for operation in decoder.feed(data):
            if not isinstance(operation, Info) or len(operation.raw) != len(said):
                raise ValueError("the server said more than INFO before TLS")
            return said


def _told(info: bytes, *, encrypted: bool) -> bytes:
    """INFO for a client that is to use TLS, or not to."""
    (operation,) = Decoder(Sender.SERVER).feed(info)
    assert isinstance(operation, Info)
    fields = operation.fields
    if encrypted == bool(fields.get("tls_required")):
        return info
    kept = {name: value for name, value in fields.items() if name not in TOLD_OF_TLS}
    return b"INFO " + msgspec.json.encode(kept | ({"tls_required": True} if encrypted else {})) + b"\r\n"


def _sent(client: socket.socket, data: bytes) -> Waits:
    while data:
        yield client.fileno(), _OUT
        data = data[client.send(data) :]


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


def _relayed(end: Any) -> Any:
    return TlsSocket(end) if isinstance(end, ssl.SSLSocket) else end
