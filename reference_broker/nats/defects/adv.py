"""Defects of advisories and ack samples. What is right: ``jetstream.advisories``, ``service.advise``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_body, alter_success
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_consumers,
    alter_service,
    alter_streams,
    jetstream_defect,
    jetstream_of,
)
from plumbline.reference_broker.nats.jetstream import advisories
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckSubject
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.durations import MILLISECOND

Change = Callable[[Fields], object]


def _silent(name: str, requirement: str, event: str) -> None:
    """No event is told whose subject has ``event`` in it."""

    @jetstream_defect(
        f"adv-{name}-is-not-told",
        breaks=(requirement,),
        summary=f"Nothing is told on $JS.EVENT{event}...",
    )
    def _(broker: Broker) -> None:
        def advise(self: JetStream, subject: str, kind: str, fields: Fields, now: int) -> None:
            if event not in subject:
                JetStream.advise(self, subject, kind, fields, now)

        alter_service(broker, advise=advise)


for _silence in (
    ("stream-create", "JS-ADV-001", ".ADVISORY.STREAM.CREATED."),
    ("audit", "JS-ADV-002", ".ADVISORY.API"),
    ("stream-update", "JS-ADV-003", ".ADVISORY.STREAM.UPDATED."),
    ("consumer-create", "JS-ADV-004", ".ADVISORY.CONSUMER.CREATED."),
    ("nak", "JS-ADV-005", ".ADVISORY.CONSUMER.MSG_NAKED."),
    ("max-deliveries", "JS-ADV-006", ".ADVISORY.CONSUMER.MAX_DELIVERIES."),
    ("termination", "JS-ADV-007", ".ADVISORY.CONSUMER.MSG_TERMINATED."),
    ("ack", "JS-ADV-008", ".METRIC.CONSUMER.ACK."),
    ("consumer-delete", "JS-ADV-010", ".ADVISORY.CONSUMER.DELETED."),
    ("stream-delete", "JS-ADV-012", ".ADVISORY.STREAM.DELETED."),
    ("pause", "JS-ADV-016", ".ADVISORY.CONSUMER.PAUSE."),
    ("unpin", "JS-ADV-016", ".ADVISORY.CONSUMER.UNPINNED."),
):
    _silent(*_silence)


def _altered(name: str, requirement: str, event: str, summary: str, change: Change) -> None:
    """The fields of events whose subject has ``event`` in it are others."""

    @jetstream_defect(f"adv-{name}", breaks=(requirement,), summary=summary)
    def _(broker: Broker) -> None:
        def advise(self: JetStream, subject: str, kind: str, fields: Fields, now: int) -> None:
            if event in subject:
                fields = dict(fields)
                change(fields)
            JetStream.advise(self, subject, kind, fields, now)

        alter_service(broker, advise=advise)


def _put(**fields: Any) -> Change:
    return lambda told: told.update(fields)


def _less(field: str, by: int) -> Change:
    def change(told: Fields) -> None:
        told[field] -= by

    return change


def _coarse(told: Fields) -> None:
    told["ack_time"] //= MILLISECOND


def _decoded(told: Fields) -> None:
    told["response"] = msgspec.json.decode(told["response"])


def _without_client(told: Fields) -> None:
    del told["client"]


for _alteration in (
    (
        "stream-create-is-an-update",
        "JS-ADV-001",
        ".STREAM.CREATED.",
        "A new stream is told with action modify.",
        _put(action="modify"),
    ),
    (
        "audit-hides-the-client",
        "JS-ADV-002",
        ".ADVISORY.API",
        "The audit of a request does not tell who asked.",
        _without_client,
    ),
    (
        "audit-decodes-the-response",
        "JS-ADV-002",
        ".ADVISORY.API",
        "The audit of a request has the response as an object, not as text.",
        _decoded,
    ),
    (
        "stream-update-says-update",
        "JS-ADV-003",
        ".STREAM.UPDATED.",
        "The update of a stream is told with action update.",
        _put(action="update"),
    ),
    (
        "consumer-create-hides-its-name",
        "JS-ADV-004",
        ".CONSUMER.CREATED.",
        "A new consumer is told without its name.",
        _put(consumer=""),
    ),
    (
        "nak-tells-one-delivery",
        "JS-ADV-005",
        ".MSG_NAKED.",
        "Each -NAK is told as that of a first delivery.",
        _put(deliveries=1),
    ),
    (
        "max-deliveries-counts-redeliveries",
        "JS-ADV-006",
        ".MAX_DELIVERIES.",
        "max_deliver is told with the number of redeliveries.",
        _less("deliveries", 1),
    ),
    (
        "termination-tells-the-message-before",
        "JS-ADV-007",
        ".MSG_TERMINATED.",
        "+TERM is told with the stream sequence of the message before.",
        _less("stream_seq", 1),
    ),
    (
        "termination-hides-its-reason",
        "JS-ADV-007",
        ".MSG_TERMINATED.",
        "The reason that +TERM gives is told as another.",
        _put(reason="terminated"),
    ),
    (
        "ack-time-is-in-milliseconds",
        "JS-ADV-008",
        ".CONSUMER.ACK.",
        "ack_time of a sample is in milliseconds.",
        _coarse,
    ),
    (
        "consumer-delete-says-remove",
        "JS-ADV-010",
        ".CONSUMER.DELETED.",
        "The deletion of a consumer is told with action remove.",
        _put(action="remove"),
    ),
    (
        "stream-delete-says-remove",
        "JS-ADV-012",
        ".STREAM.DELETED.",
        "The deletion of a stream is told with action remove.",
        _put(action="remove"),
    ),
    (
        "pin-is-told-without-its-id",
        "JS-ADV-016",
        ".CONSUMER.PINNED.",
        "A pinned client is told without its id.",
        _put(pinned_id=""),
    ),
):
    _altered(*_alteration)


# The head of every event


@jetstream_defect(
    "adv-ids-are-long",
    breaks=("JS-ADV-013",),
    summary="The id of an event has 32 characters.",
)
def _(broker: Broker) -> None:
    def new_name(self: JetStream, length: int) -> str:
        return JetStream.new_name(self, 32 if length == 22 else length)

    alter_service(broker, new_name=new_name)


@jetstream_defect("adv-ids-repeat", breaks=("JS-ADV-013",), summary="Every event has the same id.")
def _(broker: Broker) -> None:
    def new_name(self: JetStream, length: int) -> str:
        return "A" * length if length == 22 else JetStream.new_name(self, length)

    alter_service(broker, new_name=new_name)


@jetstream_defect(
    "adv-timestamps-are-numbers",
    breaks=("JS-ADV-013",),
    summary="The timestamp of an event is nanoseconds since 1970.",
)
def _(broker: Broker) -> None:
    def advise(self: JetStream, subject: str, kind: str, fields: Fields, now: int) -> None:
        JetStream.advise(self, subject, kind, {**fields, "timestamp": now}, now)

    alter_service(broker, advise=advise)


# When something is told


@jetstream_defect(
    "adv-stream-delete-is-silent-about-consumers",
    breaks=("JS-ADV-012",),
    summary="The deletion of a stream does not tell that its consumers are deleted.",
)
def _(broker: Broker) -> None:
    def close(self: Stream, now: int) -> None:
        for consumer in tuple(self.consumers.values()):
            del self.consumers[consumer.name]
            consumer.close()
        Stream.close(self, now)

    alter_streams(broker, close=close)


@jetstream_defect(
    "adv-purge-is-told",
    breaks=("JS-ADV-011",),
    summary="The purge of a stream is told as an event of the stream.",
)
def _(broker: Broker) -> None:
    def change(answer: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams[request.names[0]]
        advisories.stream_action(stream, "PURGED", "purge", request.now)

    alter_success(broker, "stream_purge", change)


@jetstream_defect(
    "adv-inactive-consumer-is-not-told",
    breaks=("JS-ADV-010",),
    summary="That a consumer is deleted because nobody uses it is not told.",
)
def _(broker: Broker) -> None:
    def inactive_due(self: Consumer, now: int) -> None:
        jetstream = self.stream.jetstream
        advise = jetstream.advise
        jetstream.advise = lambda *event: None  # type: ignore[method-assign]
        Consumer.inactive_due(self, now)
        jetstream.advise = advise  # type: ignore[method-assign]

    alter_consumers(broker, inactive_due=inactive_due)


# Ack samples


@jetstream_defect(
    "adv-nak-is-sampled",
    breaks=("JS-ADV-008",),
    summary="-NAK is told as the acknowledgement of a sample.",
)
def _(broker: Broker) -> None:
    def nak(self: Consumer, subject: AckSubject, delay: int | None, now: int) -> None:
        if self.config.sample_freq:
            advisories.ack_sample(self, subject, now)
        Consumer.nak(self, subject, delay, now)

    alter_consumers(broker, nak=nak)


@jetstream_defect(
    "adv-every-second-ack-is-sampled",
    breaks=("JS-ADV-008",),
    summary="sample_freq 100 samples every second acknowledgement.",
)
def _(broker: Broker) -> None:
    def ack(self: Consumer, subject: AckSubject, now: int, *, sampled: bool) -> bool:
        return Consumer.ack(self, subject, now, sampled=sampled and subject.consumer_seq % 2 == 0)

    alter_consumers(broker, ack=ack)


@jetstream_defect(
    "adv-acks-are-sampled-unasked",
    breaks=("JS-ADV-008",),
    summary="Acknowledgements are sampled without sample_freq.",
)
def _(broker: Broker) -> None:
    def ack(self: Consumer, subject: AckSubject, now: int, *, sampled: bool) -> bool:
        if sampled and not self.config.sample_freq:
            self.sample_debt = 100
            self.config.sample_freq = "100"
            advisories.ack_sample(self, subject, now)
            self.config.sample_freq = ""
        return Consumer.ack(self, subject, now, sampled=sampled)

    alter_consumers(broker, ack=ack)


@jetstream_defect(
    "adv-percent-sign-is-dropped",
    breaks=("JS-ADV-009",),
    summary="sample_freq is shown without its percent sign.",
)
def _(broker: Broker) -> None:
    def change(answer: Fields, request: Request) -> None:
        config = answer["config"]
        if "sample_freq" in config:
            config["sample_freq"] = config["sample_freq"].removesuffix("%")

    alter_success(broker, "consumer_create", change)


@jetstream_defect(
    "adv-percent-sign-is-refused",
    breaks=("JS-ADV-009",),
    summary="sample_freq with a percent sign is refused.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        config = fields.get("config", {})
        config["sample_freq"] = config.get("sample_freq", "").replace("%", "percent")

    alter_body(broker, "consumer_create", change)
