"""What may enter a stream: sizes, the headers of a publish, duplicates, discard policy ``new``.

Nothing here changes the stream. Source: deep dive, "Streams"; docs.nats.io, "Streams"; answers as observed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.streams import counters
from plumbline.reference_broker.nats.jetstream.streams.config import StreamConfig
from plumbline.reference_broker.nats.jetstream.streams.lifetimes import read_ttl
from plumbline.reference_broker.nats.jetstream.streams.publish import Deduplication, PublishHeaders
from plumbline.reference_broker.nats.jetstream.streams.schedules import (
    as_subject,
    check_schedule,
    check_stop,
)
from plumbline.reference_broker.nats.jetstream.streams.store import Store

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.service import JetStream

MAX_HEADER_BLOCK = 65535


class UnansweredPublishError(Exception):
    """A publish that some servers drop without a word."""


@dataclass
class Room:
    """What messages take that enter a stream together: those of a batch."""

    total: int = 0
    subjects: set[bytes] = field(default_factory=set)
    messages: int = 0  # that take room: the others replace one that is there
    size: int = 0  # bytes
    of_subject: Counter[bytes] = field(default_factory=Counter)
    msg_ids: set[str] = field(default_factory=set)


class StreamAdmission:
    """The rules at the entrance of a stream. ``ahead``: what enters before the message that is looked at."""

    jetstream: JetStream
    config: StreamConfig
    store: Store
    duplicates: Deduplication
    last_msg_id: str
    ahead: Room

    def check_size(self, header_size: int, payload_size: int) -> None:
        if self.config.sealed:
            raise errors.STREAM_SEALED()
        if 0 <= self.config.max_msg_size < header_size + payload_size:
            raise errors.MESSAGE_TOO_LARGE()
        if header_size > MAX_HEADER_BLOCK:
            raise errors.HEADER_TOO_LARGE()

    def check_headers(self, subject: bytes, directives: PublishHeaders, now: int) -> int | None:
        """The sequence of the original, for a duplicate. Raises ``JetStreamError``."""
        self.check_expected_stream(directives)
        self.read_ttl(directives)
        duplicates_come_first = self.jetstream.rules.duplicates_checked_first
        if duplicates_come_first and (original := self.duplicate_of(subject, directives, now)):
            return original
        self.check_expected_last_subject_seq(subject, directives)
        self.check_expected_last_seq(directives)
        self.check_stream_source(directives)
        if not duplicates_come_first and (original := self.duplicate_of(subject, directives, now)):
            return original
        self.check_expected_last_msg_id(directives)
        self.check_schedule(subject, directives, now)
        self.check_rollup(subject, directives.rollup)
        return None

    def check_schedule(self, subject: bytes, directives: PublishHeaders, now: int) -> None:
        rules, config = self.jetstream.rules, self.config
        if not rules.schedules:
            return
        repeats = rules.schedules_repeat
        check_schedule(directives.schedule, subject, directives.rollup, config, now, repeats=repeats)
        if repeats:
            last = self.store.last_of(as_subject(directives.scheduler)) if directives.scheduler else None
            check_stop(directives, subject, last, allowed=config.allow_msg_schedules)

    def check_increment(self, directives: PublishHeaders, payload: bytes) -> None:
        if self.jetstream.rules.counters:
            counters.check_increment(directives, payload, counts=self.config.allow_msg_counter)

    def duplicate_of(self, subject: bytes, directives: PublishHeaders, now: int) -> int | None:
        """Duplicates are looked for on every subject of the stream."""
        return self.duplicates.seq_of(directives.msg_id, now) if directives.msg_id else None

    def check_expected_stream(self, directives: PublishHeaders) -> None:
        if directives.expected_stream not in ("", self.config.name):
            raise errors.EXPECTED_STREAM_MISMATCH()

    def read_ttl(self, directives: PublishHeaders) -> int:
        """The lifetime that a message asks for. Raises ``JetStreamError``."""
        if not directives.ttl or not self.jetstream.rules.message_ttls:
            return 0
        if not self.config.allow_msg_ttl:
            raise errors.MESSAGE_TTL_DISABLED()
        ttl = read_ttl(directives.ttl)
        if ttl is None:
            raise errors.MESSAGE_TTL_INVALID()
        if 0 < ttl < self.config.subject_delete_marker_ttl and self.config.max_msgs_per_subject != 1:
            return self.config.subject_delete_marker_ttl  # no marker is left while one is there
        return ttl

    def check_expected_last_subject_seq(self, subject: bytes, directives: PublishHeaders) -> None:
        if directives.expected_last_subject_seq is None:
            return
        named = directives.expected_last_subject.encode("utf-8", "surrogateescape") or subject
        if named in self.ahead.subjects:
            raise errors.WRONG_LAST_SEQUENCE_IN_BATCH()
        last = self.store.last_of(named)
        last_seq = last.seq if last else 0
        if last_seq != directives.expected_last_subject_seq:
            raise errors.WRONG_LAST_SEQUENCE(seq=last_seq)

    def check_expected_last_seq(self, directives: PublishHeaders) -> None:
        if directives.expected_last_seq is None:
            return
        last_seq = self.store.last_seq + self.ahead.total
        if directives.expected_last_seq != last_seq:
            raise errors.WRONG_LAST_SEQUENCE(seq=last_seq)
        if self.ahead.total:
            raise errors.WRONG_LAST_SEQUENCE_IN_BATCH()

    def check_stream_source(self, directives: PublishHeaders) -> None:
        """Only a server says where a message was copied from."""
        if directives.stream_source and self.jetstream.rules.source_header_is_refused:
            raise errors.SOURCE_HEADER_REFUSED()

    def check_expected_last_msg_id(self, directives: PublishHeaders) -> None:
        if directives.expected_last_msg_id and directives.expected_last_msg_id != self.last_msg_id:
            raise errors.WRONG_LAST_MSG_ID(msg_id=self.last_msg_id)

    def check_rollup(self, subject: bytes, rollup: str) -> None:
        if rollup and not self.config.allow_rollup_hdrs:
            raise errors.ROLLUP_FAILED(reason="rollup not permitted")
        if rollup not in ("", "sub", "all"):
            if not self.jetstream.rules.bad_rollup_gets_error:
                raise UnansweredPublishError
            raise errors.ROLLUP_FAILED(reason=f'rollup value invalid: "{rollup}"')
        if (rollup == "sub" and subject in self.ahead.subjects) or (rollup == "all" and self.ahead.total):
            raise errors.ROLLUP_FAILED(reason=f"batch rollup {rollup} invalid")

    def check_discard_new(
        self, subject: bytes, header_block: bytes, payload: bytes, directives: PublishHeaders
    ) -> None:
        """Discard policy ``new``: a message beyond a limit does not enter. Raises ``JetStreamError``."""
        if self.config.discard != "new":
            return
        self.check_room_of_subject(subject, directives)
        if not self.is_full(subject):  # a message that replaces another needs no room
            self.check_max_msgs()
            self.check_max_bytes(subject, header_block, payload)

    def count_ahead(self, subject: bytes, header_block: bytes, payload: bytes) -> None:
        """The message enters before the next one that is looked at."""
        self.ahead.total += 1
        self.ahead.subjects.add(subject)
        if not self.is_full(subject):
            self.ahead.messages += 1
            self.ahead.size += self.added_bytes(subject, header_block, payload)
            self.ahead.of_subject[subject] += 1

    def is_full(self, subject: bytes) -> bool:
        """Whether max_msgs_per_subject is reached, so that a message replaces the oldest on ``subject``."""
        count = self.store.count_of(subject) + self.ahead.of_subject[subject]
        return 0 < self.config.max_msgs_per_subject <= count

    def check_room_of_subject(self, subject: bytes, directives: PublishHeaders) -> None:
        if self.config.discard_new_per_subject and self.is_full(subject) and not directives.rollup:
            raise errors.STORE_FAILED(reason="maximum messages per subject exceeded")

    def check_max_msgs(self) -> None:
        if 0 < self.config.max_msgs <= len(self.store) + self.ahead.messages:
            raise errors.STORE_FAILED(reason="maximum messages exceeded")

    def check_max_bytes(self, subject: bytes, header_block: bytes, payload: bytes) -> None:
        added = self.added_bytes(subject, header_block, payload)
        if 0 < self.config.max_bytes < self.store.size + self.ahead.size + added:
            raise errors.STORE_FAILED(reason="maximum bytes exceeded")

    def added_bytes(self, subject: bytes, header_block: bytes, payload: bytes) -> int:
        if self.jetstream.rules.max_bytes_counts_overhead:
            return self.store.size_of(subject, header_block, payload)
        return len(header_block) + len(payload)
