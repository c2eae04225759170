"""Defects of atomic batches. What is right: ``jetstream.batches``."""

from __future__ import annotations

from msgspec import structs

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.methods import (
    alter_streams,
    jetstream_of,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream import advisories, errors
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.reference_broker.nats.jetstream.streams.batches import (
    COMMIT,
    FORGOTTEN_AFTER,
    MAX_ID_LENGTH,
    Batch,
    Batches,
    BatchPosition,
    StagedMessage,
)
from plumbline.reference_broker.nats.jetstream.streams.publish import read_directives
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


@defect("JS-PUB-049", "JS-PUB-054")
def pub_batches_are_unknown(broker: Broker) -> None:
    """The messages of a batch are stored one by one, as they come."""
    replace(jetstream_of(broker).rules, "atomic_batches", False)


class _Gaps(Batches):
    def accept(
        self, position: BatchPosition, message: StagedMessage, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        batch = self.open.get(position.batch_id)
        if batch is not None and position.sequence is not None:
            position = BatchPosition(position.batch_id, len(batch.messages) + 1, position.commit)
        return super().accept(position, message, now)


@method_defect(Stream.derive_settings, "JS-PUB-054")
def pub_batches_may_have_gaps(self: Stream) -> None:
    """Gaps in Nats-Batch-Sequence are not noticed."""
    Stream.derive_settings(self)
    self.batches = _Gaps(self)


@defect("JS-PUB-056")
def pub_batch_markers_are_refused(broker: Broker) -> None:
    """Nats-Batch-Commit takes 1 alone, as before 2.14."""
    replace(jetstream_of(broker).rules, "batches_end_with_marker", False)


class _StoredMarkers(Batches):
    def accept(
        self, position: BatchPosition, message: StagedMessage, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        if self.is_marker(position) and self.open.get(position.batch_id):
            position = BatchPosition(position.batch_id, position.sequence, COMMIT)
        return super().accept(position, message, now)


@method_defect(Stream.derive_settings, "JS-PUB-056")
def pub_batch_markers_are_stored(self: Stream) -> None:
    """The message with Nats-Batch-Commit: eob is stored as the last one of its batch."""
    Stream.derive_settings(self)
    self.batches = _StoredMarkers(self)


class _LoneMarkers(Batches):
    def accept(
        self, position: BatchPosition, message: StagedMessage, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        if self.is_marker(position) and position.batch_id not in self.open:
            position = BatchPosition(position.batch_id, position.sequence, COMMIT)
        return super().accept(position, message, now)


@method_defect(Stream.derive_settings, "JS-PUB-056")
def pub_lone_batch_markers_are_stored(self: Stream) -> None:
    """A batch of Nats-Batch-Commit: eob alone stores that message."""
    Stream.derive_settings(self)
    self.batches = _LoneMarkers(self)


class _Kept(Batches):
    def forget(self, now: int) -> None:
        pass


@method_defect(Stream.derive_settings, "JS-PUB-075")
def pub_idle_batches_are_kept(self: Stream) -> None:
    """A batch may be continued at any time."""
    Stream.derive_settings(self)
    self.batches = _Kept(self)


class _FromTheFirst(Batches):
    def accept(
        self, position: BatchPosition, message: StagedMessage, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        batch = self.open.get(position.batch_id)
        began = now if batch is None else batch.last_message_at
        try:
            return super().accept(position, message, now)
        finally:
            if (batch := self.open.get(position.batch_id)) is not None:
                batch.last_message_at = began


@method_defect(Stream.derive_settings, "JS-PUB-075")
def pub_batches_last_ten_seconds(self: Stream) -> None:
    """A batch is abandoned 10 seconds after its first message."""
    Stream.derive_settings(self)
    self.batches = _FromTheFirst(self)


class _HalfAsLong(Batches):
    def forget(self, now: int) -> None:
        super().forget(now + FORGOTTEN_AFTER // 2)


@method_defect(Stream.derive_settings, "JS-PUB-075")
def pub_batches_are_abandoned_after_five_seconds(self: Stream) -> None:
    """A batch is abandoned once it has had no message for 5 seconds."""
    Stream.derive_settings(self)
    self.batches = _HalfAsLong(self)


class _ReportedEarly(Batches):
    def batch_of(self, position: BatchPosition, now: int) -> Batch:
        self.timer.set_earliest(now + FORGOTTEN_AFTER // 2)
        return super().batch_of(position, now)

    def forget(self, now: int) -> None:
        for batch_id, batch in self.open.items():
            if batch.last_message_at <= now - FORGOTTEN_AFTER // 2:
                advisories.batch_abandoned(self.stream, batch_id, "timeout", now)


@method_defect(Stream.derive_settings, "JS-ADV-020")
def pub_idle_batches_are_reported_after_five_seconds(self: Stream) -> None:
    """A batch without a message is reported after 5 seconds, and goes on."""
    Stream.derive_settings(self)
    self.batches = _ReportedEarly(self)


class _Committed(Batches):
    def commit(
        self, position: BatchPosition, messages: list[StagedMessage], now: int
    ) -> tuple[StoredMessage | None, bytes]:
        advisories.batch_abandoned(self.stream, position.batch_id, "incomplete", now)
        return super().commit(position, messages, now)


@method_defect(Stream.derive_settings, "JS-ADV-019")
def pub_committed_batches_are_reported(self: Stream) -> None:
    """A batch that is committed is reported as given up."""
    Stream.derive_settings(self)
    self.batches = _Committed(self)


class _Unchecked(Batches):
    def check(self, message: StagedMessage, now: int) -> None:
        pass


@method_defect(Stream.derive_settings, "JS-PUB-076")
def pub_batches_stop_at_the_first_refusal(self: Stream) -> None:
    """What comes before the message that is refused is stored."""
    Stream.derive_settings(self)
    self.batches = _Unchecked(self)


def _uncounted(self: Stream, subject: bytes, header_block: bytes, payload: bytes) -> None:
    pass


@defect("JS-PUB-076")
def pub_batches_are_checked_one_by_one(broker: Broker) -> None:
    """Each message is compared with the limits as if it were alone."""
    alter_streams(broker, count_ahead=_uncounted)


@method_defect(Stream.count_ahead, "JS-PUB-076")
def pub_batches_have_no_size(self: Stream, subject: bytes, header_block: bytes, payload: bytes) -> None:
    """A batch may take more bytes than there are."""
    Stream.count_ahead(self, subject, header_block, payload)
    self.ahead.size = 0


@method_defect(Stream.count_ahead, "JS-PUB-076")
def pub_batches_have_no_subjects(self: Stream, subject: bytes, header_block: bytes, payload: bytes) -> None:
    """A batch may have more messages of one subject than the stream takes."""
    Stream.count_ahead(self, subject, header_block, payload)
    self.ahead.of_subject.clear()


# -- limits ----------------------------------------------------------------------------------------


class _Unlimited(Batches):
    largest = 1_000_000


@method_defect(Stream.derive_settings, "JS-PUB-077")
def pub_batches_have_no_limit(self: Stream) -> None:
    """A batch may have any number of messages."""
    Stream.derive_settings(self)
    self.batches = _Unlimited(self)


class _Smaller(Batches):
    largest = 999


@method_defect(Stream.derive_settings, "JS-PUB-077")
def pub_batches_have_999_messages(self: Stream) -> None:
    """A batch has up to 999 messages."""
    Stream.derive_settings(self)
    self.batches = _Smaller(self)


class _Cut(Batches):
    def accept(
        self, position: BatchPosition, message: StagedMessage, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        if position.sequence == self.largest + 1:
            position = BatchPosition(position.batch_id, self.largest, COMMIT)
            self.open[position.batch_id].messages.pop()
        return super().accept(position, message, now)


@method_defect(Stream.derive_settings, "JS-PUB-077")
def pub_batches_are_cut(self: Stream) -> None:
    """Of a batch with more messages than 1000 the last 1000 are stored."""
    Stream.derive_settings(self)
    self.batches = _Cut(self)


class _Many(Batches):
    most_open = 1_000_000


@method_defect(Stream.derive_settings, "JS-PUB-078")
def pub_any_number_of_batches_is_open(self: Stream) -> None:
    """A stream begins any number of batches."""
    Stream.derive_settings(self)
    self.batches = _Many(self)


class _AllStreams(Batches):
    def batch_of(self, position: BatchPosition, now: int) -> Batch:
        streams = self.stream.jetstream.streams.values()
        others = sum(len(one.batches.open) for one in streams if one.batches is not self)
        if position.batch_id not in self.open and len(self.open) + others >= self.most_open:
            raise self.too_many()
        return super().batch_of(position, now)


@method_defect(Stream.derive_settings, "JS-PUB-078")
def pub_batches_of_all_streams_count(self: Stream) -> None:
    """50 batches may be open on all streams together."""
    Stream.derive_settings(self)
    self.batches = _AllStreams(self)


class _Begun(Batches):
    begun = 0

    def batch_of(self, position: BatchPosition, now: int) -> Batch:
        if position.batch_id not in self.open and position.sequence == 1:
            if self.begun >= self.most_open:
                raise self.too_many()
            self.begun += 1
        return super().batch_of(position, now)


@method_defect(Stream.derive_settings, "JS-PUB-078")
def pub_committed_batches_count(self: Stream) -> None:
    """A batch that has ended counts as one that is open."""
    Stream.derive_settings(self)
    self.batches = _Begun(self)


class _AnyCommit(Batches):
    def accept(
        self, position: BatchPosition, message: StagedMessage, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        if position.commit is not None and not self.is_marker(position):
            position = BatchPosition(position.batch_id, position.sequence, COMMIT)
        return super().accept(position, message, now)


@method_defect(Stream.derive_settings, "JS-PUB-079")
def pub_batches_are_committed_by_any_value(self: Stream) -> None:
    """Nats-Batch-Commit with any value commits the batch."""
    Stream.derive_settings(self)
    self.batches = _AnyCommit(self)


class _NoCommit(Batches):
    def accept(
        self, position: BatchPosition, message: StagedMessage, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        if position.commit != COMMIT and not self.is_marker(position):
            position = BatchPosition(position.batch_id, position.sequence, None)
        return super().accept(position, message, now)


@method_defect(Stream.derive_settings, "JS-PUB-079")
def pub_other_values_commit_nothing(self: Stream) -> None:
    """Nats-Batch-Commit with another value than 1 and eob is passed over."""
    Stream.derive_settings(self)
    self.batches = _NoCommit(self)


class _AnyId(Batches):
    def batch_of(self, position: BatchPosition, now: int) -> Batch:
        short = structs.replace(position, batch_id=position.batch_id[:MAX_ID_LENGTH])
        return super().batch_of(short, now)


@method_defect(Stream.derive_settings, "JS-PUB-080")
def pub_batch_ids_have_any_length(self: Stream) -> None:
    """A Nats-Batch-Id has any length."""
    Stream.derive_settings(self)
    self.batches = _AnyId(self)


class _ShortIds(Batches):
    def batch_of(self, position: BatchPosition, now: int) -> Batch:
        if len(position.batch_id) == MAX_ID_LENGTH:
            raise errors.BATCH_ID_INVALID()
        return super().batch_of(position, now)


@method_defect(Stream.derive_settings, "JS-PUB-080")
def pub_batch_ids_have_63_characters(self: Stream) -> None:
    """A Nats-Batch-Id of 64 characters is refused."""
    Stream.derive_settings(self)
    self.batches = _ShortIds(self)


class _AnyMessageIds(Batches):
    def check(self, message: StagedMessage, now: int) -> None:
        try:
            super().check(message, now)
        except JetStreamError as error:
            if error.err_code != errors.BATCH_WITH_DUPLICATE.err_code:
                raise


@method_defect(Stream.derive_settings, "JS-PUB-081")
def pub_batches_may_have_an_id_twice(self: Stream) -> None:
    """A batch with two messages of one Nats-Msg-Id is stored, without the second."""
    Stream.derive_settings(self)
    self.batches = _AnyMessageIds(self)


class _KeptIds(Batches):
    def check(self, message: StagedMessage, now: int) -> None:
        msg_id = read_directives(message.header_block).msg_id
        try:
            super().check(message, now)
        except JetStreamError as error:
            if error.err_code == errors.BATCH_WITH_DUPLICATE.err_code:
                self.stream.duplicates.remember(msg_id, 1, now)
            raise


@method_defect(Stream.derive_settings, "JS-PUB-081")
def pub_refused_batches_keep_their_ids(self: Stream) -> None:
    """The Nats-Msg-Id for which a batch is refused counts as one that is stored."""
    Stream.derive_settings(self)
    self.batches = _KeptIds(self)
