"""Defects of ephemeral consumers. What is right: ``consumer.inactive_due``, ``consumer_api.create``."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_success
from plumbline.reference_broker.nats.defects.jetstream_parts import alter_consumers, jetstream_defect
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer


@jetstream_defect(
    "cons-ephemeral-shows-a-durable-name",
    breaks=("JS-CONS-089",),
    summary="An ephemeral consumer shows its name as durable_name.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        fields["config"]["durable_name"] = fields["name"]

    alter_success(broker, "consumer_create", change)


@jetstream_defect(
    "cons-ephemeral-stays",
    breaks=("JS-CONS-093",),
    summary="An ephemeral consumer that nobody uses is not deleted.",
)
def _(broker: Broker) -> None:
    def inactive_due(self: Consumer, now: int) -> None:
        if self.config.durable_name:
            Consumer.inactive_due(self, now)

    alter_consumers(broker, inactive_due=inactive_due)
