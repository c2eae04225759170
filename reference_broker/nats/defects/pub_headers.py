"""Defects of the headers that ask a stream to check or do something; the rules stand in ``admission``."""

from __future__ import annotations

from typing import Any

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.jetstream_parts import alter_streams, jetstream_defect
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.reference_broker.nats.jetstream.streams import admission
from plumbline.reference_broker.nats.jetstream.streams.publish import Directives
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


def _before_checks(broker: Broker, **changed: Any) -> None:
    """The headers are read otherwise: every one of ``changed`` that is present gets this value."""

    def check_headers(self: Stream, subject: bytes, directives: Directives, now: int) -> int | None:
        present = {
            name: value for name, value in changed.items() if getattr(directives, name) not in ("", None)
        }
        return Stream.check_headers(self, subject, msgspec.structs.replace(directives, **present), now)

    alter_streams(broker, check_headers=check_headers)


@jetstream_defect(
    "pub-expected-stream-is-ignored", breaks=("JS-PUB-011",), summary="Nats-Expected-Stream is ignored."
)
def _(broker: Broker) -> None:
    _before_checks(broker, expected_stream="")


@jetstream_defect(
    "pub-expected-stream-has-another-code",
    breaks=("JS-PUB-011",),
    summary="A wrong Nats-Expected-Stream is refused with err_code 10071.",
)
def _(broker: Broker) -> None:
    def check_expected_stream(self: Stream, directives: Directives) -> None:
        try:
            Stream.check_expected_stream(self, directives)
        except JetStreamError:
            raise errors.WRONG_LAST_SEQUENCE(seq=self.store.last_seq) from None

    alter_streams(broker, check_expected_stream=check_expected_stream)


@jetstream_defect(
    "pub-refusal-without-stream", breaks=("JS-PUB-012",), summary="A refusal does not name the stream."
)
def _(broker: Broker) -> None:
    def refusal(self: Stream, error: JetStreamError) -> bytes:
        return self.jetstream.encode({"error": error.reply(), "seq": 0})

    alter_streams(broker, refusal=refusal)


@jetstream_defect(
    "pub-refusal-is-a-text", breaks=("JS-PUB-012",), summary="The error of a refusal is a text."
)
def _(broker: Broker) -> None:
    def refusal(self: Stream, error: JetStreamError) -> bytes:
        return self.jetstream.encode({"error": error.description, "stream": self.config.name, "seq": 0})

    alter_streams(broker, refusal=refusal)


@jetstream_defect(
    "pub-expected-stream-is-never-met",
    breaks=("JS-PUB-013",),
    summary="Nats-Expected-Stream is refused even where it is right.",
)
def _(broker: Broker) -> None:
    _before_checks(broker, expected_stream="?")


@jetstream_defect(
    "pub-expected-last-sequence-is-ignored",
    breaks=("JS-PUB-014",),
    summary="Nats-Expected-Last-Sequence is ignored.",
)
def _(broker: Broker) -> None:
    _before_checks(broker, expected_last_seq=None)


@jetstream_defect(
    "pub-expected-last-sequence-may-lie-ahead",
    breaks=("JS-PUB-014",),
    summary="Nats-Expected-Last-Sequence is refused only if it is too low.",
)
def _(broker: Broker) -> None:
    def check_expected_last_seq(self: Stream, directives: Directives) -> None:
        if directives.expected_last_seq is not None and directives.expected_last_seq < self.store.last_seq:
            Stream.check_expected_last_seq(self, directives)

    alter_streams(broker, check_expected_last_seq=check_expected_last_seq)


@jetstream_defect(
    "pub-expected-last-sequence-counts-messages",
    breaks=("JS-PUB-015",),
    summary="Nats-Expected-Last-Sequence is compared with the next sequence.",
)
def _(broker: Broker) -> None:
    def check_expected_last_seq(self: Stream, directives: Directives) -> None:
        if directives.expected_last_seq not in (None, self.store.last_seq + 1):
            raise errors.WRONG_LAST_SEQUENCE(seq=self.store.last_seq)

    alter_streams(broker, check_expected_last_seq=check_expected_last_seq)


@jetstream_defect(
    "pub-expected-last-sequence-of-zero-is-none",
    breaks=("JS-PUB-016",),
    summary="Nats-Expected-Last-Sequence 0 is taken for no expectation.",
)
def _(broker: Broker) -> None:
    def check_expected_last_seq(self: Stream, directives: Directives) -> None:
        if directives.expected_last_seq:
            Stream.check_expected_last_seq(self, directives)

    alter_streams(broker, check_expected_last_seq=check_expected_last_seq)


@jetstream_defect(
    "pub-expected-last-subject-sequence-is-of-the-stream",
    breaks=("JS-PUB-017", "JS-PUB-018"),
    summary="Nats-Expected-Last-Subject-Sequence is compared with the last sequence of the stream.",
)
def _(broker: Broker) -> None:
    def check_expected_last_subject_seq(self: Stream, subject: bytes, directives: Directives) -> None:
        if directives.expected_last_subject_seq not in (None, self.store.last_seq):
            raise errors.WRONG_LAST_SEQUENCE(seq=self.store.last_seq)

    alter_streams(broker, check_expected_last_subject_seq=check_expected_last_subject_seq)


@jetstream_defect(
    "pub-expected-last-subject-sequence-of-zero-is-none",
    breaks=("JS-PUB-019",),
    summary="Nats-Expected-Last-Subject-Sequence 0 is taken for no expectation.",
)
def _(broker: Broker) -> None:
    def check_expected_last_subject_seq(self: Stream, subject: bytes, directives: Directives) -> None:
        if directives.expected_last_subject_seq:
            Stream.check_expected_last_subject_seq(self, subject, directives)

    alter_streams(broker, check_expected_last_subject_seq=check_expected_last_subject_seq)


@jetstream_defect(
    "pub-expected-last-subject-sequence-of-zero-is-refused",
    breaks=("JS-PUB-018",),
    summary="Nats-Expected-Last-Subject-Sequence 0 is refused for a fresh subject.",
)
def _(broker: Broker) -> None:
    def check_expected_last_subject_seq(self: Stream, subject: bytes, directives: Directives) -> None:
        if directives.expected_last_subject_seq == 0 and not self.store.count_of(subject):
            raise errors.WRONG_LAST_SEQUENCE(seq=0)
        Stream.check_expected_last_subject_seq(self, subject, directives)

    alter_streams(broker, check_expected_last_subject_seq=check_expected_last_subject_seq)


@jetstream_defect(
    "pub-expected-last-message-id-is-ignored",
    breaks=("JS-PUB-020",),
    summary="Nats-Expected-Last-Msg-Id is ignored.",
)
def _(broker: Broker) -> None:
    _before_checks(broker, expected_last_msg_id="")


@jetstream_defect(
    "pub-expected-last-message-id-is-never-met",
    breaks=("JS-PUB-021",),
    summary="Nats-Expected-Last-Msg-Id is refused even where it is right.",
)
def _(broker: Broker) -> None:
    _before_checks(broker, expected_last_msg_id="?")


@jetstream_defect(
    "pub-duplicate-with-a-wrong-expectation-is-stored",
    breaks=("JS-PUB-022",),
    summary="A duplicate that has an expectation as well is stored.",
)
def _(broker: Broker) -> None:
    def check_headers(self: Stream, subject: bytes, directives: Directives, now: int) -> int | None:
        if directives.msg_id and directives.expected_last_seq is not None:
            return None
        return Stream.check_headers(self, subject, directives, now)

    alter_streams(broker, check_headers=check_headers)


@jetstream_defect(
    "pub-any-header-size", breaks=("JS-PUB-024",), summary="Header blocks over 64 KiB are stored."
)
def _(broker: Broker) -> None:
    def check_size(self: Stream, header_size: int, payload_size: int) -> None:
        Stream.check_size(self, min(header_size, admission.MAX_HEADER_BLOCK), payload_size)

    alter_streams(broker, check_size=check_size)


@jetstream_defect(
    "pub-rollup-needs-no-permission", breaks=("JS-PUB-025",), summary="allow_rollup_hdrs is not asked for."
)
def _(broker: Broker) -> None:
    alter_streams(broker, check_rollup=lambda self, rollup: None)


@jetstream_defect(
    "pub-rollup-of-a-subject-takes-all",
    breaks=("JS-PUB-026",),
    summary="Nats-Rollup: sub removes the messages of every subject.",
)
def _(broker: Broker) -> None:
    _roll_up_as(broker, {"sub": "all"})


@jetstream_defect(
    "pub-rollup-of-a-subject-takes-nothing", breaks=("JS-PUB-026",), summary="Nats-Rollup: sub does nothing."
)
def _(broker: Broker) -> None:
    _roll_up_as(broker, {"sub": ""})


@jetstream_defect(
    "pub-rollup-of-all-takes-a-subject",
    breaks=("JS-PUB-027",),
    summary="Nats-Rollup: all removes only the messages of its own subject.",
)
def _(broker: Broker) -> None:
    _roll_up_as(broker, {"all": "sub"})


def _roll_up_as(broker: Broker, meanings: dict[str, str]) -> None:
    def roll_up(self: Stream, subject: bytes, rollup: str, now: int) -> None:
        Stream.roll_up(self, subject, meanings.get(rollup, rollup), now)

    alter_streams(broker, roll_up=roll_up)


@jetstream_defect(
    "pub-unknown-rollup-is-stored", breaks=("JS-PUB-028",), summary="An unknown Nats-Rollup is ignored."
)
def _(broker: Broker) -> None:
    def check_rollup(self: Stream, rollup: str) -> None:
        Stream.check_rollup(self, rollup if rollup in ("sub", "all") else "")

    alter_streams(broker, check_rollup=check_rollup)


@jetstream_defect(
    "pub-ttl-needs-no-permission",
    breaks=("JS-PUB-029",),
    summary="Nats-TTL is ignored without allow_msg_ttl.",
)
def _(broker: Broker) -> None:
    def read_ttl(self: Stream, directives: Directives) -> int:
        return Stream.read_ttl(self, directives) if self.config.allow_msg_ttl else 0

    alter_streams(broker, read_ttl=read_ttl)


@jetstream_defect("pub-ttl-is-ignored", breaks=("JS-PUB-048",), summary="Nats-TTL removes no message.")
def _(broker: Broker) -> None:
    alter_streams(broker, lifetimes_end=lambda self, now: None)


@jetstream_defect(
    "pub-ttl-of-one-is-for-all",
    breaks=("JS-PUB-048",),
    summary="When the Nats-TTL of one message is over, the messages without one go too.",
)
def _(broker: Broker) -> None:
    def lifetimes_end(self: Stream, now: int) -> None:
        self.purge(now)

    alter_streams(broker, lifetimes_end=lifetimes_end)


@jetstream_defect(
    "pub-ttl-takes-any-duration",
    breaks=("JS-PUB-053",),
    summary="A Nats-TTL that is below a second, or no duration, is taken for none.",
)
def _(broker: Broker) -> None:
    def read_ttl(self: Stream, directives: Directives) -> int:
        try:
            return Stream.read_ttl(self, directives)
        except JetStreamError as error:
            if error.err_code != errors.MESSAGE_TTL_INVALID.err_code:
                raise
            return 0

    alter_streams(broker, read_ttl=read_ttl)


@jetstream_defect(
    "pub-ttl-of-never-is-none", breaks=("JS-PUB-053",), summary="Nats-TTL: never is taken for none."
)
def _(broker: Broker) -> None:
    def begin_lifetime(self: Stream, seq: int, ttl: int, now: int) -> None:
        Stream.begin_lifetime(self, seq, max(ttl, 0), now)

    alter_streams(broker, begin_lifetime=begin_lifetime)
