"""Defects of where a consumer starts and what it selects. What is right: ``jetstream.position``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import (
    alter_consumers,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream import errors, subjects
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


def _begin(broker: Broker, policy: str, begin: Callable[[Consumer], int]) -> None:
    """Consumers with this deliver policy begin with the sequence that ``begin`` gives."""

    def filter_by(self: Consumer, config: ConsumerConfig) -> None:
        if config.deliver_policy == policy and self.stream.store.last_seq:
            self.position.next_seq = begin(self)
        Consumer.filter_by(self, config)

    alter_consumers(broker, filter_by=filter_by)


def _one_later(consumer: Consumer) -> int:
    """One message is passed over, unless there is none."""
    stored = consumer.position.next_seq <= consumer.stream.store.last_seq
    return consumer.position.next_seq + stored


@defect("JS-CONS-051")
def cons_all_misses_the_first(broker: Broker) -> None:
    """deliver_policy all starts with the second message."""
    _begin(broker, "all", _one_later)


@defect("JS-CONS-052")
def cons_last_starts_before_the_last(broker: Broker) -> None:
    """deliver_policy last starts with the message before the last."""
    _begin(broker, "last", lambda consumer: max(consumer.position.next_seq - 1, 1))


@defect("JS-CONS-053")
def cons_start_sequence_is_excluded(broker: Broker) -> None:
    """by_start_sequence starts after opt_start_seq."""
    _begin(broker, "by_start_sequence", _one_later)


@defect("JS-CONS-054")
def cons_new_delivers_the_last(broker: Broker) -> None:
    """deliver_policy new starts with the message stored last."""
    _begin(broker, "new", lambda consumer: consumer.stream.store.last_seq)


@defect("JS-CONS-055")
def cons_new_misses_the_first(broker: Broker) -> None:
    """deliver_policy new passes over the first message stored after creation."""
    _begin(broker, "new", lambda consumer: consumer.stream.store.last_seq + 2)


@defect("JS-CONS-056")
def cons_start_sequence_ends_at_the_last(broker: Broker) -> None:
    """by_start_sequence beyond the end starts with the message stored last."""

    def begin(consumer: Consumer) -> int:
        return min(consumer.position.next_seq, consumer.stream.store.last_seq)

    _begin(broker, "by_start_sequence", begin)


@defect("JS-CONS-057")
def cons_start_time_is_excluded(broker: Broker) -> None:
    """by_start_time passes over a message stored at that time."""
    _begin(broker, "by_start_time", _one_later)


@method_defect(Consumer.filter_by, "JS-CONS-059")
def cons_last_per_subject_runs_backwards(self: Consumer, config: ConsumerConfig) -> None:
    """last_per_subject delivers the last messages against the order of the stream."""
    self.position.listed = deque(reversed(self.position.listed))
    Consumer.filter_by(self, config)


@defect("JS-CONS-060")
def cons_last_ignores_the_filter(broker: Broker) -> None:
    """deliver_policy last starts at the end of the stream, whatever the filter."""
    _begin(broker, "last", lambda consumer: consumer.stream.store.last_seq)


@method_defect(Stream.check_consumer, "JS-CONS-062")
def cons_wider_filter_is_refused(self: Stream, config: ConsumerConfig) -> None:
    """A filter wider than the subjects of the stream is refused."""
    for pattern in config.filters:
        if not any(subjects.covers(own, pattern) for own in self.config.patterns):
            raise errors.CONSUMER_FILTER_NOT_SUBSET()
    Stream.check_consumer(self, config)
