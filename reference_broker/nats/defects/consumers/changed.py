"""Defects of what changes while messages are pending: updates, deleted and purged messages."""

from __future__ import annotations

from collections import deque

from plumbline.reference_broker.nats.defects.methods import method_defect
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckState
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

# Redelivery


@method_defect(AckState.record_delivery, "JS-CONS-108")
def cons_ack_wait_goes_on_after_a_nak(self: AckState, seq: int, deliveries: int, now: int) -> None:
    """ack_wait of a message that a -NAK has delivered again runs since the delivery before."""
    known = self.pending.get(seq)
    stamp = now if known is None else known.stamp
    AckState.record_delivery(self, seq, deliveries, now)
    if known is not None:
        known.stamp = stamp


# Updates


def _update_unnoticed(self: Consumer, config: ConsumerConfig, now: int) -> None:
    """Requests and deadlines do not notice an update, until something else wakes them."""
    requests, deadline = self.waiting.requests, self.ack_timer.when
    self.waiting.requests = deque()
    Consumer.reconfigure(self, config, now)
    self.waiting.requests = requests
    if deadline is not None:
        self.ack_timer.set(deadline)


@method_defect(Consumer.reconfigure, "JS-CONS-109")
def cons_update_wakes_no_pull(self: Consumer, config: ConsumerConfig, now: int) -> None:
    """After an update, pull requests wait for something else to wake them."""
    _update_unnoticed(self, config, now)


@method_defect(Consumer.reconfigure, "JS-CONS-109")
def cons_update_wakes_for_one(self: Consumer, config: ConsumerConfig, now: int) -> None:
    """An update that raises max_ack_pending lets one more message go out, however much it is raised."""
    _update_unnoticed(self, config, now)
    if self.waiting.requests and not self.is_blocked():
        self.pull_one(now)


@method_defect(Consumer.reconfigure, "JS-CONS-109")
def cons_update_drops_pulls(self: Consumer, config: ConsumerConfig, now: int) -> None:
    """An update ends the pull requests that wait, once it has served them."""
    Consumer.reconfigure(self, config, now)
    self.run(now)
    self.waiting.requests.clear()


@method_defect(Consumer.reconfigure, "JS-CONS-110")
def cons_update_leaves_deadlines(self: Consumer, config: ConsumerConfig, now: int) -> None:
    """The ack_wait of what was delivered before an update stays as it was."""
    deadline = self.ack_timer.when
    Consumer.reconfigure(self, config, now)
    if deadline is not None:
        self.ack_timer.set(deadline)


# Messages that go


@method_defect(Consumer.on_message_removed, "JS-SEQ-020")
def deleted_message_stays_pending(self: Consumer, message: StoredMessage, now: int) -> None:
    """A message that is deleted after its delivery waits for its acknowledgement all the same."""
    if message.seq >= self.position.next_seq:
        Consumer.on_message_removed(self, message, now)


@method_defect(Stream.enforce_limits, "JS-SEQ-023")
def limits_leave_what_is_pending(self: Stream, subject: bytes | None, now: int) -> None:
    """A message that a limit removes after its delivery waits for its acknowledgement all the same."""
    pending = [dict(consumer.acks.pending) for consumer in self.consumers.values()]
    Stream.enforce_limits(self, subject, now)
    for consumer, before in zip(self.consumers.values(), pending, strict=True):
        consumer.acks.pending = before


@method_defect(AckState.message_removed, "JS-SEQ-020")
def deleted_message_stays_redelivered(self: AckState, seq: int, now: int) -> bool:
    """A message that is deleted after two deliveries stays in num_redelivered."""
    count = self.redelivered.get(seq)
    dropped = AckState.message_removed(self, seq, now)
    if count is not None:
        self.redelivered[seq] = count
    return dropped


@method_defect(Consumer.on_purged, "JS-SEQ-021")
def purge_of_a_part_forgets_all_pending(self: Consumer, subject: bytes | None, now: int) -> None:
    """A purge of a part of the stream settles all that is pending."""
    if subject is not None:
        self.acks.pending.clear()
    Consumer.on_purged(self, subject, now)


@method_defect(Consumer.on_purged, "JS-SEQ-021")
def purge_of_a_part_leaves_pending(self: Consumer, subject: bytes | None, now: int) -> None:
    """What a purge of a part of the stream has removed stays pending."""
    pending = dict(self.acks.pending)
    Consumer.on_purged(self, subject, now)
    if subject is not None:
        self.acks.pending = pending


@method_defect(Consumer.on_purged, "JS-SEQ-021")
def purge_of_a_part_goes_to_the_end(self: Consumer, subject: bytes | None, now: int) -> None:
    """After a purge of a part of the stream, nothing that is left is delivered."""
    Consumer.on_purged(self, subject, now)
    if subject is not None:
        self.position.not_before(self.stream.store.last_seq + 1)
        self.recount()
