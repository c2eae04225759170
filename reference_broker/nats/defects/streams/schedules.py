"""Defects of schedules that are carried out. What is right: ``streams.scheduler`` and ``schedules`` there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import (
    alter_schedulers,
    alter_streams,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream.streams.crontab import FIELDS
from plumbline.reference_broker.nats.jetstream.streams.publish import (
    PublishHeaders,
    Schedule,
    read_directives,
)
from plumbline.reference_broker.nats.jetstream.streams.scheduler import Pending, Scheduler
from plumbline.reference_broker.nats.jetstream.streams.schedules import Occurrence
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.reference_broker.nats.jetstream.subjects import matcher
from plumbline.wire.nats.headers import Headers, encode_headers
from plumbline.wire.units import SECOND

_DAY = 86_400 * SECOND


def _waits(broker: Broker, due: Callable[[Scheduler, bytes, Pending], int]) -> None:
    """``due`` gives when a schedule is due instead."""

    def wait(self: Scheduler, subject: bytes, pending: Pending) -> None:
        Scheduler.wait(self, subject, Pending(pending.seq, due(self, subject, pending)))

    alter_schedulers(broker, wait=wait)


def _pattern(scheduler: Scheduler, pending: Pending) -> str:
    message = scheduler.stream.store.load(pending.seq)
    return _schedule_of(message).pattern if message is not None else ""


def _schedule_of(message: StoredMessage) -> Schedule:
    return read_directives(message.header_block).schedule


def _publishes(broker: Broker, alter: Callable[[Headers], list[tuple[str, str]]], only: str = "") -> None:
    """``alter`` gives the headers of what a schedule publishes; only of one whose Nats-Schedule-Next says
    ``only``, if that is given."""

    def store_scheduled(
        self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int
    ) -> StoredMessage | None:
        headers = Headers.parse(header_block)
        if only in (headers.get("Nats-Schedule-Next") or ""):
            header_block = encode_headers(alter(headers))
        return Stream.store_scheduled(self, subject, header_block, payload, now)

    alter_streams(broker, store_scheduled=store_scheduled)


def _without(*names: str) -> Callable[[Headers], list[tuple[str, str]]]:
    return lambda headers: [field for field in headers.fields if field[0] not in names]


# At a time


@method_defect(Stream.set_scheduler, "JS-PUB-063", "JS-PUB-064", "JS-PUB-065", "JS-PUB-066", "JS-PUB-068")
def pub_schedules_are_only_stored(self: Stream) -> None:
    """No schedule publishes anything."""


@defect("JS-PUB-063")
def pub_schedule_is_published_early(broker: Broker) -> None:
    """A schedule at a time is carried out a second before it."""

    def due(scheduler: Scheduler, subject: bytes, pending: Pending) -> int:
        return pending.due - (SECOND if _pattern(scheduler, pending).startswith("@at") else 0)

    _waits(broker, due)


@defect("JS-PUB-063")
def pub_schedule_is_published_at_once(broker: Broker) -> None:
    """A schedule at a time is carried out when it comes."""

    def due(scheduler: Scheduler, subject: bytes, pending: Pending) -> int:
        return 1 if _pattern(scheduler, pending).startswith("@at") else pending.due

    _waits(broker, due)


@defect("JS-PUB-063")
def pub_schedule_is_published_late(broker: Broker) -> None:
    """A schedule at a time is carried out half a minute after it."""

    def due(scheduler: Scheduler, subject: bytes, pending: Pending) -> int:
        return pending.due + (30 * SECOND if _pattern(scheduler, pending).startswith("@at") else 0)

    _waits(broker, due)


@defect("JS-PUB-063")
def pub_schedule_ignores_offsets(broker: Broker) -> None:
    """A schedule at 05:00+02:00 is carried out at 05:00 UTC."""

    def due(scheduler: Scheduler, subject: bytes, pending: Pending) -> int:
        return pending.due + (7200 * SECOND if "+02:00" in _pattern(scheduler, pending) else 0)

    _waits(broker, due)


@defect("JS-PUB-063")
def pub_schedule_of_the_past_is_dropped(broker: Broker) -> None:
    """A schedule whose time is past is stored and not carried out."""

    def wait(self: Scheduler, subject: bytes, pending: Pending) -> None:
        if pending.due >= (self.stream.store.last_time or 0):
            Scheduler.wait(self, subject, pending)

    alter_schedulers(broker, wait=wait)


@defect("JS-PUB-063")
def pub_schedule_loses_its_body(broker: Broker) -> None:
    """What a schedule publishes is empty."""

    def store_scheduled(
        self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int
    ) -> StoredMessage | None:
        return Stream.store_scheduled(self, subject, header_block, b"", now)

    alter_streams(broker, store_scheduled=store_scheduled)


@defect("JS-PUB-063")
def pub_schedule_loses_its_headers(broker: Broker) -> None:
    """What a schedule publishes at a time has no headers of its user."""
    _publishes(
        broker, lambda headers: [field for field in headers.fields if field[0].startswith("Nats-")], "purge"
    )


@defect("JS-PUB-063")
def pub_schedule_does_not_name_itself(broker: Broker) -> None:
    """What is published at a time does not have Nats-Scheduler; the schedule is removed."""

    def store_scheduled(
        self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int
    ) -> StoredMessage | None:
        headers = Headers.parse(header_block)
        stored = Stream.store_scheduled(self, subject, header_block, payload, now)
        if stored is not None and headers.get("Nats-Schedule-Next") == "purge":
            stored.header_block = encode_headers(_without("Nats-Scheduler")(headers))
        return stored

    alter_streams(broker, store_scheduled=store_scheduled)


@defect("JS-PUB-063")
def pub_schedule_does_not_say_that_it_is_over(broker: Broker) -> None:
    """What is published at a time does not have Nats-Schedule-Next; the schedule stays."""
    _publishes(broker, _without("Nats-Schedule-Next"), "purge")


@method_defect(Stream.purge, "JS-PUB-063")
def pub_schedule_stays_when_it_is_over(
    self: Stream, now: int, subject: bytes | None = None, *, below: int = 0, keep: int = 0
) -> int:
    """A schedule at a time stays in the stream when it was carried out."""
    ends_itself = self.scheduler is not None and subject is not None and subject not in self.scheduler.pending
    message = self.store.last_of(subject) if subject is not None and ends_itself else None
    if message is not None and not keep and _schedule_of(message).pattern.startswith("@at"):
        return 0
    return Stream.purge(self, now, subject, below=below, keep=keep)


@method_defect(Stream.store_scheduled, "JS-PUB-063")
def pub_schedule_is_published_twice(
    self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int
) -> StoredMessage | None:
    """A schedule at a time is published twice."""
    if b"Nats-Schedule-Next: purge" in header_block:
        Stream.store_scheduled(self, subject, header_block, payload, now)
    return Stream.store_scheduled(self, subject, header_block, payload, now)


# Lifetimes


@defect("JS-PUB-064")
def pub_schedule_gives_no_lifetime(broker: Broker) -> None:
    """Nats-Schedule-TTL says nothing."""
    _publishes(broker, _without("Nats-TTL"))


def _lives(broker: Broker, ttl: Callable[[int], int]) -> None:
    """``ttl`` gives the lifetime of what a schedule publishes, from the one that it says."""

    def begin_lifetime(self: Stream, seq: int, asked: int, now: int) -> None:
        message = self.store.load(seq)
        scheduled = message is not None and b"Nats-Scheduler:" in message.header_block
        Stream.begin_lifetime(self, seq, ttl(asked) if scheduled else asked, now)

    alter_streams(broker, begin_lifetime=begin_lifetime)


@defect("JS-PUB-064")
def pub_schedule_only_says_a_lifetime(broker: Broker) -> None:
    """What is published with a lifetime is not removed after it."""
    _lives(broker, lambda asked: 0)


@defect("JS-PUB-064")
def pub_schedule_gives_half_a_lifetime(broker: Broker) -> None:
    """What is published with a lifetime is removed after half of it."""
    _lives(broker, lambda asked: asked // 2)


@defect("JS-PUB-064")
def pub_schedule_gives_all_a_lifetime(broker: Broker) -> None:
    """What is published without a lifetime gets one of two seconds."""
    _lives(broker, lambda asked: asked or 2 * SECOND)


# Intervals


def _is_every(scheduler: Scheduler, pending: Pending) -> bool:
    return _pattern(scheduler, pending).startswith("@every")


@defect("JS-PUB-065")
def pub_interval_is_published_once(broker: Broker) -> None:
    """A schedule with an interval is carried out once, and stays."""

    def publish(self: Scheduler, message: StoredMessage, pending: Pending, now: int) -> None:
        Scheduler.publish(self, message, pending, now)
        if _schedule_of(message).pattern.startswith("@every"):
            self.pending.pop(message.subject, None)

    alter_schedulers(broker, publish=publish)


@defect("JS-PUB-065")
def pub_interval_is_removed(broker: Broker) -> None:
    """A schedule with an interval is removed when it has published first."""

    def publish(self: Scheduler, message: StoredMessage, pending: Pending, now: int) -> None:
        Scheduler.publish(self, message, pending, now)
        if _schedule_of(message).pattern.startswith("@every"):
            self.stream.remove(message.seq, now)

    alter_schedulers(broker, publish=publish)


@defect("JS-PUB-065")
def pub_interval_is_half_as_long(broker: Broker) -> None:
    """A schedule with an interval is carried out half a second before it is due."""

    def due(scheduler: Scheduler, subject: bytes, pending: Pending) -> int:
        return pending.due - (SECOND // 2 if _is_every(scheduler, pending) else 0)

    _waits(broker, due)


@defect("JS-PUB-065")
def pub_interval_is_twice_as_long(broker: Broker) -> None:
    """A schedule with an interval leaves out every other time."""

    def publish(self: Scheduler, message: StoredMessage, pending: Pending, now: int) -> None:
        following = Pending(pending.seq, pending.due + SECOND)
        late = _schedule_of(message).pattern.startswith("@every") and pending.due // SECOND % 2
        if late:
            self.wait(message.subject, following)
        else:
            Scheduler.publish(self, message, pending, now)

    alter_schedulers(broker, publish=publish)


@defect("JS-PUB-065")
def pub_interval_begins_at_once(broker: Broker) -> None:
    """A schedule with an interval is carried out first when it comes."""

    def on_stored(self: Scheduler, message: StoredMessage, directives: PublishHeaders) -> None:
        Scheduler.on_stored(self, message, directives)
        if directives.schedule.pattern.startswith("@every"):
            self.wait(message.subject, Pending(message.seq, message.time))

    alter_schedulers(broker, on_stored=on_stored)


@defect("JS-PUB-065")
def pub_interval_says_no_next_time(broker: Broker) -> None:
    """What a schedule with an interval publishes does not have Nats-Schedule-Next."""
    _publishes(broker, _without("Nats-Schedule-Next"), ":")


@defect("JS-PUB-065")
def pub_interval_does_not_name_itself(broker: Broker) -> None:
    """What a schedule with an interval publishes does not have Nats-Scheduler."""
    _publishes(broker, _without("Nats-Scheduler"), ":")


@defect("JS-PUB-065")
def pub_interval_loses_headers(broker: Broker) -> None:
    """What a schedule with an interval publishes has no headers of its user."""
    _publishes(
        broker, lambda headers: [field for field in headers.fields if field[0].startswith("Nats-")], ":"
    )


# Crontabs


def _reads_patterns(broker: Broker, read: Callable[[Schedule], Schedule]) -> None:
    """``read`` gives the schedule that is carried out, of the one that was sent."""

    def occurrence(self: Scheduler, schedule: Schedule, after: int, now: int) -> Occurrence | None:
        return Scheduler.occurrence(self, read(schedule), after, now)

    alter_schedulers(broker, occurrence=occurrence)


def _any_in_field(number: int) -> Callable[[Schedule], Schedule]:
    """The field of that number restricts nothing."""

    def read(schedule: Schedule) -> Schedule:
        fields = schedule.pattern.split()
        if len(fields) != len(FIELDS):
            return schedule
        fields[number] = "*"
        return structs.replace(schedule, pattern=" ".join(fields))

    return read


@defect("JS-PUB-066")
def pub_crontab_is_published_every_second(broker: Broker) -> None:
    """The seconds of a crontab are not looked at."""
    _reads_patterns(broker, _any_in_field(0))


@defect("JS-PUB-066", "JS-PUB-067")
def pub_crontab_ignores_hours(broker: Broker) -> None:
    """The hours of a crontab are not looked at."""
    _reads_patterns(broker, _any_in_field(2))


@defect("JS-PUB-066")
def pub_crontab_ignores_months(broker: Broker) -> None:
    """The months of a crontab are not looked at."""
    _reads_patterns(broker, _any_in_field(4))


@defect("JS-PUB-066")
def pub_crontab_ignores_weekdays(broker: Broker) -> None:
    """The days of the week of a crontab are not looked at."""
    _reads_patterns(broker, _any_in_field(5))


@defect("JS-PUB-066")
def pub_crontab_needs_both_days(broker: Broker) -> None:
    """A crontab with days of the month and of the week is published where both match."""

    def occurrence(self: Scheduler, schedule: Schedule, after: int, now: int) -> Occurrence | None:
        fields = schedule.pattern.split()
        if len(fields) != len(FIELDS) or "*" in fields[3:4] + fields[5:]:
            return Scheduler.occurrence(self, schedule, after, now)
        return Occurrence(after + 7 * _DAY, repeats=True)

    alter_schedulers(broker, occurrence=occurrence)


def _crontab_next(broker: Broker, wrong: Callable[[list[str], int, int], int]) -> None:
    """``wrong`` makes another moment of the fields of a crontab, the moment before and the right next one."""

    def occurrence(self: Scheduler, schedule: Schedule, after: int, now: int) -> Occurrence | None:
        found, fields = Scheduler.occurrence(self, schedule, after, now), schedule.pattern.split()
        if found is None or len(fields) != len(FIELDS):
            return found
        return Occurrence(wrong(fields, after, found.due), repeats=True)

    alter_schedulers(broker, occurrence=occurrence)


@defect("JS-PUB-066")
def pub_crontab_waits_a_month_at_most(broker: Broker) -> None:
    """A crontab is due again after 31 days at the latest."""
    _crontab_next(broker, lambda fields, after, due: min(due, after + 31 * _DAY))


@defect("JS-PUB-066")
def pub_crontab_of_two_weekdays_takes_one(broker: Broker) -> None:
    """A crontab with several days of the week is due again after a week."""
    _crontab_next(broker, lambda fields, after, due: after + 7 * _DAY if "," in fields[5] else due)


@defect("JS-PUB-066")
def pub_crontab_of_two_minutes_takes_one(broker: Broker) -> None:
    """A crontab with several minutes is due again after an hour."""
    _crontab_next(broker, lambda fields, after, due: after + 3600 * SECOND if "," in fields[1] else due)


@defect("JS-PUB-066")
def pub_crontab_is_published_once(broker: Broker) -> None:
    """A crontab is carried out once."""

    def publish(self: Scheduler, message: StoredMessage, pending: Pending, now: int) -> None:
        Scheduler.publish(self, message, pending, now)
        if len(_schedule_of(message).pattern.split()) == len(FIELDS):
            self.pending.pop(message.subject, None)

    alter_schedulers(broker, publish=publish)


@defect("JS-PUB-066")
def pub_crontab_is_removed(broker: Broker) -> None:
    """A crontab is removed when it has published first."""

    def publish(self: Scheduler, message: StoredMessage, pending: Pending, now: int) -> None:
        Scheduler.publish(self, message, pending, now)
        if len(_schedule_of(message).pattern.split()) == len(FIELDS):
            self.stream.remove(message.seq, now)

    alter_schedulers(broker, publish=publish)


@defect("JS-PUB-066")
def pub_crontab_goes_by_a_local_clock(broker: Broker) -> None:
    """A crontab without time zone goes by the clocks of Kolkata."""

    def read(schedule: Schedule) -> Schedule:
        is_plain = not schedule.pattern.startswith("@") and schedule.zone is None
        return structs.replace(schedule, zone="Asia/Kolkata") if is_plain else schedule

    _reads_patterns(broker, read)


@defect("JS-PUB-067")
def pub_crontab_ignores_its_time_zone(broker: Broker) -> None:
    """A crontab goes by UTC, whatever its time zone."""
    _reads_patterns(broker, lambda schedule: structs.replace(schedule, zone=None))


# Sources


@method_defect(Scheduler.content, "JS-PUB-068")
def pub_schedule_ignores_its_source(
    self: Scheduler, message: StoredMessage, schedule: Schedule
) -> StoredMessage:
    """Nats-Schedule-Source says nothing."""
    return message


@method_defect(Scheduler.content, "JS-PUB-068")
def pub_schedule_publishes_the_first_of_its_source(
    self: Scheduler, message: StoredMessage, schedule: Schedule
) -> StoredMessage:
    """Of the source of a schedule the first message is published."""
    first = self.stream.store.first_of(schedule.source.encode()) if schedule.source else None
    return first or message


@method_defect(Scheduler.content, "JS-PUB-068")
def pub_schedule_keeps_what_its_source_had(
    self: Scheduler, message: StoredMessage, schedule: Schedule
) -> StoredMessage:
    """Of the source of a schedule what was last when the schedule came is published."""
    source = schedule.source.encode()
    before = [each for each in self.stream.store.messages() if each.seq < message.seq]
    return next((each for each in reversed(before) if each.subject == source), message)


@method_defect(Scheduler.content, "JS-PUB-068")
def pub_schedule_takes_the_body_of_its_source_alone(
    self: Scheduler, message: StoredMessage, schedule: Schedule
) -> StoredMessage:
    """Of the source of a schedule the body is published, with the schedule's headers."""
    found = Scheduler.content(self, message, schedule)
    return StoredMessage(found.seq, found.subject, message.header_block, found.payload, found.time)


@method_defect(Scheduler.publish, "JS-PUB-068")
def pub_schedule_needs_its_source(
    self: Scheduler, message: StoredMessage, pending: Pending, now: int
) -> None:
    """A schedule whose source has no message publishes nothing."""
    source = _schedule_of(message).source
    if not source or self.stream.store.last_of(source.encode()) is not None:
        Scheduler.publish(self, message, pending, now)


@method_defect(Scheduler.publish, "JS-PUB-068")
def pub_schedule_moves_its_source(
    self: Scheduler, message: StoredMessage, pending: Pending, now: int
) -> None:
    """What a schedule publishes of its source is removed there."""
    source = _schedule_of(message).source
    last = self.stream.store.last_of(source.encode()) if source else None
    Scheduler.publish(self, message, pending, now)
    if last is not None:
        self.stream.remove(last.seq, now)


# One on a subject, and its end


@method_defect(Stream.as_only_schedule, "JS-PUB-069")
def pub_subject_keeps_two_schedules(
    self: Stream, header_block: bytes, directives: PublishHeaders
) -> tuple[bytes, PublishHeaders]:
    """A new schedule is stored beside the one before."""
    return header_block, directives


@method_defect(Scheduler.wait, "JS-PUB-069")
def pub_first_schedule_of_a_subject_stays(self: Scheduler, subject: bytes, pending: Pending) -> None:
    """A new schedule takes the place of the one before in the stream, and is not carried out."""
    known = self.pending.get(subject)
    if known is None or known.seq == pending.seq:
        Scheduler.wait(self, subject, pending)


def _remembers(broker: Broker, **methods: Any) -> None:
    """What ``methods`` of a stream put aside is carried out, although it is not stored any more."""

    def load(self: Scheduler, seq: int) -> StoredMessage | None:
        return Scheduler.load(self, seq) or _put_aside(self.stream).get(seq)

    alter_schedulers(broker, load=load)
    alter_streams(broker, **methods)


def _put_aside(stream: Stream) -> dict[int, StoredMessage]:
    kept: dict[int, StoredMessage] = stream.__dict__.setdefault("put_aside", {})
    return kept


def _keep(stream: Stream, subject: bytes) -> None:
    """Put aside what is on ``subject``, which may have wildcards."""
    wanted = matcher([subject])
    for message in stream.store.messages():
        if wanted(message.subject):
            _put_aside(stream)[message.seq] = message


@defect("JS-PUB-070")
def pub_deleted_schedule_goes_on(broker: Broker) -> None:
    """A schedule whose message was deleted is carried out."""

    def remove(self: Stream, seq: int, now: int) -> bool:
        message = self.store.load(seq)
        if message is not None:
            _put_aside(self)[seq] = message
        return Stream.remove(self, seq, now)

    _remembers(broker, remove=remove)


def _purges(broker: Broker, chosen: Callable[[Stream, bytes], bool]) -> None:
    """Schedules go on when a purge of this subject has removed them."""

    def purge(self: Stream, now: int, subject: bytes | None = None, *, below: int = 0, keep: int = 0) -> int:
        if subject is not None and not keep and chosen(self, subject):
            _keep(self, subject)
        return Stream.purge(self, now, subject, below=below, keep=keep)

    _remembers(broker, purge=purge)


@defect("JS-PUB-070")
def pub_schedule_survives_a_purge_by_wildcards(broker: Broker) -> None:
    """A schedule that a purge by wildcards has removed is carried out."""
    _purges(broker, lambda stream, subject: b"*" in subject)


@defect("JS-PUB-070")
def pub_schedule_survives_a_purge(broker: Broker) -> None:
    """A schedule that a purge of its subject has removed is carried out."""

    def is_asked_for(stream: Stream, subject: bytes) -> bool:
        last = stream.store.load(stream.store.last_seq)
        ends = last is not None and b"Nats-Schedule-Next: purge" in last.header_block
        return not ends and b"*" not in subject

    _purges(broker, is_asked_for)


@defect("JS-PUB-070")
def pub_ended_schedule_goes_on(broker: Broker) -> None:
    """A schedule that another message has ended and removed is carried out."""

    def is_ended(stream: Stream, subject: bytes) -> bool:
        last = stream.store.load(stream.store.last_seq)
        return last is not None and b"Nats-Scheduler: " + subject in last.header_block

    _purges(broker, is_ended)


@defect("JS-PUB-070", "JS-PUB-071")
def pub_schedule_is_not_ended_by_messages(broker: Broker) -> None:
    """A client's message with Nats-Schedule-Next: purge ends no schedule."""

    def accept_one(
        self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        plain = header_block.replace(b"Nats-Schedule-Next: purge", b"X-Schedule-Next: purge")
        plain = plain.replace(b"Nats-Scheduler:", b"X-Scheduler:")
        return Stream.accept_one(self, subject, plain, payload, now)

    alter_streams(broker, accept_one=accept_one)


@defect("JS-PUB-070")
def pub_message_that_ends_a_schedule_is_dropped(broker: Broker) -> None:
    """A client's message that ends a schedule is acknowledged and not stored."""

    def accept_one(
        self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        stored, answer = Stream.accept_one(self, subject, header_block, payload, now)
        if stored is not None and b"Nats-Schedule-Next: purge" in header_block:
            self.store.remove(stored.seq)
        return stored, answer

    alter_streams(broker, accept_one=accept_one)


@defect("JS-PUB-072")
def pub_schedule_rolls_nothing_up(broker: Broker) -> None:
    """Nats-Schedule-Rollup says nothing."""
    _publishes(broker, _without("Nats-Rollup"))


@method_defect(Stream.roll_up, "JS-PUB-072")
def pub_schedule_only_says_a_rollup(self: Stream, subject: bytes, rollup: str, now: int) -> None:
    """What is published with Nats-Rollup takes no place."""
    last = self.store.last_of(subject)
    if last is None or b"Nats-Scheduler:" not in last.header_block:
        Stream.roll_up(self, subject, rollup, now)


@defect("JS-PUB-072")
def pub_schedule_rolls_all_up(broker: Broker) -> None:
    """What is published with Nats-Rollup: sub takes the place of everything but schedules."""

    def roll_up(self: Stream, subject: bytes, rollup: str, now: int) -> None:
        last = self.store.last_of(subject)
        if rollup == "sub" and last is not None and b"Nats-Scheduler:" in last.header_block:
            for message in list(self.store.messages()):
                if message.seq != last.seq and b"Nats-Schedule:" not in message.header_block:
                    self.remove(message.seq, now)
        else:
            Stream.roll_up(self, subject, rollup, now)

    alter_streams(broker, roll_up=roll_up)
