"""The reference AMQP server with the ports of rabbitmq-server."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from plumbline.bounds import MANAGEMENT_BODY, MONITORING_CONNECTION_S
from plumbline.reference_broker.amqp.config import ConfigError
from plumbline.reference_broker.amqp.drop_in.management import METHODS, Management
from plumbline.reference_broker.amqp.drop_in.requests import ApiError
from plumbline.reference_broker.amqp.drop_in.server_pages import Process
from plumbline.reference_broker.amqp.drop_in.settings import Settings
from plumbline.reference_broker.amqp.drop_in.shell.files import read_text
from plumbline.reference_broker.amqp.drop_in.shell.tls import TlsClient, TlsPort
from plumbline.reference_broker.amqp.passwords import SALT_BYTES
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.reference_broker.http import HTTP_CONTINUE, HttpRequest
from plumbline.reference_broker.serving import CannotListen
from plumbline.reference_broker.shell import ACCEPT_AT_ONCE, Client, lengthen_backlog

AMQP, AMQPS, HTTP = "amqp", "amqp/ssl", "http"


@contextmanager
def naming(host: str, port: int) -> Iterator[None]:
    """Raises ``CannotListen`` with the address for an ``OSError``."""
    try:
        yield
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror or error}") from None


class DropInServer(AmqpBroker):
    """One server. Raises ``ConfigError`` for definitions that cannot be used."""

    def __init__(self, settings: Settings, warn: Callable[[str], None]) -> None:
        super().__init__(settings.config, defect=settings.defects)
        self.settings = settings
        self.report = warn
        self.process = Process()
        self.process.pid = os.getpid()
        self.process.address = lambda client: self._end_of(client, "peername")
        self.process.local = lambda client: self._end_of(client, "sockname")
        self.management = Management(
            self.broker,
            settings.node,
            self.process,
            time.time_ns(),
            new_salt=lambda: secrets.token_bytes(SALT_BYTES),
            warn=warn,
        )
        self._management: asyncio.Server | None = None
        self._secure: asyncio.Server | None = None
        self._tls = TlsPort(settings.tls) if settings.tls is not None else None
        self.process.is_tls = lambda client: isinstance(self.clients.get(client), TlsClient)
        if not settings.plain:
            self.host, self.port = settings.tls_host, settings.tls_port or 0
        if settings.definitions:
            try:
                text = read_text(Path(settings.definitions))
                self.management.definitions.read(text.encode("utf-8", "surrogateescape"), self.now())
            except ApiError as error:
                raise ConfigError(f"{settings.definitions}: {error.reason}") from None

    async def start(self) -> None:
        """Raises ``CannotListen`` if an address cannot be had."""
        settings, ports = self.settings, self.process.ports
        try:
            ports[HTTP] = await self._listen_for_management(
                settings.management_host, settings.management_port
            )
            if settings.plain and settings.tls_port is not None:
                ports[AMQPS] = await self._listen_for_tls(settings.tls_host, settings.tls_port)
            with naming(self.host, self.port):
                await super().start()
            ports[AMQP if settings.plain else AMQPS] = (self.host, self.port)
        except BaseException:
            self._close_ports()
            raise

    async def stop(self) -> None:
        self._close_ports()
        await super().stop()

    def _close_ports(self) -> None:
        for server in (self._management, self._secure):
            if server is not None:
                server.close()

    def new_client(self) -> Client:
        """Of the port without TLS, or of the only one."""
        return super().new_client() if self.settings.plain else self._new_tls_client()

    def _new_tls_client(self) -> Client:
        assert self._tls is not None
        return TlsClient(self, self._tls)

    async def _listen_for_tls(self, host: str, port: int) -> tuple[str, int]:
        loop = asyncio.get_running_loop()
        with naming(host, port):
            self._secure = await loop.create_server(self._new_tls_client, host, port, backlog=ACCEPT_AT_ONCE)
        lengthen_backlog(self._secure)
        return host, self._secure.sockets[0].getsockname()[1]

    async def _listen_for_management(self, host: str, port: int) -> tuple[str, int]:
        loop = asyncio.get_running_loop()
        with naming(host, port):
            self._management = await loop.create_server(lambda: ManagementClient(self), host, port)
        return host, self._management.sockets[0].getsockname()[1]

    def _end_of(self, client_id: int, end: str) -> tuple[str, int]:
        """The address of one end of a client's socket."""
        client = self.clients.get(client_id)
        found = client.transport.get_extra_info(end) if client else None
        return (found[0], found[1]) if found else ("", 0)


class ManagementClient(asyncio.Protocol):
    """One request to the management API."""

    def __init__(self, server: DropInServer) -> None:
        self._server = server
        self._request = HttpRequest(METHODS, MANAGEMENT_BODY)
        self._has_continued = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._overdue = asyncio.get_running_loop().call_later(MONITORING_CONNECTION_S, transport.close)

    def connection_lost(self, exception: Exception | None) -> None:
        self._overdue.cancel()

    def data_received(self, data: bytes) -> None:
        request, server = self._request, self._server
        if self._transport.is_closing():
            return
        if not request.feed(data):
            if request.wants_continue and not self._has_continued:
                self._has_continued = True
                self._transport.write(HTTP_CONTINUE)
            return
        now = server.now()
        reply = server.management.answer(request, self._transport.get_extra_info("peername")[0], now)
        server.carry_out(server.broker.end_event(now))
        self._transport.write(reply)
        self._transport.close()
