"""Defects that spare the first message, or the first look: later messages, later states, pauses, headers."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import alter_consumers, method_defect, push_defect
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.wire.units import MILLISECOND

SHORTLY = 30 * MILLISECOND

# Deliver policies and filters


def _ends_after_the_first(broker: Broker, policy: str) -> None:
    """A consumer with this deliver_policy does not notice what is stored once it has delivered."""

    def on_stored(self: Consumer, message: StoredMessage, now: int) -> None:
        if self.config.deliver_policy != policy or not self.acks.delivered.consumer:
            Consumer.on_stored(self, message, now)

    alter_consumers(broker, on_stored=on_stored)


@defect("JS-CONS-051")
def later_ones_do_not_come_with_all(broker: Broker) -> None:
    """A consumer with deliver_policy all delivers what was there."""
    _ends_after_the_first(broker, "all")


@defect("JS-CONS-052", "JS-CONS-060")
def later_ones_do_not_come_with_last(broker: Broker) -> None:
    """A consumer with deliver_policy last delivers one message."""
    _ends_after_the_first(broker, "last")


@defect("JS-CONS-053")
def later_ones_do_not_come_with_a_sequence(broker: Broker) -> None:
    """A consumer with opt_start_seq delivers what was there."""
    _ends_after_the_first(broker, "by_start_sequence")


@defect("JS-CONS-055")
def later_ones_do_not_come_with_new(broker: Broker) -> None:
    """A consumer with deliver_policy new delivers one message."""
    _ends_after_the_first(broker, "new")


@defect("JS-CONS-057")
def later_ones_do_not_come_with_a_time(broker: Broker) -> None:
    """A consumer with opt_start_time delivers what was there."""
    _ends_after_the_first(broker, "by_start_time")


@defect("JS-CONS-059")
def later_ones_do_not_come_with_last_per_subject(broker: Broker) -> None:
    """A consumer with last_per_subject delivers the last message of each subject."""
    _ends_after_the_first(broker, "last_per_subject")


@method_defect(Consumer.on_stored, "JS-CONS-060", "JS-CONS-061")
def later_ones_pass_the_filter(self: Consumer, message: StoredMessage, now: int) -> None:
    """The filter of a consumer is forgotten once it has delivered."""
    if self.acks.delivered.consumer:
        self.subject_filter = None
    Consumer.on_stored(self, message, now)


@method_defect(Consumer.on_stored, "JS-CONS-061")
def later_ones_fit_the_first_filter(self: Consumer, message: StoredMessage, now: int) -> None:
    """Of filter_subjects, the first alone counts for what is stored later."""
    filters = self.config.filters
    if len(filters) < 2 or filters[0] == message.subject:
        Consumer.on_stored(self, message, now)


@method_defect(Consumer.next_message, "JS-CONS-062")
def later_ones_are_two(self: Consumer, now: int) -> tuple[StoredMessage, int] | None:
    """A consumer with a wildcard in its filter delivers two messages."""
    is_over = b">" in b"".join(self.config.filters) and self.acks.delivered.consumer == 2
    return None if is_over else Consumer.next_message(self, now)


@method_defect(Consumer.too_early, "JS-CONS-087")
def later_gaps_are_the_first_one(self: Consumer, message: StoredMessage, now: int) -> bool:
    """Policy original keeps the first distance between all messages."""
    assert self.replay is not None
    first, second = self.stream.store.load(1), self.stream.store.load(2)
    if first is None or second is None or message.seq < 3 or message.seq > self.replay.until:
        return Consumer.too_early(self, message, now)
    due = self.replay._delivered + second.time - first.time
    if due > now:
        self.run_timer.set(due)
    return due > now


@method_defect(Consumer.too_early, "JS-CONS-087")
def later_gaps_are_none(self: Consumer, message: StoredMessage, now: int) -> bool:
    """Policy original keeps the first distance, and then delivers at once."""
    return message.seq == 2 and Consumer.too_early(self, message, now)


# States that do not stay


@method_defect(Consumer.reported_redelivered, "JS-CONS-065")
def states_lose_what_was_redelivered(self: Consumer) -> int:
    """num_redelivered is right for a moment after each delivery."""
    is_fresh = self.stream.jetstream.now - (self.acks.last_delivery or 0) < SHORTLY
    return Consumer.reported_redelivered(self) if is_fresh else 0


@method_defect(Consumer.reported_redelivered, "JS-CONS-069", "JS-SEQ-010")
def states_find_redeliveries_again(self: Consumer) -> int:
    """num_redelivered forgets what was acknowledged, for a moment."""
    last = self.acks.last_ack
    is_fresh = last is None or self.stream.jetstream.now - last < SHORTLY
    return Consumer.reported_redelivered(self) + (0 if is_fresh else 1)


@method_defect(Consumer.reported_ack_pending, "JS-ACK-020", "JS-SEQ-010")
def states_find_pending_again(self: Consumer) -> int:
    """num_ack_pending forgets what was acknowledged, for a moment."""
    last = self.acks.last_ack
    is_fresh = last is None or self.stream.jetstream.now - last < SHORTLY
    return Consumer.reported_ack_pending(self) + (0 if is_fresh else 1)


# Pauses and thresholds


@method_defect(Consumer.pause, "JS-CONS-102")
def pauses_are_halved(self: Consumer, config: ConsumerConfig) -> None:
    """A consumer is paused for half of the time until pause_until."""
    Consumer.pause(self, config)
    now = self.stream.jetstream.now
    if self.paused_until > now:
        self.run_timer.clear()
        self.paused_until = now + (self.paused_until - now) // 2


@push_defect(Consumer.pause, "JS-CONS-102")
def pauses_are_for_pulling(self: Consumer, config: ConsumerConfig) -> None:
    """A push consumer is not paused for less than a minute."""
    Consumer.pause(self, config)
    if self.paused_until < self.stream.jetstream.now + 60_000 * MILLISECOND:
        self.paused_until = 0


@method_defect(Consumer.pause, "JS-CONS-102")
def pauses_last_for_ever(self: Consumer, config: ConsumerConfig) -> None:
    """A pause ends when it is asked to, and not at its time."""
    Consumer.pause(self, config)
    if self.paused_until:
        self.paused_until += 3_600_000 * MILLISECOND


@method_defect(Consumer.pause, "JS-CONS-104")
def pauses_are_for_the_whole_stream(self: Consumer, config: ConsumerConfig) -> None:
    """A pause of one consumer holds back all consumers of its stream."""
    Consumer.pause(self, config)
    for other in self.stream.consumers.values():
        other.paused_until = max(other.paused_until, self.paused_until)


@defect("JS-CONS-092", "JS-CONS-093", "JS-CONS-094")
def thresholds_are_halved(broker: Broker) -> None:
    """An unused consumer is deleted after half of inactive_threshold."""

    def watch_inactivity(self: Consumer, now: int) -> None:
        if self.config.inactive_threshold:
            self.inactive_timer.set(now + self.config.inactive_threshold // 2)

    def minimum_lifetime(self: Consumer, now: int) -> int:
        return Consumer.minimum_lifetime(self, now) - self.config.inactive_threshold // 2

    alter_consumers(broker, watch_inactivity=watch_inactivity, minimum_lifetime=minimum_lifetime)


# Headers


def _reordered(block: bytes) -> bytes:
    first, *lines = block.rstrip(b"\r\n").split(b"\r\n")
    return b"\r\n".join([first, *sorted(lines), b"", b""]) if block else block


@method_defect(Consumer.content, "JS-CONS-103")
def headers_are_sorted(self: Consumer, message: StoredMessage) -> tuple[bytes, bytes]:
    """Deliveries bear their headers in the order of the alphabet."""
    block, payload = Consumer.content(self, message)
    return _reordered(block), payload


@push_defect(Consumer.content, "JS-CONS-103")
def headers_are_sorted_when_pushed(self: Consumer, message: StoredMessage) -> tuple[bytes, bytes]:
    """Deliveries of push consumers bear their headers in the order of the alphabet."""
    block, payload = Consumer.content(self, message)
    return _reordered(block), payload


@method_defect(Consumer.content, "JS-CONS-103")
def headers_are_trimmed(self: Consumer, message: StoredMessage) -> tuple[bytes, bytes]:
    """Deliveries bear their headers with single blanks."""
    block, payload = Consumer.content(self, message)
    while b"  " in block:
        block = block.replace(b"  ", b" ")
    return block, payload
