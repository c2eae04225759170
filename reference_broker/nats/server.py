"""The NATS server on a socket: the shell of every broker around the pure ``Broker``."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline.reference_broker.durable import DurableShell, StorageOptions
from plumbline.reference_broker.nats.assembly import build
from plumbline.reference_broker.nats.config import Config
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.jetstream.files.layout import LAYOUT, VERSION
from plumbline.reference_broker.shell import BrokerThread
from plumbline.reference_broker.store_folder import Stamp
from plumbline.reference_broker.write_queue import WriteQueue
from plumbline.wire.nats import Info

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.accounts import AccountsCore

__all__ = ["BrokerThread", "NatsBroker"]


class NatsBroker(DurableShell):
    """A reference NATS server that listens on a socket.

    As a context manager it starts and gives its URL::

        async with NatsBroker(jetstream=True) as url: ...

    Give a ``Config``, or the fields of one as keywords. ``defect`` names one deliberate fault, or several.
    ``seed`` makes queue groups and identities repeatable.
    """

    scheme = "nats"
    lame_duck_grace_period = 10.0  # seconds, as lame_duck_duration: the defaults of nats-server
    lame_duck_duration = 120.0

    def __init__(
        self,
        config: Config | None = None,
        *,
        defect: str | Sequence[str] | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        if config is not None and options:
            raise TypeError("give a Config or keywords, not both")
        self.config = config or Config.of(**options)
        defects = [defect] if isinstance(defect, str) else list(defect or ())
        options_of_jetstream = self.config.jetstream
        folder = options_of_jetstream.store_dir if options_of_jetstream else None
        write_queue = WriteQueue() if folder else None
        self.broker = build(self.config, random.Random(seed), defects, write_queue=write_queue)
        keeping = None
        if options_of_jetstream and folder and write_queue is not None:
            path, stamp = Path(folder, "jetstream"), Stamp(LAYOUT, VERSION)
            keeping = StorageOptions(
                path, stamp, write_queue, self._recover, options_of_jetstream.sync_interval
            )
        self.accounts: AccountsCore | None = None
        if self.config.accounts:
            from plumbline.reference_broker.nats.accounts import AccountsCore

            self.accounts = AccountsCore(self.broker, random.Random(seed), defects)
        super().__init__(
            self.accounts or self.broker,
            keeping,
            host=self.config.host,
            port=self.config.port,
            max_pending=self.broker.config.max_pending,
            write_deadline=self.broker.config.write_deadline,
        )

    def _recover(self, files: Mapping[str, bytes], now: int) -> list[str]:
        from plumbline.reference_broker.nats.jetstream.service import JetStream

        service = self.broker.service
        return service.recover(files, now) if isinstance(service, JetStream) else []

    def open_to_all(self) -> str:
        return "" if self.config.asks_for_credentials else "it asks for no credentials"

    def refusal(self, client_id: int, peer: str) -> bytes:
        return self.broker.refusal(client_id, peer)

    def on_listening(self) -> None:
        """INFO names the true port."""
        self.broker.identity.port = self.port

    # Lame duck mode. Source: docs.nats.io, "Lame Duck Mode"

    @property
    def cores(self) -> Collection[Broker]:
        """The cores that clients are connected to."""
        return self.accounts.accounts.values() if self.accounts else (self.broker,)

    async def leave(self) -> None:
        """Take no more clients, ask those that are there to go, and close them one after the other."""
        if self._server is not None:
            self._server.close()
        self.broker.identity.offers["ldm"] = True
        for offers in self.broker.identity.offers_elsewhere.values():
            offers["ldm"] = True
        for connection in [one for core in self.cores for one in core.connections.values()]:
            if connection.options.protocol >= 1 and (client := self.clients.get(connection.id)):
                client.transport.write(Info.make(self.broker.identity.fields(connection)).raw)
        await self.evict_clients(self.lame_duck_grace_period, self.lame_duck_duration)
