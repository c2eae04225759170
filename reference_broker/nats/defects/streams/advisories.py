"""Defects of advisories and ack samples. What is right: ``jetstream.advisories``, ``service.advise``."""

from __future__ import annotations

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_body, alter_success
from plumbline.reference_broker.nats.defects.methods import (
    alter_service,
    jetstream_of,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream import advisories
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckSubjectFields
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.units import MILLISECOND, SECOND

HOUR = 3600 * SECOND

# What an event says


@defect("JS-ADV-008")
def adv_ack_time_is_in_milliseconds(broker: Broker) -> None:
    """ack_time of a sample is in milliseconds."""

    def advise(self: JetStream, subject: str, kind: str, fields: Fields, now: int) -> None:
        if ".CONSUMER.ACK." in subject:
            fields = {**fields, "ack_time": fields["ack_time"] // MILLISECOND}
        JetStream.advise(self, subject, kind, fields, now)

    alter_service(broker, advise=advise)


@defect("JS-ADV-002")
def adv_audit_decodes_the_response(broker: Broker) -> None:
    """The audit of a request has the response as an object, not as text."""

    def advise(self: JetStream, subject: str, kind: str, fields: Fields, now: int) -> None:
        if ".ADVISORY.API" in subject:
            fields = {**fields, "response": msgspec.json.decode(fields["response"])}
        JetStream.advise(self, subject, kind, fields, now)

    alter_service(broker, advise=advise)


@method_defect(Consumer.ack, "JS-ADV-009")
def adv_every_ack_is_sampled(self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool) -> bool:
    """A consumer with sample_freq samples every acknowledgement, whatever the number is."""
    self.sample_debt = 100
    return Consumer.ack(self, subject, now, sampled=sampled)


# The head of every event


@method_defect(JetStream.advise, "JS-ADV-021")
def adv_times_are_those_of_the_start(
    self: JetStream, subject: str, kind: str, fields: Fields, now: int
) -> None:
    """The timestamp of an event is a time long before."""
    JetStream.advise(self, subject, kind, fields, now - HOUR)


def _once(broker: Broker, part: str) -> None:
    """The first event on each such subject is the last."""
    seen = set[str]()

    def advise(self: JetStream, subject: str, kind: str, fields: Fields, now: int) -> None:
        if part not in subject or subject not in seen:
            seen.add(subject)
            JetStream.advise(self, subject, kind, fields, now)

    alter_service(broker, advise=advise)


@defect("JS-ADV-007")
def adv_one_term_is_reported(broker: Broker) -> None:
    """A second +TERM on a consumer causes no advisory."""
    _once(broker, ".MSG_TERMINATED.")


@defect("JS-ADV-003")
def adv_one_update_is_reported(broker: Broker) -> None:
    """A second update of a stream causes no advisory."""
    _once(broker, ".STREAM.UPDATED.")


@method_defect(JetStream.new_name, "JS-ADV-013")
def adv_ids_are_empty(self: JetStream, length: int) -> str:
    """The id of an event is an empty text."""
    return "" if length == 22 else JetStream.new_name(self, length)


@method_defect(JetStream.new_name, "JS-ADV-013")
def adv_ids_repeat(self: JetStream, length: int) -> str:
    """Every event has the same id."""
    return "A" * length if length == 22 else JetStream.new_name(self, length)


@method_defect(JetStream.advise, "JS-ADV-013")
def adv_timestamps_are_numbers(self: JetStream, subject: str, kind: str, fields: Fields, now: int) -> None:
    """The timestamp of an event is nanoseconds since 1970."""
    JetStream.advise(self, subject, kind, {**fields, "timestamp": now}, now)


# When something is reported


@method_defect(Stream.close, "JS-ADV-012")
def adv_stream_delete_is_silent_about_consumers(self: Stream, now: int) -> None:
    """The deletion of a stream does not tell that its consumers are deleted."""
    for consumer in tuple(self.consumers.values()):
        del self.consumers[consumer.name]
        consumer.close()
    Stream.close(self, now)


@defect("JS-ADV-011")
def adv_purge_is_told(broker: Broker) -> None:
    """The purge of a stream is reported as an event of the stream."""

    def change(answer: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams[request.names[0]]
        advisories.stream_action(stream, "PURGED", "purge", request.now)

    alter_success(broker, "stream_purge", change)


@method_defect(Consumer.on_inactive, "JS-ADV-010")
def adv_inactive_consumer_is_not_told(self: Consumer, now: int) -> None:
    """That a consumer is deleted because it is not used is not reported."""
    jetstream = self.stream.jetstream
    advise = jetstream.advise
    jetstream.advise = lambda *event: None  # type: ignore[method-assign]
    Consumer.on_inactive(self, now)
    jetstream.advise = advise  # type: ignore[method-assign]


# Ack samples


@method_defect(Consumer.nak, "JS-ADV-008")
def adv_nak_is_sampled(self: Consumer, subject: AckSubjectFields, delay: int | None, now: int) -> None:
    """-NAK is reported as the acknowledgement of a sample."""
    if self.config.sample_freq:
        advisories.ack_sample(self, subject, now)
    Consumer.nak(self, subject, delay, now)


@method_defect(Consumer.ack, "JS-ADV-008")
def adv_every_second_ack_is_sampled(
    self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool
) -> bool:
    """sample_freq 100 samples every second acknowledgement."""
    return Consumer.ack(self, subject, now, sampled=sampled and subject.consumer_seq % 2 == 0)


@method_defect(Consumer.ack, "JS-ADV-008")
def adv_acks_are_sampled_unasked(
    self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool
) -> bool:
    """Acknowledgements are sampled without sample_freq."""
    if sampled and not self.config.sample_freq:
        self.sample_debt = 100
        self.config.sample_freq = "100"
        advisories.ack_sample(self, subject, now)
        self.config.sample_freq = ""
    return Consumer.ack(self, subject, now, sampled=sampled)


@defect("JS-ADV-009")
def adv_percent_sign_is_dropped(broker: Broker) -> None:
    """sample_freq is shown without its percent sign."""

    def change(answer: Fields, request: Request) -> None:
        config = answer["config"]
        if "sample_freq" in config:
            config["sample_freq"] = config["sample_freq"].removesuffix("%")

    alter_success(broker, "consumer_create", change)


@defect("JS-ADV-009")
def adv_percent_sign_is_refused(broker: Broker) -> None:
    """sample_freq with a percent sign is refused."""

    def change(fields: Fields, request: Request) -> None:
        config = fields.get("config", {})
        config["sample_freq"] = config.get("sample_freq", "").replace("%", "percent")

    alter_body(broker, "consumer_create", change)


# Deleted messages


@method_defect(Consumer.pending_subject, "JS-ADV-017")
def adv_deleted_messages_were_never_delivered(self: Consumer, seq: int) -> AckSubjectFields | None:
    """The event of a message that was deleted while it was pending counts no delivery."""
    found = Consumer.pending_subject(self, seq)
    return found and msgspec.structs.replace(found, deliveries=0)


@method_defect(Consumer.pending_subject, "JS-ADV-017")
def adv_deleted_messages_are_not_told(self: Consumer, seq: int) -> AckSubjectFields | None:
    """There is no event of a message that was deleted while it was pending."""
    return None


# Streams that listen


@method_defect(Stream.publish, "JS-ADV-018")
def adv_events_are_not_stored(
    self: Stream, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes, now: int
) -> None:
    """A stream does not store what the server itself publishes."""
    if not subject.startswith(b"$JS.EVENT."):
        Stream.publish(self, subject, reply, header_block, payload, now)


@method_defect(Stream.publish, "JS-ADV-018")
def adv_events_are_stored_with_headers(
    self: Stream, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes, now: int
) -> None:
    """What the server itself publishes is stored with a header."""
    if subject.startswith(b"$JS.EVENT."):
        header_block = b"NATS/1.0\r\nEvent: 1\r\n\r\n"
    Stream.publish(self, subject, reply, header_block, payload, now)
