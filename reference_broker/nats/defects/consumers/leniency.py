"""Defects in what consumers should or may do: future starts, several filters, thresholds, counters."""

from __future__ import annotations

from typing import Any

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_success
from plumbline.reference_broker.nats.defects.consumers.configuration import alter_config
from plumbline.reference_broker.nats.defects.methods import (
    method_defect,
)
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckState
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage


@method_defect(Consumer.filter_by, "JS-CONS-058")
def cons_future_start_delivers_the_last(self: Consumer, config: ConsumerConfig) -> None:
    """A start time in the future starts with the message stored last."""
    if config.deliver_policy == "by_start_time":
        self.position.next_seq = min(self.position.next_seq, max(self.stream.store.last_seq, 1))
    Consumer.filter_by(self, config)


@defect("JS-CONS-061")
def cons_only_the_first_filter_counts(broker: Broker) -> None:
    """A consumer with filter_subjects delivers what fits the first of them."""

    def change(config: dict[str, Any]) -> None:
        if "filter_subjects" in config:
            config["filter_subjects"] = config["filter_subjects"][:1]

    alter_config(broker, change)


@method_defect(Consumer.reported_ack_pending, "JS-CONS-065")
def cons_exhausted_messages_stay_pending(self: Consumer) -> int:
    """A message that reached max_deliver stays in num_ack_pending."""
    waiting = len(self.acks.pending)
    return waiting + sum(seq not in self.acks.pending for seq in self.acks.redelivered)


@method_defect(AckState.max_deliveries_reached, "JS-CONS-065")
def cons_exhausted_messages_are_forgotten(self: AckState, seq: int) -> None:
    """A message that reached max_deliver is no longer in num_redelivered."""
    AckState.max_deliveries_reached(self, seq)
    self.redelivered.pop(seq, None)


@method_defect(Consumer.too_early, "JS-CONS-088")
def cons_pull_replays_at_any_rate(self: Consumer, message: StoredMessage, now: int) -> bool:
    """Replay policy original holds back nothing from a pull consumer."""
    return not self.config.is_pull and Consumer.too_early(self, message, now)


@method_defect(Consumer.on_inactive, "JS-CONS-094")
def cons_durable_stays(self: Consumer, now: int) -> None:
    """A durable consumer is not deleted, whatever its inactive_threshold."""
    if not self.config.durable_name:
        Consumer.on_inactive(self, now)


@method_defect(AckState.restart_at, "JS-SEQ-015")
def cons_purge_keeps_what_is_pending(
    self: AckState, position: int, still_pending: set[int], now: int, start: int
) -> None:
    """A purge leaves num_ack_pending and ack_floor as they are."""
    AckState.restart_at(self, position, still_pending | set(self.pending), now, start=0)


@defect("JS-SEQ-017")
def cons_last_active_is_the_creation(broker: Broker) -> None:
    """delivered has last_active before anything was delivered."""

    def change(fields: Fields, request: Request) -> None:
        fields["delivered"].setdefault("last_active", fields["created"])

    alter_success(broker, "consumer_info", change)
