"""Defects of counters, and of schedules that are refused. What is right: ``jetstream.streams.counters`` and
``schedules``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from msgspec import structs

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_body
from plumbline.reference_broker.nats.defects.methods import alter_streams, jetstream_of, method_defect
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.reference_broker.nats.jetstream.streams import counters
from plumbline.reference_broker.nats.jetstream.streams.config import StreamConfig
from plumbline.reference_broker.nats.jetstream.streams.publish import INCREMENT, PublishHeaders, Schedule
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.nats.headers import Headers, append_headers, remove_headers, replace_header

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
    return append_headers(b"", [(INCREMENT, directives.increment)]) if block == header_block else block, value


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
    return remove_headers(block, counters.SOURCES), value


# Subjects, purges, copies and updates


@defect("JS-PUB-091")
def pub_counter_is_of_the_published_subject(broker: Broker) -> None:
    """An increment counts for the counter of the subject that it was published to."""
    published = [b""]

    def subject_on_entry(self: Stream, subject: bytes) -> bytes:
        published[0] = subject
        return Stream.subject_on_entry(self, subject)

    def add(
        self: Stream, subject: bytes, header_block: bytes, directives: PublishHeaders
    ) -> tuple[bytes, int]:
        return Stream.add(self, published[0], header_block, directives)

    alter_streams(broker, subject_on_entry=subject_on_entry, add=add)


@defect("JS-PUB-091")
def pub_counter_is_not_transformed(broker: Broker) -> None:
    """A stream with allow_msg_counter stores increments under the subject that they were published to."""

    def subject_on_entry(self: Stream, subject: bytes) -> bytes:
        return subject if self.counts else Stream.subject_on_entry(self, subject)

    alter_streams(broker, subject_on_entry=subject_on_entry)


@defect("JS-PUB-092")
def pub_counter_outlives_a_purge(broker: Broker) -> None:
    """A counter goes on from its value though its subject was purged."""
    values: dict[tuple[str, bytes], int] = {}

    def add(
        self: Stream, subject: bytes, header_block: bytes, directives: PublishHeaders
    ) -> tuple[bytes, int]:
        block, value = Stream.add(self, subject, header_block, directives)
        if self.store.last_of(subject) is None:
            value += values.get((self.config.name, subject), 0)
        values[self.config.name, subject] = value
        return block, value

    alter_streams(broker, add=add)


@defect("JS-PUB-092")
def pub_counters_are_purged_together(broker: Broker) -> None:
    """A purge of one subject sets all counters of the stream to 0."""
    purged: dict[str, int] = {}

    def purge(self: Stream, now: int, subject: bytes | None = None, **rest: int) -> int:
        purged[self.config.name] = self.store.last_seq
        return Stream.purge(self, now, subject, **rest)

    def add(
        self: Stream, subject: bytes, header_block: bytes, directives: PublishHeaders
    ) -> tuple[bytes, int]:
        last = self.store.last_of(subject)
        if last is not None and last.seq <= purged.get(self.config.name, 0):
            return header_block, int(directives.increment)
        return Stream.add(self, subject, header_block, directives)

    alter_streams(broker, purge=purge, add=add)


def _increment_as_value(message: StoredMessage) -> StoredMessage:
    """The message with its Nats-Incr for its value."""
    increment = Headers.parse(message.header_block).get(INCREMENT) if message.header_block else None
    return structs.replace(message, payload=counters.body(int(increment))) if increment else message


def _value_as_increment(message: StoredMessage) -> StoredMessage:
    """The message with its value for its Nats-Incr."""
    if b"Nats-Incr" not in message.header_block:
        return message
    value, _ = counters.read_counter(message)
    return structs.replace(message, header_block=replace_header(message.header_block, INCREMENT, str(value)))


def _without_increment(message: StoredMessage) -> StoredMessage:
    """The message without Nats-Incr."""
    return structs.replace(message, header_block=remove_headers(message.header_block, INCREMENT))


_COPIES: tuple[tuple[str, str, Callable[[StoredMessage], StoredMessage]], ...] = (
    ("has-increments-for-values", "with the increments for values", _increment_as_value),
    ("has-values-for-increments", "with the values for increments", _value_as_increment),
    ("has-no-increments", "without Nats-Incr", _without_increment),
)


def _copy_defects(name: str, summary: str, change: Callable[[StoredMessage], StoredMessage]) -> None:
    def of_mirror(broker: Broker) -> None:
        def store_mirrored(self: Stream, message: StoredMessage) -> StoredMessage | None:
            return Stream.store_mirrored(self, change(message))

        alter_streams(broker, store_mirrored=store_mirrored)

    def of_sources(broker: Broker) -> None:
        def store_sourced(
            self: Stream, source: dict[str, Any], message: StoredMessage, now: int
        ) -> StoredMessage | None:
            return Stream.store_sourced(self, source, message if self.counts else change(message), now)

        alter_streams(broker, store_sourced=store_sourced)

    of_mirror.__doc__ = f"A mirror stores the messages of a counter {summary}."
    of_sources.__doc__ = f"A stream that is no counter stores the messages of a source {summary}."
    defect("JS-PUB-093", name=f"pub-mirrored-counter-{name}")(of_mirror)
    defect("JS-PUB-093", name=f"pub-sourced-counter-{name}")(of_sources)


for _copied in _COPIES:
    _copy_defects(*_copied)


@defect("JS-PUB-094")
def pub_counter_forgets_removed_sources(broker: Broker) -> None:
    """A counter does not keep what it had of a source that an update removes."""
    forgetful: set[str] = set()

    def reconfigure(self: Stream, config: StreamConfig, now: int) -> None:
        if self.config.sources and not config.sources:
            forgetful.add(config.name)
        Stream.reconfigure(self, config, now)

    def add(
        self: Stream, subject: bytes, header_block: bytes, directives: PublishHeaders
    ) -> tuple[bytes, int]:
        block, value = Stream.add(self, subject, header_block, directives)
        is_forgotten = self.config.name in forgetful and not self.config.sources
        return remove_headers(block, counters.SOURCES) if is_forgotten else block, value

    alter_streams(broker, reconfigure=reconfigure, add=add)


@defect("JS-PUB-095")
def pub_stream_with_messages_becomes_a_counter(broker: Broker) -> None:
    """An update may set allow_msg_counter for a stream with messages."""
    _becomes_a_counter(broker, is_refused=False)


@defect("JS-PUB-095")
def pub_refused_counter_counts(broker: Broker) -> None:
    """An update that sets allow_msg_counter is refused, and done."""
    _becomes_a_counter(broker, is_refused=True)


def _becomes_a_counter(broker: Broker, *, is_refused: bool) -> None:
    def change(fields: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams.get(request.names[0])
        if stream is not None and fields.get("allow_msg_counter"):
            stream.reconfigure(structs.replace(stream.config, allow_msg_counter=True), request.now)
            fields["allow_msg_counter"] = not is_refused

    alter_body(broker, "stream_update", change)


@method_defect(Stream.duplicate_of, "JS-PUB-096")
def pub_counter_counts_duplicates(
    self: Stream, subject: bytes, directives: PublishHeaders, now: int
) -> int | None:
    """A counter adds an increment though its Nats-Msg-Id is known."""
    return None if self.counts else Stream.duplicate_of(self, subject, directives, now)


@defect("JS-PUB-096")
def pub_counter_adds_duplicates_later(broker: Broker) -> None:
    """A duplicate of an increment is answered as one, and counts with the next increment."""
    missed: dict[tuple[str, bytes], int] = {}

    def duplicate_of(self: Stream, subject: bytes, directives: PublishHeaders, now: int) -> int | None:
        found = Stream.duplicate_of(self, subject, directives, now)
        if found is not None and self.counts:
            missed[self.config.name, subject] = int(directives.increment)
        return found

    def add(
        self: Stream, subject: bytes, header_block: bytes, directives: PublishHeaders
    ) -> tuple[bytes, int]:
        block, value = Stream.add(self, subject, header_block, directives)
        return block, value + missed.pop((self.config.name, subject), 0)

    alter_streams(broker, duplicate_of=duplicate_of, add=add)


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
