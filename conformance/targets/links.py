"""How a connection to a target is opened: TCP, TLS and WebSocket, as the URL says. Judges nothing.

NATS begins in the clear: the server sends INFO, and then both change to TLS, unless the server starts with
TLS (``handshake_first``). AMQP is encrypted from its first byte. Nothing is ever sent in the clear to a URL
that asks for TLS.
Sources: docs.nats.io, "Client Protocol", INFO, and "Enabling TLS"; RabbitMQ, "TLS Support".
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import ssl
import time
from types import TracebackType
from typing import Protocol, Self

from plumbline.conformance.targets.urls import AccessRefusedError, AnyUrl, NatsUrl
from plumbline.errors import TargetUnreachable
from plumbline.tls import TlsOptions, TlsSocket, context_of
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats import Decoder, Info, Sender
from plumbline.wire.websocket import Opcode, WebSocketDecoder, frame, upgrade_request

CONNECT_TIMEOUT_S = 2.0
INFO_S = 1.5  # how long a NATS server may take to send INFO (it speaks first)
HANDSHAKE_S = 2.0

# Errors of verification, by OpenSSL's number: a certificate for another host, or another IP address.
_OTHER_NAME = {62, 64}
_UNTRUSTED = {18, 19, 20, 21}  # self-signed, or of an authority that is not known
# Alerts of a server that wants a certificate of ours, or does not accept it.
_WANTS_CERTIFICATE = ("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "UNKNOWN_CA", "CERTIFICATE_UNKNOWN")
_NO_TLS = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")


class Link(Protocol):
    """What connections and probes use of a socket."""

    def recv(self, size: int, /) -> bytes: ...
    def sendall(self, data: bytes, /) -> None: ...
    def settimeout(self, seconds: float | None, /) -> None: ...
    def setsockopt(self, level: int, option: int, value: int | bytes, /) -> None: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


class TlsLink(TlsSocket):
    """An encrypted connection. ``early``: what was read before it was encrypted, which comes first."""

    def __init__(self, encrypted: ssl.SSLSocket, early: bytes = b"") -> None:
        super().__init__(encrypted)
        self.early = early
        self._is_cut = False
        self.settimeout = encrypted.settimeout

    def sendall(self, data: bytes) -> None:
        """As ``socket.sendall``. Of a server that has closed, what it sent before can still be read."""
        if self._is_cut:  # in the middle of a record: OpenSSL can write nothing else after that
            raise BrokenPipeError
        try:
            self._encrypted.sendall(data)
        except ssl.SSLEOFError:
            self._is_cut = True
            raise BrokenPipeError from None
        except OSError:
            self._is_cut = True
            raise

    def recv(self, size: int) -> bytes:
        if self.early:
            early, self.early = self.early, b""
            return early
        return super().recv(size)

    def close(self) -> None:
        """As ``socket.close``: what is unread makes it a reset."""
        self._encrypted.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class WebSocketLink:
    """A NATS connection inside WebSocket: binary messages out, the bytes inside messages in."""

    def __init__(self, link: Link, decoder: WebSocketDecoder, early: bytes = b"") -> None:
        self.early = early
        self._link = link
        self._decoder = decoder
        self.settimeout = link.settimeout
        self.setsockopt = link.setsockopt
        self.fileno = link.fileno
        self.close = link.close

    def recv(self, size: int) -> bytes:
        """As ``socket.recv``: b"" after a close frame, too. Raises ``OSError`` for what is no WebSocket."""
        if self.early:
            early, self.early = self.early, b""
            return early
        while not self._decoder.is_closed:
            data = self._link.recv(size)
            if not data:
                break
            try:
                found = self._decoder.feed(data)
            except ProtocolError as error:
                raise OSError(f"WebSocket: {error}") from None
            self._answer()
            if found:
                return found
        return b""

    def sendall(self, data: bytes) -> None:
        """One binary message."""
        if data:
            self._link.sendall(frame(Opcode.BINARY, data, secrets.token_bytes(4)))

    def _answer(self) -> None:
        """To pings and to a close frame; a server that is gone needs none."""
        answers, self._decoder.answers = self._decoder.answers, []
        for opcode, payload in answers:
            with contextlib.suppress(OSError):
                self._link.sendall(frame(opcode, payload, secrets.token_bytes(4)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def early_bytes(link: Link) -> bytes:
    """What was read before the connection was ready, which ``recv`` gives first."""
    return link.early if isinstance(link, TlsLink | WebSocketLink) else b""


def open_link(url: AnyUrl) -> Link:
    """A fresh connection to ``url``, encrypted if it asks for that; over it comes all that the server sends.

    Raises ``OSError`` if there is no TCP connection, and for TLS that fails ``TargetUnreachable``,
    ``AccessRefusedError`` and ``TlsError``, each with one sentence.
    """
    plain = socket.create_connection((url.host, url.port), CONNECT_TIMEOUT_S)
    link: Link = plain
    try:
        if url.tls is not None:
            link = _encrypted(plain, url, url.tls)
        if isinstance(url, NatsUrl) and url.is_web:
            link = _web_socket(link, url)
    except BaseException:
        link.close()
        raise
    return link


def _web_socket(link: Link, url: NatsUrl) -> WebSocketLink:
    nonce = secrets.token_bytes(16)
    decoder, early = WebSocketDecoder(nonce), b""
    until = time.monotonic() + HANDSHAKE_S
    try:
        link.settimeout(HANDSHAKE_S)
        link.sendall(upgrade_request(url.address, nonce))
        while not decoder.is_open:
            data = _receive(link, until)
            if not data:
                raise TargetUnreachable(f"{url.address} closes the connection before WebSocket begins.")
            early += decoder.feed(data)
    except ProtocolError as error:
        raise TargetUnreachable(
            f"{url.address} does not answer as WebSocket ({error}): nats:// and tls:// are for other ports."
        ) from None
    except TimeoutError:
        raise TargetUnreachable(f"{url.address} does not answer the WebSocket upgrade.") from None
    except ssl.SSLError as error:
        raise tls_problem(url, error) from None
    return WebSocketLink(link, decoder, early)


def _encrypted(plain: socket.socket, url: AnyUrl, options: TlsOptions) -> TlsLink:
    context = context_of(options)
    early = _read_info(plain, url) if isinstance(url, NatsUrl) and not url.begins_with_tls else b""
    plain.settimeout(HANDSHAKE_S)
    try:
        return TlsLink(context.wrap_socket(plain, server_hostname=options.name or url.host), early)
    except ssl.SSLError as error:
        raise tls_problem(url, error) from None
    except TimeoutError:
        raise TargetUnreachable(f"{url.address} does not answer the TLS handshake.") from None
    except OSError as error:
        raise TargetUnreachable(
            f"{url.address} closes the connection during the TLS handshake ({error})."
        ) from None


def _receive(link: Link, until: float) -> bytes:
    """What comes before the monotonic time ``until``. Raises ``TimeoutError``, also if a server drips."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    link.settimeout(left)
    return link.recv(65536)


def _read_info(plain: socket.socket, url: NatsUrl) -> bytes:
    """The INFO of a server that offers TLS, and nothing behind it."""
    decoder, received = Decoder(Sender.SERVER), b""
    until = time.monotonic() + INFO_S
    try:
        while True:
            data = _receive(plain, until)
            received += data
            operations = decoder.feed(data)
            if not data:
                raise TargetUnreachable(f"{url.address} closes the connection before INFO.")
            if operations:
                break
    except TimeoutError:
        raise TargetUnreachable(
            f"{url.address} accepts connections but sends no INFO; if it begins with TLS, add "
            f"?handshake_first=true to the URL."
        ) from None
    except ProtocolError as error:
        raise TargetUnreachable(f"{url.address} does not speak NATS: {error}.") from None
    info = operations[0]
    if not isinstance(info, Info) or len(info.raw) != len(received):
        raise TargetUnreachable(f"{url.address} sends more than INFO before TLS.")
    if not info.fields.get("tls_required") and not info.fields.get("tls_available"):
        raise AccessRefusedError(
            f"{url} offers no TLS (INFO has neither tls_required nor tls_available): write "
            f"nats://{url.address} to connect without it"
        )
    return received


def tls_problem(url: AnyUrl, error: ssl.SSLError) -> AccessRefusedError | TargetUnreachable:
    """What is wrong, in one sentence that names the option to use. ``error``: of the handshake, or, where the
    server looks at our certificate after that, of the first read."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AccessRefusedError(_certificate_problem(url, error))
    if any(name in reason for name in _WANTS_CERTIFICATE) or "HANDSHAKE_FAILURE" in reason:
        assert url.tls is not None
        shown = f"does not accept {url.tls.certificate}" if url.tls.certificate else "wants a certificate"
        return AccessRefusedError(
            f"{url} {shown} (TLS: {_words(reason)}): give a client certificate and its key with "
            "--tls-cert FILE and --tls-key FILE"
        )
    if any(name in reason for name in _NO_TLS):
        plain = "nats" if isinstance(url, NatsUrl) else "amqp"
        return TargetUnreachable(
            f"{url.address} does not answer with TLS ({_words(reason)}): write {plain}:// for a listener "
            "without TLS."
        )
    return TargetUnreachable(f"{url.address} breaks off TLS ({_words(reason) or error}).")


def _certificate_problem(url: AnyUrl, error: ssl.SSLCertVerificationError) -> str:
    what = error.verify_message.rstrip(".")
    if error.verify_code in _OTHER_NAME:
        return f"the certificate of {url} is for another name ({what}): give its name with --tls-name NAME"
    if error.verify_code in _UNTRUSTED:
        return (
            f"the certificate of {url} is not trusted ({what}): give its certificate authority with "
            "--tls-ca FILE"
        )
    return f"the certificate of {url} is not valid ({what})"


def _words(reason: str) -> str:
    """``TLSV13_ALERT_CERTIFICATE_REQUIRED`` -> ``certificate required``."""
    return reason.rpartition("ALERT_")[2].replace("_", " ").lower()
