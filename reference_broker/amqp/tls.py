"""Connections with TLS, and the user that a client certificate names."""

from __future__ import annotations

import asyncio
import ssl
from typing import cast

from plumbline.reference_broker.amqp.certificates import user_of
from plumbline.reference_broker.amqp.config import TlsSettings
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.reference_broker.layers import LayeredTransport, TlsLayer, server_context
from plumbline.reference_broker.shell import Client


class TlsPort:
    """What its connections share. Raises ``UnusableTlsFile``."""

    def __init__(self, settings: TlsSettings) -> None:
        verify = ssl.CERT_NONE
        if settings.verify:
            verify = ssl.CERT_REQUIRED if settings.required else ssl.CERT_OPTIONAL
        self.login_from = settings.login_from
        self.context = server_context(
            settings.certfile,
            settings.keyfile,
            ca_file=settings.cacertfile,
            verify=verify,
            password=settings.password,
        )


class TlsClient(Client):
    """A connection of the port with TLS; the broker learns of it once the handshake is done."""

    def __init__(self, server: AmqpBroker, port: TlsPort) -> None:
        super().__init__(server)
        self._broker = server
        self._port = port
        self._is_known = False  # to the broker

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._tls = TlsLayer(self._port.context)
        self._layered = LayeredTransport(cast("asyncio.Transport", transport))
        self._layered.layers.append(self._tls)
        wait = self._broker.config.handshake_timeout
        self._overdue = asyncio.get_running_loop().call_later(wait, self._layered.abort)

    def data_received(self, data: bytes) -> None:
        found = self._layered.receive(data)
        if self._layered.is_open and not self._is_known:
            self._introduce()
        if found:
            super().data_received(found)
        if self._layered.is_over:
            self._layered.close()

    def _introduce(self) -> None:
        self._is_known = True
        self._overdue.cancel()
        name = user_of(self._tls.peer_certificate, self._port.login_from)
        if name is not None:
            self._broker.broker.handshake.certificates[self.id] = name
        super().connection_made(cast("asyncio.BaseTransport", self._layered))

    def connection_lost(self, exception: Exception | None) -> None:
        self._overdue.cancel()
        if self._is_known:
            super().connection_lost(exception)
        self._broker.broker.handshake.certificates.pop(self.id, None)
