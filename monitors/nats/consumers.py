"""Rules of consumers, by the acknowledgement subjects of what they deliver, over all connections of a stream.

A consumer that is made again counts from 1 again. Whatever changes a stream or a consumer, and a first
delivery of consumer sequence 1, therefore ends what was remembered. Two connections are not ordered by their
clocks: what only their order would prove is a possible violation, not a certain one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from msgspec import Struct, field

from plumbline.monitors.facts import Fact
from plumbline.monitors.monitor import Monitor, MonitorScope
from plumbline.monitors.nats import facts
from plumbline.monitors.observation import Place, Side, Violation
from plumbline.monitors.ranges import Ranges

# Deliveries that are never acknowledged (ack_policy none) are forgotten, the oldest first.
MAX_REMEMBERED = 100_000


class _ConsumerRule(Monitor):
    """Keeps one state for each consumer of the stream, and lets go of it when the consumer may be new."""

    scope = MonitorScope.STREAM
    side = Side.SERVER
    Remembered: ClassVar[type[Struct]]  # of one consumer

    def forgets_consumer(self, fact: facts.AssetChanged) -> None:
        """A request may be refused, or create what is there: then what is forgotten is only not judged."""
        if fact.consumer is None:
            self.state.consumers.clear()
        else:
            self.state.consumers.pop(fact.consumer, None)

    def observe(self, fact: Fact) -> Iterator[Violation]:
        if isinstance(fact, facts.AssetChanged):
            self.forgets_consumer(fact)
            return
        if isinstance(fact, facts.JetStreamDelivery) and fact.consumer_seq == fact.delivered == 1:
            self.state.consumers.pop(fact.consumer, None)
        if isinstance(fact, (facts.JetStreamDelivery, facts.JetStreamAck, facts.AckConfirmed)):
            consumers = self.state.consumers
            if fact.consumer not in consumers:
                consumers[fact.consumer] = self.Remembered()
            yield from self.judge(consumers[fact.consumer], fact)

    @abstractmethod
    def judge(
        self, consumer: Any, fact: facts.JetStreamDelivery | facts.JetStreamAck | facts.AckConfirmed
    ) -> Iterator[Violation]:
        """What ``fact`` breaks; ``consumer`` is what is remembered of its consumer."""


class _Sequences(Struct):
    delivered: Ranges = field(default_factory=Ranges)
    last: dict[str, tuple[int, Place]] = {}  # by connection and sid


class SequencesState(Struct):
    """By consumer."""

    consumers: dict[str, _Sequences] = {}


class ConsumerSequenceRises(_ConsumerRule):
    """Each delivery has a consumer sequence of its own, one more than the delivery before."""

    rule = "consumer-sequence"
    title = "The consumer sequence rises by one with each delivery, a redelivery included."
    requirements = ("JS-ACK-004", "JS-SEQ-013")
    source = 'JetStream model deep dive, "Consumer Message Rates" and "Acknowledgement Models"; ADR-15'
    State = SequencesState
    looks_at = frozenset({facts.AssetChanged, facts.JetStreamDelivery})
    Remembered = _Sequences
    state: SequencesState

    def judge(self, consumer: _Sequences, fact: Any) -> Iterator[Violation]:
        if not isinstance(fact, facts.JetStreamDelivery):
            return
        subscriber = f"{fact.place.connection} {fact.sid}"
        last, place = consumer.last.get(subscriber, (0, None))
        alone = consumer.last.keys() <= {subscriber}
        if fact.consumer_seq in consumer.delivered or fact.consumer_seq < last:
            again = "again" if fact.consumer_seq in consumer.delivered else f"after {last}"
            yield self.violation(
                "a consumer sequence higher than any before",
                f"{fact.consumer} gives {fact.consumer_seq} {again}",
                fact.place,
                *([place] if place else []),
                certain=alone,
            )
        consumer.delivered.add(fact.consumer_seq)
        consumer.last[subscriber] = (max(last, fact.consumer_seq), fact.place)

    def finish(self) -> Iterator[Violation]:
        for name, consumer in self.state.consumers.items():
            for first, last in consumer.delivered.gaps:
                _, place = next(iter(consumer.last.values()))
                missing = str(first) if first == last else f"{first} to {last}"
                yield self.violation("no gap", f"{name} never gave consumer sequence {missing}", place)


class _Counts(Struct):
    last: dict[int, tuple[int, Place]] = {}  # by stream sequence


class CountsState(Struct):
    """By consumer."""

    consumers: dict[str, _Counts] = {}


class DeliveryCountRises(_ConsumerRule):
    """A message that is delivered again says so."""

    rule = "delivery-count"
    title = "The delivery count of a message rises by one each time a consumer delivers it again."
    requirements = ("JS-ACK-004",)
    source = 'ADR-15, "JS Ack"; JetStream model deep dive, "Acknowledgement Models"'
    State = CountsState
    looks_at = frozenset({facts.AssetChanged, facts.JetStreamDelivery})
    Remembered = _Counts
    state: CountsState

    def judge(self, consumer: _Counts, fact: Any) -> Iterator[Violation]:
        if not isinstance(fact, facts.JetStreamDelivery):
            return
        count, place = consumer.last.pop(fact.stream_seq, (0, None))
        consumer.last[fact.stream_seq] = (max(count, fact.delivered), fact.place)
        if len(consumer.last) > MAX_REMEMBERED:
            del consumer.last[next(iter(consumer.last))]
        if place is None or fact.delivered == count + 1:
            return
        yield self.violation(
            f"delivery count {count + 1}",
            f"{fact.consumer} delivers stream sequence {fact.stream_seq} with count {fact.delivered}",
            fact.place,
            place,
            # A count that is too high may have been given on a connection that was not recorded.
            certain=fact.delivered <= count and place.connection == fact.place.connection,
        )


class _EndedMessages(Struct):
    stream_seqs: Ranges = field(default_factory=Ranges)
    recent: dict[int, Place] = {}  # by stream sequence: where it was confirmed


class EndedState(Struct):
    """By consumer."""

    consumers: dict[str, _EndedMessages] = {}


class NoRedeliveryAfterAck(_ConsumerRule):
    """What is acknowledged for good is not delivered again."""

    rule = "nothing-after-the-end"
    title = "A message is not delivered again once the server has confirmed its +ACK or +TERM."
    requirements = ("JS-ACK-006", "JS-ACK-020")
    source = 'JetStream model deep dive, "Acknowledgement Models" and "Exactly Once Delivery"'
    State = EndedState
    looks_at = frozenset({facts.AssetChanged, facts.JetStreamDelivery, facts.AckConfirmed})
    Remembered = _EndedMessages
    state: EndedState

    def judge(self, consumer: _EndedMessages, fact: Any) -> Iterator[Violation]:
        if isinstance(fact, facts.AckConfirmed) and fact.kind in ("+ACK", "+TERM"):
            consumer.stream_seqs.add(fact.stream_seq)
            consumer.recent[fact.stream_seq] = fact.place
            if len(consumer.recent) > MAX_REMEMBERED:
                del consumer.recent[next(iter(consumer.recent))]
        elif isinstance(fact, facts.JetStreamDelivery) and fact.stream_seq in consumer.stream_seqs:
            confirmed = consumer.recent.get(fact.stream_seq)
            yield self.violation(
                "no delivery after a confirmed end",
                f"{fact.consumer} delivers stream sequence {fact.stream_seq}, count {fact.delivered}",
                fact.place,
                *([confirmed] if confirmed else []),
                certain=confirmed is not None and confirmed.connection == fact.place.connection,
            )


class _Acks(Struct):
    consumer_seqs: Ranges = field(default_factory=Ranges)
    recent: dict[int, facts.JetStreamAck] = {}  # by consumer sequence


class AcksState(Struct):
    """By consumer."""

    consumers: dict[str, _Acks] = {}


class OneAcknowledgement(_ConsumerRule):
    """A client ends a delivery once."""

    rule = "one-acknowledgement"
    title = "A client sends at most one +ACK, -NAK, +TERM or +NXT for each delivery."
    requirements = ("JS-ACK-041",)
    source = 'docs.nats.io, "Consumers"'
    side = Side.CLIENT
    State = AcksState
    looks_at = frozenset({facts.AssetChanged, facts.JetStreamDelivery, facts.JetStreamAck})
    Remembered = _Acks
    state: AcksState

    def judge(self, consumer: _Acks, fact: Any) -> Iterator[Violation]:
        if not isinstance(fact, facts.JetStreamAck) or fact.kind in ("+WPI", ""):
            return
        if fact.consumer_seq in consumer.consumer_seqs:
            first = consumer.recent.get(fact.consumer_seq)
            yield self.violation(
                "one acknowledgement that ends a delivery",
                f"{fact.kind} for consumer sequence {fact.consumer_seq} of {fact.consumer} is the second",
                fact.place,
                *([first.place] if first else []),
                # Another account may have a stream and a consumer of these names too.
                certain=first is not None and fact.shares_account(first),
            )
        consumer.consumer_seqs.add(fact.consumer_seq)
        consumer.recent[fact.consumer_seq] = fact
        if len(consumer.recent) > MAX_REMEMBERED:
            del consumer.recent[next(iter(consumer.recent))]
