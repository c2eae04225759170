"""Defects of ephemeral consumers. What is right: ``consumer.inactive_due``, ``consumer_api.create``."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_success
from plumbline.reference_broker.nats.defects.methods import method_defect
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer


@defect("JS-CONS-089")
def cons_ephemeral_shows_a_durable_name(broker: Broker) -> None:
    """An ephemeral consumer shows its name as durable_name."""

    def change(fields: Fields, request: Request) -> None:
        fields["config"]["durable_name"] = fields["name"]

    alter_success(broker, "consumer_create", change)


@method_defect(Consumer.on_inactive, "JS-CONS-093")
def cons_ephemeral_stays(self: Consumer, now: int) -> None:
    """An unused ephemeral consumer is not deleted."""
    if self.config.durable_name:
        Consumer.on_inactive(self, now)
