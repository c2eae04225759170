"""Defects of scope: what is asked of one stream or consumer happens to others, too; and times that differ."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_success, body_of
from plumbline.reference_broker.nats.defects.methods import (
    alter_streams,
    jetstream_of,
    method_defect,
    push_defect,
)
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckSubjectFields
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.nats.jetstream.times import format_time

# Consumers


@method_defect(Consumer.ack, "JS-SEQ-019")
def scope_of_acks_is_the_stream(
    self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool
) -> bool:
    """An acknowledgement counts for all consumers of the stream."""
    for other in self.stream.consumers.values():
        if other is not self:
            Consumer.ack(other, subject, now, sampled=False)
    return Consumer.ack(self, subject, now, sampled=sampled)


@method_defect(Consumer.ack, "JS-SEQ-019")
def scope_of_acks_is_the_name(self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool) -> bool:
    """An acknowledgement counts for the consumers of that name of all streams."""
    for stream in self.stream.jetstream.streams.values():
        other = stream.consumers.get(self.name)
        if other is not None and other is not self:
            Consumer.ack(other, subject, now, sampled=False)
    return Consumer.ack(self, subject, now, sampled=sampled)


@method_defect(Consumer.nak, "JS-SEQ-019")
def scope_of_naks_is_the_stream(
    self: Consumer, subject: AckSubjectFields, delay: int | None, now: int
) -> None:
    """A -NAK makes all consumers of the stream deliver the message again."""
    for consumer in self.stream.consumers.values():
        if subject.stream_seq < consumer.position.next_seq or consumer is self:
            Consumer.nak(consumer, subject, delay, now)
        else:
            consumer.acks.request_redelivery(subject.stream_seq)


# Streams


@defect("JS-API-178")
def scope_of_purges_is_everything(broker: Broker) -> None:
    """A purge empties all streams."""

    def purge(self: Stream, now: int, subject: bytes | None = None, *, below: int = 0, keep: int = 0) -> int:
        for other in self.jetstream.streams.values():
            if other is not self:
                Stream.purge(other, now)
        return Stream.purge(self, now, subject, below=below, keep=keep)

    alter_streams(broker, purge=purge)


@defect("JS-API-178")
def scope_of_message_deletes_is_everything(broker: Broker) -> None:
    """Deleting a message deletes the one of that sequence of every stream."""

    def change(fields: Fields, request: Request) -> None:
        for stream in jetstream_of(broker).streams.values():
            stream.remove((body_of(request) or {}).get("seq", 0), request.now)

    alter_success(broker, "stream_msg_delete", change)


@defect("JS-API-178")
def scope_of_consumer_deletes_is_the_name(broker: Broker) -> None:
    """Deleting a consumer deletes those of its name of every stream."""

    def change(fields: Fields, request: Request) -> None:
        for stream in jetstream_of(broker).streams.values():
            if (consumer := stream.consumers.get(request.names[1])) is not None:
                stream.delete_consumer(consumer, request.now)

    alter_success(broker, "consumer_delete", change)


@defect("JS-API-178")
def scope_of_consumer_deletes_is_the_stream(broker: Broker) -> None:
    """Deleting a consumer deletes all consumers of its stream."""

    def change(fields: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams[request.names[0]]
        for consumer in list(stream.consumers.values()):
            stream.delete_consumer(consumer, request.now)

    alter_success(broker, "consumer_delete", change)


@push_defect(Consumer.on_interest_lost, "JS-PUSH-019")
def scope_of_a_push_consumer_is_its_subscriber(self: Consumer, now: int) -> None:
    """A durable push consumer goes with its subscriber."""
    self.stream.delete_consumer(self, now)


# Times


@defect("JS-API-179")
def times_of_the_first_message_stay(broker: Broker) -> None:
    """first_ts stays the time of the first message there ever was."""
    first: dict[str, str] = {}

    def change(fields: Fields, request: Request) -> None:
        fields["state"]["first_ts"] = first.setdefault(request.names[0], fields["state"]["first_ts"])

    alter_success(broker, "stream_info", change)


@defect("JS-API-179")
def times_of_the_last_message_are_now(broker: Broker) -> None:
    """last_ts is the time of the request."""

    def change(fields: Fields, request: Request) -> None:
        fields["state"]["last_ts"] = format_time(request.now)

    alter_success(broker, "stream_info", change)


@defect("JS-API-179")
def times_of_messages_are_of_the_first(broker: Broker) -> None:
    """STREAM.MSG.GET shows the time of the first message for all."""

    def change(fields: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams[request.names[0]]
        first = stream.store.load(stream.store.first_seq)
        if first is not None:
            fields["message"]["time"] = format_time(first.time)

    alter_success(broker, "stream_msg_get", change)


# +WPI


@method_defect(Consumer.progress, "JS-ACK-042")
def late_progress_is_ignored(self: Consumer, subject: AckSubjectFields, now: int) -> None:
    """+WPI does nothing once the message was delivered again."""
    if subject.stream_seq not in self.acks.redelivered:
        Consumer.progress(self, subject, now)


@method_defect(Consumer.progress, "JS-ACK-042")
def late_progress_needs_the_last_subject(self: Consumer, subject: AckSubjectFields, now: int) -> None:
    """+WPI to the subject of an earlier delivery does nothing."""
    if subject.deliveries > self.acks.redelivered.get(subject.stream_seq, 0):
        Consumer.progress(self, subject, now)
