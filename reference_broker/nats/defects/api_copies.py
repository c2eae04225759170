"""Defects in mirrors, sources and republishing, and in what holds for the whole API."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_answer,
    alter_error,
    alter_success,
)
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_consumers,
    alter_streams,
    jetstream_defect,
)
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.store import Message
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.durations import SECOND


@jetstream_defect(
    "mirror-numbers-anew",
    breaks=("JS-API-168",),
    summary="A mirror gives the messages of its origin sequences of its own.",
)
def _(broker: Broker) -> None:
    def mirrored(self: Stream, message: Message) -> Message | None:
        return self.store.append(message.subject, message.header_block, message.payload, message.time)

    alter_streams(broker, mirrored=mirrored)


@jetstream_defect(
    "mirror-stops-at-what-there-was",
    breaks=("JS-API-168",),
    summary="A mirror gets what its origin had when it was made, and nothing later.",
)
def _(broker: Broker) -> None:
    def mirrored(self: Stream, message: Message) -> Message | None:
        return Stream.mirrored(self, message) if message.time < self.created else None

    alter_streams(broker, mirrored=mirrored)


@jetstream_defect(
    "mirror-with-subjects-has-another-code",
    breaks=("JS-API-169",),
    summary="A refusal of STREAM.CREATE with 10034 has err_code 10052.",
)
def _(broker: Broker) -> None:
    alter_error(broker, "stream_create", 10034, 10052)


@jetstream_defect(
    "source-is-not-named",
    breaks=("JS-API-170",),
    summary="A message from a source does not say where it came from.",
)
def _(broker: Broker) -> None:
    def sourced(self: Stream, origin: Stream, message: Message, now: int) -> Message | None:
        return self.store.append(message.subject, message.header_block, message.payload, now)

    alter_streams(broker, sourced=sourced)


@jetstream_defect(
    "pause-is-ignored", breaks=("JS-API-164",), summary="A consumer that is paused delivers all the same."
)
def _(broker: Broker) -> None:
    def pause(self: Consumer, config: ConsumerConfig) -> None:
        self.paused_until = 0

    alter_consumers(broker, pause=pause)


@jetstream_defect(
    "error-has-no-description", breaks=("JS-API-175",), summary="An error of STREAM.INFO has no description."
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if "error" in fields:
            del fields["error"]["description"]

    alter_answer(broker, "stream_info", change)


@jetstream_defect(
    "purge-has-another-type",
    breaks=("JS-API-176",),
    summary="The type of the answer to a purge lacks its version.",
)
def _(broker: Broker) -> None:
    alter_answer(
        broker,
        "stream_purge",
        lambda fields, _: fields.update(type="io.nats.jetstream.api.stream_purge_response"),
    )


@jetstream_defect(
    "consumer-durations-are-seconds",
    breaks=("JS-API-177",),
    summary="The ack_wait in a consumer info is a number of seconds.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if "ack_wait" in fields["config"]:
            fields["config"]["ack_wait"] //= SECOND

    alter_success(broker, "consumer_info", change)
