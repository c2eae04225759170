"""The shell of a port with TLS: its connections."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, cast

from plumbline.reference_broker.amqp.certificates import TlsTerms
from plumbline.reference_broker.layers import LayeredTransport, TlsLayer, server_context
from plumbline.reference_broker.shell import Client

if TYPE_CHECKING:
    from plumbline.reference_broker.amqp.server import AmqpBroker


class TlsPort:
    """What its connections share. Raises ``UnusableTlsFile``."""

    def __init__(self, terms: TlsTerms) -> None:
        settings, verify = terms.settings, ssl.CERT_NONE
        if settings.verify:
            verify = ssl.CERT_REQUIRED if settings.required else ssl.CERT_OPTIONAL
        self.terms = terms
        self.context = server_context(
            settings.certfile,
            settings.keyfile,
            ca_file=settings.cacertfile,
            verify=verify,
            password=settings.password,
        )
        self.context.verify_flags |= ssl.VerifyFlags(settings.verify_flags)


class TlsClient(Client):
    """A connection of the port with TLS; the broker learns of it once the handshake is done."""

    def __init__(self, server: AmqpBroker, port: TlsPort) -> None:
        super().__init__(server)
        self._broker = server
        self._port = port
        self._has_begun = False
        self._is_known = False  # to the broker

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._tls = TlsLayer(self._port.context)
        self._layered = LayeredTransport(cast("asyncio.Transport", transport))
        self._layered.layers.append(self._tls)
        wait = self._broker.config.handshake_timeout
        self._overdue = asyncio.get_running_loop().call_later(wait, self._layered.abort)

    def data_received(self, data: bytes) -> None:
        if not self._has_begun and not self._port.terms.is_encrypted(data):
            self._layered.layers.clear()
        self._has_begun = True
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
        certificate = self._tls.peer_certificate if self._layered.layers else {}
        name = self._port.terms.user_of(certificate)
        if name is not None:
            self._broker.broker.handshake.certificates[self.id] = name
        super().connection_made(cast("asyncio.BaseTransport", self._layered))

    def connection_lost(self, exception: Exception | None) -> None:
        self._overdue.cancel()
        if self._is_known:
            super().connection_lost(exception)
        self._broker.broker.handshake.certificates.pop(self.id, None)
