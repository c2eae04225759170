"""Defects of counters, and of schedules that are refused. What is right: ``jetstream.streams.counters`` and
``schedules``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import structs

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.methods import alter_streams, jetstream_of, method_defect
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.reference_broker.nats.jetstream.streams import counters
from plumbline.reference_broker.nats.jetstream.streams.publish import INCREMENT, PublishHeaders, Schedule
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

# Sums


@defect("JS-PUB-057", "JS-PUB-058", "JS-PUB-060")
def pub_counters_are_unknown(broker: Broker) -> None:
    """allow_msg_counter and Nats-Incr say nothing, as before 2.12."""
    replace(jetstream_of(broker).rules, "counters", False)


@method_defect(Stream.derive_settings, "JS-PUB-057")
def pub_counter_is_not_in_the_puback(self: Stream) -> None:
    """The PubAck of a counter has value in place of val."""
    Stream.derive_settings(self)
    self.puback_of_counter = self.puback[:-1] + b',"value":"%d"}'


@method_defect(Stream.add, "JS-PUB-057")
def pub_counter_forgets_the_last_value(
    self: Stream, subject: bytes, header_block: bytes, directives: PublishHeaders
) -> tuple[bytes, int]:
    """A counter's value is its last increment."""
    return header_block, int(directives.increment)


@method_defect(Stream.add, "JS-PUB-057")
def pub_counter_is_of_the_stream(
    self: Stream, subject: bytes, header_block: bytes, directives: PublishHeaders
) -> tuple[bytes, int]:
    """All subjects of a stream share one counter."""
    last = self.store.load(self.store.last_seq)
    return Stream.add(self, last.subject if last else subject, header_block, directives)


@method_defect(Stream.add, "JS-PUB-057")
def pub_counter_only_rises(
    self: Stream, subject: bytes, header_block: bytes, directives: PublishHeaders
) -> tuple[bytes, int]:
    """The sign of an increment is ignored."""
    unsigned = structs.replace(directives, increment=directives.increment.lstrip("+-"))
    return Stream.add(self, subject, header_block, unsigned)


@method_defect(Stream.add, "JS-PUB-057")
def pub_counter_is_a_float(
    self: Stream, subject: bytes, header_block: bytes, directives: PublishHeaders
) -> tuple[bytes, int]:
    """A counter's value is rounded to a double."""
    block, value = Stream.add(self, subject, header_block, directives)
    return block, int(float(value))


@method_defect(Stream.add, "JS-PUB-057")
def pub_counter_loses_headers(
    self: Stream, subject: bytes, header_block: bytes, directives: PublishHeaders
) -> tuple[bytes, int]:
    """A counter's message is stored without the headers that it came with, but Nats-Incr."""
    block, value = Stream.add(self, subject, header_block, directives)
    return counters.appended(b"", INCREMENT, directives.increment) if block == header_block else block, value


@method_defect(Stream.add, "JS-PUB-057")
def pub_counter_refuses_zero(
    self: Stream, subject: bytes, header_block: bytes, directives: PublishHeaders
) -> tuple[bytes, int]:
    """An increment of 0 is refused."""
    if counters.read_increment(directives.increment) == 0:
        raise errors.COUNTER_INCREMENT_INVALID()
    return Stream.add(self, subject, header_block, directives)


# Refusals


@method_defect(Stream.add, "JS-PUB-058")
def pub_counter_takes_no_increment_for_one(
    self: Stream, subject: bytes, header_block: bytes, directives: PublishHeaders
) -> tuple[bytes, int]:
    """A counter's message without Nats-Incr adds 1."""
    counted = structs.replace(directives, increment=directives.increment or "1")
    return Stream.add(self, subject, header_block, counted)


def _reads_increments(broker: Broker, read: Any) -> None:
    """``read`` gives the increment of what was sent; it is checked and added."""

    def check_increment(self: Stream, directives: PublishHeaders, payload: bytes) -> None:
        Stream.check_increment(self, structs.replace(directives, increment=read(directives)), payload)

    def add(
        self: Stream, subject: bytes, header_block: bytes, directives: PublishHeaders
    ) -> tuple[bytes, int]:
        return Stream.add(
            self, subject, header_block, structs.replace(directives, increment=read(directives))
        )

    alter_streams(broker, check_increment=check_increment, add=add)


@defect("JS-PUB-058")
def pub_counter_takes_words_for_zero(broker: Broker) -> None:
    """A Nats-Incr without digits adds 0."""
    _reads_increments(
        broker,
        lambda sent: "0" if sent.increment and not re.search(r"\d", sent.increment) else sent.increment,
    )


@defect("JS-PUB-058")
def pub_counter_truncates_fractions(broker: Broker) -> None:
    """Of a Nats-Incr with a fraction the whole part is added."""
    _reads_increments(broker, lambda sent: sent.increment.partition(".")[0])


@method_defect(Stream.check_increment, "JS-PUB-058")
def pub_counter_takes_bodies(self: Stream, directives: PublishHeaders, payload: bytes) -> None:
    """The body of an increment is ignored."""
    Stream.check_increment(self, directives, b"")


def _ignores(broker: Broker, **changed: Any) -> None:
    """These headers of an increment are not looked at."""

    def check_increment(self: Stream, directives: PublishHeaders, payload: bytes) -> None:
        Stream.check_increment(self, structs.replace(directives, **changed), payload)

    alter_streams(broker, check_increment=check_increment)


@defect("JS-PUB-058")
def pub_counter_takes_rollup(broker: Broker) -> None:
    """An increment with Nats-Rollup is accepted."""
    _ignores(broker, rollup="")


@defect("JS-PUB-058")
def pub_counter_takes_expected_sequences(broker: Broker) -> None:
    """An increment with Nats-Expected-Last-Sequence is accepted."""
    _ignores(broker, expected_last_seq=None)


@defect("JS-PUB-058")
def pub_counter_takes_expected_subject_sequences(broker: Broker) -> None:
    """An increment with Nats-Expected-Last-Subject-Sequence is accepted."""
    _ignores(broker, expected_last_subject_seq=None)


@defect("JS-PUB-058")
def pub_counter_takes_expected_streams(broker: Broker) -> None:
    """An increment with Nats-Expected-Stream is accepted."""
    _ignores(broker, expected_stream="")


@defect("JS-PUB-058")
def pub_counter_takes_expected_message_ids(broker: Broker) -> None:
    """An increment with Nats-Expected-Last-Msg-Id is accepted."""
    _ignores(broker, expected_last_msg_id="")


@method_defect(Stream.check_increment, "JS-PUB-058")
def pub_increment_without_counter_is_stored(self: Stream, directives: PublishHeaders, payload: bytes) -> None:
    """A stream without allow_msg_counter stores a message with Nats-Incr."""
    if self.counts:
        Stream.check_increment(self, directives, payload)


# Sources


@method_defect(Stream.store_sourced, "JS-PUB-059")
def pub_counter_adds_sourced_increments(
    self: Stream, source: dict[str, Any], message: StoredMessage, now: int
) -> StoredMessage | None:
    """Of a sourced counter Nats-Incr is added, whatever came before it."""
    if not self.counts:
        return Stream.store_sourced(self, source, message, now)
    increment = counters.body(_increment_of(message))
    alone = StoredMessage(message.seq, message.subject, message.header_block, increment, message.time)
    return Stream.store_sourced(self, source, alone, now)


def _increment_of(message: StoredMessage) -> int:
    found = re.search(rb"Nats-Incr: ?([+-]?\d+)", message.header_block)
    return int(found[1]) if found else 0


@method_defect(Stream.store_sourced, "JS-PUB-059")
def pub_counter_stores_sources_verbatim(
    self: Stream, source: dict[str, Any], message: StoredMessage, now: int
) -> StoredMessage | None:
    """A counter stores sourced messages as they are."""
    counted, self.counts = self.counts, False
    try:
        return Stream.store_sourced(self, source, message, now)
    finally:
        self.counts = counted


@method_defect(Stream.add, "JS-PUB-059")
def pub_counter_forgets_its_sources(
    self: Stream, subject: bytes, header_block: bytes, directives: PublishHeaders
) -> tuple[bytes, int]:
    """A counter's own messages do not keep Nats-Counter-Sources."""
    block, value = Stream.add(self, subject, header_block, directives)
    return counters.without(block, counters.SOURCES), value


# Schedules


@defect("JS-PUB-061", "JS-PUB-062")
def pub_schedules_are_unknown(broker: Broker) -> None:
    """Nats-Schedule says nothing, as before 2.12."""
    replace(jetstream_of(broker).rules, "schedules", False)


def _accepts_schedules(broker: Broker, *err_codes: int) -> None:
    """A refusal of a schedule with one of these codes is none."""

    def check_schedule(self: Stream, subject: bytes, directives: PublishHeaders, now: int) -> None:
        try:
            Stream.check_schedule(self, subject, directives, now)
        except JetStreamError as error:
            if error.err_code not in err_codes:
                raise

    alter_streams(broker, check_schedule=check_schedule)


@defect("JS-PUB-061")
def pub_schedule_takes_any_target(broker: Broker) -> None:
    """The target of a schedule is not looked at."""
    _accepts_schedules(broker, errors.SCHEDULE_TARGET_INVALID.err_code)


@defect("JS-PUB-062")
def pub_schedule_takes_any_pattern(broker: Broker) -> None:
    """The time of a schedule is not looked at."""
    _accepts_schedules(broker, errors.SCHEDULE_PATTERN_INVALID.err_code)


@defect("JS-PUB-061")
def pub_schedule_needs_no_permission(broker: Broker) -> None:
    """A stream without allow_msg_schedules stores schedules."""
    _accepts_schedules(broker, errors.SCHEDULES_DISABLED.err_code)


def _reads_schedules(broker: Broker, read: Any) -> None:
    """``read`` gives the schedule that is checked, of the subject and the one that was sent."""

    def check_schedule(self: Stream, subject: bytes, directives: PublishHeaders, now: int) -> None:
        schedule = read(self, subject.decode(), directives.schedule)
        Stream.check_schedule(self, subject, structs.replace(directives, schedule=schedule), now)

    alter_streams(broker, check_schedule=check_schedule)


@defect("JS-PUB-061")
def pub_schedule_needs_no_target(broker: Broker) -> None:
    """A schedule without target is stored."""

    def read(stream: Stream, subject: str, sent: Schedule) -> Schedule:
        return sent if sent.target else Schedule()

    _reads_schedules(broker, read)


@defect("JS-PUB-061")
def pub_schedule_may_aim_at_itself(broker: Broker) -> None:
    """A schedule whose target is its own subject is stored."""
    _reads_schedules(broker, lambda stream, subject, sent: Schedule() if sent.target == subject else sent)


@defect("JS-PUB-061")
def pub_schedule_may_aim_at_wildcards(broker: Broker) -> None:
    """A schedule whose target has wildcards is stored."""
    _reads_schedules(broker, lambda stream, subject, sent: Schedule() if "*" in sent.target else sent)


@defect("JS-PUB-061")
def pub_schedule_may_aim_at_another_stream(broker: Broker) -> None:
    """A schedule whose target is of another stream is stored."""

    def read(stream: Stream, subject: str, sent: Schedule) -> Schedule:
        other = stream.jetstream.find_stream(sent.target.encode())
        return sent if other in (None, stream) else Schedule()

    _reads_schedules(broker, read)


@defect("JS-PUB-062")
def pub_schedule_takes_five_fields(broker: Broker) -> None:
    """A crontab schedule without seconds is stored."""
    _reads_schedules(
        broker, lambda stream, subject, sent: Schedule() if len(sent.pattern.split()) == 5 else sent
    )


@defect("JS-PUB-062")
def pub_schedule_refuses_crontab(broker: Broker) -> None:
    """A crontab schedule is refused."""

    def read(stream: Stream, subject: str, sent: Schedule) -> Schedule:
        return structs.replace(sent, pattern="soon") if len(sent.pattern.split()) == 6 else sent

    _reads_schedules(broker, read)


def _reads_crontabs(broker: Broker, wrong: Callable[[list[str]], list[str]]) -> None:
    """Another text is read where six fields were sent."""

    def read(stream: Stream, subject: str, sent: Schedule) -> Schedule:
        fields = sent.pattern.split()
        return structs.replace(sent, pattern=" ".join(wrong(fields))) if len(fields) == 6 else sent

    _reads_schedules(broker, read)


@defect("JS-PUB-062")
def pub_schedule_takes_hour_24(broker: Broker) -> None:
    """A crontab schedule with hour 24 is stored, as one of hour 0."""
    _reads_crontabs(broker, lambda fields: ["0" if each == "24" else each for each in fields])


@defect("JS-PUB-062")
def pub_schedule_takes_day_0(broker: Broker) -> None:
    """A crontab schedule with day 0 of the month is stored."""
    _reads_crontabs(broker, lambda fields: [*fields[:3], fields[3].replace("0", "1"), *fields[4:]])


@defect("JS-PUB-062")
def pub_schedule_knows_no_names(broker: Broker) -> None:
    """A crontab schedule with a name of a month is refused."""
    _reads_crontabs(broker, lambda fields: ["soon"] if fields[4].isalpha() else fields)


@defect("JS-PUB-062")
def pub_schedule_knows_no_midnight(broker: Broker) -> None:
    """The schedule @midnight is refused."""

    def read(stream: Stream, subject: str, sent: Schedule) -> Schedule:
        return structs.replace(sent, pattern="soon") if sent.pattern == "@midnight" else sent

    _reads_schedules(broker, read)


@defect("JS-PUB-062")
def pub_schedules_do_not_repeat(broker: Broker) -> None:
    """Only @at is a schedule, as in 2.12."""
    replace(jetstream_of(broker).rules, "schedules_repeat", False)


@defect("JS-PUB-061")
def pub_schedule_takes_half_a_date(broker: Broker) -> None:
    """A schedule at a year alone is stored."""
    _reads_schedules(
        broker,
        lambda stream, subject, sent: Schedule() if re.fullmatch(r"@at \d+", sent.pattern) else sent,
    )


@defect("JS-PUB-062")
def pub_schedule_takes_short_intervals(broker: Broker) -> None:
    """An interval below a second is stored."""
    _reads_schedules(
        broker, lambda stream, subject, sent: Schedule() if sent.pattern.endswith("ms") else sent
    )
