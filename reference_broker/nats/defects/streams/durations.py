"""Defects of what a stream keeps for a time: half as long, all at once, or for the wrong one. ``stream``."""

from __future__ import annotations

from collections.abc import Callable

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import alter_streams, method_defect
from plumbline.reference_broker.nats.jetstream.streams.publish import PublishHeaders
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.units import MILLISECOND, MINUTE

# max_age


def _ages(broker: Broker, until: Callable[[int], int], retention: str = "") -> None:
    """Every message leaves ``until(max_age)`` after it was stored."""

    def age(self: Stream) -> int:
        is_meant = not retention or self.config.retention == retention
        return until(self.config.max_age) if is_meant else self.config.max_age

    def on_age_timer(self: Stream, now: int) -> None:
        if self.config.max_age <= 0:
            return
        for message in list(self.store.messages()):
            if message.time + age(self) <= now and message.seq not in self.lifetimes.never_expiring:
                self.expire(message.seq, now)
        self.set_age_timer()

    def set_age_timer(self: Stream) -> None:
        never = self.lifetimes.never_expiring
        first = next((each for each in self.store.messages() if each.seq not in never), None)
        if first is not None and self.config.max_age > 0:
            self.age_timer.set_earliest(first.time + age(self))

    alter_streams(broker, on_age_timer=on_age_timer, set_age_timer=set_age_timer)


@defect("JS-PUB-041", "JS-RET-016", "JS-RET-033")
def aged_in_half_the_time(broker: Broker) -> None:
    """Messages leave after half of max_age."""
    _ages(broker, lambda max_age: max_age // 2)


@defect("JS-PUB-041", "JS-RET-016", "JS-RET-033")
def aged_in_ten_times_the_time(broker: Broker) -> None:
    """Messages leave after ten times max_age."""
    _ages(broker, lambda max_age: 10 * max_age)


@defect("JS-RET-033")
def aged_never_in_interest_streams(broker: Broker) -> None:
    """Streams with retention interest have no max_age."""
    _ages(broker, lambda max_age: 60 * MINUTE, "interest")


@method_defect(Stream.on_age_timer, "JS-PUB-041")
def aged_with_the_first(self: Stream, now: int) -> None:
    """When the oldest message has reached max_age, all leave."""
    if self.store.first_seq and min(m.time for m in self.store.messages()) + self.config.max_age <= now:
        for message in list(self.store.messages()):
            self.expire(message.seq, now)
    self.set_age_timer()


@method_defect(Stream.begin_lifetime, "JS-PUB-048")
def lifetimes_are_halved(self: Stream, seq: int, ttl: int, now: int) -> None:
    """A message with Nats-TTL leaves after half of it."""
    Stream.begin_lifetime(self, seq, ttl // 2 if ttl > 0 else ttl, now)


@method_defect(Stream.begin_lifetime, "JS-PUB-048")
def lifetimes_are_for_all(self: Stream, seq: int, ttl: int, now: int) -> None:
    """The Nats-TTL of a message is for those before it, too."""
    for each in range(self.store.first_seq or seq, seq + 1):
        Stream.begin_lifetime(self, each, ttl, now)


# max_bytes


def _without_max_bytes(broker: Broker, retention: str) -> None:
    def has_too_many_bytes(self: Stream) -> bool:
        return self.config.retention != retention and Stream.has_too_many_bytes(self)

    alter_streams(broker, has_too_many_bytes=has_too_many_bytes)


@defect("JS-RET-034")
def sized_never_in_work_queues(broker: Broker) -> None:
    """Streams with retention workqueue have no max_bytes."""
    _without_max_bytes(broker, "workqueue")


@defect("JS-RET-035")
def sized_never_in_interest_streams(broker: Broker) -> None:
    """Streams with retention interest have no max_bytes."""
    _without_max_bytes(broker, "interest")


# duplicate_window


def _remembered(broker: Broker, window: Callable[[int], int]) -> None:
    def duplicate_of(self: Stream, subject: bytes, directives: PublishHeaders, now: int) -> int | None:
        self.duplicates.window = window(self.config.duplicate_window)
        return Stream.duplicate_of(self, subject, directives, now)

    alter_streams(broker, duplicate_of=duplicate_of)


@defect("JS-PUB-007")
def ids_are_kept_for_half_the_window(broker: Broker) -> None:
    """A Nats-Msg-Id is forgotten after half of duplicate_window."""
    _remembered(broker, lambda window: window // 2)


@defect("JS-PUB-007")
def ids_are_kept_for_a_tenth_of_the_window(broker: Broker) -> None:
    """A Nats-Msg-Id is forgotten after a tenth of duplicate_window."""
    _remembered(broker, lambda window: window // 10)


@defect("JS-PUB-007")
def ids_are_forgotten_by_default(broker: Broker) -> None:
    """The duplicate_window of two minutes is shown, and is 100 ms."""
    _remembered(broker, lambda window: 100 * MILLISECOND if window == 2 * MINUTE else window)


@defect("JS-PUB-055")
def ids_are_kept_one_at_a_time(broker: Broker) -> None:
    """A stream remembers the last Nats-Msg-Id alone."""

    def duplicate_of(self: Stream, subject: bytes, directives: PublishHeaders, now: int) -> int | None:
        is_last = directives.msg_id == self.last_msg_id
        return Stream.duplicate_of(self, subject, directives, now) if is_last else None

    alter_streams(broker, duplicate_of=duplicate_of)


@method_defect(Stream.duplicate_of, "JS-PUB-055")
def ids_are_of_the_last_message(
    self: Stream, subject: bytes, directives: PublishHeaders, now: int
) -> int | None:
    """The PubAck of a duplicate has the last sequence of the stream."""
    original = Stream.duplicate_of(self, subject, directives, now)
    return original and self.store.last_seq


def _read_as(broker: Broker, reading: Callable[[str], str]) -> None:
    def duplicate_of(self: Stream, subject: bytes, directives: PublishHeaders, now: int) -> int | None:
        known = vars(self).setdefault("ids_as_read", {})
        read = reading(directives.msg_id)
        if directives.msg_id and read in known:
            return int(known[read])
        if directives.msg_id:
            known[read] = self.store.last_seq + 1
        return None

    alter_streams(broker, duplicate_of=duplicate_of)


@defect("JS-PUB-055")
def ids_are_one_letter(broker: Broker) -> None:
    """Two Nats-Msg-Ids with the same first letter are one."""
    _read_as(broker, lambda msg_id: msg_id[:1])


@defect("JS-PUB-055")
def ids_are_in_any_case(broker: Broker) -> None:
    """Two Nats-Msg-Ids that differ in case are one."""
    _read_as(broker, str.lower)


@method_defect(Stream.duplicate_of, "JS-PUB-007", "JS-PUB-055")
def ids_are_of_all_streams(self: Stream, subject: bytes, directives: PublishHeaders, now: int) -> int | None:
    """A Nats-Msg-Id that any stream has stored is a duplicate for all."""
    streams = self.jetstream.streams.values()
    found = (Stream.duplicate_of(stream, subject, directives, now) for stream in streams)
    return next((seq for seq in found if seq), None)
