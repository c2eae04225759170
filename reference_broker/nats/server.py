"""The NATS server on a socket: the shell of every broker around the pure ``Broker``."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from reference_broker.nats.assembly import build
from reference_broker.nats.config import Config
from reference_broker.shell import BrokerThread, Shell

__all__ = ["BrokerThread", "NatsBroker"]


class NatsBroker(Shell):
    """A reference NATS server that listens on a socket.

    As a context manager it starts and gives its URL::

        async with NatsBroker(jetstream=True) as url: ...

    Give a ``Config``, or the fields of one as keywords. ``defect`` names one deliberate fault, or several.
    ``seed`` makes queue groups and identities repeatable.
    """

    scheme = "nats"

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
        self.broker = build(self.config, random.Random(seed), defects)
        super().__init__(
            self.broker,
            host=self.config.host,
            port=self.config.port,
            max_pending=self.config.max_pending,
            write_deadline=self.config.write_deadline,
        )

    def listening(self) -> None:
        """INFO names the true port."""
        self.broker.identity.port = self.port
