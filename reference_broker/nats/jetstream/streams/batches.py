"""Atomic batches: messages that a stream keeps aside until the last of them commits all, or none. ADR-50.

Nothing of a batch is in the stream before its commit. One whose numbers have a gap is abandoned at once,
one that is not continued after ``FORGOTTEN_AFTER``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar
from weakref import proxy

import msgspec
from msgspec import Struct

from plumbline.reference_broker.nats.jetstream import advisories, errors
from plumbline.reference_broker.nats.jetstream.streams.admission import Room
from plumbline.reference_broker.nats.jetstream.streams.publish import EXPECTED_LAST_MSG_ID, read_directives
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats.headers import Headers
from plumbline.wire.units import SECOND, read_number

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

BATCH_ID = "Nats-Batch-Id"
BATCH_SEQUENCE = "Nats-Batch-Sequence"
BATCH_COMMIT = "Nats-Batch-Commit"
COMMIT, COMMIT_WITHOUT_THIS = "1", "eob"
MAX_ID_LENGTH = 64
FORGOTTEN_AFTER = 10 * SECOND


class BatchPosition(Struct, frozen=True):
    """What the headers of a message say of its batch. ``sequence`` is None if missing, or no number."""

    batch_id: str
    sequence: int | None
    commit: str | None


def read_batch_position(header_block: bytes) -> BatchPosition | None:
    """None for a message that belongs to no batch."""
    if BATCH_ID.encode() not in header_block:
        return None
    try:
        get = Headers.parse(header_block).get
    except ProtocolError:
        return None
    batch_id, sequence = get(BATCH_ID), get(BATCH_SEQUENCE) or ""
    if not batch_id:
        return None
    return BatchPosition(batch_id, read_number(sequence), get(BATCH_COMMIT))


class StagedMessage(Struct, frozen=True):
    """A message that waits for its batch's commit."""

    subject: bytes
    header_block: bytes
    payload: bytes


def _as_last(message: StagedMessage) -> StagedMessage:
    """The message with the header of the last one of a batch."""
    header_block = message.header_block.removesuffix(b"\r\n") + f"{BATCH_COMMIT}: {COMMIT}\r\n\r\n".encode()
    return StagedMessage(message.subject, header_block, message.payload)


class Batch(Struct):
    """One that is not committed yet; ``last_message_at`` is when its last message came."""

    messages: list[StagedMessage]
    last_message_at: int


class Batches:
    """The open batches of one stream."""

    largest: ClassVar = 1000  # messages of a batch
    most_open: ClassVar = 50

    def __init__(self, stream: Stream) -> None:
        self.stream: Stream = proxy(stream)  # which has this
        self.open: dict[str, Batch] = {}
        self.timer = stream.jetstream.timers.timer(self.forget)

    def accept(
        self, position: BatchPosition, message: StagedMessage, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        """Keep the message aside, or commit: the last stored message and the answer. Raises
        ``JetStreamError``."""
        self.forget(now)
        self.stream.check_size(len(message.header_block), len(message.payload))
        batch = self.batch_of(position, now)
        batch.last_message_at = now
        self.timer.set_earliest(now + FORGOTTEN_AFTER)
        is_marker = self.is_marker(position)
        if position.sequence != len(batch.messages) + 1 or (is_marker and not batch.messages):
            self.abandon(position.batch_id, "incomplete", now)
            raise errors.BATCH_INCOMPLETE()
        if position.sequence - is_marker > self.largest:
            self.abandon(position.batch_id, "large", now)
            raise errors.BATCH_TOO_LARGE(size=self.largest)
        if is_marker:
            batch.messages[-1] = _as_last(batch.messages[-1])
        else:
            batch.messages.append(message)
        if position.commit is None:
            return None, b""
        del self.open[position.batch_id]
        return self.commit(position, batch.messages, now)

    def is_marker(self, position: BatchPosition) -> bool:
        """Whether the message ends its batch and is not part of it."""
        return position.commit == COMMIT_WITHOUT_THIS and self.stream.jetstream.rules.batches_end_with_marker

    def batch_of(self, position: BatchPosition, now: int) -> Batch:
        if not self.stream.config.allow_atomic:
            raise errors.BATCHES_DISABLED()
        if len(position.batch_id) > MAX_ID_LENGTH:
            raise errors.BATCH_ID_INVALID()
        if position.sequence is None:
            raise errors.BATCH_SEQUENCE_MISSING()
        begins = position.sequence == 1 and position.batch_id not in self.open
        if begins and len(self.open) >= self.most_open:
            raise self.too_many()
        return self.open.setdefault(position.batch_id, Batch([], now))

    def too_many(self) -> errors.JetStreamError:
        """Observed: nats-server 2.12 has no error of its own for it."""
        has_own = self.stream.jetstream.rules.batches_end_with_marker
        return errors.BATCHES_TOO_MANY() if has_own else errors.BATCH_INCOMPLETE()

    def commit(
        self, position: BatchPosition, messages: list[StagedMessage], now: int
    ) -> tuple[StoredMessage | None, bytes]:
        """Store all, once every one of them may be stored."""
        stream = self.stream
        if position.commit != COMMIT and not self.is_marker(position):
            raise errors.BATCH_COMMIT_INVALID()
        try:
            for each in messages:
                self.check(each, now)
        finally:
            stream.ahead = Room()
        stored = stream.store.atomically(lambda: self.store_all(messages, now))
        batch_id = msgspec.json.encode(position.batch_id)
        answer = stream.puback % stream.store.last_seq
        return stored, answer[:-1] + b',"batch":%b,"count":%d}' % (batch_id, len(messages))

    def check(self, message: StagedMessage, now: int) -> None:
        """Whether it may be stored behind those that were looked at before. Raises ``JetStreamError``."""
        stream = self.stream
        subject, header_block, payload = message.subject, message.header_block, message.payload
        directives = read_directives(header_block)
        if directives.expected_last_msg_id:
            raise errors.BATCH_HEADER_UNSUPPORTED(header=EXPECTED_LAST_MSG_ID)
        stream.check_increment(directives, payload)
        if stream.counts and not directives.increment:
            raise errors.COUNTER_INCREMENT_MISSING()
        is_again = directives.msg_id in stream.ahead.msg_ids
        if is_again or stream.check_headers(subject, directives, now) is not None:
            raise errors.BATCH_WITH_DUPLICATE()
        if directives.msg_id:
            stream.ahead.msg_ids.add(directives.msg_id)
        stream.check_discard_new(subject, header_block, payload, directives)
        stream.count_ahead(subject, header_block, payload)

    def store_all(self, messages: list[StagedMessage], now: int) -> StoredMessage | None:
        """The last one, if it was stored. None of them is refused any more: they were looked at together."""
        stream = self.stream
        *earlier, last = messages
        for each in earlier:
            stored, _ = stream.store_checked(
                each.subject, each.header_block, each.payload, read_directives(each.header_block), now
            )
            if stored is not None:
                stream.on_stored(stored, now)
        return stream.store_checked(
            last.subject, last.header_block, last.payload, read_directives(last.header_block), now
        )[0]

    def abandon_all(self) -> None:
        """The stream does not take batches any more."""
        self.open.clear()

    def forget(self, now: int) -> None:
        """Give up what had no message for too long."""
        for batch_id in [
            name for name, batch in self.open.items() if batch.last_message_at <= now - FORGOTTEN_AFTER
        ]:
            self.abandon(batch_id, "timeout", now)
        if self.open:
            first = min(batch.last_message_at for batch in self.open.values())
            self.timer.set_earliest(first + FORGOTTEN_AFTER)

    def abandon(self, batch_id: str, reason: str, now: int) -> None:
        """Give up a batch. One of which nothing was accepted was none."""
        if self.open.pop(batch_id).messages:
            advisories.batch_abandoned(self.stream, batch_id, reason, now)
