"""Defects of redelivery where it meets other messages and features. What is right: ``ack``, ``delivery``."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import alter_consumers, method_defect
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckState, AckSubjectFields
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage

# ack_wait


@method_defect(Consumer.on_ack_wait, "JS-CONS-128")
def ack_wait_of_the_first_is_of_all(self: Consumer, now: int) -> None:
    """When ack_wait of one message has passed, all that is pending is delivered again."""
    pending = {seq: each for seq, each in self.acks.pending.items() if seq not in self.acks.queue}
    if any(each.stamp + self.redelivery_delay(seq) <= now for seq, each in pending.items()):
        for seq in pending:
            self.request_redelivery_of(seq, now)
    Consumer.on_ack_wait(self, now)


@method_defect(Consumer.progress, "JS-ACK-043")
def ack_progress_is_of_all(self: Consumer, subject: AckSubjectFields, now: int) -> None:
    """+WPI starts ack_wait again for every message."""
    for pending in self.acks.pending.values():
        pending.stamp = now
    Consumer.progress(self, subject, now)


@method_defect(Consumer.progress, "JS-ACK-013")
def ack_progress_counts_once(self: Consumer, subject: AckSubjectFields, now: int) -> None:
    """A second +WPI for a message is passed over."""
    seen = vars(self).setdefault("in_progress", set())
    if subject.stream_seq not in seen:
        Consumer.progress(self, subject, now)
    seen.add(subject.stream_seq)


# -NAK


@method_defect(Consumer.nak, "JS-ACK-010")
def nak_delay_ends_with_ack_wait(
    self: Consumer, subject: AckSubjectFields, delay: int | None, now: int
) -> None:
    """A -NAK puts the redelivery off by ack_wait at most."""
    Consumer.nak(self, subject, None if delay is None else min(delay, self.config.ack_wait), now)


@method_defect(Consumer.nak, "JS-ACK-010")
def nak_delay_is_for_the_first_delivery(
    self: Consumer, subject: AckSubjectFields, delay: int | None, now: int
) -> None:
    """A -NAK with a delay to a redelivery acts at once."""
    Consumer.nak(self, subject, None if subject.stream_seq in self.acks.redelivered else delay, now)


@method_defect(AckState.acknowledge_one, "JS-ACK-044")
def settled_message_is_redelivered(self: AckState, seq: int, consumer_seq: int) -> list[int]:
    """An acknowledgement after a -NAK leaves the message to be delivered again."""
    is_queued = seq in self.queue
    settled = AckState.acknowledge_one(self, seq, consumer_seq)
    if is_queued:
        self.queue[seq] = None
    return settled


@method_defect(Consumer.is_exhausted, "JS-CONS-129")
def max_deliver_of_two_is_not_for_a_nak(self: Consumer, deliveries: int) -> bool:
    """A -NAK delivers more often than max_deliver, if that is more than 1."""
    return self.config.max_deliver == 1 and Consumer.is_exhausted(self, deliveries)


@defect("JS-CONS-129")
def max_deliver_is_not_for_a_delayed_nak(broker: Broker) -> None:
    """A -NAK with a delay delivers more often than max_deliver."""

    def nak(self: Consumer, subject: AckSubjectFields, delay: int | None, now: int) -> None:
        if delay is not None:
            vars(self).setdefault("put_off", set()).add(subject.stream_seq)
        Consumer.nak(self, subject, delay, now)

    def request_redelivery_of(self: Consumer, seq: int, now: int) -> None:
        if seq not in vars(self).get("put_off", ()):
            Consumer.request_redelivery_of(self, seq, now)
            return
        self.acks.pending[seq].stamp = now
        self.acks.request_redelivery(seq)

    def is_exhausted(self: Consumer, deliveries: int) -> bool:
        is_put_off = self.acks.next_redelivery() in vars(self).get("put_off", ())
        return not is_put_off and Consumer.is_exhausted(self, deliveries)

    alter_consumers(broker, nak=nak, request_redelivery_of=request_redelivery_of, is_exhausted=is_exhausted)


@method_defect(Consumer.on_max_deliveries, "JS-CONS-129")
def max_deliver_is_told_of_one_message(self: Consumer, seq: int, deliveries: int, now: int) -> None:
    """The advisory MAX_DELIVERIES comes for the first message of a consumer alone."""
    if vars(self).setdefault("told_of", seq) == seq:
        Consumer.on_max_deliveries(self, seq, deliveries, now)
    else:
        self.acks.max_deliveries_reached(seq)


# What a redelivery bears


def _redelivers(broker: Broker, *, headers_only: bool) -> None:
    """Redeliveries of consumers with ``headers_only`` are whole, those of others without headers."""

    def next_message(self: Consumer, now: int) -> tuple[StoredMessage, int] | None:
        found = Consumer.next_message(self, now)
        vars(self)["is_again"] = found is not None and found[1] > 1
        return found

    def content(self: Consumer, message: StoredMessage) -> tuple[bytes, bytes]:
        if not vars(self).get("is_again") or self.config.headers_only is not headers_only:
            return Consumer.content(self, message)
        return message.header_block if headers_only else b"", message.payload

    alter_consumers(broker, next_message=next_message, content=content)


@defect("JS-CONS-103", "JS-PUSH-023")
def redelivery_has_no_headers(broker: Broker) -> None:
    """A message that is delivered again has lost its headers."""
    _redelivers(broker, headers_only=False)


@defect("JS-CONS-084", "JS-PUSH-023")
def headers_only_is_for_the_first_delivery(broker: Broker) -> None:
    """With headers_only a message that is delivered again has its payload."""
    _redelivers(broker, headers_only=True)
