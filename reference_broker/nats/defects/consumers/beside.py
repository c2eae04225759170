"""Defects of consumers beside others, and of where they start and end. What is right: ``consumer``."""

from __future__ import annotations

from collections import deque
from typing import cast

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import alter_consumers, alter_streams, method_defect
from plumbline.reference_broker.nats.jetstream.consumers.config import (
    DEFAULT_MAX_ACK_PENDING,
    ConsumerConfig,
)
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.pull import WaitingQueue
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.reference_broker.nats.jetstream.subjects import matcher
from plumbline.wire.nats.jetstream.times import parse_time


@method_defect(Consumer.is_blocked, "JS-CONS-142")
def max_ack_pending_is_of_the_stream(self: Consumer) -> bool:
    """max_ack_pending counts the deliveries of every consumer of the stream."""
    pending = sum(len(each.acks.pending) for each in self.stream.consumers.values())
    return 0 < self.config.max_ack_pending <= pending and not self.acks.queue


@method_defect(WaitingQueue.is_full, "JS-CONS-143")
def max_waiting_is_of_the_stream(self: WaitingQueue) -> bool:
    """max_waiting counts the pull requests of every consumer of the stream."""
    consumers = cast("Consumer", self.consumer).stream.consumers.values()
    return sum(len(each.waiting) for each in consumers) >= self.config.max_waiting


@method_defect(Consumer.is_blocked, "JS-CONS-152")
def max_ack_pending_is_1000_at_most(self: Consumer) -> bool:
    """A consumer without a max_ack_pending is held back by that of the default."""
    limit = self.config.max_ack_pending
    has_many = limit < 0 and len(self.acks.pending) >= DEFAULT_MAX_ACK_PENDING
    return has_many or Consumer.is_blocked(self)


@defect("JS-CONS-135")
def consumer_made_again_goes_on(broker: Broker) -> None:
    """A consumer that is deleted and made again under its name goes on where it was."""

    def discard_consumer(self: Stream, consumer: Consumer, now: int) -> None:
        Stream.discard_consumer(self, consumer, now)
        vars(self)["discarded"] = consumer

    def open_consumer(self: Stream, name: str, config: ConsumerConfig, now: int) -> Consumer:
        consumer = Stream.open_consumer(self, name, config, now)
        before = vars(self).get("discarded")
        if before is not None and before.name == name and before.config == config:
            consumer.acks, consumer.position = before.acks, before.position
            consumer.recount()
        return consumer

    alter_streams(broker, discard_consumer=discard_consumer, open_consumer=open_consumer)


@method_defect(Consumer.on_message_removed, "JS-SEQ-012")
def deletion_outside_the_filter_counts(self: Consumer, message: StoredMessage, now: int) -> None:
    """num_pending falls when a message is deleted that the filter leaves out."""
    subject_filter, self.subject_filter = self.subject_filter, None
    Consumer.on_message_removed(self, message, now)
    self.subject_filter = subject_filter


# Where they start


@method_defect(Consumer.filter_by, "JS-CONS-057")
def start_time_is_rounded_down(self: Consumer, config: ConsumerConfig) -> None:
    """by_start_time between two messages starts with the earlier one."""
    if config.deliver_policy == "by_start_time":
        start = parse_time(config.opt_start_time or "") or 0
        before = [each.seq for each in self.stream.store.messages() if each.time <= start]
        self.position.next_seq = max(before, default=self.position.next_seq)
    Consumer.filter_by(self, config)


@method_defect(Consumer.filter_by, "JS-CONS-053")
def start_sequence_goes_back_over_a_gap(self: Consumer, config: ConsumerConfig) -> None:
    """by_start_sequence of a deleted message starts with the one before it."""
    store, position = self.stream.store, self.position
    if config.deliver_policy == "by_start_sequence":
        while store.first_seq < position.next_seq <= store.last_seq and not store.load(position.next_seq):
            position.next_seq -= 1
    Consumer.filter_by(self, config)


def _ends_of_subjects(self: Consumer, filters: list[bytes]) -> list[int]:
    """The sequences of the last messages of the subjects that fit."""
    is_wanted, store = matcher(filters), self.stream.store
    ends = (store.last_of(subject) for subject in store.subjects() if is_wanted(subject))
    return sorted(message.seq for message in ends if message)


@method_defect(Consumer.filter_by, "JS-CONS-059")
def last_per_subject_ignores_its_filter(self: Consumer, config: ConsumerConfig) -> None:
    """last_per_subject starts with the last message of every subject of the stream."""
    if config.deliver_policy == "last_per_subject":
        self.position.listed = deque(_ends_of_subjects(self, [b">"]))
    Consumer.filter_by(self, config)


@method_defect(Consumer.filter_by, "JS-CONS-059")
def last_per_subject_knows_one_filter(self: Consumer, config: ConsumerConfig) -> None:
    """last_per_subject starts with the last messages of the subjects that fit the first filter."""
    if config.deliver_policy == "last_per_subject":
        self.position.listed = deque(_ends_of_subjects(self, config.filters[:1]))
    Consumer.filter_by(self, config)


@method_defect(Consumer.on_stored, "JS-CONS-059")
def last_per_subject_is_of_the_first_delivery(self: Consumer, message: StoredMessage, now: int) -> None:
    """last_per_subject starts with what is last on each subject when the first message is delivered."""
    Consumer.on_stored(self, message, now)
    if self.config.deliver_policy == "last_per_subject" and not self.acks.delivered.consumer:
        self.position.listed = deque(_ends_of_subjects(self, self.config.filters))
        self.position.resume = self.stream.store.last_seq
        self.recount()


@method_defect(Consumer.filter_by, "JS-CONS-060")
def last_knows_one_filter(self: Consumer, config: ConsumerConfig) -> None:
    """deliver_policy last starts with the last message that fits the first filter."""
    if config.deliver_policy == "last" and config.filters:
        self.position.next_seq = max(_ends_of_subjects(self, config.filters[:1]), default=1)
    Consumer.filter_by(self, config)


@method_defect(Consumer.filter_by, "JS-CONS-061")
def pushed_filters_are_the_first(self: Consumer, config: ConsumerConfig) -> None:
    """A push consumer knows the first of its filter_subjects alone."""
    Consumer.filter_by(self, config)
    if not config.is_pull and len(config.filters) > 1:
        self.subject_filter = matcher(config.filters[:1])
        self.recount()


@method_defect(Consumer.filter_by, "JS-CONS-061")
def filters_select_what_they_begin_with(self: Consumer, config: ConsumerConfig) -> None:
    """With several filters a consumer also gets messages whose subjects end where a filter goes on."""
    Consumer.filter_by(self, config)
    if len(config.filters) > 1 and self.subject_filter is not None:
        tokens = [subject.split(b".") for subject in config.filters]
        beginnings = [b".".join(each[:end]) for each in tokens for end in range(1, len(each) + 1)]
        self.subject_filter = matcher(beginnings)
        self.recount()


@method_defect(Consumer.filter_by, "JS-CONS-061")
def filters_select_what_one_alone_would(self: Consumer, config: ConsumerConfig) -> None:
    """Of filters of which one begins as another does, the longer one selects nothing."""
    Consumer.filter_by(self, config)
    longer = [one for one in config.filters if any(one.startswith(each + b".") for each in config.filters)]
    if longer and self.subject_filter is not None:
        self.subject_filter = matcher([one for one in config.filters if one not in longer])
        self.recount()


@method_defect(Consumer.recount, "JS-CONS-061")
def filters_from_a_time_count_their_last(self: Consumer) -> None:
    """num_pending of a consumer with several filters and by_start_time has only the last of each subject."""
    Consumer.recount(self)
    if self.config.deliver_policy == "by_start_time" and len(self.config.filters) > 1:
        self.num_pending = max(self.num_pending - 1, 0)


@method_defect(Consumer.too_early, "JS-CONS-087")
def replay_original_ignores_filters(self: Consumer, message: StoredMessage, now: int) -> bool:
    """A consumer with a filter delivers at once, also with replay_policy original."""
    return not self.config.filters and Consumer.too_early(self, message, now)


# When they end


@defect("JS-CONS-093")
def ephemeral_ends_although_it_is_pulled(broker: Broker) -> None:
    """An ephemeral consumer is deleted after its inactive_threshold, whether it is used or not."""

    def minimum_lifetime(self: Consumer, now: int) -> int:
        return 0 if self.config.is_pull else Consumer.minimum_lifetime(self, now)

    alter_consumers(broker, minimum_lifetime=minimum_lifetime)


@method_defect(Consumer.minimum_lifetime, "JS-CONS-093")
def waiting_pull_keeps_no_consumer(self: Consumer, now: int) -> int:
    """An ephemeral consumer is deleted although a pull request waits on it."""
    if not self.config.is_pull:
        return Consumer.minimum_lifetime(self, now)
    return self.waiting.last_active + self.config.inactive_threshold - now


@method_defect(Consumer.minimum_lifetime, "JS-CONS-136")
def durable_push_consumer_stays(self: Consumer, now: int) -> int:
    """A durable push consumer is not deleted, whatever its inactive_threshold."""
    lifetime = Consumer.minimum_lifetime(self, now)
    stays = not self.config.is_pull and bool(self.config.durable_name)
    return max(lifetime, self.config.inactive_threshold) if stays else lifetime


@defect("JS-CONS-092")
def returning_subscriber_keeps_no_consumer(broker: Broker) -> None:
    """An ephemeral push consumer that lost its subscriber once is deleted, though one has come back."""

    def on_interest_lost(self: Consumer, now: int) -> None:
        Consumer.on_interest_lost(self, now)
        vars(self)["ends"] = now + self.config.inactive_threshold

    def on_subscribed(self: Consumer, now: int) -> None:
        Consumer.on_subscribed(self, now)
        if "ends" in vars(self) and self.config.inactive_threshold:
            self.inactive_timer.set(vars(self)["ends"])

    def minimum_lifetime(self: Consumer, now: int) -> int:
        return 0 if "ends" in vars(self) else Consumer.minimum_lifetime(self, now)

    alter_consumers(
        broker,
        on_interest_lost=on_interest_lost,
        on_subscribed=on_subscribed,
        minimum_lifetime=minimum_lifetime,
    )
