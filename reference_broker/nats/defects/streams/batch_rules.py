"""Defects in what the messages of a batch expect, roll up, count and share with others. What is right:
``jetstream.streams.batches`` and ``admission``."""

from __future__ import annotations

from typing import ClassVar

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_body
from plumbline.reference_broker.nats.defects.methods import alter_streams, method_defect
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.reference_broker.nats.jetstream.streams import copying, counters
from plumbline.reference_broker.nats.jetstream.streams.batches import (
    Batch,
    Batches,
    BatchPosition,
    StagedMessage,
)
from plumbline.reference_broker.nats.jetstream.streams.publish import (
    EXPECTED_LAST_MSG_ID,
    EXPECTED_LAST_SEQUENCE,
    EXPECTED_LAST_SUBJECT_SEQUENCE,
    INCREMENT,
    STREAM_SOURCE,
    PublishHeaders,
    read_directives,
)
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.nats.headers import append_headers, remove_headers

EXPECTATIONS = (EXPECTED_LAST_SEQUENCE, EXPECTED_LAST_SUBJECT_SEQUENCE)


class _SeenEarly(Batches):
    def accept(
        self, position: BatchPosition, message: StagedMessage, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        directives = read_directives(message.header_block)
        self.stream.check_expected_last_subject_seq(message.subject, directives)
        self.stream.check_expected_last_seq(directives)
        return super().accept(position, message, now)


@method_defect(Stream.derive_settings, "JS-PUB-097")
def pub_batch_expectations_hold_at_once(self: Stream) -> None:
    """What a message of a batch expects must hold when it comes, too."""
    Stream.derive_settings(self)
    self.batches = _SeenEarly(self)


def _checks_without(batches: Batches, message: StagedMessage, now: int, *names: str) -> None:
    """The check of a message of a batch without what some of its headers say."""
    block = remove_headers(message.header_block, *names)
    Batches.check(batches, StagedMessage(message.subject, block, message.payload), now)


class _NoExpectations(Batches):
    def check(self, message: StagedMessage, now: int) -> None:
        _checks_without(self, message, now, *EXPECTATIONS)


@method_defect(Stream.derive_settings, "JS-PUB-097", "JS-PUB-098")
def pub_batch_expectations_are_ignored(self: Stream) -> None:
    """Nats-Expected-Last-Sequence and -Subject-Sequence are ignored in batches."""
    Stream.derive_settings(self)
    self.batches = _NoExpectations(self)


class _FirstExpectation(Batches):
    def check(self, message: StagedMessage, now: int) -> None:
        _checks_without(self, message, now, *(EXPECTATIONS if self.stream.ahead.total else ()))


@method_defect(Stream.derive_settings, "JS-PUB-098")
def pub_batch_expectations_are_those_of_the_first(self: Stream) -> None:
    """Only the first message of a batch can expect anything."""
    Stream.derive_settings(self)
    self.batches = _FirstExpectation(self)


class _PartlyStored(Batches):
    def commit(
        self, position: BatchPosition, messages: list[StagedMessage], now: int
    ) -> tuple[StoredMessage | None, bytes]:
        try:
            return super().commit(position, messages, now)
        except JetStreamError:
            for each in messages:  # up to the one that is refused
                self.stream.accept_one(each.subject, each.header_block, each.payload, now)
            raise


@method_defect(Stream.derive_settings, "JS-PUB-098", "JS-PUB-100")
def pub_refused_batches_are_stored_in_part(self: Stream) -> None:
    """A batch that is refused for what a later message expects stores those before it."""
    Stream.derive_settings(self)
    self.batches = _PartlyStored(self)


@method_defect(Stream.check_expected_last_subject_seq, "JS-PUB-098")
def pub_batch_may_expect_where_it_writes(self: Stream, subject: bytes, directives: PublishHeaders) -> None:
    """A message of a batch may expect of its subject what was there before the batch."""
    subjects, self.ahead.subjects = self.ahead.subjects, set()
    try:
        Stream.check_expected_last_subject_seq(self, subject, directives)
    finally:
        self.ahead.subjects = subjects


@method_defect(Stream.check_expected_last_subject_seq, "JS-PUB-098")
def pub_batch_may_expect_what_it_writes(self: Stream, subject: bytes, directives: PublishHeaders) -> None:
    """A message of a batch may expect one that is before it in the batch."""
    expected = directives.expected_last_subject_seq
    if expected is None or expected != self.store.last_seq + self.ahead.total or not self.ahead.total:
        Stream.check_expected_last_subject_seq(self, subject, directives)


@method_defect(Stream.check_expected_last_seq, "JS-PUB-098")
def pub_batch_may_expect_its_own_sequences(self: Stream, directives: PublishHeaders) -> None:
    """Any message of a batch may expect the last sequence, those before it in the batch included."""
    if not self.ahead.total or directives.expected_last_seq != self.store.last_seq + self.ahead.total:
        Stream.check_expected_last_seq(self, directives)


@method_defect(Stream.check_expected_last_seq, "JS-PUB-098")
def pub_batch_may_expect_the_sequence_before_it(self: Stream, directives: PublishHeaders) -> None:
    """Any message of a batch may expect the last sequence of the stream without the batch."""
    total, self.ahead.total = self.ahead.total, 0
    try:
        Stream.check_expected_last_seq(self, directives)
    finally:
        self.ahead.total = total


class _MessageIds(Batches):
    def check(self, message: StagedMessage, now: int) -> None:
        _checks_without(self, message, now, EXPECTED_LAST_MSG_ID)


@method_defect(Stream.derive_settings, "JS-PUB-099")
def pub_batches_ignore_expected_message_ids(self: Stream) -> None:
    """Nats-Expected-Last-Msg-Id is ignored in batches."""
    Stream.derive_settings(self)
    self.batches = _MessageIds(self)


class _FirstMessageId(Batches):
    def check(self, message: StagedMessage, now: int) -> None:
        _checks_without(self, message, now, *((EXPECTED_LAST_MSG_ID,) if self.stream.ahead.total else ()))


@method_defect(Stream.derive_settings, "JS-PUB-099")
def pub_batches_look_at_the_first_expected_message_id(self: Stream) -> None:
    """Nats-Expected-Last-Msg-Id is ignored behind the first message of a batch."""
    Stream.derive_settings(self)
    self.batches = _FirstMessageId(self)


@method_defect(Stream.check_rollup, "JS-PUB-100")
def pub_batch_may_roll_up_itself(self: Stream, subject: bytes, rollup: str) -> None:
    """Any message of a batch may have Nats-Rollup: sub."""
    Stream.check_rollup(self, b"" if rollup == "sub" else subject, rollup)


@method_defect(Stream.check_rollup, "JS-PUB-100")
def pub_batch_may_roll_up_all_later(self: Stream, subject: bytes, rollup: str) -> None:
    """Any message of a batch may have Nats-Rollup: all."""
    total, self.ahead.total = self.ahead.total, 0
    try:
        Stream.check_rollup(self, subject, rollup)
    finally:
        self.ahead.total = total


@method_defect(Stream.check_rollup, "JS-PUB-100")
def pub_batch_may_not_roll_up(self: Stream, subject: bytes, rollup: str) -> None:
    """Nats-Rollup is refused behind the first message of a batch."""
    if rollup and self.ahead.total:
        raise errors.ROLLUP_FAILED(reason="rollup not permitted")
    Stream.check_rollup(self, subject, rollup)


@method_defect(Stream.roll_up, "JS-PUB-100")
def pub_batch_does_not_roll_up(self: Stream, subject: bytes, rollup: str, now: int) -> None:
    """Nats-Rollup is ignored in batches."""
    last = self.store.load(self.store.last_seq)
    if last is None or b"Nats-Batch-Id" not in last.header_block:
        Stream.roll_up(self, subject, rollup, now)


@method_defect(Stream.add, "JS-PUB-101")
def pub_counters_begin_before_the_batch(
    self: Stream, subject: bytes, header_block: bytes, directives: PublishHeaders
) -> tuple[bytes, int]:
    """Each increment of a batch is added to what the counter had before the batch."""
    if b"Nats-Batch-Id" not in header_block:
        return Stream.add(self, subject, header_block, directives)
    last = next(
        (
            each
            for each in reversed(list(self.store.messages()))
            if each.subject == subject and b"Nats-Batch-Id" not in each.header_block
        ),
        None,
    )
    return counters.added(last, header_block, int(directives.increment))


class _Increments(Batches):
    def check(self, message: StagedMessage, now: int) -> None:
        is_one = counters.read_increment(read_directives(message.header_block).increment) is not None
        block = message.header_block
        if self.stream.counts and not is_one:
            block = append_headers(remove_headers(block, INCREMENT), [(INCREMENT, "0")])
        super().check(StagedMessage(message.subject, block, message.payload), now)

    def store_all(self, messages: list[StagedMessage], now: int) -> StoredMessage | None:
        return super().store_all(
            [
                each
                for each in messages
                if not self.stream.counts
                or counters.read_increment(read_directives(each.header_block).increment) is not None
            ],
            now,
        )


@method_defect(Stream.derive_settings, "JS-PUB-101")
def pub_batches_leave_out_wrong_increments(self: Stream) -> None:
    """A batch of a counter is stored without the messages that are no increments."""
    Stream.derive_settings(self)
    self.batches = _Increments(self)


class _NumberedAtOnce(Batches):
    def accept(
        self, position: BatchPosition, message: StagedMessage, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        if position.sequence == 1 and self.stream.config.allow_atomic:
            self.firsts[position.batch_id] = self.stream.store.last_seq + 1
        stored, answer = super().accept(position, message, now)
        if stored is not None and (first := self.firsts.pop(position.batch_id, 0)):
            wrong = first + (position.sequence or 1) - 1
            answer = answer.replace(b'"seq":%d' % stored.seq, b'"seq":%d' % wrong)
        return stored, answer

    firsts: ClassVar[dict[str, int]] = {}


@method_defect(Stream.derive_settings, "JS-PUB-102")
def pub_batches_have_the_sequences_of_their_beginning(self: Stream) -> None:
    """The PubAck of a batch counts from the sequence that its first message would have had when it came."""
    Stream.derive_settings(self)
    self.batches = _NumberedAtOnce(self)


class _OneAtATime(Batches):
    def batch_of(self, position: BatchPosition, now: int) -> Batch:
        for other in [each for each in self.open if each != position.batch_id]:
            del self.open[other]
        return super().batch_of(position, now)


@method_defect(Stream.derive_settings, "JS-PUB-102")
def pub_a_batch_ends_the_one_before(self: Stream) -> None:
    """A stream gives up a batch once another begins."""
    Stream.derive_settings(self)
    self.batches = _OneAtATime(self)


@defect("JS-PUB-102")
def pub_batch_ids_are_of_the_account(broker: Broker) -> None:
    """A batch id stands for one batch of the account."""
    open_batches: dict[str, Batch] = {}

    class _Shared(Batches):
        def __init__(self, stream: Stream) -> None:
            super().__init__(stream)
            self.open = open_batches

    def derive_settings(self: Stream) -> None:
        Stream.derive_settings(self)
        self.batches = _Shared(self)

    alter_streams(broker, derive_settings=derive_settings)


class _RememberedIds(Batches):
    def accept(
        self, position: BatchPosition, message: StagedMessage, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        if position.sequence == 1 and position.batch_id in self.used:
            raise errors.BATCH_INCOMPLETE()
        self.used.add(position.batch_id)
        return super().accept(position, message, now)

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self.used: set[str] = set()


@method_defect(Stream.derive_settings, "JS-PUB-103")
def pub_batch_ids_are_used_once(self: Stream) -> None:
    """A batch id that was used is refused."""
    Stream.derive_settings(self)
    self.batches = _RememberedIds(self)


class _GivenUpAndKept(Batches):
    def abandon(self, batch_id: str, reason: str, now: int) -> None:
        batch = self.open[batch_id]
        super().abandon(batch_id, reason, now)
        if reason == "incomplete" and batch.messages:
            self.rests[batch_id] = batch.messages

    def batch_of(self, position: BatchPosition, now: int) -> Batch:
        batch = super().batch_of(position, now)
        batch.messages[:0] = self.rests.pop(position.batch_id, [])
        return batch

    def accept(
        self, position: BatchPosition, message: StagedMessage, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        if position.sequence is not None and position.batch_id in self.rests:
            sequence = position.sequence + len(self.rests[position.batch_id])
            position = BatchPosition(position.batch_id, sequence, position.commit)
        return super().accept(position, message, now)

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self.rests: dict[str, list[StagedMessage]] = {}


@method_defect(Stream.derive_settings, "JS-PUB-103")
def pub_batches_given_up_come_back(self: Stream) -> None:
    """A batch has the messages of one with its id that was given up."""
    Stream.derive_settings(self)
    self.batches = _GivenUpAndKept(self)


@defect("JS-PUB-104")
def pub_mirrors_may_have_batches(broker: Broker) -> None:
    """A mirror with allow_atomic is created, without allow_atomic."""

    def change(fields: Fields, request: Request) -> None:
        if fields.get("mirror"):
            fields["allow_atomic"] = False

    alter_body(broker, "stream_create", change)


class _NeverGivenUp(Batches):
    def abandon_all(self) -> None:
        pass


@defect("JS-PUB-105")
def pub_batches_outlive_allow_atomic(broker: Broker) -> None:
    """A batch goes on once allow_atomic is back."""

    def derive_settings(self: Stream) -> None:
        if not isinstance(getattr(self, "batches", None), _NeverGivenUp):
            self.batches = _NeverGivenUp(self)
        Stream.derive_settings(self)

    alter_streams(broker, derive_settings=derive_settings)


class _Committed(Batches):
    def abandon_all(self) -> None:
        for batch in self.open.values():
            self.store_all(batch.messages, self.stream.created)
        super().abandon_all()


@defect("JS-PUB-105")
def pub_batches_are_stored_without_allow_atomic(broker: Broker) -> None:
    """A batch that is open when allow_atomic goes is stored as far as it came."""

    def derive_settings(self: Stream) -> None:
        if not isinstance(getattr(self, "batches", None), _Committed):
            self.batches = _Committed(self)
        Stream.derive_settings(self)

    alter_streams(broker, derive_settings=derive_settings)


class _IdsAtOnce(Batches):
    def accept(
        self, position: BatchPosition, message: StagedMessage, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        outcome = super().accept(position, message, now)
        if position.commit is None and (msg_id := read_directives(message.header_block).msg_id):
            self.stream.duplicates.remember(msg_id, 1, now)
        return outcome


@method_defect(Stream.derive_settings, "JS-PUB-106")
def pub_ids_of_open_batches_count(self: Stream) -> None:
    """A Nats-Msg-Id of a batch makes others duplicates before the batch is committed."""
    Stream.derive_settings(self)
    self.batches = _IdsAtOnce(self)


class _IdsOfRefused(Batches):
    def commit(
        self, position: BatchPosition, messages: list[StagedMessage], now: int
    ) -> tuple[StoredMessage | None, bytes]:
        try:
            return super().commit(position, messages, now)
        except JetStreamError:
            for each in messages:
                if msg_id := read_directives(each.header_block).msg_id:
                    self.stream.duplicates.remember(msg_id, 1, now)
            raise


@method_defect(Stream.derive_settings, "JS-PUB-106")
def pub_ids_of_refused_batches_count(self: Stream) -> None:
    """A Nats-Msg-Id of a batch that is refused makes others duplicates."""
    Stream.derive_settings(self)
    self.batches = _IdsOfRefused(self)


class _NoIds(Batches):
    def store_all(self, messages: list[StagedMessage], now: int) -> StoredMessage | None:
        remember = self.stream.duplicates.remember
        self.stream.duplicates.remember = lambda *arguments: None  # type: ignore[method-assign]
        try:
            return super().store_all(messages, now)
        finally:
            self.stream.duplicates.remember = remember  # type: ignore[method-assign]


@method_defect(Stream.derive_settings, "JS-PUB-106")
def pub_ids_of_batches_do_not_count(self: Stream) -> None:
    """A Nats-Msg-Id of a batch makes nothing a duplicate."""
    Stream.derive_settings(self)
    self.batches = _NoIds(self)


@method_defect(Stream.derive_settings, "JS-PUB-107")
def pub_batches_are_copied_but_for_the_last(self: Stream) -> None:
    """Mirrors and streams with sources get the last message of a batch alone."""
    Stream.derive_settings(self)
    self.batches = _CopiedLast(self)


class _CopiedLast(Batches):
    def store_all(self, messages: list[StagedMessage], now: int) -> StoredMessage | None:
        copies, self.stream.copies = self.stream.copies, []
        try:
            return super().store_all(messages, now)
        finally:
            self.stream.copies = copies


class _CopiedEarly(Batches):
    def accept(
        self, position: BatchPosition, message: StagedMessage, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        outcome = super().accept(position, message, now)
        if position.commit is None:
            seq = self.stream.store.last_seq + (position.sequence or 1)
            early = StoredMessage(seq, message.subject, message.header_block, message.payload, now)
            for stream in self.stream.copies:
                copying.copy(self.stream, stream, early, now)
        return outcome


@method_defect(Stream.derive_settings, "JS-PUB-107")
def pub_batches_are_copied_early(self: Stream) -> None:
    """Mirrors and streams with sources get the messages of a batch before it is committed."""
    Stream.derive_settings(self)
    self.batches = _CopiedEarly(self)


class _StreamSources(Batches):
    def check(self, message: StagedMessage, now: int) -> None:
        _checks_without(self, message, now, STREAM_SOURCE)


@method_defect(Stream.derive_settings, "JS-PUB-108")
def pub_stream_source_is_taken_in_batches(self: Stream) -> None:
    """A client may write Nats-Stream-Source into the messages of a batch."""
    Stream.derive_settings(self)
    self.batches = _StreamSources(self)
