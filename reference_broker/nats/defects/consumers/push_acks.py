"""Defects in what acknowledgements do on a push consumer, and there alone. What is right: ``consumer``."""

from __future__ import annotations

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import alter_consumers, alter_service, push_defect
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckSubjectFields
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.wire.nats.jetstream import EXCEEDED_MAX_WAITING, Ack, AckKind
from plumbline.wire.units import HOUR, SECOND

MANY = 10

# +ACK and the floor


@push_defect(Consumer.acknowledged, "JS-PUSH-001", "JS-PUSH-002", "JS-PUSH-011", "JS-PUSH-013", "JS-PUSH-014")
def pushed_acks_are_answered_and_dropped(
    self: Consumer, subject: AckSubjectFields, reply: bytes | None, payload: bytes, now: int
) -> None:
    """A push consumer answers acknowledgements and takes none of them in."""
    if reply is not None:
        self.answer_ack(reply)


@push_defect(Consumer.acknowledged, "JS-PUSH-001")
def pushed_acks_may_not_be_empty(
    self: Consumer, subject: AckSubjectFields, reply: bytes | None, payload: bytes, now: int
) -> None:
    """A push consumer does not know the empty acknowledgement."""
    Consumer.acknowledged(self, subject, reply, payload or b"junk", now)


@push_defect(Consumer.answer_ack, "JS-PUSH-001")
def pushed_acks_are_not_answered(self: Consumer, reply: bytes) -> None:
    """A push consumer sends no empty reply to an acknowledgement."""


@push_defect(Consumer.ack, "JS-PUSH-001", "JS-PUSH-002")
def pushed_acks_count_the_first_time(
    self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool
) -> bool:
    """A push consumer takes in one acknowledgement."""
    return bool(self.acks.last_ack) or Consumer.ack(self, subject, now, sampled=sampled)


@push_defect(Consumer.ack, "JS-PUSH-001", "JS-PUSH-011")
def pushed_acks_do_not_stop_redelivery(
    self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool
) -> bool:
    """A push consumer delivers a message once more when it is acknowledged."""
    answered = Consumer.ack(self, subject, now, sampled=sampled)
    self.acks.request_redelivery(subject.stream_seq)
    return answered


@push_defect(Consumer.ack, "JS-PUSH-002")
def pushed_floor_follows_every_ack(
    self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool
) -> bool:
    """The floor of a push consumer is what was acknowledged last."""
    answered = Consumer.ack(self, subject, now, sampled=sampled)
    self.acks.floor.consumer, self.acks.floor.stream = subject.consumer_seq, subject.stream_seq
    return answered


@push_defect(Consumer.ack, "JS-PUSH-002")
def pushed_floor_moves_by_one(self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool) -> bool:
    """The floor of a push consumer moves to the message that closes a gap, not to the end of what follows."""
    floor = self.acks.floor
    before = (floor.consumer, floor.stream)
    answered = Consumer.ack(self, subject, now, sampled=sampled)
    if (floor.consumer, floor.stream) != before and self.acks.pending:
        floor.consumer, floor.stream = subject.consumer_seq, subject.stream_seq
    return answered


@push_defect(Consumer.ack, "JS-PUSH-002")
def pushed_acks_settle_all_below(
    self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool
) -> bool:
    """A push consumer takes an explicit acknowledgement for all up to its message."""
    for seq in [seq for seq in self.acks.pending if seq < subject.stream_seq]:
        below = msgspec.structs.replace(
            subject, stream_seq=seq, consumer_seq=self.acks.pending[seq].consumer_seq
        )
        Consumer.ack(self, below, now, sampled=False)
    return Consumer.ack(self, subject, now, sampled=sampled)


@push_defect(Consumer.ack, "JS-PUSH-018")
def pushed_acks_are_for_every_consumer(
    self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool
) -> bool:
    """An acknowledgement to one push consumer of a stream counts for all of them."""
    for consumer in self.stream.consumers.values():
        if consumer is not self:
            Consumer.ack(consumer, subject, now, sampled=False)
    return Consumer.ack(self, subject, now, sampled=sampled)


@push_defect(Consumer.may_nak, "JS-PUSH-025")
def pushed_nak_takes_the_ack_back(self: Consumer, subject: AckSubjectFields) -> bool:
    """-NAK brings back to a push consumer what is already acknowledged."""
    return subject.stream_seq < self.position.next_seq


@push_defect(Consumer.ack, "JS-PUSH-025")
def pushed_ack_of_the_future_counts(
    self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool
) -> bool:
    """An acknowledgement of what a push consumer has not delivered settles all that it has."""
    if subject.stream_seq < self.position.next_seq:
        return Consumer.ack(self, subject, now, sampled=sampled)
    self.acks.pending.clear()
    self.acks.floor.consumer, self.acks.floor.stream = (
        self.acks.delivered.consumer,
        self.acks.delivered.stream,
    )
    return True


# -NAK


@push_defect(Consumer.nak, "JS-PUSH-003", "JS-PUSH-004", "JS-PUSH-018", "JS-PUSH-024")
def pushed_nak_is_ignored(self: Consumer, subject: AckSubjectFields, delay: int | None, now: int) -> None:
    """-NAK to a push consumer does nothing."""


@push_defect(Consumer.nak, "JS-PUSH-003", "JS-PUSH-013")
def pushed_nak_acknowledges(self: Consumer, subject: AckSubjectFields, delay: int | None, now: int) -> None:
    """-NAK to a push consumer acknowledges."""
    self.ack(subject, now, sampled=False)


@push_defect(Consumer.nak, "JS-PUSH-003")
def pushed_nak_works_once(self: Consumer, subject: AckSubjectFields, delay: int | None, now: int) -> None:
    """-NAK to a redelivery of a push consumer does nothing."""
    if subject.deliveries == 1:
        Consumer.nak(self, subject, delay, now)


@push_defect(Consumer.nak, "JS-PUSH-003")
def pushed_nak_brings_the_oldest(
    self: Consumer, subject: AckSubjectFields, delay: int | None, now: int
) -> None:
    """-NAK to a push consumer brings the oldest pending message again, whichever it names."""
    oldest = min(self.acks.pending, default=subject.stream_seq)
    Consumer.nak(self, msgspec.structs.replace(subject, stream_seq=oldest), delay, now)


@push_defect(Consumer.nak, "JS-PUSH-003")
def pushed_nak_waits(self: Consumer, subject: AckSubjectFields, delay: int | None, now: int) -> None:
    """-NAK without a delay to a push consumer puts the redelivery off by 5 s."""
    Consumer.nak(self, subject, 5 * SECOND if delay is None else delay, now)


@push_defect(Consumer.nak, "JS-PUSH-004")
def pushed_nak_delay_is_ignored(
    self: Consumer, subject: AckSubjectFields, delay: int | None, now: int
) -> None:
    """-NAK with a delay to a push consumer acts at once."""
    Consumer.nak(self, subject, None, now)


@push_defect(Consumer.nak, "JS-PUSH-004")
def pushed_nak_delay_is_halved(
    self: Consumer, subject: AckSubjectFields, delay: int | None, now: int
) -> None:
    """-NAK with a delay to a push consumer acts after half of it."""
    Consumer.nak(self, subject, delay and delay // 2, now)


@push_defect(Consumer.nak, "JS-PUSH-004")
def pushed_nak_delay_is_much_longer(
    self: Consumer, subject: AckSubjectFields, delay: int | None, now: int
) -> None:
    """-NAK with a delay to a push consumer acts after ten times as long."""
    Consumer.nak(self, subject, delay and delay * MANY, now)


@push_defect(Consumer.nak, "JS-PUSH-004")
def pushed_nak_delay_holds_all_back(
    self: Consumer, subject: AckSubjectFields, delay: int | None, now: int
) -> None:
    """While a -NAK with a delay waits, a push consumer delivers nothing."""
    Consumer.nak(self, subject, delay, now)
    if delay is not None:
        self.paused_until = now + delay


# +TERM, +WPI, +NXT


@push_defect(Consumer.terminate, "JS-PUSH-005", "JS-PUSH-013")
def pushed_term_is_ignored(self: Consumer, subject: AckSubjectFields, reason: str, now: int) -> bool:
    """+TERM to a push consumer is answered and ends nothing."""
    return True


@push_defect(Consumer.terminate, "JS-PUSH-005")
def pushed_term_is_a_nak(self: Consumer, subject: AckSubjectFields, reason: str, now: int) -> bool:
    """+TERM to a push consumer is taken for -NAK."""
    self.nak(subject, None, now)
    return True


@push_defect(Consumer.terminate, "JS-PUSH-005")
def pushed_term_ends_everything(self: Consumer, subject: AckSubjectFields, reason: str, now: int) -> bool:
    """+TERM to a push consumer ends all that is pending."""
    answered = Consumer.terminate(self, subject, reason, now)
    for seq, pending in list(self.acks.pending.items()):
        other = msgspec.structs.replace(subject, stream_seq=seq, consumer_seq=pending.consumer_seq)
        Consumer.ack(self, other, now, sampled=False)
    return answered


@push_defect(Consumer.progress, "JS-PUSH-006")
def pushed_progress_is_ignored(self: Consumer, subject: AckSubjectFields, now: int) -> None:
    """+WPI to a push consumer does not restart ack_wait."""


@push_defect(Consumer.progress, "JS-PUSH-006")
def pushed_progress_gives_half(self: Consumer, subject: AckSubjectFields, now: int) -> None:
    """+WPI to a push consumer gives half of an ack_wait more."""
    Consumer.progress(self, subject, now - self.config.ack_wait // 2)
    self.ack_timer.set_earliest(now + self.config.ack_wait // 2)


@push_defect(Consumer.progress, "JS-PUSH-006")
def pushed_progress_lasts_for_ever(self: Consumer, subject: AckSubjectFields, now: int) -> None:
    """After +WPI to a push consumer the message does not come again for an hour."""
    Consumer.progress(self, subject, now + HOUR)


@push_defect(Consumer.progress, "JS-PUSH-006")
def pushed_progress_acknowledges(self: Consumer, subject: AckSubjectFields, now: int) -> None:
    """+WPI to a push consumer acknowledges."""
    Consumer.ack(self, subject, now, sampled=False)


@push_defect(Consumer.next, "JS-PUSH-015")
def pushed_next_is_an_ack(self: Consumer, reply: bytes | None, body: bytes, now: int) -> bool:
    """+NXT to a push consumer is answered as +ACK is."""
    return True


@push_defect(Consumer.next, "JS-PUSH-015")
def pushed_next_is_one_too_many(self: Consumer, reply: bytes | None, body: bytes, now: int) -> bool:
    """+NXT to a push consumer is refused as one pull request too many."""
    if reply is not None:
        self.waiting.send(reply, EXCEEDED_MAX_WAITING)
    return False


@push_defect(Consumer.other_ack, "JS-PUSH-015")
def pushed_next_is_refused(
    self: Consumer, subject: AckSubjectFields, reply: bytes | None, payload: bytes, now: int
) -> bool:
    """+NXT to a push consumer acknowledges nothing."""
    ack = Ack.parse(payload)
    if ack.kind is AckKind.NEXT:
        return self.next(reply, ack.argument, now)
    return Consumer.other_ack(self, subject, reply, payload, now)


# ack_policy all and none


def _of_policy(broker: Broker, policy: str, name: str, faulty: object) -> None:
    """A fault of push consumers with one ack_policy."""
    right = getattr(Consumer, name)

    def method(self: Consumer, *arguments: object, **options: object) -> object:
        is_meant = not self.config.is_pull and self.config.ack_policy == policy
        return (faulty if is_meant else right)(self, *arguments, **options)  # type: ignore[operator]

    alter_consumers(broker, **{name: method})


@defect("JS-PUSH-011")
def pushed_ack_all_is_for_one(broker: Broker) -> None:
    """With ack_policy all a push consumer settles the message of the acknowledgement alone."""

    def ack(self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool) -> bool:
        self.acks.acknowledge_one(subject.stream_seq, subject.consumer_seq)
        return True

    _of_policy(broker, "all", "ack", ack)


@defect("JS-PUSH-011")
def pushed_ack_all_is_for_later_ones_too(broker: Broker) -> None:
    """With ack_policy all a push consumer settles everything that it has delivered."""

    def ack(self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool) -> bool:
        delivered = self.acks.delivered
        last = msgspec.structs.replace(subject, stream_seq=delivered.stream, consumer_seq=delivered.consumer)
        return Consumer.ack(self, last, now, sampled=sampled)

    _of_policy(broker, "all", "ack", ack)


@defect("JS-PUSH-011")
def pushed_ack_all_moves_the_floor_back(broker: Broker) -> None:
    """With ack_policy all an older acknowledgement moves the floor of a push consumer back."""

    def ack(self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool) -> bool:
        answered = Consumer.ack(self, subject, now, sampled=sampled)
        self.acks.floor.consumer, self.acks.floor.stream = subject.consumer_seq, subject.stream_seq
        return answered

    _of_policy(broker, "all", "ack", ack)


@defect("JS-PUSH-012")
def pushed_ack_none_waits_for_acks(broker: Broker) -> None:
    """With ack_policy none the floor of a push consumer stays where it began."""

    def record_delivered(self: Consumer, message: StoredMessage, deliveries: int, now: int) -> None:
        Consumer.record_delivered(self, message, deliveries, now)
        self.acks.floor.consumer = self.acks.floor.stream = 0

    _of_policy(broker, "none", "record_delivered", record_delivered)


@defect("JS-PUSH-012")
def pushed_ack_none_counts_the_first(broker: Broker) -> None:
    """With ack_policy none a push consumer takes its first delivery for acknowledged, and no other."""

    def record_delivered(self: Consumer, message: StoredMessage, deliveries: int, now: int) -> None:
        Consumer.record_delivered(self, message, deliveries, now)
        self.acks.floor.consumer = self.acks.floor.stream = 1

    _of_policy(broker, "none", "record_delivered", record_delivered)


@defect("JS-PUSH-012")
def pushed_ack_none_knows_nak(broker: Broker) -> None:
    """With ack_policy none -NAK makes a push consumer deliver again."""
    original = JetStream.acknowledge

    def acknowledge(self: JetStream, subject: bytes, reply: bytes | None, payload: bytes, now: int) -> bool:
        parsed = AckSubjectFields.parse(subject)
        consumer = self.find_consumer(parsed.stream, parsed.consumer) if parsed else None
        if parsed and consumer and not consumer.config.is_pull and payload == b"-NAK":
            consumer.acks.request_redelivery(parsed.stream_seq)
            consumer.run(now)
        return original(self, subject, reply, payload, now)

    alter_service(broker, acknowledge=acknowledge)
