"""The reference NATS server with all the ports of nats-server: TLS, WebSocket and monitoring."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from plumbline.reference_broker.http import HttpRequest, answer
from plumbline.reference_broker.http_shell import HttpClient
from plumbline.reference_broker.nats.config import ConfigError
from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.drop_in.monitoring import Monitor, Process
from plumbline.reference_broker.nats.drop_in.options import Settings
from plumbline.reference_broker.nats.drop_in.requests import SystemRequests
from plumbline.reference_broker.nats.drop_in.traffic import Traffic
from plumbline.reference_broker.nats.info import ACCOUNT
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.reference_broker.shell import Client, port_of

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.drop_in.shell.connections import Ports

# Fields of the configuration that a reload changes.
RELOADED = (
    "authorization", "max_payload", "max_control_line", "max_connections", "max_subscriptions",
    "ping_interval", "ping_max", "no_auth_user",
)  # fmt: skip


class DropInServer(NatsBroker):
    """One server. Raises ``ConfigError`` for files of TLS that cannot be used."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.config, defect=settings.defects)
        self.settings = settings
        self.traffic = Traffic()
        self.process = Process()
        brokers = self.accounts.accounts if self.accounts else {ACCOUNT: self.broker}
        self.monitor = Monitor(settings, brokers, self.traffic, self.process, time.time_ns())
        self.is_leaving = False  # in lame duck mode
        self._ports: Ports | None = None
        if settings.tls is not None or settings.websocket is not None:
            from plumbline.reference_broker.nats.drop_in.shell.connections import Ports

            self._ports = Ports(settings, self._remember_websocket)
        self._websocket: asyncio.Server | None = None
        self._websocket_clients: set[int] = set()
        if settings.tls is not None:
            offer = "tls_available" if settings.allow_non_tls else "tls_required"
            verify = {"tls_verify": True} if settings.tls.verify else {}
            self.broker.identity.offers = {offer: True, **verify}
        for name, broker in brokers.items():
            SystemRequests(self.monitor, name, broker).install()
            if settings.monitor is not None:
                self.traffic.watch(broker)
            self._forget_with(broker)

    def _forget_with(self, broker: Broker) -> None:
        """What is remembered of a connection here ends with it."""
        forget = broker.forget

        def forget_everywhere(connection: NatsClientConnection) -> None:
            forget(connection)
            self._websocket_clients.discard(connection.id)
            broker.identity.offers_elsewhere.pop(connection.id, None)
            self.traffic.connections.pop(connection.id, None)

        vars(broker)["forget"] = forget_everywhere

    # Ports

    async def open_more_ports(self) -> None:
        self._know_process()
        monitor, websocket, ports = self.settings.monitor, self.settings.websocket, self._ports
        if monitor is not None:
            host = monitor.host or self.host
            server = await self.listen(lambda: HttpClient(HttpRequest(), self._monitored), host, monitor.port)
            self.process.monitor_port = port_of(server)
        if websocket is not None and ports is not None:
            host, port = websocket.host, websocket.port
            self._websocket = await self.listen(lambda: ports.new_websocket(self), host, port)
            self.process.websocket_port = port_of(self._websocket)

    def _monitored(self, request: HttpRequest, peer: str) -> bytes:
        """The answer of the monitoring port."""
        if request.status != 200:
            return answer(request.status, "text/plain", b"")
        found = self.monitor.answer(request.path, request.query, self.now())
        return answer(*found, head_only=request.method == "HEAD")

    def new_client(self) -> Client:
        if self.settings.tls is None or self._ports is None:
            return Client(self)
        return self._ports.new_client(self)

    def next_id(self) -> int:
        self.traffic.opened += 1
        return super().next_id()

    def _remember_websocket(self, client: Client) -> None:
        """Its INFO offers what the port for WebSocket does."""
        self._websocket_clients.add(client.id)
        options = self.settings.websocket
        is_secure = options is not None and not options.no_tls
        self.broker.identity.offers_elsewhere[client.id] = {"tls_required": True} if is_secure else {}

    def _know_process(self) -> None:
        process = self.process
        process.resident_bytes = _resident_bytes
        process.cores = os.cpu_count() or 1

        def address(client_id: int) -> tuple[str, int]:
            client = self.clients.get(client_id)
            peer = client.transport.get_extra_info("peername") if client else None
            return (peer[0], peer[1]) if peer else ("", 0)

        def pending(client_id: int) -> int:
            client = self.clients.get(client_id)
            return client.transport.get_write_buffer_size() if client else 0

        process.address, process.pending = address, pending
        process.kind = lambda client: "websocket" if client in self._websocket_clients else "nats"

    # Reload

    def reload(self, settings: Settings) -> list[str]:
        """Take what can change while it runs; what happened, in lines for the log."""
        before, self.settings, self.monitor.settings = self.settings, settings, settings
        lines = [
            f"Reloaded: {name}"
            for name in RELOADED
            if getattr(before.config, name) != getattr(settings.config, name)
        ]
        kept = {name: getattr(settings.config, name) for name in RELOADED}
        core = self.accounts or self.broker
        core.reconfigure(structs.replace(self.broker.config, **kept))
        if before.tls is not None and settings.tls is not None:
            try:
                if self._ports is not None:
                    self._ports.reload(settings)
            except ConfigError as error:
                lines.append(f"Failed to reload TLS: {error}")
        self.carry_out(core.dismiss_refused())
        return [*lines, "Reloaded server configuration"]

    # Lame duck mode

    async def leave(self) -> None:
        """As the base, with the times of the configuration."""
        self.is_leaving = True
        if self._websocket is not None:
            self._websocket.close()
        self.lame_duck_grace_period = self.settings.lame_duck_grace_period
        self.lame_duck_duration = self.settings.lame_duck_duration
        await super().leave()


def _resident_bytes() -> int:
    """Memory of this process; 0 where /proc is not there."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
