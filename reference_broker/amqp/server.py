"""The AMQP server on a socket: the shell of every broker around the pure ``Broker``."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from plumbline.reference_broker.amqp.assembly import build
from plumbline.reference_broker.amqp.config import DEFAULT_USER, Config
from plumbline.reference_broker.amqp.tls import TlsClient, TlsPort
from plumbline.reference_broker.durable import DurableShell, StorageOptions
from plumbline.reference_broker.shell import BrokerThread, Client
from plumbline.reference_broker.store_folder import Stamp
from plumbline.reference_broker.write_queue import WriteQueue

__all__ = ["AmqpBroker", "BrokerThread"]

STAMP = Stamp("plumbline.amqp", 1)


class AmqpBroker(DurableShell):
    """A reference AMQP server that listens on a socket.

    As a context manager it starts and gives its URL::

        async with AmqpBroker() as url: ...  # amqp://guest:guest@127.0.0.1:41931/%2f

    Give a ``Config``, or the fields of one as keywords; ``data_dir`` makes durable what should be.
    ``defect`` names one deliberate fault, or several. ``seed`` makes generated names repeatable.
    """

    scheme = "amqp"

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
        folder = self.config.data_dir
        write_queue = None if folder is None else WriteQueue()
        self.broker = build(self.config, random.Random(seed), defects, write_queue=write_queue)
        keeping = None
        if folder is not None and write_queue is not None:
            keeping = StorageOptions(Path(folder), STAMP, write_queue, self.broker.recover, "always")
        super().__init__(
            self.broker,
            keeping,
            host=self.config.host,
            port=self.config.port,
            max_pending=self.config.max_pending,
            write_deadline=self.config.write_deadline,
        )

        terms = self.broker.tls
        self._tls_port = TlsPort(terms) if terms is not None else None
        if terms is not None:
            self.scheme = "amqps"

    def new_client(self) -> Client:
        return super().new_client() if self._tls_port is None else TlsClient(self, self._tls_port)

    @property
    def url(self) -> str:
        """Where clients connect to, with the first user and virtual host."""
        user, password = next(iter(self.config.users.items()))
        return self._url_of(f"{quote(user, safe='')}:{quote(password, safe='')}")

    @property
    def shown_url(self) -> str:
        """``url``, with the password only if it is RabbitMQ's default, which is no secret."""
        user, password = next(iter(self.config.users.items()))
        return self.url if user == password == "guest" else self._url_of(quote(user, safe=""))

    def _url_of(self, login: str) -> str:
        vhost = self.config.vhosts[0].replace("/", "%2f")
        return f"{super().url.replace('://', f'://{login}@')}/{vhost}"

    async def stop(self) -> None:
        """Tell every client, and say in the journal that the end was an orderly one."""
        if self.is_listening and not self.is_broken:
            self.carry_out(self.broker.stop(self.now()))
            self._commit()  # while there is still somebody to tell
        await super().stop()

    def open_to_all(self) -> str:
        user = self.config.users.get(DEFAULT_USER)
        return f"the password of {DEFAULT_USER} is the default" if user == DEFAULT_USER else ""

    def block(self, reason: str) -> None:
        """As a broker that runs out of memory or disk: publishers get connection.blocked, and wait."""
        self.carry_out(self.broker.block(reason, self.now()))

    def unblock(self) -> None:
        """Publishers may go on."""
        self.carry_out(self.broker.unblock(self.now()))

    def on_client_slow(self, client: Client) -> None:
        self.broker.on_client_slow(client.id)

    def on_client_ready(self, client: Client) -> None:
        self.carry_out(self.broker.on_client_ready(client.id, self.now()))
