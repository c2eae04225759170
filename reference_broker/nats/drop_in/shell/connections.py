"""Connections with TLS or WebSocket between the socket and the broker.

A plain connection is the shell's own ``Client``. Here ``LayeredClient`` puts layers between: each turns
bytes of the socket into bytes of the one above, and back.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, cast

from msgspec import Struct

from plumbline.reference_broker.nats.config import ConfigError
from plumbline.reference_broker.nats.drop_in.options import Settings, TlsOptions, WebSocketOptions
from plumbline.reference_broker.shell import Client, Shell
from plumbline.wire.errors import ProtocolError
from plumbline.wire.websocket_server import WebSocketServer

TLS_HANDSHAKE = b"\x16"  # the first byte of a client that begins TLS
WAIT_FOR_TLS_S = 0.05  # how long INFO waits for a client that may begin TLS first, as in nats-server
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


class Port(Struct, frozen=True):
    """What a listener puts between socket and broker."""

    context: ssl.SSLContext | None = None
    tls: TlsOptions | None = None
    allow_non_tls: bool = False
    websocket: WebSocketOptions | None = None

    @property
    def handshake_s(self) -> float:
        """How long a client may take until the broker hears of it."""
        tls = self.tls.timeout if self.tls is not None else 0.0
        return tls + (self.websocket.handshake_timeout if self.websocket is not None else 0.0)


class LayeredClient(Client):
    """A connection of a port with TLS or WebSocket; the broker hears of it once its layers are open."""

    def __init__(self, server: Shell, port: Port, remember: Callable[[LayeredClient], None]) -> None:
        super().__init__(server)
        self.port = port
        self._remember = remember
        self._is_known = False  # to the broker
        self._offered: asyncio.TimerHandle | None = None
        self._overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._layered = LayeredTransport(cast("asyncio.Transport", transport))
        loop, port = asyncio.get_running_loop(), self.port
        self._overdue = loop.call_later(port.handshake_s, self._give_up)
        if port.websocket is not None:
            self._begin_tls()
            self._layered.layers.append(WebSocketServer(compression=port.websocket.compression))
        elif port.tls is not None and port.tls.handshake_first is True:
            self._begin_tls()
        elif port.tls is not None and port.tls.handshake_first == "auto":
            self._offered = loop.call_later(WAIT_FOR_TLS_S, self._offer)
        else:
            self._offer()

    def _begin_tls(self) -> None:
        if self.port.context is not None:
            self._layered.layers.append(TlsLayer(self.port.context))

    def _introduce(self) -> None:
        """The broker sends its INFO."""
        self._is_known = True
        self._remember(self)
        super().connection_made(cast("asyncio.BaseTransport", self._layered))

    def _offer(self) -> None:
        """INFO in clear text; what the client sends next is TLS."""
        self._offered = None
        self._introduce()

    def data_received(self, data: bytes) -> None:
        layered = self._layered
        if not layered.layers:
            self._first_bytes(data)
        try:
            found = layered.receive(data)
        except ProtocolError:
            layered.close()
            return
        if layered.is_open:
            if self._overdue is not None:
                self._overdue.cancel()
                self._overdue = None
            if not self._is_known:
                self._introduce()
            if found:
                super().data_received(found)
        if layered.is_over:
            layered.close()

    def _first_bytes(self, data: bytes) -> None:
        """TLS begins, unless it need not and this is none."""
        if self._offered is not None:
            self._offered.cancel()
            self._offered = None
        is_tls = data[:1] == TLS_HANDSHAKE
        if self._overdue is None:  # it was decided: clear text
            return
        if is_tls or not self.port.allow_non_tls:
            self._begin_tls()

    def _give_up(self) -> None:
        self._overdue = None
        if self._is_known and self.port.allow_non_tls and not self._layered.layers:
            return
        self._layered.abort()

    def connection_lost(self, exception: Exception | None) -> None:
        for handle in (self._offered, self._overdue):
            if handle is not None:
                handle.cancel()
        if self._is_known:
            super().connection_lost(exception)


class Ports:
    """The ports of a server that has TLS or WebSocket. Raises ``ConfigError`` for files that cannot be used.

    ``remember`` hears of each client of the port for WebSocket.
    """

    def __init__(self, settings: Settings, remember: Callable[[Client], None]) -> None:
        self._remember = remember
        self.reload(settings)

    def reload(self, settings: Settings) -> None:
        """For connections from now on. Raises ``ConfigError``, and then nothing changes."""
        tls, web = settings.tls, settings.websocket
        clients = Port(tls_context(tls), tls, settings.allow_non_tls) if tls is not None else Port()
        web_tls = web.tls if web is not None and not web.no_tls else None
        context = tls_context(web_tls) if web_tls is not None else None
        self._clients, self._web = clients, Port(context, web_tls, websocket=web)

    def new_client(self, server: Shell) -> Client:
        """Of the port for clients."""
        return LayeredClient(server, self._clients, lambda client: None)

    def new_websocket(self, server: Shell) -> Client:
        """Of the port for WebSocket."""
        return LayeredClient(server, self._web, self._remember)


def tls_context(options: TlsOptions) -> ssl.SSLContext:
    """Raises ``ConfigError`` if a file is missing or is none of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(options.cert_file, options.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"error parsing X509 certificate/key pair: {error}") from None
    if options.ca_file:
        try:
            context.load_verify_locations(options.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"error parsing ca certificate {options.ca_file}: {error}") from None
    if options.verify:
        context.verify_mode = ssl.CERT_REQUIRED
        if not options.ca_file:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context
