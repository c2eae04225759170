"""Defects of where a consumer starts and what it selects. What is right: ``jetstream.position``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_consumers,
    alter_streams,
    jetstream_defect,
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


@jetstream_defect(
    "cons-all-misses-the-first",
    breaks=("JS-CONS-051",),
    summary="deliver_policy all starts with the second message.",
)
def _(broker: Broker) -> None:
    _begin(broker, "all", _one_later)


@jetstream_defect(
    "cons-last-starts-before-the-last",
    breaks=("JS-CONS-052",),
    summary="deliver_policy last starts with the message before the last.",
)
def _(broker: Broker) -> None:
    _begin(broker, "last", lambda consumer: max(consumer.position.next_seq - 1, 1))


@jetstream_defect(
    "cons-start-sequence-is-excluded",
    breaks=("JS-CONS-053",),
    summary="by_start_sequence starts after opt_start_seq.",
)
def _(broker: Broker) -> None:
    _begin(broker, "by_start_sequence", _one_later)


@jetstream_defect(
    "cons-new-delivers-the-last",
    breaks=("JS-CONS-054",),
    summary="deliver_policy new starts with the message stored last.",
)
def _(broker: Broker) -> None:
    _begin(broker, "new", lambda consumer: consumer.stream.store.last_seq)


@jetstream_defect(
    "cons-new-misses-the-first",
    breaks=("JS-CONS-055",),
    summary="deliver_policy new passes over the first message stored after creation.",
)
def _(broker: Broker) -> None:
    _begin(broker, "new", lambda consumer: consumer.stream.store.last_seq + 2)


@jetstream_defect(
    "cons-start-sequence-ends-at-the-last",
    breaks=("JS-CONS-056",),
    summary="by_start_sequence beyond the end starts with the message stored last.",
)
def _(broker: Broker) -> None:
    def begin(consumer: Consumer) -> int:
        return min(consumer.position.next_seq, consumer.stream.store.last_seq)

    _begin(broker, "by_start_sequence", begin)


@jetstream_defect(
    "cons-start-time-is-excluded",
    breaks=("JS-CONS-057",),
    summary="by_start_time passes over a message stored at that time.",
)
def _(broker: Broker) -> None:
    _begin(broker, "by_start_time", _one_later)


@jetstream_defect(
    "cons-last-per-subject-runs-backwards",
    breaks=("JS-CONS-059",),
    summary="last_per_subject delivers the last messages against the order of the stream.",
)
def _(broker: Broker) -> None:
    def filter_by(self: Consumer, config: ConsumerConfig) -> None:
        self.position.listed = deque(reversed(self.position.listed))
        Consumer.filter_by(self, config)

    alter_consumers(broker, filter_by=filter_by)


@jetstream_defect(
    "cons-last-ignores-the-filter",
    breaks=("JS-CONS-060",),
    summary="deliver_policy last starts at the end of the stream, whatever the filter.",
)
def _(broker: Broker) -> None:
    _begin(broker, "last", lambda consumer: consumer.stream.store.last_seq)


@jetstream_defect(
    "cons-wider-filter-is-refused",
    breaks=("JS-CONS-062",),
    summary="A filter wider than the subjects of the stream is refused.",
)
def _(broker: Broker) -> None:
    def check_consumer(self: Stream, config: ConsumerConfig) -> None:
        for pattern in config.filters:
            if not any(subjects.covers(own, pattern) for own in self.config.patterns):
                raise errors.CONSUMER_FILTER_NOT_SUBSET()
        Stream.check_consumer(self, config)

    alter_streams(broker, check_consumer=check_consumer)
