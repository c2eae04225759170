"""Connections with TLS or WebSocket between the socket and the broker.

A plain connection is the shell's own ``Client``. Here ``LayeredClient`` puts layers between: each turns
bytes of the socket into bytes of the one above, and back.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from msgspec import Struct

from plumbline.reference_broker.layers import LayeredTransport, TlsLayer, UnusableTlsFile, server_context
from plumbline.reference_broker.nats.config import ConfigError
from plumbline.reference_broker.nats.drop_in.options import Settings, TlsOptions, WebSocketOptions
from plumbline.reference_broker.shell import Client, Shell
from plumbline.wire.errors import ProtocolError
from plumbline.wire.websocket_server import WebSocketServer

TLS_HANDSHAKE = b"\x16"  # the first byte of a client that begins TLS
WAIT_FOR_TLS_S = 0.05  # how long INFO waits for a client that may begin TLS first, as in nats-server


class Port(Struct, frozen=True):
    """What a listener puts between socket and broker."""

    context: ssl.SSLContext | None = None
    tls: TlsOptions | None = None
    allow_non_tls: bool = False
    websocket: WebSocketOptions | None = None

    @property
    def handshake_s(self) -> float:
        """How long a client may take until the broker learns of it."""
        tls = self.tls.timeout if self.tls is not None else 0.0
        return tls + (self.websocket.handshake_timeout if self.websocket is not None else 0.0)


class LayeredClient(Client):
    """A connection of a port with TLS or WebSocket; the broker learns of it once its layers are open."""

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

    ``remember`` learns of each client of the port for WebSocket.
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
    try:
        verify = ssl.CERT_REQUIRED if options.verify else ssl.CERT_NONE
        return server_context(options.cert_file, options.key_file, ca_file=options.ca_file, verify=verify)
    except UnusableTlsFile as error:
        raise ConfigError(str(error)) from None
