"""Defects of retention: when messages go. What is right: ``jetstream.stream``, "Retention"."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import (
    Method,
    alter_consumers,
    alter_streams,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream import advisories
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckState, AckSubjectFields
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.config import Retention
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

# Work queues


@method_defect(Stream.derive_settings, "JS-RET-001")
def ret_workqueue_needs_a_consumer(self: Stream) -> None:
    """A work queue does not keep what no consumer is there for."""
    Stream.derive_settings(self)
    self.needs_interest = self.config.retention != "limits"


def _gone_once_delivered(retention: Retention) -> Method:
    def delivered(self: Consumer, message: StoredMessage, deliveries: int, now: int) -> None:
        Consumer.record_delivered(self, message, deliveries, now)
        if self.stream.config.retention == retention:
            self.stream.remove(message.seq, now)

    return delivered


@defect("JS-RET-008")
def ret_workqueue_removes_what_is_delivered(broker: Broker) -> None:
    """A work queue removes a message when it is delivered."""
    alter_consumers(broker, record_delivered=_gone_once_delivered("workqueue"))


@method_defect(Stream.on_settled, "JS-RET-009", "JS-RET-014")
def ret_workqueue_keeps_what_is_acknowledged(self: Stream, seq: int) -> None:
    """A work queue keeps acknowledged messages."""
    if self.config.retention != "workqueue":
        Stream.on_settled(self, seq)


@method_defect(Stream.on_settled, "JS-RET-009", "JS-RET-014")
def ret_workqueue_removes_earlier_messages(self: Stream, seq: int) -> None:
    """In a work queue, an acknowledgement removes what is before its message too."""
    Stream.on_settled(self, seq)
    while self.config.retention == "workqueue" and len(self.store) and self.store.first_seq < seq:
        self.remove(self.store.first_seq, self.jetstream.now)


def _term_does_not_settle(retention: Retention) -> Method:
    def terminate(self: Consumer, subject: AckSubjectFields, reason: str, now: int) -> bool:
        if self.stream.config.retention != retention:
            return Consumer.terminate(self, subject, reason, now)
        self.acks.acknowledge(subject.stream_seq, subject.consumer_seq, now)
        advisories.terminated(self, subject, reason, now)
        return True

    return terminate


@defect("JS-RET-010")
def ret_workqueue_keeps_what_is_terminated(broker: Broker) -> None:
    """A work queue keeps terminated messages."""
    alter_consumers(broker, terminate=_term_does_not_settle("workqueue"))


def _without_max_msgs(retention: Retention) -> Method:
    def has_too_many_messages(self: Stream) -> bool:
        return self.config.retention != retention and Stream.has_too_many_messages(self)

    return has_too_many_messages


@defect("JS-RET-015")
def ret_workqueue_ignores_max_msgs(broker: Broker) -> None:
    """max_msgs does not limit work queues."""
    alter_streams(broker, has_too_many_messages=_without_max_msgs("workqueue"))


@method_defect(Stream.on_age_timer, "JS-RET-016")
def ret_workqueue_ignores_max_age(self: Stream, now: int) -> None:
    """max_age does not limit work queues."""
    if self.config.retention != "workqueue":
        Stream.on_age_timer(self, now)


@method_defect(Consumer.on_max_deliveries, "JS-RET-017")
def ret_workqueue_drops_what_is_past_max_deliver(self: Consumer, seq: int, deliveries: int, now: int) -> None:
    """A work queue removes a message once max_deliver is reached."""
    Consumer.on_max_deliveries(self, seq, deliveries, now)
    if self.stream.config.retention == "workqueue":
        self.stream.remove(seq, now)


# Interest


@method_defect(Stream.has_interested_consumer, "JS-RET-018")
def ret_interest_keeps_without_consumers(self: Stream, subject: bytes) -> bool:
    """An interest stream keeps what is published while it has no consumer."""
    return not self.consumers or Stream.has_interested_consumer(self, subject)


@defect("JS-RET-019")
def ret_interest_removes_what_is_delivered(broker: Broker) -> None:
    """An interest stream removes a message when it is delivered."""
    alter_consumers(broker, record_delivered=_gone_once_delivered("interest"))


@method_defect(Stream.on_settled, "JS-RET-020")
def ret_interest_ends_with_the_first_ack(self: Stream, seq: int) -> None:
    """An interest stream removes a message when the first consumer without a filter acknowledges it."""
    message = self.store.load(seq)
    filtered = [consumer for consumer in self.consumers.values() if consumer.subject_filter is not None]
    if self.config.retention != "interest" or (
        message is not None and any(consumer.needs(message) for consumer in filtered)
    ):
        Stream.on_settled(self, seq)
    elif message is not None:
        self.remove(seq, self.jetstream.now)


@method_defect(Consumer.needs, "JS-RET-021")
def ret_interest_of_every_consumer(self: Consumer, message: StoredMessage) -> bool:
    """An interest stream keeps a message for consumers whose filter it does not match."""
    return self.acks.needs(message.seq, self.position.next_seq)


@method_defect(Consumer.needs, "JS-RET-022")
def ret_interest_of_unfiltered_consumers(self: Consumer, message: StoredMessage) -> bool:
    """An interest stream does not keep a message for filtered consumers alone."""
    return self.subject_filter is None and Consumer.needs(self, message)


@defect("JS-RET-023")
def ret_interest_outlives_its_consumer(broker: Broker) -> None:
    """Deleting a consumer removes no message of an interest stream."""
    alter_streams(broker, release_unwanted=lambda self: None)


@defect("JS-RET-024")
def ret_interest_keeps_what_is_terminated(broker: Broker) -> None:
    """An interest stream keeps terminated messages."""
    alter_consumers(broker, terminate=_term_does_not_settle("interest"))


@method_defect(Consumer.needs, "JS-RET-025")
def ret_interest_of_ack_none_never_ends(self: Consumer, message: StoredMessage) -> bool:
    """An interest stream keeps messages for a consumer that acknowledges nothing."""
    return self.config.ack_policy == "none" or Consumer.needs(self, message)


@defect("JS-RET-026")
def ret_interest_outside_every_filter_is_kept(broker: Broker) -> None:
    """An interest stream with consumers keeps what none of their filters matches."""
    alter_streams(broker, has_interested_consumer=lambda self, subject: bool(self.consumers))


@defect("JS-RET-027")
def ret_interest_ignores_max_msgs(broker: Broker) -> None:
    """max_msgs does not limit interest streams."""
    alter_streams(broker, has_too_many_messages=_without_max_msgs("interest"))


@method_defect(AckState.acknowledge_up_to, "JS-RET-028")
def ret_ack_all_removes_one(self: AckState, seq: int, consumer_seq: int) -> list[int]:
    """With ack_policy all, an interest stream loses the acknowledged message only."""
    return AckState.acknowledge_up_to(self, seq, consumer_seq)[-1:]


# Limits


@method_defect(Stream.on_settled, "JS-RET-029")
def ret_limits_removes_what_is_acknowledged(self: Stream, seq: int) -> None:
    """A stream with retention limits removes what is acknowledged."""
    Stream.on_settled(self, seq)
    if self.config.retention == "limits":
        self.remove(seq, self.jetstream.now)


@method_defect(Stream.has_interested_consumer, "JS-RET-031")
def ret_interest_ignores_several_filters(self: Stream, subject: bytes) -> bool:
    """A consumer with several filters wants every message, as in nats-server up to 2.10.14."""
    several = any(len(consumer.config.filters) > 1 for consumer in self.consumers.values())
    return several or Stream.has_interested_consumer(self, subject)


@method_defect(Stream.accept_one, "JS-RET-032")
def ret_interest_first_seq_stays(
    self: Stream, subject: bytes, header_block: bytes, payload: bytes, now: int
) -> tuple[StoredMessage | None, bytes]:
    """first_seq stays at 1 when a first message is not kept, as in nats-server 2.10.8 to 2.10.16."""
    message, answer = Stream.accept_one(self, subject, header_block, payload, now)
    if message is None and self.store.last_seq == 1:
        self.store.first_seq = 1
    return message, answer
