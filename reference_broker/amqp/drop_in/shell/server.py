"""The reference AMQP server with the ports of rabbitmq-server."""

from __future__ import annotations

from plumbline.reference_broker.amqp.drop_in.settings import Settings
from plumbline.reference_broker.amqp.server import AmqpBroker


class DropInServer(AmqpBroker):
    """One server."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.config, defect=settings.defects)
        self.settings = settings
