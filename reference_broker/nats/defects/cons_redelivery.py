"""Defects of max_ack_pending, ack_wait, max_deliver and backoff. What is right: ``jetstream.delivery``."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_success
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_acks,
    alter_consumers,
    jetstream_defect,
)
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckState
from plumbline.reference_broker.nats.jetstream.consumers.config import DEFAULT_ACK_WAIT
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.store import Message

# max_ack_pending


@jetstream_defect(
    "cons-max-ack-pending-allows-one-more",
    breaks=("JS-CONS-049",),
    summary="One message more than max_ack_pending is delivered.",
)
def _(broker: Broker) -> None:
    def is_blocked(self: Consumer) -> bool:
        return 0 < self.config.max_ack_pending < len(self.acks.pending) and not self.acks.queue

    alter_consumers(broker, is_blocked=is_blocked)


@jetstream_defect(
    "cons-ack-does-not-resume",
    breaks=("JS-CONS-050",),
    summary="An acknowledgement wakes no waiting pull request.",
)
def _(broker: Broker) -> None:
    def run_if_waiting(self: Consumer, now: int) -> None:
        if self.acks.queue:
            Consumer.run_if_waiting(self, now)

    alter_consumers(broker, run_if_waiting=run_if_waiting)


# ack_wait


@jetstream_defect(
    "cons-ack-wait-is-ignored",
    breaks=("JS-CONS-063",),
    summary="What is not acknowledged within ack_wait is not delivered again.",
)
def _(broker: Broker) -> None:
    def ack_wait_passed(self: Consumer, seq: int, now: int) -> None:
        if self.config.backoff or self.config.max_deliver > 0:
            Consumer.ack_wait_passed(self, seq, now)

    alter_consumers(broker, ack_wait_passed=ack_wait_passed)


@jetstream_defect(
    "cons-ack-wait-is-halved",
    breaks=("JS-CONS-063",),
    summary="What is not acknowledged is delivered again after half of ack_wait.",
)
def _(broker: Broker) -> None:
    def redelivery_delay(self: Consumer, seq: int) -> int:
        delay = Consumer.redelivery_delay(self, seq)
        return delay if self.config.backoff else delay // 2

    alter_consumers(broker, redelivery_delay=redelivery_delay)


# max_deliver


@jetstream_defect(
    "cons-max-deliver-allows-one-more",
    breaks=("JS-CONS-064",),
    summary="A message is delivered once more than max_deliver, if that is more than 1.",
)
def _(broker: Broker) -> None:
    def is_exhausted(self: Consumer, deliveries: int) -> bool:
        more = self.config.max_deliver > 1
        return Consumer.is_exhausted(self, deliveries - more)

    alter_consumers(broker, is_exhausted=is_exhausted)


@jetstream_defect(
    "cons-max-deliver-is-not-told",
    breaks=("JS-CONS-064",),
    summary="No advisory tells of a message that reached max_deliver.",
)
def _(broker: Broker) -> None:
    def exhaust(self: Consumer, seq: int, deliveries: int, now: int) -> None:
        self.acks.exhaust(seq)

    alter_consumers(broker, exhaust=exhaust)


@jetstream_defect(
    "cons-max-deliver-one-is-unlimited",
    breaks=("JS-CONS-070",),
    summary="max_deliver 1 limits nothing.",
)
def _(broker: Broker) -> None:
    def is_exhausted(self: Consumer, deliveries: int) -> bool:
        return self.config.max_deliver > 1 and Consumer.is_exhausted(self, deliveries)

    def ack_wait_passed(self: Consumer, seq: int, now: int) -> None:
        if self.config.max_deliver != 1:
            Consumer.ack_wait_passed(self, seq, now)
            return
        self.acks.pending[seq].stamp = now
        self.acks.request_redelivery(seq)

    alter_consumers(broker, is_exhausted=is_exhausted, ack_wait_passed=ack_wait_passed)


# backoff


@jetstream_defect(
    "cons-backoff-leaves-ack-wait",
    breaks=("JS-CONS-066",),
    summary="A consumer with backoff shows the default ack_wait.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if fields["config"].get("backoff"):
            fields["config"]["ack_wait"] = DEFAULT_ACK_WAIT

    alter_success(broker, "consumer_create", change)


@jetstream_defect(
    "cons-backoff-stays-at-its-first-step",
    breaks=("JS-CONS-067",),
    summary="Every redelivery waits for the first step of the backoff.",
)
def _(broker: Broker) -> None:
    def redelivery_delay(self: Consumer, seq: int) -> int:
        return self.config.backoff[0] if self.config.backoff else Consumer.redelivery_delay(self, seq)

    alter_consumers(broker, redelivery_delay=redelivery_delay)


@jetstream_defect(
    "cons-backoff-begins-anew",
    breaks=("JS-CONS-067",),
    summary="After its last step the backoff begins anew.",
)
def _(broker: Broker) -> None:
    def redelivery_delay(self: Consumer, seq: int) -> int:
        steps = self.config.backoff
        if not steps:
            return Consumer.redelivery_delay(self, seq)
        return steps[self.acks.redelivered.get(seq, 0) % len(steps)]

    alter_consumers(broker, redelivery_delay=redelivery_delay)


# What comes first, and what is counted


@jetstream_defect(
    "cons-nak-comes-after-new",
    breaks=("JS-CONS-068",),
    summary="New messages are delivered before those to redeliver.",
)
def _(broker: Broker) -> None:
    def candidate(self: Consumer, now: int) -> tuple[Message, int] | None:
        message = self.position.next(self.stream.store, self.wanted)
        return (message, 1) if message is not None else Consumer.candidate(self, now)

    alter_consumers(broker, candidate=candidate)


@jetstream_defect(
    "cons-num-redelivered-only-grows",
    breaks=("JS-CONS-069",),
    summary="num_redelivered counts acknowledged messages as well.",
)
def _(broker: Broker) -> None:
    def forget_redelivery(self: AckState, seq: int) -> None:
        self.queue.pop(seq, None)

    alter_acks(broker, forget_redelivery=forget_redelivery)


@jetstream_defect(
    "cons-one-delivery-counts-as-redelivered",
    breaks=("JS-CONS-101",),
    summary="num_redelivered counts what max_deliver 1 gave up, as in nats-server up to 2.11.3.",
)
def _(broker: Broker) -> None:
    def reported_redelivered(self: Consumer) -> int:
        return len(self.acks.redelivered)

    alter_consumers(broker, reported_redelivered=reported_redelivered)
