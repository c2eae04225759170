"""The schedules of one stream: which subject holds one, when it is due, and publishing it then.

Knows the stream, and sets its timer. A subject holds one schedule at most, its last message; one whose
message is gone is dropped when it would be due. Source: ADR-51, "JetStream Message Scheduler".
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING
from weakref import proxy

from msgspec import Struct

from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.reference_broker.nats.jetstream.streams.publish import (
    PublishHeaders,
    Schedule,
    read_directives,
)
from plumbline.reference_broker.nats.jetstream.streams.schedules import (
    PURGE,
    Occurrence,
    as_subject,
    next_occurrence,
    published_headers,
)
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats.jetstream.times import parse_time

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


class Pending(Struct, frozen=True):
    """A schedule that waits: the sequence of its message, and when it is due."""

    seq: int
    due: int


class Scheduler:
    """The schedules of one stream that are still to come."""

    def __init__(self, stream: Stream) -> None:
        self.stream: Stream = proxy(stream)  # which has this
        self.pending: dict[bytes, Pending] = {}
        self._queue: list[tuple[int, int, bytes]] = []  # when, sequence, subject; some no longer wait
        self.timer = stream.jetstream.timers.timer(self.on_timer)

    def restore(self) -> None:
        """From what is stored. What was due meanwhile is due at once."""
        for message in list(self.stream.store.messages()):
            self.on_stored(message, read_directives(message.header_block))

    def on_stored(self, message: StoredMessage, directives: PublishHeaders) -> None:
        """A message is a schedule, takes the place of one, or says when one is due again."""
        if directives.schedule.pattern:
            occurrence = self.occurrence(directives.schedule, message.time, message.time)
            if occurrence is not None:
                self.wait(message.subject, Pending(message.seq, occurrence.due))
                return
        if not directives.scheduler:
            self.pending.pop(message.subject, None)
        holder = as_subject(directives.scheduler)
        due = parse_time(directives.schedule_next)
        if due is not None and (known := self.pending.get(holder)) is not None:
            self.wait(holder, Pending(known.seq, due))

    def occurrence(self, schedule: Schedule, after: int, now: int) -> Occurrence | None:
        return next_occurrence(schedule, after, now)

    def content(self, message: StoredMessage, schedule: Schedule) -> StoredMessage:
        """The message whose body and headers are published: the last one of its source, or the schedule."""
        source = self.stream.store.last_of(as_subject(schedule.source)) if schedule.source else None
        return source or message

    def wait(self, subject: bytes, pending: Pending) -> None:
        if self.pending.get(subject) == pending:
            return
        self.pending[subject] = pending
        heappush(self._queue, (pending.due, pending.seq, subject))
        self.timer.set_earliest(pending.due)

    def on_timer(self, now: int) -> None:
        for subject in self.take_due(now):
            pending = self.pending.pop(subject)
            message = self.load(pending.seq)
            if message is not None:
                self.publish(message, pending, now)
        if self._queue:
            self.timer.set_earliest(self._queue[0][0])

    def load(self, seq: int) -> StoredMessage | None:
        """The schedule; None if it has been removed."""
        return self.stream.store.load(seq)

    def take_due(self, now: int) -> list[bytes]:
        """The subjects whose schedules are due, in the order in which they were stored."""
        due = []
        while self._queue and self._queue[0][0] <= now:
            when, seq, subject = heappop(self._queue)
            if self.pending.get(subject) == Pending(seq, when):
                due.append((seq, subject))
        return [subject for _, subject in sorted(due)]

    def publish(self, message: StoredMessage, pending: Pending, now: int) -> None:
        """The stream takes it as any message; what it refuses is not published, and its schedule ends."""
        stream, subject = self.stream, message.subject
        schedule = read_directives(message.header_block).schedule
        occurrence = self.occurrence(schedule, pending.due, now)
        if occurrence is None:
            return
        content = self.content(message, schedule)
        after = occurrence.due if occurrence.repeats else None
        try:
            headers = published_headers(content, subject, schedule, after)
        except ProtocolError:
            return
        if after is not None:
            self.wait(subject, Pending(pending.seq, after))
        payload, target = content.payload, as_subject(schedule.target)
        try:
            stored = stream.store.atomically(lambda: stream.store_scheduled(target, headers, payload, now))
        except JetStreamError:
            self.pending.pop(subject, None)
            return
        if stored is not None:
            stream.on_stored(stored, now)


def ends_schedule(directives: PublishHeaders) -> bytes:
    """The subject whose schedule a stored message ends; empty for none."""
    return as_subject(directives.scheduler) if directives.schedule_next == PURGE else b""
