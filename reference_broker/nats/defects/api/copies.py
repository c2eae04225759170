"""Defects in mirrors, sources and republishing, and in what holds for the whole API."""

from __future__ import annotations

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_success,
)
from plumbline.reference_broker.nats.defects.methods import (
    method_defect,
)
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams import copying
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.units import SECOND


@method_defect(Stream.store_mirrored, "JS-API-168")
def mirror_numbers_anew(self: Stream, message: StoredMessage) -> StoredMessage | None:
    """A mirror gives the messages of its origin sequences of its own."""
    return self.store.append(message.subject, message.header_block, message.payload, message.time)


@method_defect(Stream.store_mirrored, "JS-API-168")
def mirror_stops_at_what_there_was(self: Stream, message: StoredMessage) -> StoredMessage | None:
    """A mirror gets what its origin had when it was made, and nothing later."""
    return Stream.store_mirrored(self, message) if message.time < self.created else None


@method_defect(Stream.store_sourced, "JS-API-170")
def source_is_not_named(
    self: Stream, origin: Stream, message: StoredMessage, now: int
) -> StoredMessage | None:
    """A message from a source does not say where it came from."""
    return self.store.append(message.subject, message.header_block, message.payload, now)


@method_defect(Stream.store_mirrored, "JS-API-180")
def mirror_begins_at_the_beginning(self: Stream, message: StoredMessage) -> StoredMessage | None:
    """A mirror takes what its origin has before opt_start_seq, too."""
    whole = msgspec.structs.replace(self.config, mirror={**(self.config.mirror or {}), "opt_start_seq": 0})
    config, self.config = self.config, whole
    try:
        return Stream.store_mirrored(self, message)
    finally:
        self.config = config


@method_defect(Stream.store_sourced, "JS-API-180")
def source_begins_one_late(
    self: Stream, origin: Stream, message: StoredMessage, now: int
) -> StoredMessage | None:
    """A stream leaves out the message at the opt_start_seq of its source."""
    starts = {copying.starts_at(source) for source in copying.origins(self)}
    return None if message.seq in starts else Stream.store_sourced(self, origin, message, now)


@method_defect(Stream.store_sourced, "JS-API-181")
def source_filters_what_there_was(
    self: Stream, origin: Stream, message: StoredMessage, now: int
) -> StoredMessage | None:
    """The filter_subject of a source is for what its origin had when the stream was made."""
    config = self.config
    if message.time > self.created:
        sources = [{**source, "filter_subject": ""} for source in config.sources or ()]
        self.config = msgspec.structs.replace(config, sources=sources)
    try:
        return Stream.store_sourced(self, origin, message, now)
    finally:
        self.config = config


@method_defect(Consumer.pause, "JS-API-164")
def pause_is_ignored(self: Consumer, config: ConsumerConfig) -> None:
    """A consumer that is paused delivers all the same."""
    self.paused_until = 0


@defect("JS-API-177")
def consumer_durations_are_seconds(broker: Broker) -> None:
    """The ack_wait in a consumer info is a number of seconds."""

    def change(fields: Fields, request: Request) -> None:
        if "ack_wait" in fields["config"]:
            fields["config"]["ack_wait"] //= SECOND

    alter_success(broker, "consumer_info", change)
