"""Defects of the headers that ask a stream to check or do something; the rules stand in ``admission``."""

from __future__ import annotations

from typing import Any

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import alter_streams, method_defect
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.reference_broker.nats.jetstream.streams import admission
from plumbline.reference_broker.nats.jetstream.streams.publish import PublishHeaders
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


def _before_checks(broker: Broker, **changed: Any) -> None:
    """The headers are read otherwise: every one of ``changed`` that is present gets this value."""

    def check_headers(self: Stream, subject: bytes, directives: PublishHeaders, now: int) -> int | None:
        present = {
            name: value for name, value in changed.items() if getattr(directives, name) not in ("", None)
        }
        return Stream.check_headers(self, subject, msgspec.structs.replace(directives, **present), now)

    alter_streams(broker, check_headers=check_headers)


@defect("JS-PUB-011")
def pub_expected_stream_is_ignored(broker: Broker) -> None:
    """Nats-Expected-Stream is ignored."""
    _before_checks(broker, expected_stream="")


@method_defect(Stream.check_expected_stream, "JS-PUB-011")
def pub_expected_stream_has_another_code(self: Stream, directives: PublishHeaders) -> None:
    """A wrong Nats-Expected-Stream is refused with err_code 10071."""
    try:
        Stream.check_expected_stream(self, directives)
    except JetStreamError:
        raise errors.WRONG_LAST_SEQUENCE(seq=self.store.last_seq) from None


@method_defect(Stream.refusal, "JS-PUB-012")
def pub_refusal_without_stream(self: Stream, error: JetStreamError) -> bytes:
    """A refusal does not name the stream."""
    return self.jetstream.encode({"error": error.reply(), "seq": 0})


@method_defect(Stream.refusal, "JS-PUB-012")
def pub_refusal_is_a_text(self: Stream, error: JetStreamError) -> bytes:
    """The error of a refusal is a text."""
    return self.jetstream.encode({"error": error.description, "stream": self.config.name, "seq": 0})


@defect("JS-PUB-013")
def pub_expected_stream_is_never_met(broker: Broker) -> None:
    """Nats-Expected-Stream is refused even where it is right."""
    _before_checks(broker, expected_stream="?")


@defect("JS-PUB-014")
def pub_expected_last_sequence_is_ignored(broker: Broker) -> None:
    """Nats-Expected-Last-Sequence is ignored."""
    _before_checks(broker, expected_last_seq=None)


@method_defect(Stream.check_expected_last_seq, "JS-PUB-014")
def pub_expected_last_sequence_may_lie_ahead(self: Stream, directives: PublishHeaders) -> None:
    """Nats-Expected-Last-Sequence is refused only if it is too low."""
    if directives.expected_last_seq is not None and directives.expected_last_seq < self.store.last_seq:
        Stream.check_expected_last_seq(self, directives)


@method_defect(Stream.check_expected_last_seq, "JS-PUB-015")
def pub_expected_last_sequence_counts_messages(self: Stream, directives: PublishHeaders) -> None:
    """Nats-Expected-Last-Sequence is compared with the next sequence."""
    if directives.expected_last_seq not in (None, self.store.last_seq + 1):
        raise errors.WRONG_LAST_SEQUENCE(seq=self.store.last_seq)


@method_defect(Stream.check_expected_last_seq, "JS-PUB-016")
def pub_expected_last_sequence_of_zero_is_none(self: Stream, directives: PublishHeaders) -> None:
    """Nats-Expected-Last-Sequence 0 is taken for no expectation."""
    if directives.expected_last_seq:
        Stream.check_expected_last_seq(self, directives)


@method_defect(Stream.check_expected_last_subject_seq, "JS-PUB-017", "JS-PUB-018")
def pub_expected_last_subject_sequence_is_of_the_stream(
    self: Stream, subject: bytes, directives: PublishHeaders
) -> None:
    """Nats-Expected-Last-Subject-Sequence is compared with the last sequence of the stream."""
    if directives.expected_last_subject_seq not in (None, self.store.last_seq):
        raise errors.WRONG_LAST_SEQUENCE(seq=self.store.last_seq)


@method_defect(Stream.check_expected_last_subject_seq, "JS-PUB-019")
def pub_expected_last_subject_sequence_of_zero_is_none(
    self: Stream, subject: bytes, directives: PublishHeaders
) -> None:
    """Nats-Expected-Last-Subject-Sequence 0 is taken for no expectation."""
    if directives.expected_last_subject_seq:
        Stream.check_expected_last_subject_seq(self, subject, directives)


@method_defect(Stream.check_expected_last_subject_seq, "JS-PUB-018")
def pub_expected_last_subject_sequence_of_zero_is_refused(
    self: Stream, subject: bytes, directives: PublishHeaders
) -> None:
    """Nats-Expected-Last-Subject-Sequence 0 is refused for a fresh subject."""
    if directives.expected_last_subject_seq == 0 and not self.store.count_of(subject):
        raise errors.WRONG_LAST_SEQUENCE(seq=0)
    Stream.check_expected_last_subject_seq(self, subject, directives)


@defect("JS-PUB-020")
def pub_expected_last_message_id_is_ignored(broker: Broker) -> None:
    """Nats-Expected-Last-Msg-Id is ignored."""
    _before_checks(broker, expected_last_msg_id="")


@defect("JS-PUB-021")
def pub_expected_last_message_id_is_never_met(broker: Broker) -> None:
    """Nats-Expected-Last-Msg-Id is refused even where it is right."""
    _before_checks(broker, expected_last_msg_id="?")


@method_defect(Stream.check_headers, "JS-PUB-022")
def pub_duplicate_with_a_wrong_expectation_is_stored(
    self: Stream, subject: bytes, directives: PublishHeaders, now: int
) -> int | None:
    """A duplicate that has an expectation as well is stored."""
    if directives.msg_id and directives.expected_last_seq is not None:
        return None
    return Stream.check_headers(self, subject, directives, now)


@method_defect(Stream.check_size, "JS-PUB-024")
def pub_any_header_size(self: Stream, header_size: int, payload_size: int) -> None:
    """Header blocks over 64 KiB are stored."""
    Stream.check_size(self, min(header_size, admission.MAX_HEADER_BLOCK), payload_size)


@defect("JS-PUB-025")
def pub_rollup_needs_no_permission(broker: Broker) -> None:
    """allow_rollup_hdrs is not asked for."""
    alter_streams(broker, check_rollup=lambda self, subject, rollup: None)


@defect("JS-PUB-026")
def pub_rollup_of_a_subject_takes_all(broker: Broker) -> None:
    """Nats-Rollup: sub removes the messages of every subject."""
    _roll_up_as(broker, {"sub": "all"})


@defect("JS-PUB-026")
def pub_rollup_of_a_subject_takes_nothing(broker: Broker) -> None:
    """Nats-Rollup: sub does nothing."""
    _roll_up_as(broker, {"sub": ""})


@defect("JS-PUB-027")
def pub_rollup_of_all_takes_a_subject(broker: Broker) -> None:
    """Nats-Rollup: all removes only the messages of its own subject."""
    _roll_up_as(broker, {"all": "sub"})


def _roll_up_as(broker: Broker, meanings: dict[str, str]) -> None:
    def roll_up(self: Stream, subject: bytes, rollup: str, now: int) -> None:
        Stream.roll_up(self, subject, meanings.get(rollup, rollup), now)

    alter_streams(broker, roll_up=roll_up)


@method_defect(Stream.check_rollup, "JS-PUB-028")
def pub_unknown_rollup_is_stored(self: Stream, subject: bytes, rollup: str) -> None:
    """An unknown Nats-Rollup is ignored."""
    Stream.check_rollup(self, subject, rollup if rollup in ("sub", "all") else "")


@method_defect(Stream.check_stream_source, "JS-PUB-108")
def pub_stream_source_is_taken(self: Stream, directives: PublishHeaders) -> None:
    """A client may write Nats-Stream-Source, as before 2.15."""


@method_defect(Stream.read_ttl, "JS-PUB-029")
def pub_ttl_needs_no_permission(self: Stream, directives: PublishHeaders) -> int:
    """Nats-TTL is ignored without allow_msg_ttl."""
    return Stream.read_ttl(self, directives) if self.config.allow_msg_ttl else 0


@defect("JS-PUB-048")
def pub_ttl_is_ignored(broker: Broker) -> None:
    """Nats-TTL removes no message."""
    alter_streams(broker, on_ttl_timer=lambda self, now: None)


@method_defect(Stream.on_ttl_timer, "JS-PUB-048")
def pub_ttl_of_one_is_for_all(self: Stream, now: int) -> None:
    """When the Nats-TTL of one message is over, the messages without one go too."""
    self.purge(now)


@method_defect(Stream.read_ttl, "JS-PUB-053")
def pub_ttl_takes_any_duration(self: Stream, directives: PublishHeaders) -> int:
    """A Nats-TTL that is below a second, or no duration, is taken for none."""
    try:
        return Stream.read_ttl(self, directives)
    except JetStreamError as error:
        if error.err_code != errors.MESSAGE_TTL_INVALID.err_code:
            raise
        return 0


@method_defect(Stream.begin_lifetime, "JS-PUB-053")
def pub_ttl_of_never_is_none(self: Stream, seq: int, ttl: int, now: int) -> None:
    """Nats-TTL: never is taken for none."""
    Stream.begin_lifetime(self, seq, max(ttl, 0), now)


@method_defect(Stream.check_expected_last_subject_seq, "JS-PUB-086")
def pub_expected_last_subject_sequence_is_that_of_its_own_subject(
    self: Stream, subject: bytes, directives: PublishHeaders
) -> None:
    """Nats-Expected-Last-Subject-Sequence-Subject is passed over."""
    directives = msgspec.structs.replace(directives, expected_last_subject="")
    Stream.check_expected_last_subject_seq(self, subject, directives)


@method_defect(Stream.check_expected_last_subject_seq, "JS-PUB-017")
def pub_refused_rollup_removes_all_the_same(self: Stream, subject: bytes, directives: PublishHeaders) -> None:
    """A message with Nats-Rollup that is refused for its expectation removes what was on its subject."""
    try:
        Stream.check_expected_last_subject_seq(self, subject, directives)
    except JetStreamError:
        if directives.rollup and self.config.allow_rollup_hdrs:
            self.purge(self.jetstream.now, subject)
        raise


@method_defect(Stream.check_expected_last_msg_id, "JS-PUB-020")
def pub_last_message_id_is_the_last_that_there_was(self: Stream, directives: PublishHeaders) -> None:
    """A message without Nats-Msg-Id leaves the last one as it was."""
    if (
        self.last_msg_id
        or self.duplicates.seq_of(directives.expected_last_msg_id, self.jetstream.now) is None
    ):
        Stream.check_expected_last_msg_id(self, directives)
