"""The position of a consumer in its stream: deliver policies, and the next matching message.

Source: deep dive, "Consumer Starting Position".
"""

from __future__ import annotations

from collections import deque

from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.rules import Rules
from plumbline.reference_broker.nats.jetstream.streams.store import Store, StoredMessage, SubjectTest
from plumbline.reference_broker.nats.jetstream.subjects import matcher
from plumbline.wire.nats.jetstream.times import parse_time


class ConsumerPosition:
    """``next_seq`` is the stream sequence to look at next.

    ``listed`` are sequences to deliver first (last_per_subject).
    """

    __slots__ = ("listed", "next_seq", "resume")

    def __init__(self, next_seq: int, listed: list[int] | None = None, resume: int = 0) -> None:
        self.next_seq = next_seq
        self.listed = deque(listed or ())
        self.resume = resume

    def next(self, store: Store, subject_filter: SubjectTest | None) -> StoredMessage | None:
        """The next message to deliver for the first time; what cannot match is passed at once."""
        while self.listed:
            message = store.load(self.listed[0])
            if message is not None:
                return message
            self.passed(self.listed[0])
        message = store.next(self.next_seq, subject_filter)
        if message is None:
            self.next_seq = max(self.next_seq, store.last_seq + 1)
        return message

    def passed(self, seq: int) -> None:
        if self.listed:
            self.listed.popleft()
            seq = seq if self.listed else max(seq, self.resume)
        self.next_seq = max(self.next_seq, seq + 1)

    def not_before(self, seq: int) -> None:
        """After a purge: nothing below ``seq`` is left."""
        while self.listed and self.listed[0] < seq:
            self.passed(self.listed[0])
        self.next_seq = max(self.next_seq, seq)

    def not_after(self, seq: int) -> None:
        """The stream has lost its end: what comes next is ``seq`` at the latest."""
        self.listed = deque(each for each in self.listed if each < seq)
        self.next_seq, self.resume = min(self.next_seq, seq), min(self.resume, seq - 1)


def starting_position(config: ConsumerConfig, store: Store, rules: Rules) -> ConsumerPosition:
    """Where a new consumer starts."""
    subject_filter = matcher(config.filters) if config.filters else None
    if config.deliver_policy == "last_per_subject":
        listed = _last_of_each(store, subject_filter)
        first = listed[0] if listed else store.last_seq
        return ConsumerPosition(_within(first, store), listed, store.last_seq)
    if config.deliver_policy == "by_start_sequence":
        first = max(config.opt_start_seq, store.first_seq, 1)
        return ConsumerPosition(first if rules.start_beyond_end_waits else _within(first, store))
    return ConsumerPosition(_within(_first_seq(config, store, subject_filter), store))


def _first_seq(config: ConsumerConfig, store: Store, subject_filter: SubjectTest | None) -> int:
    match config.deliver_policy:
        case "last":
            if subject_filter is None:
                return store.last_seq  # also where that message was deleted
            matching = [
                seq for subject in store.subjects() if (seq := _last_seq(store, subject, subject_filter))
            ]
            return max(matching, default=store.last_seq + 1)
        case "new":
            return store.last_seq + 1
        case "by_start_time":
            moment = parse_time(config.opt_start_time or "") or 0
            return next((m.seq for m in store.messages() if m.time >= moment), store.last_seq + 1)
    return store.first_seq


def _within(seq: int, store: Store) -> int:
    """Never before what there is, never after what comes next; an empty stream starts at 1."""
    if not store.first_seq:
        return 1
    return min(max(seq, store.first_seq), store.last_seq + 1)


def _last_seq(store: Store, subject: bytes, subject_filter: SubjectTest | None) -> int | None:
    if subject_filter is not None and not subject_filter(subject):
        return None
    message = store.last_of(subject)
    return message.seq if message else None


def _last_of_each(store: Store, subject_filter: SubjectTest | None) -> list[int]:
    return sorted(seq for subject in store.subjects() if (seq := _last_seq(store, subject, subject_filter)))


def deliveries_pending(position: ConsumerPosition, store: Store, subject_filter: SubjectTest | None) -> int:
    """num_pending, counted again."""
    if position.listed:
        later = sum(
            subject_filter is None or subject_filter(m.subject) for m in store.messages(position.resume + 1)
        )
        return len(position.listed) + later
    if subject_filter is None and position.next_seq <= store.first_seq:
        return len(store)
    return sum(
        subject_filter is None or subject_filter(message.subject)
        for message in store.messages(position.next_seq)
    )
