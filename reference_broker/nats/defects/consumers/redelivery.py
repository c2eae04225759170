"""Defects of max_ack_pending, ack_wait, max_deliver and backoff. What is right: ``jetstream.delivery``."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import (
    alter_consumers,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckState
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage

# max_ack_pending


@method_defect(Consumer.is_blocked, "JS-CONS-049")
def cons_max_ack_pending_allows_one_more(self: Consumer) -> bool:
    """One message more than max_ack_pending is delivered."""
    return 0 < self.config.max_ack_pending < len(self.acks.pending) and not self.acks.queue


@method_defect(Consumer.run_if_waiting, "JS-CONS-050")
def cons_ack_does_not_resume(self: Consumer, now: int) -> None:
    """An acknowledgement wakes no waiting pull request."""
    if self.acks.queue:
        Consumer.run_if_waiting(self, now)


# ack_wait


@method_defect(Consumer.request_redelivery_of, "JS-CONS-063")
def cons_ack_wait_is_ignored(self: Consumer, seq: int, now: int) -> None:
    """What is not acknowledged within ack_wait is not delivered again."""
    if self.config.backoff or self.config.max_deliver > 0:
        Consumer.request_redelivery_of(self, seq, now)


@method_defect(Consumer.redelivery_delay, "JS-CONS-063")
def cons_ack_wait_is_halved(self: Consumer, seq: int) -> int:
    """What is not acknowledged is delivered again after half of ack_wait."""
    delay = Consumer.redelivery_delay(self, seq)
    return delay if self.config.backoff else delay // 2


# max_deliver


@method_defect(Consumer.is_exhausted, "JS-CONS-064")
def cons_max_deliver_allows_one_more(self: Consumer, deliveries: int) -> bool:
    """A message is delivered once more than max_deliver, if that is more than 1."""
    more = self.config.max_deliver > 1
    return Consumer.is_exhausted(self, deliveries - more)


@method_defect(Consumer.on_max_deliveries, "JS-CONS-064")
def cons_max_deliver_is_not_told(self: Consumer, seq: int, deliveries: int, now: int) -> None:
    """No advisory tells of a message that reached max_deliver."""
    self.acks.max_deliveries_reached(seq)


@defect("JS-CONS-070")
def cons_max_deliver_one_is_unlimited(broker: Broker) -> None:
    """max_deliver 1 limits nothing."""

    def is_exhausted(self: Consumer, deliveries: int) -> bool:
        return self.config.max_deliver > 1 and Consumer.is_exhausted(self, deliveries)

    def ack_wait_passed(self: Consumer, seq: int, now: int) -> None:
        if self.config.max_deliver != 1:
            Consumer.request_redelivery_of(self, seq, now)
            return
        self.acks.pending[seq].stamp = now
        self.acks.request_redelivery(seq)

    alter_consumers(broker, is_exhausted=is_exhausted, request_redelivery_of=ack_wait_passed)


# backoff


@method_defect(Consumer.redelivery_delay, "JS-CONS-067")
def cons_backoff_stays_at_its_first_step(self: Consumer, seq: int) -> int:
    """Every redelivery waits for the first step of the backoff."""
    return self.config.backoff[0] if self.config.backoff else Consumer.redelivery_delay(self, seq)


@method_defect(Consumer.redelivery_delay, "JS-CONS-067")
def cons_backoff_begins_anew(self: Consumer, seq: int) -> int:
    """After its last step the backoff begins again."""
    steps = self.config.backoff
    if not steps:
        return Consumer.redelivery_delay(self, seq)
    return steps[self.acks.redelivered.get(seq, 0) % len(steps)]


@method_defect(Consumer.redelivery_delay, "JS-CONS-067")
def cons_backoff_waits_for_a_longer_one(self: Consumer, seq: int) -> int:
    """A message waits as long as the messages before it do, if they have come to a longer step."""
    own = Consumer.redelivery_delay(self, seq)
    before = [Consumer.redelivery_delay(self, other) for other in self.acks.pending if other < seq]
    return max([own, *before]) if self.config.backoff else own


# What comes first, and what is counted


@method_defect(Consumer.next_message, "JS-CONS-068")
def cons_nak_comes_after_new(self: Consumer, now: int) -> tuple[StoredMessage, int] | None:
    """New messages are delivered before those to redeliver."""
    message = self.position.next(self.stream.store, self.subject_filter)
    return (message, 1) if message is not None else Consumer.next_message(self, now)


@method_defect(AckState.forget_redelivery, "JS-CONS-069")
def cons_num_redelivered_only_grows(self: AckState, seq: int) -> None:
    """num_redelivered counts acknowledged messages as well."""
    self.queue.pop(seq, None)


@method_defect(Consumer.reported_redelivered, "JS-CONS-101")
def cons_one_delivery_counts_as_redelivered(self: Consumer) -> int:
    """num_redelivered counts what max_deliver 1 gave up, as in nats-server up to 2.11.3."""
    return len(self.acks.redelivered)
