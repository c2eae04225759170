"""A stream: storing messages, enforcing limits, and its consumers.

Numbers and messages are kept by the ``store``; what may enter at all is for ``admission`` to say; this module
holds the rules of limits and retention. Source: deep dive, "Streams"; docs.nats.io, "Streams"; answers as
observed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import structs

from plumbline.bounds import MAX_MIRROR_GAP
from plumbline.reference_broker.nats.jetstream import advisories, errors
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig, check_workqueue
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.reference_broker.nats.jetstream.streams import copying, counters, markers
from plumbline.reference_broker.nats.jetstream.streams.admission import (
    Room,
    StreamAdmission,
    UnansweredPublishError,
)
from plumbline.reference_broker.nats.jetstream.streams.batches import (
    Batches,
    StagedMessage,
    read_batch_position,
)
from plumbline.reference_broker.nats.jetstream.streams.config import StreamConfig
from plumbline.reference_broker.nats.jetstream.streams.lifetimes import Lifetimes
from plumbline.reference_broker.nats.jetstream.streams.mapping import mapping, mapping_ends
from plumbline.reference_broker.nats.jetstream.streams.origins import stored_subject
from plumbline.reference_broker.nats.jetstream.streams.publish import (
    ROLLUP,
    Deduplication,
    PublishHeaders,
    read_directives,
)
from plumbline.reference_broker.nats.jetstream.streams.scheduler import Scheduler, ends_schedule
from plumbline.reference_broker.nats.jetstream.streams.store import (
    MemoryStore,
    Store,
    StoredMessage,
    file_record_size,
    memory_record_size,
)
from plumbline.reference_broker.nats.jetstream.subjects import matcher
from plumbline.wire.nats.headers import append_headers

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.service import JetStream


class Stream(StreamAdmission):
    """One stream of the account."""

    scheduler_type: type[Scheduler] = Scheduler

    def __init__(self, jetstream: JetStream, config: StreamConfig, now: int) -> None:
        self.jetstream = jetstream
        self.config = config
        self.created = now
        self.files = jetstream.files_of(config)
        self.store = self.open_store()
        self.consumers: dict[str, Consumer] = {}
        self.copies: list[Stream] = []  # who copies from here
        self.duplicates = Deduplication(config.duplicate_window)
        self.batches = Batches(self)
        self.ahead = Room()
        self.last_msg_id = ""
        self.age_timer = jetstream.timers.timer(self.on_age_timer)
        self.lifetimes = Lifetimes()
        self.lifetime_timer = jetstream.timers.timer(self.on_ttl_timer)
        self.scheduler: Scheduler | None = None
        self.derive_settings()
        if config.first_seq > 1 and jetstream.rules.extended_stream_config:
            self.store.restart_at(config.first_seq)
        self.save()

    def open_store(self) -> Store:
        if self.files is not None:
            return self.files.open_store()
        return MemoryStore(file_record_size if self.config.storage == "file" else memory_record_size)

    def save(self) -> None:
        """What is configured outlives the broker, where there are files."""
        if self.files is not None:
            self.files.save(self)

    def derive_settings(self) -> None:
        """Work out once what every publish asks."""
        config, rules = self.config, self.jetstream.rules
        blank = " " if rules.puback_has_space else ""
        domain = self.jetstream.config.domain
        names = f'"stream":"{config.name}",{blank}' + (f'"domain":"{domain}",{blank}' if domain else "")
        self.puback = f'{{{names}"seq":%d}}'.encode()
        self.puback_of_counter = f'{{{names}"seq":%d,{blank}"val":"%d"}}'.encode()
        self.duplicate_puback = f'{{{names}"seq":%d,"duplicate": true}}'.encode()
        self._limited = (
            max(config.max_msgs, config.max_bytes, config.max_msgs_per_subject, config.max_age) > 0
        )
        self.counts = config.allow_msg_counter and rules.counters
        self._sized = config.max_msg_size >= 0 or config.sealed
        self.needs_interest = config.retention == "interest"
        self.set_scheduler()
        self._looks_closer = self._limited or self._sized or self.counts or self.scheduler is not None
        transform = config.subject_transform if rules.extended_stream_config else None
        self.transform = mapping(*mapping_ends(transform)) if transform else None
        self.republish = copying.Republish(self) if config.republish else None
        self._looks_closer = self._looks_closer or self.republish is not None

    def set_scheduler(self) -> None:
        """One that has begun to schedule goes on: it can not be disabled."""
        if self.scheduler is None and self.config.allow_msg_schedules and self.jetstream.rules.schedules:
            self.scheduler = self.scheduler_type(self)
            self.scheduler.restore()

    def reconfigure(self, config: StreamConfig, now: int) -> None:
        turns_to_interest = config.retention == "interest" != self.config.retention
        self.config = config
        self.duplicates.window = config.duplicate_window
        self.derive_settings()
        if not config.allow_atomic:
            self.batches.abandon_all()
        if turns_to_interest:
            self.release_acknowledged()
        self.enforce_limits(None, now)
        self.on_age_timer(now)
        self.save()

    # Publishing

    def subject_on_entry(self, subject: bytes) -> bytes:
        """What ``subject_transform`` makes of the subject of a message, wherever it comes from (ADR-36)."""
        return subject if self.transform is None else self.transform(subject) or subject

    def publish(
        self, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes, now: int
    ) -> None:
        """A client's message on one of the stream's subjects: store it, acknowledge it, pass it on."""
        message = None
        subject = self.subject_on_entry(subject)
        try:
            if header_block or self._looks_closer or self.needs_interest:
                message, answer = self.accept(subject, header_block, payload, now)
            else:
                message = self.store.append(subject, header_block, payload, now)
                answer = self.puback % message.seq
                self.last_msg_id = ""
        except JetStreamError as error:
            answer = self.refusal(error)
        except UnansweredPublishError:
            return
        if reply is not None and not self.config.no_ack:
            self.jetstream.host.publish(reply, None, b"", answer)
        if message is not None:
            self.on_stored(message, now)

    def on_stored(self, message: StoredMessage, now: int) -> None:
        """A message is in: consumers, copies and republishing get to know."""
        for consumer in tuple(self.consumers.values()):
            consumer.on_stored(message, now)
        if self.republish is None and not self.copies:
            return
        route = self.jetstream.route
        with route.passing(self):
            if self.republish is not None:
                self.republish.send(message, now)
            for stream in self.copies:
                if route.may_enter(stream):
                    copying.copy(self, stream, message, now)

    def append(self, subject: bytes, header_block: bytes, payload: bytes, time: int) -> StoredMessage:
        """Store a message, of which ``on_stored`` is to follow."""
        if self.republish is not None:
            self.republish.note_last(subject)
        return self.store.append(subject, header_block, payload, time)

    def store_mirrored(self, message: StoredMessage) -> StoredMessage | None:
        """A message of the origin, stored under its sequence; None if it is not taken, or is here already."""
        store, mirror = self.store, self.config.mirror or {}
        if message.seq <= store.last_seq or message.seq < copying.starts_at(mirror):
            return None
        if (subject := stored_subject(mirror, message.subject)) is None:
            return None
        if len(store) and message.seq > store.last_seq + MAX_MIRROR_GAP:
            return None
        if not len(store):
            store.restart_at(message.seq)
        while store.last_seq < message.seq - 1:
            store.skip()
        subject = self.subject_on_entry(subject)
        header_block = copying.unconditional(message).header_block
        stored = self.append(subject, header_block, message.payload, message.time)
        self.begin_copied_lifetime(stored)
        return stored

    def restore_message(self, message: StoredMessage) -> None:
        """A message of a snapshot, stored as it was."""
        stored = self.store.append(message.subject, message.header_block, message.payload, message.time)
        directives = read_directives(message.header_block)
        self.last_msg_id = directives.msg_id
        self.begin_copied_lifetime(stored)
        if self.scheduler is not None:
            self.scheduler.on_stored(stored, directives)

    def direct_responders(self) -> list[Stream]:
        """The streams of which one answers a DIRECT.GET: itself, and its mirrors with ``mirror_direct``
        (ADR-31, "Extended feature: MIRROR Direct Get responders")."""
        mirrors = [each for each in self.copies if each.config.mirror is not None]
        return [self, *(each for each in mirrors if each.config.mirror_direct)]

    def sources_that_take(self, origin: str, message: StoredMessage) -> Iterable[dict[str, Any]]:
        """The sources of this stream that take a message of the stream ``origin``: several may."""
        return copying.matching_sources(self.config.sources or (), origin, message)

    def store_sourced(self, source: dict[str, Any], message: StoredMessage, now: int) -> StoredMessage | None:
        """A message that a source takes, stored as a new one that says where it came from."""
        name = source["name"]
        header_block = copying.with_source(self, source, copying.unconditional(message))
        subject = self.subject_on_entry(stored_subject(source, message.subject) or message.subject)
        payload = message.payload
        if self.counts:
            try:
                header_block, value = counters.added_from(
                    self.store.last_of(subject), header_block, name, message
                )
            except JetStreamError:  # no counter: nothing that could be added
                return None
            payload = counters.body(value)
        stored = self.append(subject, header_block, payload, now)
        self.begin_copied_lifetime(stored)
        return stored

    def take_new_sources(self, before: Iterable[dict[str, Any]], now: int) -> None:
        """An update gave the stream sources that are not among those of ``before``."""
        copying.catch_up_with_new_sources(self, before, now)

    def last_copied(self, origin: str) -> int:
        """The highest sequence of ``origin`` among the messages of this stream; 0 if it has none of them."""
        copied = (copying.copied_sequence(message.header_block) for message in self.store.messages())
        return max((one[1] for one in copied if one is not None and one[0] == origin), default=0)

    def begin_copied_lifetime(self, stored: StoredMessage) -> None:
        """Of a message that was not published to this stream: without ``allow_msg_ttl``, or with a value
        that is none, it just stays (ADR-43, "Sources and Mirrors")."""
        if self.config.allow_msg_ttl:
            with contextlib.suppress(JetStreamError):
                ttl = self.read_ttl(read_directives(stored.header_block))
                self.begin_lifetime(stored.seq, ttl, stored.time)

    def refusal(self, error: JetStreamError) -> bytes:
        fields = {"error": error.reply(), "stream": self.config.name, "seq": 0}
        return self.jetstream.encode(fields)

    def accept(
        self, subject: bytes, header_block: bytes, payload: bytes, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        """The stored message, if it was stored, and the answer. Raises ``JetStreamError``."""
        part = read_batch_position(header_block) if self.jetstream.rules.atomic_batches else None
        if part is not None:
            return self.batches.accept(part, StagedMessage(subject, header_block, payload), now)
        return self.accept_one(subject, header_block, payload, now)

    def accept_one(
        self, subject: bytes, header_block: bytes, payload: bytes, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        """The same, for a message by itself."""
        size_comes_first = self.jetstream.rules.size_checked_first
        if size_comes_first:
            self.check_size(len(header_block), len(payload))
        directives = read_directives(header_block)
        self.check_increment(directives, payload)
        if (duplicate := self.check_headers(subject, directives, now)) is not None:
            return None, self.duplicate_puback % duplicate
        if not size_comes_first:
            self.check_size(len(header_block), len(payload))
        return self.store_checked(subject, header_block, payload, directives, now)

    def store_checked(
        self, subject: bytes, header_block: bytes, payload: bytes, directives: PublishHeaders, now: int
    ) -> tuple[StoredMessage | None, bytes]:
        """The same, for one whose headers let it in."""
        if directives.schedule.pattern and self.config.allow_msg_schedules:
            header_block, directives = self.as_only_schedule(header_block, directives)
        value = None
        if self.counts:
            header_block, value = self.add(subject, header_block, directives)
            payload = counters.body(value)
            self.check_size(len(header_block), len(payload))
        message, seq = self.store_one(subject, header_block, payload, directives, now)
        return message, self.puback % seq if value is None else self.puback_of_counter % (seq, value)

    def store_scheduled(
        self, subject: bytes, header_block: bytes, payload: bytes, now: int
    ) -> StoredMessage | None:
        """What a schedule of this stream publishes; None without interest. Raises ``JetStreamError``."""
        self.check_size(len(header_block), len(payload))
        directives = read_directives(header_block)
        self.read_ttl(directives)
        return self.store_one(subject, header_block, payload, directives, now)[0]

    def store_one(
        self, subject: bytes, header_block: bytes, payload: bytes, directives: PublishHeaders, now: int
    ) -> tuple[StoredMessage | None, int]:
        """A message that may enter: it, if it was stored, and its sequence. Raises ``JetStreamError``."""
        if self.needs_interest and not self.has_interested_consumer(subject):
            message, seq = None, self.store.skip()
        else:
            self.check_discard_new(subject, header_block, payload, directives)
            message = self.append(subject, header_block, payload, now)
            seq = message.seq
        self.last_msg_id = directives.msg_id
        if directives.msg_id:
            self.duplicates.remember(directives.msg_id, seq, now)
        if message is not None:
            self.roll_up(subject, directives.rollup, now)
            self.begin_lifetime(seq, self.read_ttl(directives), now)
            if self.scheduler is not None:
                self.scheduler.on_stored(message, directives)
                if ended := ends_schedule(directives):
                    self.purge(now, ended)
            self.enforce_limits(subject, now)
            message = self.store.load(seq)
        return message, seq

    def add(self, subject: bytes, header_block: bytes, directives: PublishHeaders) -> tuple[bytes, int]:
        """A counter's headers to be stored, and its new value. Raises ``JetStreamError``."""
        increment = counters.read_increment(directives.increment)
        if increment is None:
            raise errors.COUNTER_INCREMENT_MISSING()
        return counters.added(self.store.last_of(subject), header_block, increment)

    def as_only_schedule(
        self, header_block: bytes, directives: PublishHeaders
    ) -> tuple[bytes, PublishHeaders]:
        """A subject has one schedule at most: it takes the place of what was there."""
        if directives.rollup:
            return header_block, directives
        rolled_up = append_headers(header_block, [(ROLLUP, "sub")])
        return rolled_up, structs.replace(directives, rollup="sub")

    def roll_up(self, subject: bytes, rollup: str, now: int) -> None:
        if rollup == "all":
            self.purge(now, keep=1)
        elif rollup == "sub":
            self.purge(now, subject, keep=1)

    # Limits

    def enforce_limits(self, subject: bytes | None, now: int) -> None:
        """Let the oldest go until every limit holds; ``subject`` got a new message, None: look at all of
        them."""
        limit = self.config.max_msgs_per_subject
        if limit > 0:
            for each in list(self.store.subjects()) if subject is None else [subject]:
                self.trim_subject(each, limit, now)
        # Under discard new a limit that was lowered refuses what comes.
        old_may_go = (
            self.config.discard == "old" or not self.jetstream.rules.discard_new_update_removes_nothing
        )
        while old_may_go and (self.has_too_many_messages() or self.has_too_many_bytes()):
            self.remove(self.store.first_seq, now)
        if self.config.max_age > 0:
            self.set_age_timer()

    def has_too_many_messages(self) -> bool:
        return 0 < self.config.max_msgs < len(self.store)

    def has_too_many_bytes(self) -> bool:
        return 0 < self.config.max_bytes < self.store.size

    def trim_subject(self, subject: bytes, limit: int, now: int) -> None:
        while self.store.count_of(subject) > limit:
            first = self.store.first_of(subject)
            assert first is not None
            self.remove(first.seq, now)

    def set_age_timer(self) -> None:
        first = next(
            (each for each in self.store.messages() if each.seq not in self.lifetimes.never_expiring), None
        )
        if first is not None and self.config.max_age > 0:
            self.age_timer.set_earliest(first.time + self.config.max_age)

    def on_age_timer(self, now: int) -> None:
        """max_age: what is older leaves, unless it is to live for ever."""
        if self.config.max_age <= 0:
            return
        limit = now - self.config.max_age
        for message in self.store.messages():
            if message.time > limit:
                break
            if message.seq not in self.lifetimes.never_expiring:
                self.expire(message.seq, now)
        self.set_age_timer()

    def begin_lifetime(self, seq: int, ttl: int, now: int) -> None:
        self.lifetimes.set_ttl(seq, ttl, now)
        self.set_ttl_timer()

    def set_ttl_timer(self) -> None:
        if (end := self.lifetimes.next_end()) is not None:
            self.lifetime_timer.set_earliest(end)

    def on_ttl_timer(self, now: int) -> None:
        """Nats-TTL: what has lived its time leaves."""
        for seq in self.lifetimes.expired(now):
            self.expire(seq, now)
        self.set_ttl_timer()

    def expire(self, seq: int, now: int) -> None:
        """Its time removes a message (ADR-48)."""
        message = self.store.load(seq)
        if message is not None:
            self.remove(seq, now)
            markers.leave_marker(self, message, now)

    # Removing

    def remove(self, seq: int, now: int) -> bool:
        """False if there is no such message."""
        message = self.store.remove(seq)
        if message is None:
            return False
        for consumer in tuple(self.consumers.values()):
            consumer.on_message_removed(message, now)
        return True

    def purge(self, now: int, subject: bytes | None = None, *, below: int = 0, keep: int = 0) -> int:
        """Remove all messages, or those on ``subject``, below ``below``, but the last ``keep``; how many
        went."""
        store = self.store
        before = len(store)
        everything = subject is None and not below and not keep
        if everything:
            store.restart_at(store.last_seq + 1)
        elif subject is None and below > store.last_seq:  # servers: the next message then gets this sequence
            store.restart_at(below)
        else:
            for seq in self.purgeable(subject, below, keep):
                store.remove(seq)
        for consumer in tuple(self.consumers.values()):
            consumer.on_purged(None if everything else (subject or b""), now)
        return before - len(store)

    def purgeable(self, subject: bytes | None, below: int, keep: int) -> list[int]:
        subject_filter = None if subject is None else matcher([subject])
        found = [
            message.seq
            for message in self.store.messages()
            if (not below or message.seq < below)
            and (subject_filter is None or subject_filter(message.subject))
        ]
        return found[:-keep] if keep else found

    # Retention

    def has_interested_consumer(self, subject: bytes) -> bool:
        """Interest retention: whether any consumer would get a message on ``subject``."""
        return any(c.subject_filter is None or c.subject_filter(subject) for c in self.consumers.values())

    def on_settled(self, seq: int) -> None:
        """A consumer is done with ``seq``: work queues and interest streams let it go when all are."""
        if self.config.retention != "limits":
            message = self.store.load(seq)
            if message is not None and not any(c.needs(message) for c in self.consumers.values()):
                self.remove(seq, self.jetstream.now)

    def release_unwanted(self) -> None:
        """Interest retention, after a consumer has gone or changed its filter."""
        if self.config.retention == "interest":
            for message in list(self.store.messages()):
                self.on_settled(message.seq)

    def release_acknowledged(self) -> None:
        """After a change to interest retention; without a consumer nothing is wanted any more."""
        if not self.consumers:
            if self.jetstream.rules.interest_drops_without_consumers:
                self.store.restart_at(self.store.last_seq + 1)
            return
        done = max(consumer.acks.delivered.stream for consumer in self.consumers.values())
        for message in [message for message in self.store.messages() if message.seq <= done]:
            self.on_settled(message.seq)

    def release_settled(self) -> None:
        """After a restart: what consumers were done with may still be there."""
        if self.config.retention == "limits" or not self.consumers:
            return
        for message in list(self.store.messages()):
            if self.config.retention == "interest" or self.has_interested_consumer(message.subject):
                self.on_settled(message.seq)

    # Consumers

    def check_consumer(self, config: ConsumerConfig) -> None:
        """Raises ``JetStreamError`` for a new consumer that does not go with the retention."""
        if self.config.retention == "workqueue":
            check_workqueue(config, [other.config for other in self.consumers.values()], self.jetstream.rules)

    def add_consumer(self, name: str, config: ConsumerConfig, now: int) -> Consumer:
        consumer = self.open_consumer(name, config, now)
        advisories.consumer_action(consumer, "CREATED", "create", now)
        if consumer.paused_until > now:
            advisories.pause(consumer, now)
        if not config.is_pull:
            consumer.start(now)
        return consumer

    def open_consumer(self, name: str, config: ConsumerConfig, now: int) -> Consumer:
        consumer = self.consumers[name] = self.jetstream.consumer_type(self, name, config, now)
        if self.files is not None and not config.mem_storage:
            consumer.keep_log(self.files)
        return consumer

    def delete_consumer(self, consumer: Consumer, now: int) -> None:
        self.discard_consumer(consumer, now)
        self.release_unwanted()

    def discard_consumer(self, consumer: Consumer, now: int) -> None:
        del self.consumers[consumer.name]
        consumer.close()
        if self.files is not None:
            self.files.remove_consumer(consumer)
        advisories.consumer_action(consumer, "DELETED", "delete", now)

    def close(self, now: int) -> None:
        """The stream is gone, and all its consumers with it."""
        for consumer in tuple(self.consumers.values()):
            self.discard_consumer(consumer, now)
        self.age_timer.clear()
        self.lifetime_timer.clear()
        self.batches.timer.clear()
        if self.scheduler is not None:
            self.scheduler.timer.clear()
        if self.files is not None:
            self.files.remove()
