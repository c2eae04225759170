"""Where a stream keeps its messages: numbers them, holds them, finds them; the rules are the stream's.

``Store`` is the interface; ``MemoryStore`` also takes the place of file storage, with its record sizes, where
the broker has no folder; ``files.store.FileStore`` writes down what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from msgspec import Struct

T = TypeVar("T")
SubjectTest = Callable[[bytes], bool]
SizeOf = Callable[[bytes, bytes, bytes], int]
SHORT_WALK = 100  # sequences


class StoredMessage(Struct, gc=False):
    """One stored message; ``time`` in nanoseconds since the epoch."""

    seq: int
    subject: bytes
    header_block: bytes
    payload: bytes
    time: int


def memory_record_size(subject: bytes, header_block: bytes, payload: bytes) -> int:
    """Observed: subject, headers and payload, plus two 8-byte numbers."""
    return len(subject) + len(header_block) + len(payload) + 16


def file_record_size(subject: bytes, header_block: bytes, payload: bytes) -> int:
    """Deep dive, "Storage Overhead": 22 bytes of head, 8 of checksum, and 4 more for a header's length."""
    size = 22 + len(subject) + len(payload) + 8
    return size + 4 + len(header_block) if header_block else size


class Store(Protocol):
    """What a stream asks of its storage.

    An empty store has ``first_seq == last_seq + 1``, a fresh one 0 and 0.
    """

    first_seq: int
    last_seq: int
    last_time: int | None
    size: int  # bytes, as the API counts them

    def __len__(self) -> int: ...
    def append(self, subject: bytes, header_block: bytes, payload: bytes, now: int) -> StoredMessage: ...
    def skip(self) -> int:
        """Use up a sequence number without storing anything; the number."""
        ...

    def load(self, seq: int) -> StoredMessage | None: ...
    def next(self, start: int, subject_filter: SubjectTest | None) -> StoredMessage | None:
        """The first message from ``start`` on whose subject is ``subject_filter``."""
        ...

    def last_of(self, subject: bytes) -> StoredMessage | None: ...
    def first_of(self, subject: bytes) -> StoredMessage | None: ...
    def count_of(self, subject: bytes) -> int: ...
    def subjects(self) -> Iterator[bytes]: ...
    def messages(self, start: int = 0) -> Iterator[StoredMessage]:
        """In order, from ``start`` on."""
        ...

    def remove(self, seq: int) -> StoredMessage | None: ...
    def restart_at(self, seq: int) -> None:
        """Drop everything; the next message gets ``seq``."""
        ...

    def atomically(self, change: Callable[[], T]) -> T:
        """Run ``change``, of which all outlives the broker, or nothing."""
        ...

    def size_of(self, subject: bytes, header_block: bytes, payload: bytes) -> int: ...


class _Subject(Struct):
    """What is known of one subject's messages; ``first`` may lag behind removals, ``last`` may run ahead."""

    count: int
    first: int
    last: int


class MemoryStore:
    """Messages in a dict by sequence, and a little index by subject."""

    def __init__(self, size_of: SizeOf) -> None:
        self.size_of = size_of
        self.first_seq = 0
        self.last_seq = 0
        self.last_time: int | None = None
        self.size = 0
        self._messages: dict[int, StoredMessage] = {}
        self._subjects: dict[bytes, _Subject] = {}
        self.load = self._messages.get

    def __len__(self) -> int:
        return len(self._messages)

    def append(self, subject: bytes, header_block: bytes, payload: bytes, now: int) -> StoredMessage:
        seq = self.last_seq = self.last_seq + 1
        message = StoredMessage(seq, subject, header_block, payload, now)
        if not self._messages:
            self.first_seq = seq
        self._messages[seq] = message
        self.last_time = now
        self.size += self.size_of(subject, header_block, payload)
        known = self._subjects.get(subject)
        if known is None:
            self._subjects[subject] = _Subject(1, seq, seq)
        else:
            known.count += 1
            known.last = seq
        return message

    def skip(self) -> int:
        self.last_seq += 1
        if not self._messages:
            self.first_seq = self.last_seq + 1
        return self.last_seq

    def next(self, start: int, subject_filter: SubjectTest | None) -> StoredMessage | None:
        load, seq, last_seq = self.load, max(start, self.first_seq), self.last_seq
        while seq <= last_seq:
            message = load(seq)
            if message is None:
                seq = self._stored_from(seq)
            elif subject_filter is None or subject_filter(message.subject):
                return message
            else:
                seq += 1
        return None

    def messages(self, start: int = 0) -> Iterator[StoredMessage]:
        load, seq, last_seq = self.load, max(start, self.first_seq), self.last_seq
        while seq <= last_seq:
            message = load(seq)
            if message is None:
                seq = self._stored_from(seq)
            else:
                yield message
                seq += 1

    def subjects(self) -> Iterator[bytes]:
        return iter(self._subjects)

    def count_of(self, subject: bytes) -> int:
        known = self._subjects.get(subject)
        return known.count if known else 0

    def first_of(self, subject: bytes) -> StoredMessage | None:
        known = self._subjects.get(subject)
        if known is None:
            return None
        known.first = max(known.first, self.first_seq)
        while (message := self.load(known.first)) is None or message.subject != subject:
            known.first = self._stored_from(known.first + 1)
        return message

    def last_of(self, subject: bytes) -> StoredMessage | None:
        known = self._subjects.get(subject)
        if known is None:
            return None
        while (message := self.load(known.last)) is None or message.subject != subject:
            known.last = self._stored_until(known.last - 1)
        return message

    def remove(self, seq: int) -> StoredMessage | None:
        message = self._messages.pop(seq, None)
        if message is None:
            return None
        self.size -= self.size_of(message.subject, message.header_block, message.payload)
        known = self._subjects[message.subject]
        known.count -= 1
        if not known.count:
            del self._subjects[message.subject]
        if seq == self.first_seq:
            self._advance_first()
        return message

    def restart_at(self, seq: int) -> None:
        self._messages.clear()
        self._subjects.clear()
        self.size = 0
        self.first_seq = seq
        self.last_seq = seq - 1

    def atomically(self, change: Callable[[], T]) -> T:
        return change()

    def _advance_first(self) -> None:
        if not self._messages:
            self.first_seq = self.last_seq + 1
            return
        self.first_seq = self._stored_from(self.first_seq + 1)

    # A gap may be long: a file can say that two messages have any sequences. So where a walk over sequences
    # would take longer than a look at every message, every message is looked at.

    def _stored_from(self, start: int) -> int:
        """The first sequence from ``start`` on that has a message, or the one after the last."""
        load, end = self.load, self.last_seq + 1
        for seq in range(start, min(start + self._longest_walk(), end)):
            if load(seq) is not None:
                return seq
        return min((seq for seq in self._messages if seq >= start), default=end)

    def _stored_until(self, end: int) -> int:
        """The last sequence up to ``end`` that has a message, or the one before the first."""
        load = self.load
        for seq in range(end, max(end - self._longest_walk(), self.first_seq - 1), -1):
            if load(seq) is not None:
                return seq
        return max((seq for seq in self._messages if seq <= end), default=self.first_seq - 1)

    def _longest_walk(self) -> int:
        return max(SHORT_WALK, len(self._messages))
