"""Defects in what consumers should or may do: future starts, several filters, thresholds, counters."""

from __future__ import annotations

from typing import Any

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_success
from plumbline.reference_broker.nats.defects.cons_configuration import CREATE, alter_config
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_acks,
    alter_consumers,
    jetstream_defect,
)
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckState
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.store import Message
from plumbline.wire.durations import SECOND


@jetstream_defect(
    "cons-future-start-delivers-the-last",
    breaks=("JS-CONS-058",),
    summary="A start time in the future starts with the message stored last.",
)
def _(broker: Broker) -> None:
    def filter_by(self: Consumer, config: ConsumerConfig) -> None:
        if config.deliver_policy == "by_start_time":
            self.position.next_seq = min(self.position.next_seq, max(self.stream.store.last_seq, 1))
        Consumer.filter_by(self, config)

    alter_consumers(broker, filter_by=filter_by)


@jetstream_defect(
    "cons-several-filters-are-passed-over",
    breaks=("JS-CONS-061",),
    summary="A consumer with filter_subjects delivers every message.",
)
def _(broker: Broker) -> None:
    alter_config(broker, lambda config: config.pop("filter_subjects", None))


@jetstream_defect(
    "cons-only-the-first-filter-counts",
    breaks=("JS-CONS-061",),
    summary="A consumer with filter_subjects delivers what fits the first of them.",
)
def _(broker: Broker) -> None:
    def change(config: dict[str, Any]) -> None:
        if "filter_subjects" in config:
            config["filter_subjects"] = config["filter_subjects"][:1]

    alter_config(broker, change)


@jetstream_defect(
    "cons-exhausted-messages-stay-pending",
    breaks=("JS-CONS-065",),
    summary="A message that reached max_deliver stays in num_ack_pending.",
)
def _(broker: Broker) -> None:
    def reported_ack_pending(self: Consumer) -> int:
        waiting = len(self.acks.pending)
        return waiting + sum(seq not in self.acks.pending for seq in self.acks.redelivered)

    alter_consumers(broker, reported_ack_pending=reported_ack_pending)


@jetstream_defect(
    "cons-exhausted-messages-are-forgotten",
    breaks=("JS-CONS-065",),
    summary="A message that reached max_deliver is no longer in num_redelivered.",
)
def _(broker: Broker) -> None:
    def exhaust(self: AckState, seq: int) -> None:
        AckState.exhaust(self, seq)
        self.redelivered.pop(seq, None)

    alter_acks(broker, exhaust=exhaust)


@jetstream_defect(
    "cons-pull-replays-at-any-rate",
    breaks=("JS-CONS-088",),
    summary="Replay policy original holds back nothing from a pull consumer.",
)
def _(broker: Broker) -> None:
    def too_early(self: Consumer, message: Message, now: int) -> bool:
        return not self.config.is_pull and Consumer.too_early(self, message, now)

    alter_consumers(broker, too_early=too_early)


@jetstream_defect(
    "cons-durable-stays",
    breaks=("JS-CONS-094",),
    summary="A durable consumer is not deleted, whatever its inactive_threshold.",
)
def _(broker: Broker) -> None:
    def inactive_due(self: Consumer, now: int) -> None:
        if not self.config.durable_name:
            Consumer.inactive_due(self, now)

    alter_consumers(broker, inactive_due=inactive_due)


@jetstream_defect(
    "cons-ephemeral-threshold-is-a-minute",
    breaks=("JS-CONS-095",),
    summary="An ephemeral consumer has an inactive_threshold of a minute unless it says otherwise.",
)
def _(broker: Broker) -> None:
    def change(config: dict[str, Any]) -> None:
        if "durable_name" not in config:
            config.setdefault("inactive_threshold", 60 * SECOND)

    alter_config(broker, change)


@jetstream_defect(
    "cons-purge-keeps-what-is-pending",
    breaks=("JS-SEQ-015",),
    summary="A purge leaves num_ack_pending and ack_floor as they are.",
)
def _(broker: Broker) -> None:
    def restart_at(self: AckState, position: int, kept: set[int], now: int, start: int) -> None:
        AckState.restart_at(self, position, kept | set(self.pending), now, start=0)

    alter_acks(broker, restart_at=restart_at)


@jetstream_defect(
    "cons-last-active-is-the-creation",
    breaks=("JS-SEQ-017",),
    summary="delivered has last_active before anything was delivered.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        fields["delivered"].setdefault("last_active", fields["created"])

    alter_success(broker, "consumer_info", change)


@jetstream_defect(
    "cons-last-active-is-not-told",
    breaks=("JS-SEQ-017",),
    summary="ack_floor never has last_active.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        fields["ack_floor"].pop("last_active", None)

    alter_success(broker, "consumer_info", change)


@jetstream_defect(
    "kv-watch-counts-one-too-many",
    breaks=("JS-KV-013",),
    summary="The answer to the creation of a consumer has one more than there is in num_pending.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        fields["num_pending"] += 1

    alter_success(broker, CREATE, change)
