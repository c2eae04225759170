"""The reference AMQP server with the ports of rabbitmq-server."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from plumbline.bounds import MANAGEMENT_BODY
from plumbline.reference_broker.amqp.certificates import TlsTerms
from plumbline.reference_broker.amqp.config import ConfigError
from plumbline.reference_broker.amqp.drop_in.management import METHODS, Management
from plumbline.reference_broker.amqp.drop_in.requests import ApiError
from plumbline.reference_broker.amqp.drop_in.server_pages import Process
from plumbline.reference_broker.amqp.drop_in.settings import Settings
from plumbline.reference_broker.amqp.drop_in.shell.files import read_text
from plumbline.reference_broker.amqp.passwords import SALT_BYTES
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.reference_broker.amqp.tls import TlsClient, TlsPort
from plumbline.reference_broker.http import HttpRequest
from plumbline.reference_broker.http_shell import HttpClient
from plumbline.reference_broker.serving import CannotListen
from plumbline.reference_broker.shell import Client, port_of

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
        self._tls = TlsPort(TlsTerms(settings.tls)) if settings.tls is not None else None
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
        with naming(self.host, self.port):
            await super().start()
        self.process.ports[AMQP if self.settings.plain else AMQPS] = (self.host, self.port)

    async def open_more_ports(self) -> None:
        settings, ports = self.settings, self.process.ports
        host, port = settings.management_host, settings.management_port
        with naming(host, port):
            server = await self.listen(self._new_management_client, host, port)
        ports[HTTP] = host, port_of(server)
        if settings.plain and settings.tls_port is not None:
            host, port = settings.tls_host, settings.tls_port
            with naming(host, port):
                server = await self.listen(self._new_tls_client, host, port)
            ports[AMQPS] = host, port_of(server)

    def new_client(self) -> Client:
        """Of the port without TLS, or of the only one."""
        return super().new_client() if self.settings.plain else self._new_tls_client()

    def _new_tls_client(self) -> Client:
        assert self._tls is not None
        return TlsClient(self, self._tls)

    def _new_management_client(self) -> HttpClient:
        return HttpClient(HttpRequest(METHODS, MANAGEMENT_BODY), self._manage)

    def _manage(self, request: HttpRequest, peer: str) -> bytes:
        """The answer of the management API, whose effects are carried out."""
        now = self.now()
        reply = self.management.answer(request, peer, now)
        self.carry_out(self.broker.end_event(now))
        return reply

    def _end_of(self, client_id: int, end: str) -> tuple[str, int]:
        """The address of one end of a client's socket."""
        client = self.clients.get(client_id)
        found = client.transport.get_extra_info(end) if client else None
        return (found[0], found[1]) if found else ("", 0)
