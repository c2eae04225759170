"""Layers between the socket and a broker: each turns bytes of the one below into those of the one above.

TLS is one of them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from plumbline.errors import PlumblineError

READ_AT_ONCE = 256 * 1024


class Layer(Protocol):
    """Between the bytes of the socket and those of the broker."""

    is_open: bool  # bytes can be sent
    is_over: bool  # the connection ends, once ``outgoing`` is sent
    outgoing: bytes  # what the layer itself has to send

    def receive(self, data: bytes) -> bytes: ...

    def send(self, data: bytes) -> bytes: ...

    def close(self) -> bytes: ...


class TlsLayer:
    """The server's side of TLS."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.is_open = False
        self.is_over = False
        self._incoming, self._written = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._written, server_side=True)

    @property
    def peer_certificate(self) -> Mapping[str, Any]:
        """That of the client, once it is verified, as ``ssl.SSLObject.getpeercert``; {} without."""
        return self._tls.getpeercert() or {}

    @property
    def outgoing(self) -> bytes:
        return self._written.read()

    @outgoing.setter
    def outgoing(self, value: bytes) -> None:
        """Reading takes it: there is nothing to clear."""

    def receive(self, data: bytes) -> bytes:
        self._incoming.write(data)
        found: list[bytes] = []
        try:
            if not self.is_open:
                self._tls.do_handshake()
                self.is_open = True
            while part := self._tls.read(READ_AT_ONCE):
                found.append(part)
            self.is_over = True  # the client has closed its side
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLError, OSError):
            self.is_over = True
        return b"".join(found)

    def send(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._written.read()

    def close(self) -> bytes:
        with suppress(ssl.SSLError, OSError, ValueError):  # the answer of the client is not waited for
            self._tls.unwrap()
        return self._written.read()


class LayeredTransport:
    """The part of a transport that ``Client`` uses, above layers, the lowest first."""

    def __init__(self, below: asyncio.Transport) -> None:
        self.below = below
        self.layers: list[Layer] = []
        self._has_said_goodbye = False

    def write(self, data: bytes) -> None:
        self.send_above(len(self.layers), data)

    def send_above(self, index: int, data: bytes) -> None:
        """What the layer ``index`` sends goes through those below it."""
        for layer in reversed(self.layers[:index]):
            data = layer.send(data)
        self.below.write(data)

    def receive(self, data: bytes) -> bytes:
        """Through all layers. Raises ``ProtocolError``."""
        for index, layer in enumerate(self.layers):
            data = layer.receive(data)
            if outgoing := layer.outgoing:
                layer.outgoing = b""
                self.send_above(index, outgoing)
            if not layer.is_open:
                break
        return data

    @property
    def is_open(self) -> bool:
        return all(layer.is_open for layer in self.layers)

    @property
    def is_over(self) -> bool:
        return any(layer.is_over for layer in self.layers)

    def _say_goodbye(self) -> None:
        """Once: after its end nothing can be written."""
        if self._has_said_goodbye:
            return
        self._has_said_goodbye = True
        for index in range(len(self.layers), 0, -1):
            layer = self.layers[index - 1]
            if layer.is_open and not layer.is_over and not self.below.is_closing():
                self.send_above(index - 1, layer.close())

    def close(self) -> None:
        self._say_goodbye()
        self.below.close()

    def write_eof(self) -> None:
        self._say_goodbye()
        self.below.write_eof()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)


class UnusableTlsFile(PlumblineError):
    """A file that is missing or is none of TLS; the text says which."""


def server_context(
    cert_file: str, key_file: str, *, ca_file: str | None, verify: ssl.VerifyMode, password: str = ""
) -> ssl.SSLContext:
    """What a server needs for TLS. ``verify``: whether clients show a certificate; ``password``: of the key.

    Raises ``UnusableTlsFile``.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert_file, key_file, password)
    except (OSError, ssl.SSLError) as error:
        raise UnusableTlsFile(f"error parsing X509 certificate/key pair: {error}") from None
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as error:
            raise UnusableTlsFile(f"error parsing ca certificate {ca_file}: {error}") from None
    if verify is not ssl.CERT_NONE:
        context.verify_mode = verify
        if not ca_file:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context
