"""Defects of the limits of a stream and of its discard policy. What is right: ``jetstream.stream``."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.jetstream_parts import Method, alter_streams, jetstream_defect
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.reference_broker.nats.jetstream.streams.config import StreamConfig
from plumbline.reference_broker.nats.jetstream.streams.publish import Directives
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

# How many


@jetstream_defect(
    "limits-max-msgs-is-ignored",
    breaks=("JS-PUB-033",),
    summary="A stream with discard old goes on beyond max_msgs.",
)
def _(broker: Broker) -> None:
    alter_streams(broker, has_too_many_messages=lambda self: False)


@jetstream_defect(
    "limits-discard-old-discards-the-newest",
    breaks=("JS-PUB-033",),
    summary="Beyond max_msgs, discard old removes the newest message.",
)
def _(broker: Broker) -> None:
    def enforce_limits(self: Stream, subject: bytes | None, now: int) -> None:
        while self.has_too_many_messages():
            self.remove(self.store.last_seq, now)
        Stream.enforce_limits(self, subject, now)

    alter_streams(broker, enforce_limits=enforce_limits)


@jetstream_defect(
    "limits-discard-new-discards-old-messages",
    breaks=("JS-PUB-034",),
    summary="With discard new too, max_msgs makes the oldest message go.",
)
def _(broker: Broker) -> None:
    alter_streams(broker, check_max_msgs=lambda self: None)


@jetstream_defect(
    "limits-discard-new-stores-one-more",
    breaks=("JS-PUB-034",),
    summary="What discard new refuses is stored all the same.",
)
def _(broker: Broker) -> None:
    def check_max_msgs(self: Stream) -> None:
        try:
            Stream.check_max_msgs(self)
        except JetStreamError:
            self.store.append(self.config.patterns[0], b"", b"", self.jetstream.now)
            raise

    alter_streams(broker, check_max_msgs=check_max_msgs)


@jetstream_defect(
    "limits-refusal-has-the-last-seq",
    breaks=("JS-PUB-047",),
    summary="What discard new refuses is answered with the last sequence for seq.",
)
def _(broker: Broker) -> None:
    def refusal(self: Stream, error: JetStreamError) -> bytes:
        if error.err_code != errors.STORE_FAILED.err_code:
            return Stream.refusal(self, error)
        fields = {"error": error.reply(), "stream": self.config.name, "seq": self.store.last_seq}
        return self.jetstream.encode(fields)

    alter_streams(broker, refusal=refusal)


@jetstream_defect(
    "limits-lower-max-msgs-waits",
    breaks=("JS-PUB-046",),
    summary="An update to a lower max_msgs removes nothing until something is published.",
)
def _(broker: Broker) -> None:
    def reconfigure(self: Stream, config: StreamConfig, now: int) -> None:
        self.config = config
        self.configured()

    alter_streams(broker, reconfigure=reconfigure)


# How much


@jetstream_defect(
    "limits-max-bytes-is-ignored",
    breaks=("JS-PUB-035",),
    summary="A stream with discard old goes on beyond max_bytes.",
)
def _(broker: Broker) -> None:
    alter_streams(broker, has_too_many_bytes=lambda self: False)


@jetstream_defect(
    "limits-max-bytes-takes-one-message",
    breaks=("JS-PUB-035",),
    summary="However large a message is, max_bytes makes only one other go.",
)
def _(broker: Broker) -> None:
    def enforce_limits(self: Stream, subject: bytes | None, now: int) -> None:
        if self.has_too_many_bytes():
            self.remove(self.store.first_seq, now)

    alter_streams(broker, enforce_limits=enforce_limits)


@jetstream_defect(
    "limits-message-over-max-bytes-is-refused",
    breaks=("JS-PUB-037",),
    summary="A message larger than max_bytes is refused by discard old.",
)
def _(broker: Broker) -> None:
    def make_room(
        self: Stream, subject: bytes, header_block: bytes, payload: bytes, directives: Directives
    ) -> None:
        if 0 < self.config.max_bytes < len(payload):
            raise errors.STORE_FAILED(reason="maximum bytes exceeded")
        Stream.make_room(self, subject, header_block, payload, directives)

    alter_streams(broker, make_room=make_room)


def _payload_alone(storage: str) -> Method:
    def added_bytes(self: Stream, subject: bytes, header_block: bytes, payload: bytes) -> int:
        if self.config.storage == storage:
            return len(header_block) + len(payload)
        return Stream.added_bytes(self, subject, header_block, payload)

    return added_bytes


@jetstream_defect(
    "limits-memory-records-weigh-their-payload",
    breaks=("JS-PUB-036",),
    summary="In memory, discard new compares max_bytes with the payload, not with the record.",
)
def _(broker: Broker) -> None:
    alter_streams(broker, added_bytes=_payload_alone("memory"))


@jetstream_defect(
    "limits-file-records-weigh-their-payload",
    breaks=("JS-PUB-038",),
    summary="In files, discard new compares max_bytes with the payload, not with the record.",
)
def _(broker: Broker) -> None:
    alter_streams(broker, added_bytes=_payload_alone("file"))


def _discard_old(storage: str) -> Method:
    def check_max_bytes(self: Stream, subject: bytes, header_block: bytes, payload: bytes) -> None:
        fits_without_its_head = self.store.size + len(header_block) + len(payload) <= self.config.max_bytes
        if self.config.storage != storage or fits_without_its_head:
            Stream.check_max_bytes(self, subject, header_block, payload)

    return check_max_bytes


@jetstream_defect(
    "limits-discard-new-in-files-discards-old-bytes",
    breaks=("JS-PUB-050",),
    summary="In files, discard new makes old messages go when payloads pass max_bytes.",
)
def _(broker: Broker) -> None:
    alter_streams(broker, check_max_bytes=_discard_old("file"))


@jetstream_defect(
    "limits-discard-new-in-memory-discards-old-bytes",
    breaks=("JS-PUB-051",),
    summary="In memory, discard new makes old messages go when payloads pass max_bytes.",
)
def _(broker: Broker) -> None:
    alter_streams(broker, check_max_bytes=_discard_old("memory"))


@jetstream_defect(
    "limits-max-msg-size-is-too-small-by-one",
    breaks=("JS-PUB-039",),
    summary="A message of exactly max_msg_size is refused.",
)
def _(broker: Broker) -> None:
    def check_size(self: Stream, header_size: int, payload_size: int) -> None:
        Stream.check_size(self, header_size, payload_size if header_size else payload_size + 1)

    alter_streams(broker, check_size=check_size)


@jetstream_defect(
    "limits-max-msg-size-is-ignored", breaks=("JS-PUB-039",), summary="max_msg_size is ignored."
)
def _(broker: Broker) -> None:
    def check_size(self: Stream, header_size: int, payload_size: int) -> None:
        if header_size:
            Stream.check_size(self, header_size, payload_size)

    alter_streams(broker, check_size=check_size)


@jetstream_defect(
    "limits-max-msg-size-without-headers",
    breaks=("JS-PUB-040",),
    summary="max_msg_size does not count headers.",
)
def _(broker: Broker) -> None:
    alter_streams(
        broker,
        check_size=lambda self, header_size, payload_size: Stream.check_size(self, 0, payload_size),
    )


# How old


@jetstream_defect("limits-max-age-is-ignored", breaks=("JS-PUB-041",), summary="max_age removes nothing.")
def _(broker: Broker) -> None:
    alter_streams(broker, messages_age=lambda self, now: None)


@jetstream_defect(
    "limits-max-age-begins-anew",
    breaks=("JS-PUB-041",),
    summary="A stream whose last message grew too old starts at sequence 1 again.",
)
def _(broker: Broker) -> None:
    def messages_age(self: Stream, now: int) -> None:
        Stream.messages_age(self, now)
        if self.store.last_seq and not len(self.store):
            self.store.restart_at(1)

    alter_streams(broker, messages_age=messages_age)


# By subject


@jetstream_defect(
    "limits-max-msgs-per-subject-keeps-the-oldest",
    breaks=("JS-PUB-042",),
    summary="Beyond max_msgs_per_subject the newest message of the subject goes.",
)
def _(broker: Broker) -> None:
    def trim_subject(self: Stream, subject: bytes, limit: int, now: int) -> None:
        while self.store.count_of(subject) > limit:
            last = self.store.last_of(subject)
            assert last is not None
            self.remove(last.seq, now)

    alter_streams(broker, trim_subject=trim_subject)


@jetstream_defect(
    "limits-max-msgs-per-subject-is-of-the-stream",
    breaks=("JS-PUB-042",),
    summary="max_msgs_per_subject limits the messages of all subjects together.",
)
def _(broker: Broker) -> None:
    def trim_subject(self: Stream, subject: bytes, limit: int, now: int) -> None:
        while len(self.store) > limit:
            self.remove(self.store.first_seq, now)

    alter_streams(broker, trim_subject=trim_subject)


@jetstream_defect(
    "limits-discard-new-per-subject-is-ignored",
    breaks=("JS-PUB-043",),
    summary="discard_new_per_subject is ignored.",
)
def _(broker: Broker) -> None:
    alter_streams(broker, check_room_of_subject=lambda self, subject, directives: None)


@jetstream_defect(
    "limits-one-full-subject-fills-the-stream",
    breaks=("JS-PUB-043",),
    summary="With discard_new_per_subject, one full subject has messages on others refused.",
)
def _(broker: Broker) -> None:
    def check_room_of_subject(self: Stream, subject: bytes, directives: Directives) -> None:
        for each in self.store.subjects():
            Stream.check_room_of_subject(self, each, directives)

    alter_streams(broker, check_room_of_subject=check_room_of_subject)


@jetstream_defect(
    "limits-discard-new-is-always-per-subject",
    breaks=("JS-PUB-044",),
    summary="discard new refuses messages on a full subject without discard_new_per_subject.",
)
def _(broker: Broker) -> None:
    def check_room_of_subject(self: Stream, subject: bytes, directives: Directives) -> None:
        if self.is_full(subject):
            raise errors.STORE_FAILED(reason="maximum messages per subject exceeded")

    alter_streams(broker, check_room_of_subject=check_room_of_subject)


# Gaps


@jetstream_defect(
    "limits-delete-takes-earlier-messages",
    breaks=("JS-PUB-045",),
    summary="Deleting a message removes those before it too.",
)
def _(broker: Broker) -> None:
    def remove(self: Stream, seq: int, now: int) -> bool:
        found = Stream.remove(self, seq, now)
        while found and self.store.first_seq < seq:
            Stream.remove(self, self.store.first_seq, now)
        return found

    alter_streams(broker, remove=remove)


@jetstream_defect(
    "limits-delete-removes-nothing",
    breaks=("JS-PUB-045",),
    summary="A deletion is reported and not done.",
)
def _(broker: Broker) -> None:
    def remove(self: Stream, seq: int, now: int) -> bool:
        return self.store.load(seq) is not None and (
            self.store.first_seq < seq < self.store.last_seq or Stream.remove(self, seq, now)
        )

    alter_streams(broker, remove=remove)
