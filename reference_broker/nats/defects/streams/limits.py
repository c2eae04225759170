"""Defects of the limits of a stream and of its discard policy. What is right: ``jetstream.stream``."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import Method, alter_streams, method_defect
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.reference_broker.nats.jetstream.streams.config import StreamConfig
from plumbline.reference_broker.nats.jetstream.streams.publish import PublishHeaders
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

# How many


@defect("JS-PUB-033")
def limits_max_msgs_is_ignored(broker: Broker) -> None:
    """A stream with discard old goes on beyond max_msgs."""
    alter_streams(broker, has_too_many_messages=lambda self: False)


@method_defect(Stream.enforce_limits, "JS-PUB-033")
def limits_discard_old_discards_the_newest(self: Stream, subject: bytes | None, now: int) -> None:
    """Beyond max_msgs, discard old removes the newest message."""
    while self.has_too_many_messages():
        self.remove(self.store.last_seq, now)
    Stream.enforce_limits(self, subject, now)


@defect("JS-PUB-034")
def limits_discard_new_discards_old_messages(broker: Broker) -> None:
    """With discard new too, max_msgs makes the oldest message go."""
    alter_streams(broker, check_max_msgs=lambda self: None)


@method_defect(Stream.check_max_msgs, "JS-PUB-034")
def limits_discard_new_stores_one_more(self: Stream) -> None:
    """What discard new refuses is stored all the same."""
    try:
        Stream.check_max_msgs(self)
    except JetStreamError:
        self.store.append(self.config.patterns[0], b"", b"", self.jetstream.now)
        raise


@method_defect(Stream.refusal, "JS-PUB-047")
def limits_refusal_has_the_last_seq(self: Stream, error: JetStreamError) -> bytes:
    """What discard new refuses is answered with the last sequence for seq."""
    if error.err_code != errors.STORE_FAILED.err_code:
        return Stream.refusal(self, error)
    fields = {"error": error.reply(), "stream": self.config.name, "seq": self.store.last_seq}
    return self.jetstream.encode(fields)


@method_defect(Stream.reconfigure, "JS-PUB-046")
def limits_lower_max_msgs_waits(self: Stream, config: StreamConfig, now: int) -> None:
    """An update to a lower max_msgs removes nothing until something is published."""
    self.config = config
    self.derive_settings()


# How much


@defect("JS-PUB-035")
def limits_max_bytes_is_ignored(broker: Broker) -> None:
    """A stream with discard old goes on beyond max_bytes."""
    alter_streams(broker, has_too_many_bytes=lambda self: False)


@method_defect(Stream.enforce_limits, "JS-PUB-035")
def limits_max_bytes_takes_one_message(self: Stream, subject: bytes | None, now: int) -> None:
    """However large a message is, max_bytes makes only one other go."""
    if self.has_too_many_bytes():
        self.remove(self.store.first_seq, now)


@method_defect(Stream.check_discard_new, "JS-PUB-037")
def limits_message_over_max_bytes_is_refused(
    self: Stream, subject: bytes, header_block: bytes, payload: bytes, directives: PublishHeaders
) -> None:
    """A message larger than max_bytes is refused by discard old."""
    if 0 < self.config.max_bytes < len(payload):
        raise errors.STORE_FAILED(reason="maximum bytes exceeded")
    Stream.check_discard_new(self, subject, header_block, payload, directives)


def _payload_alone(storage: str) -> Method:
    def added_bytes(self: Stream, subject: bytes, header_block: bytes, payload: bytes) -> int:
        if self.config.storage == storage:
            return len(header_block) + len(payload)
        return Stream.added_bytes(self, subject, header_block, payload)

    return added_bytes


@defect("JS-PUB-036")
def limits_memory_records_weigh_their_payload(broker: Broker) -> None:
    """In memory, discard new compares max_bytes with the payload, not with the record."""
    alter_streams(broker, added_bytes=_payload_alone("memory"))


@defect("JS-PUB-038")
def limits_file_records_weigh_their_payload(broker: Broker) -> None:
    """In files, discard new compares max_bytes with the payload, not with the record."""
    alter_streams(broker, added_bytes=_payload_alone("file"))


def _discard_old(storage: str) -> Method:
    def check_max_bytes(self: Stream, subject: bytes, header_block: bytes, payload: bytes) -> None:
        fits_without_its_head = self.store.size + len(header_block) + len(payload) <= self.config.max_bytes
        if self.config.storage != storage or fits_without_its_head:
            Stream.check_max_bytes(self, subject, header_block, payload)

    return check_max_bytes


@defect("JS-PUB-050")
def limits_discard_new_in_files_discards_old_bytes(broker: Broker) -> None:
    """In files, discard new makes old messages go when payloads pass max_bytes."""
    alter_streams(broker, check_max_bytes=_discard_old("file"))


@defect("JS-PUB-051")
def limits_discard_new_in_memory_discards_old_bytes(broker: Broker) -> None:
    """In memory, discard new makes old messages go when payloads pass max_bytes."""
    alter_streams(broker, check_max_bytes=_discard_old("memory"))


@method_defect(Stream.check_size, "JS-PUB-039")
def limits_max_msg_size_is_too_small_by_one(self: Stream, header_size: int, payload_size: int) -> None:
    """A message of exactly max_msg_size is refused."""
    Stream.check_size(self, header_size, payload_size if header_size else payload_size + 1)


@method_defect(Stream.check_size, "JS-PUB-039")
def limits_max_msg_size_is_ignored(self: Stream, header_size: int, payload_size: int) -> None:
    """max_msg_size is ignored."""
    if header_size:
        Stream.check_size(self, header_size, payload_size)


@defect("JS-PUB-040")
def limits_max_msg_size_without_headers(broker: Broker) -> None:
    """max_msg_size does not count headers."""
    alter_streams(
        broker,
        check_size=lambda self, header_size, payload_size: Stream.check_size(self, 0, payload_size),
    )


# How old


@defect("JS-PUB-041")
def limits_max_age_is_ignored(broker: Broker) -> None:
    """max_age removes nothing."""
    alter_streams(broker, on_age_timer=lambda self, now: None)


@method_defect(Stream.on_age_timer, "JS-PUB-041")
def limits_max_age_begins_anew(self: Stream, now: int) -> None:
    """A stream whose last message grew too old starts at sequence 1 again."""
    Stream.on_age_timer(self, now)
    if self.store.last_seq and not len(self.store):
        self.store.restart_at(1)


# By subject


@method_defect(Stream.trim_subject, "JS-PUB-042")
def limits_max_msgs_per_subject_keeps_the_oldest(self: Stream, subject: bytes, limit: int, now: int) -> None:
    """Beyond max_msgs_per_subject the newest message of the subject goes."""
    while self.store.count_of(subject) > limit:
        last = self.store.last_of(subject)
        assert last is not None
        self.remove(last.seq, now)


@method_defect(Stream.trim_subject, "JS-PUB-042")
def limits_max_msgs_per_subject_is_of_the_stream(self: Stream, subject: bytes, limit: int, now: int) -> None:
    """max_msgs_per_subject limits the messages of all subjects together."""
    while len(self.store) > limit:
        self.remove(self.store.first_seq, now)


@defect("JS-PUB-043")
def limits_discard_new_per_subject_is_ignored(broker: Broker) -> None:
    """discard_new_per_subject is ignored."""
    alter_streams(broker, check_room_of_subject=lambda self, subject, directives: None)


@method_defect(Stream.check_room_of_subject, "JS-PUB-043")
def limits_one_full_subject_fills_the_stream(
    self: Stream, subject: bytes, directives: PublishHeaders
) -> None:
    """With discard_new_per_subject, one full subject has messages on others refused."""
    for each in self.store.subjects():
        Stream.check_room_of_subject(self, each, directives)


@method_defect(Stream.check_room_of_subject, "JS-PUB-044")
def limits_discard_new_is_always_per_subject(
    self: Stream, subject: bytes, directives: PublishHeaders
) -> None:
    """discard new refuses messages on a full subject without discard_new_per_subject."""
    if self.is_full(subject):
        raise errors.STORE_FAILED(reason="maximum messages per subject exceeded")


# Gaps


@method_defect(Stream.remove, "JS-PUB-045")
def limits_delete_takes_earlier_messages(self: Stream, seq: int, now: int) -> bool:
    """Deleting a message removes those before it too."""
    found = Stream.remove(self, seq, now)
    while found and self.store.first_seq < seq:
        Stream.remove(self, self.store.first_seq, now)
    return found


@method_defect(Stream.remove, "JS-PUB-045")
def limits_delete_removes_nothing(self: Stream, seq: int, now: int) -> bool:
    """A deletion is reported and not done."""
    return self.store.load(seq) is not None and (
        self.store.first_seq < seq < self.store.last_seq or Stream.remove(self, seq, now)
    )


@method_defect(Stream.trim_subject, "JS-PUB-085")
def limits_lowered_max_msgs_per_subject_waits(self: Stream, subject: bytes, limit: int, now: int) -> None:
    """A lower max_msgs_per_subject removes nothing from a subject until a message comes to it."""
    last = self.store.last_of(subject)
    if last is not None and last.time == now:
        Stream.trim_subject(self, subject, limit, now)


@method_defect(Stream.reconfigure, "JS-PUB-085")
def limits_lowered_max_bytes_waits(self: Stream, config: StreamConfig, now: int) -> None:
    """A lower max_bytes removes nothing until a message comes."""
    limit, config.max_bytes = config.max_bytes, -1
    Stream.reconfigure(self, config, now)
    config.max_bytes = limit
    self.derive_settings()
