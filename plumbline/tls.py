"""TLS of a client, from the standard library: whom to trust, what to show, and the encrypted socket."""

from __future__ import annotations

import contextlib
import socket
import ssl
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from plumbline.errors import PlumblineError


class TlsError(PlumblineError, ValueError):
    """Certificates that cannot be used; the message says which and why."""


class TlsOptions(Struct, frozen=True):
    """What a user says about the TLS of a server.

    ``authority``: certificates (PEM) that are trusted; None: those of the system. ``certificate``, ``key``:
    what is shown to a server that asks for it; the key may be in the file of the certificate. ``name``: sent
    as SNI and looked for in the server's certificate; empty: the host of the URL. ``trusts_anyone``: any
    certificate of the server will do.
    """

    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    name: str = ""
    trusts_anyone: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """The options of the command line that say the same."""
        given = {
            "--tls-ca": self.authority,
            "--tls-cert": self.certificate,
            "--tls-key": self.key,
            "--tls-name": self.name,
        }
        return tuple(f"{option}={value}" for option, value in given.items() if value)


@lru_cache
def context_of(options: TlsOptions) -> ssl.SSLContext:
    """For connections to such a server. Raises ``TlsError`` for a file that cannot be used."""
    context = server_context(options.authority, trusts_anyone=options.trusts_anyone)
    if options.certificate is not None:
        _show(context, options.certificate, options.key)
    elif options.key is not None:
        raise TlsError(f"client key {options.key}: give the certificate of this key, too")
    return context


def _show(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    def refuse() -> str:
        raise TlsError(f"client key {key or certificate} is encrypted; decrypt it (openssl pkey)")

    try:
        context.load_cert_chain(certificate, key, password=refuse)
    except (OSError, ssl.SSLError) as error:
        files = str(certificate) + (f" with key {key}" if key else "")
        raise TlsError(f"client certificate {files}: no certificate and its key: {_reason(error)}") from None


def server_context(authority: Path | None, *, trusts_anyone: bool) -> ssl.SSLContext:
    """For connections to a server with a certificate of ``authority``. Raises ``TlsError``."""
    try:
        context = ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"--tls-ca {authority}: no certificates: {_reason(error)}") from None
    if trusts_anyone:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _reason(error: OSError) -> str:
    """Without the number and the line of OpenSSL's source."""
    reason = getattr(error, "reason", None)
    return reason.replace("_", " ").lower() if reason else error.strerror or str(error)


class TlsSocket:
    """An encrypted socket with the errors of one in the clear, whether it blocks or not."""

    def __init__(self, encrypted: ssl.SSLSocket) -> None:
        self._encrypted = encrypted
        self.family = encrypted.family
        self.fileno = encrypted.fileno
        self.setsockopt = encrypted.setsockopt

    def recv(self, size: int) -> bytes:
        """As ``socket.recv``; may give up to a record more, since no selector would tell that it is there."""
        try:
            data = self._encrypted.recv(size)
            while data and (more := self._encrypted.pending()):
                data += self._encrypted.recv(more)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLZeroReturnError:  # the peer's close_notify, after our own
            return b""
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
        """Sends close_notify, then ends the stream; what comes can still be read."""
        with contextlib.suppress(OSError, ValueError):  # the peer has not sent its own yet, or is gone
            self._encrypted.unwrap()
        socket.socket.shutdown(self._encrypted, how)
