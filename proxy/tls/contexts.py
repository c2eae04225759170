"""TLS ended and begun by the proxy, so that what it records can be read: certificates, trust, sockets.

How a connection comes to be encrypted is told in ``tls_opening``.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from plumbline.errors import PlumblineError
from plumbline.proxy.addresses import Endpoint


class TlsError(PlumblineError, ValueError):
    """Certificates that cannot be used; the message says which and why."""


class ProxySide(StrEnum):
    """Of the proxy."""

    CLIENT = "client"
    SERVER = "server"


class TlsSettings(Struct, frozen=True):
    """Which side is encrypted, and how. None: in the clear."""

    client: ssl.SSLContext | None = None
    server: ssl.SSLContext | None = None
    server_name: str = ""
    after_info: bool = False  # as NATS does
    first: frozenset[ProxySide] = frozenset()  # sides whose handshake comes before INFO all the same


def client_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """What the proxy shows to clients. Raises ``TlsError``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"{certificate}: no certificate and key: {error}") from None
    return context


def server_context(authority: Path | None, *, trusts_anyone: bool) -> ssl.SSLContext:
    """Whom the proxy trusts. Raises ``TlsError``."""
    try:
        context = ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"{authority}: no certificates: {error}") from None
    if trusts_anyone:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def tls_settings(
    server: Endpoint,
    client: ssl.SSLContext | None,
    authority: Path | None,
    *,
    trusts_anyone: bool,
    first: Iterable[ProxySide] = (),
) -> TlsSettings | None:
    """What these settings ask for; None if nothing is encrypted. Raises ``TlsError``."""
    if client is None and not server.encrypted:
        if first:
            raise TlsError("--tls-first needs TLS on at least one side")
        return None
    return TlsSettings(
        client=client,
        server=server_context(authority, trusts_anyone=trusts_anyone) if server.encrypted else None,
        server_name=server.host,
        after_info=server.protocol == "nats",
        first=frozenset(first),
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
