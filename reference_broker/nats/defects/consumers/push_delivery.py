"""Defects in what a push consumer delivers, when and how often, and there alone. What is right: ``push``,
``delivery``."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import alter_consumers, alter_streams, push_defect
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckSubjectFields
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.pull import status_block
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.nats.jetstream import IDLE_HEARTBEAT, LAST_CONSUMER, LAST_STREAM
from plumbline.wire.units import MILLISECOND

MANY = 10

# ack_wait, max_deliver, backoff


@push_defect(Consumer.request_redelivery_of, "JS-PUSH-005", "JS-PUSH-007", "JS-PUSH-011")
def pushed_ack_wait_is_ignored(self: Consumer, seq: int, now: int) -> None:
    """A push consumer delivers nothing again after ack_wait."""


@push_defect(Consumer.redelivery_delay, "JS-PUSH-007")
def pushed_ack_wait_is_halved(self: Consumer, seq: int) -> int:
    """A push consumer delivers again after half of ack_wait."""
    return Consumer.redelivery_delay(self, seq) // 2


@push_defect(Consumer.redelivery_delay, "JS-PUSH-007")
def pushed_ack_wait_is_much_longer(self: Consumer, seq: int) -> int:
    """A push consumer delivers again after ten times ack_wait."""
    return Consumer.redelivery_delay(self, seq) * MANY


@push_defect(Consumer.request_redelivery_of, "JS-PUSH-007")
def pushed_ack_wait_is_for_the_first(self: Consumer, seq: int, now: int) -> None:
    """Of what is not acknowledged a push consumer delivers only the oldest again."""
    if seq == min(self.acks.pending):
        Consumer.request_redelivery_of(self, seq, now)


@push_defect(Consumer.request_redelivery_of, "JS-PUSH-007")
def pushed_ack_wait_ends_once(self: Consumer, seq: int, now: int) -> None:
    """A push consumer delivers each message again once."""
    if seq not in self.acks.redelivered:
        Consumer.request_redelivery_of(self, seq, now)


@push_defect(Consumer.ack_subject, "JS-PUSH-003", "JS-PUSH-007", "JS-PUSH-009")
def pushed_deliveries_are_the_second_at_most(
    self: Consumer, message: StoredMessage, deliveries: int
) -> bytes:
    """The delivery count of a push consumer ends at 2."""
    return Consumer.ack_subject(self, message, min(deliveries, 2))


@push_defect(Consumer.is_exhausted, "JS-PUSH-009")
def pushed_max_deliver_is_ignored(self: Consumer, deliveries: int) -> bool:
    """A push consumer has no max_deliver."""
    return False


@push_defect(Consumer.is_exhausted, "JS-PUSH-009")
def pushed_max_deliver_allows_one_more(self: Consumer, deliveries: int) -> bool:
    """A push consumer delivers once more than max_deliver."""
    return Consumer.is_exhausted(self, deliveries - 1)


@push_defect(Consumer.is_exhausted, "JS-PUSH-009")
def pushed_max_deliver_ends_one_early(self: Consumer, deliveries: int) -> bool:
    """A push consumer delivers once less than max_deliver."""
    return Consumer.is_exhausted(self, deliveries + 1)


@push_defect(Consumer.on_max_deliveries, "JS-PUSH-009")
def pushed_max_deliver_stops_everything(self: Consumer, seq: int, deliveries: int, now: int) -> None:
    """A push consumer delivers nothing more once a message has reached max_deliver."""
    Consumer.on_max_deliveries(self, seq, deliveries, now)
    self.active = False


@push_defect(Consumer.redelivery_delay, "JS-PUSH-010")
def pushed_backoff_has_one_step(self: Consumer, seq: int) -> int:
    """A push consumer waits for the first step of its backoff each time."""
    return self.config.backoff[0] if self.config.backoff else Consumer.redelivery_delay(self, seq)


@push_defect(Consumer.redelivery_delay, "JS-PUSH-010")
def pushed_backoff_is_halved(self: Consumer, seq: int) -> int:
    """A push consumer waits for half of each step of its backoff."""
    delay = Consumer.redelivery_delay(self, seq)
    return delay // 2 if self.config.backoff else delay


@push_defect(Consumer.redelivery_delay, "JS-PUSH-010")
def pushed_backoff_begins_anew(self: Consumer, seq: int) -> int:
    """After its last step the backoff of a push consumer begins again."""
    steps = self.config.backoff
    return steps[self.acks.redelivered.get(seq, 0) % len(steps)] if steps else self.config.ack_wait


@push_defect(Consumer.request_redelivery_of, "JS-PUSH-010")
def pushed_backoff_ends_with_its_steps(self: Consumer, seq: int, now: int) -> None:
    """A push consumer delivers as often as its backoff has steps, and once."""
    if not self.config.backoff or self.acks.redelivered.get(seq, 0) < len(self.config.backoff):
        Consumer.request_redelivery_of(self, seq, now)


# max_ack_pending


@push_defect(Consumer.is_blocked, "JS-PUSH-008")
def pushed_max_ack_pending_is_ignored(self: Consumer) -> bool:
    """A push consumer has no max_ack_pending."""
    return False


@push_defect(Consumer.is_blocked, "JS-PUSH-008", "JS-PUSH-026")
def pushed_max_ack_pending_allows_one_more(self: Consumer) -> bool:
    """A push consumer delivers one message more than max_ack_pending."""
    return 0 < self.config.max_ack_pending < len(self.acks.pending) and not self.acks.queue


@push_defect(Consumer.is_blocked, "JS-PUSH-008", "JS-PUSH-026")
def pushed_max_ack_pending_is_for_good(self: Consumer) -> bool:
    """A push consumer that has reached max_ack_pending delivers nothing new any more."""
    limit = self.config.max_ack_pending
    return 0 < limit <= self.acks.delivered.consumer and not self.acks.queue


@push_defect(Consumer.is_blocked, "JS-PUSH-008")
def pushed_max_ack_pending_is_over_with_an_ack(self: Consumer) -> bool:
    """The first acknowledgement lifts max_ack_pending of a push consumer for good."""
    return self.acks.last_ack is None and Consumer.is_blocked(self)


@push_defect(Consumer.is_blocked, "JS-PUSH-008")
def pushed_max_ack_pending_holds_redeliveries(self: Consumer) -> bool:
    """A push consumer that has reached max_ack_pending delivers nothing again either."""
    return 0 < self.config.max_ack_pending <= len(self.acks.pending)


# Subscribers


@push_defect(Consumer.on_interest_lost, "JS-PUSH-019")
def pushed_pending_goes_with_the_subscriber(self: Consumer, now: int) -> None:
    """What is not acknowledged is forgotten when the subscriber of a push consumer leaves."""
    Consumer.on_interest_lost(self, now)
    self.acks.pending.clear()


@push_defect(Consumer.on_subscribed, "JS-PUSH-019")
def pushed_begins_anew_with_its_subscriber(self: Consumer, now: int) -> None:
    """A push consumer begins with its first message for every subscriber."""
    Consumer.on_subscribed(self, now)
    self.position.next_seq = min(self.position.next_seq, self.stream.store.first_seq)


@push_defect(Consumer.on_subscribed, "JS-PUSH-019")
def pushed_skips_what_came_without_subscriber(self: Consumer, now: int) -> None:
    """What is stored while a push consumer has no subscriber is not delivered, but for the first time."""
    Consumer.on_subscribed(self, now)
    if self.acks.delivered.consumer:
        self.position.next_seq = self.stream.store.last_seq + 1


# What is delivered


@push_defect(Consumer.on_stored, "JS-PUSH-020")
def pushed_filter_is_for_what_was_there(self: Consumer, message: StoredMessage, now: int) -> None:
    """A push consumer delivers all that is stored after it was made, whatever its filter."""
    if self.acks.delivered.consumer:
        self.subject_filter = None
    Consumer.on_stored(self, message, now)


@push_defect(Consumer.on_stored, "JS-PUSH-020", "JS-PUSH-021")
def pushed_delivers_what_was_there(self: Consumer, message: StoredMessage, now: int) -> None:
    """A push consumer that has delivered something does not deliver what is stored later."""
    if not self.acks.delivered.consumer:
        Consumer.on_stored(self, message, now)


@push_defect(Consumer.on_stored, "JS-PUSH-021")
def pushed_delivers_the_first_new_one(self: Consumer, message: StoredMessage, now: int) -> None:
    """A push consumer with deliver_policy new delivers one message."""
    if self.config.deliver_policy != "new" or not self.acks.delivered.consumer:
        Consumer.on_stored(self, message, now)


def _starts_at(broker: Broker, policy: str, move: int) -> None:
    def start(self: Consumer, now: int) -> None:
        if not self.config.is_pull and self.config.deliver_policy == policy:
            self.position.next_seq = max(self.position.next_seq + move, 1)
            self.position.listed.clear()
            self.recount()
        Consumer.start(self, now)

    alter_consumers(broker, start=start)


@defect("JS-PUSH-021")
def pushed_last_is_the_last_but_one(broker: Broker) -> None:
    """A push consumer with deliver_policy last begins one message early."""
    _starts_at(broker, "last", -1)


@defect("JS-PUSH-021")
def pushed_start_sequence_is_passed(broker: Broker) -> None:
    """A push consumer with opt_start_seq begins behind it."""
    _starts_at(broker, "by_start_sequence", 1)


@defect("JS-PUSH-021")
def pushed_last_per_subject_is_everything(broker: Broker) -> None:
    """A push consumer with deliver_policy last_per_subject begins at the front."""
    _starts_at(broker, "last_per_subject", -1000)


@push_defect(Consumer.close, "JS-PUSH-022")
def pushed_goes_on_when_deleted(self: Consumer) -> None:
    """A push consumer that was deleted goes on delivering again."""


@push_defect(Consumer.content, "JS-PUSH-023")
def pushed_header_only_once(self: Consumer, message: StoredMessage) -> tuple[bytes, bytes]:
    """A push consumer delivers each header with one value, the last one."""
    block, payload = Consumer.content(self, message)
    first, *lines = block.rstrip(b"\r\n").split(b"\r\n")
    kept = {line.partition(b":")[0]: line for line in lines}
    return (b"\r\n".join([first, *kept.values(), b"", b""]) if block else block), payload


@push_defect(Consumer.content, "JS-PUSH-023")
def pushed_payload_is_text(self: Consumer, message: StoredMessage) -> tuple[bytes, bytes]:
    """A push consumer takes line ends off a payload."""
    block, payload = Consumer.content(self, message)
    return block, payload.rstrip(b"\r\n")


@push_defect(Consumer.content, "JS-PUSH-023")
def pushed_headers_only_are_whole(self: Consumer, message: StoredMessage) -> tuple[bytes, bytes]:
    """A push consumer with headers_only delivers payloads all the same."""
    block, _ = Consumer.content(self, message)
    return block, message.payload


# What is counted


@push_defect(Consumer.reported_redelivered, "JS-PUSH-003", "JS-PUSH-024")
def pushed_redelivered_counts_deliveries(self: Consumer) -> int:
    """num_redelivered of a push consumer counts redeliveries."""
    return sum(self.acks.redelivered.values())


@push_defect(Consumer.ack, "JS-PUSH-001", "JS-PUSH-024")
def pushed_redelivered_stays(self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool) -> bool:
    """num_redelivered of a push consumer still counts what was acknowledged since."""
    redelivered = dict(self.acks.redelivered)
    answered = Consumer.ack(self, subject, now, sampled=sampled)
    self.acks.redelivered.update(redelivered)
    return answered


@push_defect(Consumer.on_message_removed, "JS-PUSH-026")
def pushed_pending_counts_what_was_deleted(self: Consumer, message: StoredMessage, now: int) -> None:
    """num_pending of a push consumer still counts a message that was deleted."""
    if message.seq < self.position.next_seq:
        Consumer.on_message_removed(self, message, now)


@push_defect(Consumer.pending_after, "JS-PUSH-002", "JS-PUSH-026")
def pushed_pending_is_zero(self: Consumer, deliveries: int) -> int:
    """The last token of a push consumer's acknowledgement subjects is 0."""
    return 0


@push_defect(Consumer.pending_after, "JS-PUSH-026", "JS-PUSH-021")
def pushed_pending_is_the_end_of_the_stream(self: Consumer, deliveries: int) -> int:
    """The last token of a push consumer's acknowledgement subjects counts from the first sequence."""
    return self.stream.store.last_seq - self.acks.delivered.consumer


# Retention


def _settles(broker: Broker, retention: str, when: str) -> None:
    """A stream that lets a message go when a push consumer has ... it."""

    def record_delivered(self: Consumer, message: StoredMessage, deliveries: int, now: int) -> None:
        Consumer.record_delivered(self, message, deliveries, now)
        if not self.config.is_pull and self.stream.config.retention == retention:
            self.stream.remove(message.seq, now)

    def ack(self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool) -> bool:
        answered = Consumer.ack(self, subject, now, sampled=sampled)
        if not self.config.is_pull and self.stream.config.retention == retention:
            self.stream.remove(subject.stream_seq, now)
        return answered

    alter_consumers(broker, **({"ack": ack} if when == "ack" else {"record_delivered": record_delivered}))


@defect("JS-PUSH-013")
def pushed_work_is_removed_when_delivered(broker: Broker) -> None:
    """A work queue removes what its push consumer has delivered."""
    _settles(broker, "workqueue", "delivery")


@defect("JS-PUSH-014")
def pushed_interest_ends_when_delivered(broker: Broker) -> None:
    """Interest retention removes what its push consumer has delivered."""
    _settles(broker, "interest", "delivery")


@defect("JS-PUSH-014")
def pushed_interest_is_the_only_one(broker: Broker) -> None:
    """Interest retention removes what its push consumer has acknowledged, without the pull consumer."""
    _settles(broker, "interest", "ack")


@push_defect(Consumer.needs, "JS-PUSH-014")
def pushed_interest_does_not_count(self: Consumer, message: StoredMessage) -> bool:
    """Interest retention keeps nothing for a push consumer."""
    return False


@defect("JS-PUSH-013", "JS-PUSH-014")
def pushed_acks_remove_nothing(broker: Broker) -> None:
    """Streams keep what a push consumer has acknowledged."""

    def on_settled(self: Stream, seq: int) -> None:
        if all(consumer.config.is_pull for consumer in self.consumers.values()):
            Stream.on_settled(self, seq)

    alter_streams(broker, on_settled=on_settled)


# Idle heartbeats


@push_defect(Consumer.heartbeat, "JS-PUSH-016")
def pushed_heartbeats_count_messages(self: Consumer) -> bytes:
    """Idle heartbeats bear the stream sequence as the consumer sequence, without redeliveries."""
    _, stream_seq = self.last_delivered()
    return status_block(IDLE_HEARTBEAT, [(LAST_CONSUMER, stream_seq), (LAST_STREAM, stream_seq)])


@push_defect(Consumer.heartbeat, "JS-PUSH-016")
def pushed_heartbeats_are_about_acks(self: Consumer) -> bytes:
    """Idle heartbeats bear the floor in the place of the last delivery."""
    floor = self.acks.floor
    return status_block(IDLE_HEARTBEAT, [(LAST_CONSUMER, floor.consumer), (LAST_STREAM, floor.stream)])


@push_defect(Consumer.send_heartbeat, "JS-PUSH-016")
def pushed_heartbeats_end_with_the_second(self: Consumer) -> None:
    """A push consumer sends one idle heartbeat."""
    if not vars(self).get("has_sent_heartbeat"):
        vars(self)["has_sent_heartbeat"] = True
        Consumer.send_heartbeat(self)


@push_defect(Consumer.on_heartbeat_timer, "JS-PUSH-016")
def pushed_heartbeats_come_in_half_the_time(self: Consumer, now: int) -> None:
    """A push consumer sends idle heartbeats after half of idle_heartbeat."""
    interval = max(self.config.idle_heartbeat // 2, MILLISECOND)
    if self.active and now >= self.last_sent + interval:
        self.send_heartbeat()
        self.last_sent = now
    self.heartbeat_timer.set(self.last_sent + interval)


# Queue groups


@push_defect(Consumer.nak, "JS-PUSH-017")
def pushed_group_keeps_its_member(
    self: Consumer, subject: AckSubjectFields, delay: int | None, now: int
) -> None:
    """A push consumer with deliver_group delivers nothing again."""
    if not self.config.deliver_group:
        Consumer.nak(self, subject, delay, now)


@push_defect(Consumer.send, "JS-PUSH-017")
def pushed_group_redelivers_to_nobody(
    self: Consumer, target: bytes, subject: bytes, reply: bytes, header_block: bytes, payload: bytes
) -> int:
    """What a push consumer with deliver_group delivers again is counted, and gets lost."""
    if self.config.deliver_group and self.acks.queue:
        return 1
    return Consumer.send(self, target, subject, reply, header_block, payload)
