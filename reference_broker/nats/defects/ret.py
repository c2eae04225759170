"""Defects of retention: when messages go. What is right: ``jetstream.stream``, "Retention"."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    Method,
    alter_acks,
    alter_consumers,
    alter_streams,
    jetstream_defect,
)
from plumbline.reference_broker.nats.jetstream import advisories
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckState, AckSubject
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.config import Retention
from plumbline.reference_broker.nats.jetstream.streams.store import Message
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

# Work queues


@jetstream_defect(
    "ret-workqueue-needs-a-consumer",
    breaks=("JS-RET-001",),
    summary="A work queue does not keep what no consumer is there for.",
)
def _(broker: Broker) -> None:
    def configured(self: Stream) -> None:
        Stream.configured(self)
        self.needs_interest = self.config.retention != "limits"

    alter_streams(broker, configured=configured)


def _gone_once_delivered(retention: Retention) -> Method:
    def delivered(self: Consumer, message: Message, deliveries: int, now: int) -> None:
        Consumer.delivered(self, message, deliveries, now)
        if self.stream.config.retention == retention:
            self.stream.remove(message.seq, now)

    return delivered


@jetstream_defect(
    "ret-workqueue-removes-what-is-delivered",
    breaks=("JS-RET-008",),
    summary="A work queue removes a message when it is delivered.",
)
def _(broker: Broker) -> None:
    alter_consumers(broker, delivered=_gone_once_delivered("workqueue"))


@jetstream_defect(
    "ret-workqueue-keeps-what-is-acknowledged",
    breaks=("JS-RET-009", "JS-RET-014"),
    summary="A work queue keeps acknowledged messages.",
)
def _(broker: Broker) -> None:
    def settled(self: Stream, seq: int) -> None:
        if self.config.retention != "workqueue":
            Stream.settled(self, seq)

    alter_streams(broker, settled=settled)


@jetstream_defect(
    "ret-workqueue-removes-earlier-messages",
    breaks=("JS-RET-009", "JS-RET-014"),
    summary="In a work queue, an acknowledgement removes what is before its message too.",
)
def _(broker: Broker) -> None:
    def settled(self: Stream, seq: int) -> None:
        Stream.settled(self, seq)
        while self.config.retention == "workqueue" and len(self.store) and self.store.first_seq < seq:
            self.remove(self.store.first_seq, self.jetstream.now)

    alter_streams(broker, settled=settled)


def _term_does_not_settle(retention: Retention) -> Method:
    def terminate(self: Consumer, subject: AckSubject, reason: str, now: int) -> bool:
        if self.stream.config.retention != retention:
            return Consumer.terminate(self, subject, reason, now)
        self.acks.acknowledge(subject.stream_seq, subject.consumer_seq, now)
        advisories.terminated(self, subject, reason, now)
        return True

    return terminate


@jetstream_defect(
    "ret-workqueue-keeps-what-is-terminated",
    breaks=("JS-RET-010",),
    summary="A work queue keeps terminated messages.",
)
def _(broker: Broker) -> None:
    alter_consumers(broker, terminate=_term_does_not_settle("workqueue"))


def _without_max_msgs(retention: Retention) -> Method:
    def has_too_many_messages(self: Stream) -> bool:
        return self.config.retention != retention and Stream.has_too_many_messages(self)

    return has_too_many_messages


@jetstream_defect(
    "ret-workqueue-ignores-max-msgs", breaks=("JS-RET-015",), summary="max_msgs does not limit work queues."
)
def _(broker: Broker) -> None:
    alter_streams(broker, has_too_many_messages=_without_max_msgs("workqueue"))


@jetstream_defect(
    "ret-workqueue-ignores-max-age", breaks=("JS-RET-016",), summary="max_age does not limit work queues."
)
def _(broker: Broker) -> None:
    def messages_age(self: Stream, now: int) -> None:
        if self.config.retention != "workqueue":
            Stream.messages_age(self, now)

    alter_streams(broker, messages_age=messages_age)


@jetstream_defect(
    "ret-workqueue-drops-what-is-past-max-deliver",
    breaks=("JS-RET-017",),
    summary="A work queue removes a message once max_deliver is reached.",
)
def _(broker: Broker) -> None:
    def exhaust(self: Consumer, seq: int, deliveries: int, now: int) -> None:
        Consumer.exhaust(self, seq, deliveries, now)
        if self.stream.config.retention == "workqueue":
            self.stream.remove(seq, now)

    alter_consumers(broker, exhaust=exhaust)


# Interest


@jetstream_defect(
    "ret-interest-keeps-without-consumers",
    breaks=("JS-RET-018",),
    summary="An interest stream keeps what is published while it has no consumer.",
)
def _(broker: Broker) -> None:
    def is_wanted(self: Stream, subject: bytes) -> bool:
        return not self.consumers or Stream.is_wanted(self, subject)

    alter_streams(broker, is_wanted=is_wanted)


@jetstream_defect(
    "ret-interest-removes-what-is-delivered",
    breaks=("JS-RET-019",),
    summary="An interest stream removes a message when it is delivered.",
)
def _(broker: Broker) -> None:
    alter_consumers(broker, delivered=_gone_once_delivered("interest"))


@jetstream_defect(
    "ret-interest-ends-with-the-first-ack",
    breaks=("JS-RET-020",),
    summary="An interest stream removes a message when the first consumer without a filter acknowledges it.",
)
def _(broker: Broker) -> None:
    def settled(self: Stream, seq: int) -> None:
        message = self.store.load(seq)
        filtered = [consumer for consumer in self.consumers.values() if consumer.wanted is not None]
        if self.config.retention != "interest" or (
            message is not None and any(consumer.needs(message) for consumer in filtered)
        ):
            Stream.settled(self, seq)
        elif message is not None:
            self.remove(seq, self.jetstream.now)

    alter_streams(broker, settled=settled)


@jetstream_defect(
    "ret-interest-of-every-consumer",
    breaks=("JS-RET-021",),
    summary="An interest stream keeps a message for consumers whose filter it does not match.",
)
def _(broker: Broker) -> None:
    def needs(self: Consumer, message: Message) -> bool:
        return self.acks.needs(message.seq, self.position.next_seq)

    alter_consumers(broker, needs=needs)


@jetstream_defect(
    "ret-interest-of-unfiltered-consumers",
    breaks=("JS-RET-022",),
    summary="An interest stream does not keep a message for filtered consumers alone.",
)
def _(broker: Broker) -> None:
    def needs(self: Consumer, message: Message) -> bool:
        return self.wanted is None and Consumer.needs(self, message)

    alter_consumers(broker, needs=needs)


@jetstream_defect(
    "ret-interest-outlives-its-consumer",
    breaks=("JS-RET-023",),
    summary="Deleting a consumer removes no message of an interest stream.",
)
def _(broker: Broker) -> None:
    alter_streams(broker, release_unwanted=lambda self: None)


@jetstream_defect(
    "ret-interest-keeps-what-is-terminated",
    breaks=("JS-RET-024",),
    summary="An interest stream keeps terminated messages.",
)
def _(broker: Broker) -> None:
    alter_consumers(broker, terminate=_term_does_not_settle("interest"))


@jetstream_defect(
    "ret-interest-of-ack-none-never-ends",
    breaks=("JS-RET-025",),
    summary="An interest stream keeps messages for a consumer that acknowledges nothing.",
)
def _(broker: Broker) -> None:
    def needs(self: Consumer, message: Message) -> bool:
        return self.config.ack_policy == "none" or Consumer.needs(self, message)

    alter_consumers(broker, needs=needs)


@jetstream_defect(
    "ret-interest-outside-every-filter-is-kept",
    breaks=("JS-RET-026",),
    summary="An interest stream with consumers keeps what none of their filters matches.",
)
def _(broker: Broker) -> None:
    alter_streams(broker, is_wanted=lambda self, subject: bool(self.consumers))


@jetstream_defect(
    "ret-interest-ignores-max-msgs",
    breaks=("JS-RET-027",),
    summary="max_msgs does not limit interest streams.",
)
def _(broker: Broker) -> None:
    alter_streams(broker, has_too_many_messages=_without_max_msgs("interest"))


@jetstream_defect(
    "ret-ack-all-removes-one",
    breaks=("JS-RET-028",),
    summary="With ack_policy all, an interest stream loses the acknowledged message only.",
)
def _(broker: Broker) -> None:
    def acknowledge_up_to(self: AckState, seq: int, consumer_seq: int) -> list[int]:
        return AckState.acknowledge_up_to(self, seq, consumer_seq)[-1:]

    alter_acks(broker, acknowledge_up_to=acknowledge_up_to)


# Limits


@jetstream_defect(
    "ret-limits-removes-what-is-acknowledged",
    breaks=("JS-RET-029",),
    summary="A stream with retention limits removes what is acknowledged.",
)
def _(broker: Broker) -> None:
    def settled(self: Stream, seq: int) -> None:
        Stream.settled(self, seq)
        if self.config.retention == "limits":
            self.remove(seq, self.jetstream.now)

    alter_streams(broker, settled=settled)


@jetstream_defect(
    "ret-interest-ignores-several-filters",
    breaks=("JS-RET-031",),
    summary="A consumer with several filters wants every message, as in nats-server up to 2.10.14.",
)
def _(broker: Broker) -> None:
    def is_wanted(self: Stream, subject: bytes) -> bool:
        several = any(len(consumer.config.filters) > 1 for consumer in self.consumers.values())
        return several or Stream.is_wanted(self, subject)

    alter_streams(broker, is_wanted=is_wanted)


@jetstream_defect(
    "ret-interest-first-seq-stays",
    breaks=("JS-RET-032",),
    summary="first_seq stays at 1 when a first message is not kept, as in nats-server 2.10.8 to 2.10.16.",
)
def _(broker: Broker) -> None:
    def accept_one(
        self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int
    ) -> tuple[Message | None, bytes]:
        message, answer = Stream.accept_one(self, subject, header_block, payload, now)
        if message is None and self.store.last_seq == 1:
            self.store.first_seq = 1
        return message, answer

    alter_streams(broker, accept_one=accept_one)
