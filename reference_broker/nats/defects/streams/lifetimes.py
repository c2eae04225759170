"""Defects of lifetimes that outlive an update, and of those of copies and markers. ADR-43."""

from __future__ import annotations

from typing import Any

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_body, body_of, refuse
from plumbline.reference_broker.nats.defects.methods import jetstream_of, method_defect
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.streams import markers
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


@defect("JS-PUB-087")
def pub_ttl_stays_without_a_refusal(broker: Broker) -> None:
    """An update that takes allow_msg_ttl from a stream is accepted, and changes nothing."""

    def change(fields: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams.get(request.names[0])
        if stream is not None and stream.config.allow_msg_ttl:
            fields["allow_msg_ttl"] = True

    alter_body(broker, "stream_update", change)


@defect("JS-PUB-087")
def pub_ttl_may_be_disabled(broker: Broker) -> None:
    """An update may take allow_msg_ttl from a stream."""

    def change(fields: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams.get(request.names[0])
        if stream is not None:
            stream.config = msgspec.structs.replace(stream.config, allow_msg_ttl=False)

    alter_body(broker, "stream_update", change)


# -- copies ----------------------------------------------------------------------------------------


def _begin(stream: Stream, stored: StoredMessage, **changed: Any) -> None:
    """Begin the lifetime of a copy as if the stream was configured so."""
    config, stream.config = stream.config, msgspec.structs.replace(stream.config, **changed)
    try:
        Stream.begin_copied_lifetime(stream, stored)
    finally:
        stream.config = config


@method_defect(Stream.begin_copied_lifetime, "JS-PUB-088")
def pub_ttl_is_not_for_mirrors(self: Stream, stored: StoredMessage) -> None:
    """A mirror keeps what it copied, whatever its Nats-TTL is."""
    if not self.config.mirror:
        Stream.begin_copied_lifetime(self, stored)


@method_defect(Stream.begin_copied_lifetime, "JS-PUB-088")
def pub_ttl_is_not_for_sources(self: Stream, stored: StoredMessage) -> None:
    """A stream keeps what it has from its sources, whatever its Nats-TTL is."""
    if not self.config.sources:
        Stream.begin_copied_lifetime(self, stored)


@method_defect(Stream.begin_copied_lifetime, "JS-PUB-088")
def pub_ttl_of_copies_needs_no_permission(self: Stream, stored: StoredMessage) -> None:
    """Copies are removed when their Nats-TTL is over, also without allow_msg_ttl."""
    _begin(self, stored, allow_msg_ttl=True)


@method_defect(Stream.begin_copied_lifetime, "JS-PUB-088")
def pub_ttl_of_copies_is_half_as_long(self: Stream, stored: StoredMessage) -> None:
    """The Nats-TTL of a copy is over after half of its time."""
    Stream.begin_copied_lifetime(self, stored)
    end = self.lifetimes.next_end()
    if end is not None:
        self.begin_lifetime(stored.seq, (end - stored.time) // 2, stored.time)


@method_defect(Stream.store_mirrored, "JS-PUB-088")
def pub_ttl_is_nothing_for_a_plain_mirror(self: Stream, message: StoredMessage) -> StoredMessage | None:
    """A mirror without allow_msg_ttl does not take messages with Nats-TTL."""
    if b"Nats-TTL" in message.header_block and not self.config.allow_msg_ttl:
        return None
    return Stream.store_mirrored(self, message)


# -- markers ---------------------------------------------------------------------------------------


@defect("JS-PUB-089")
def markers_are_refused_with_sources(broker: Broker) -> None:
    """A stream with sources may not have subject_delete_marker_ttl."""
    error = errors.STREAM_INVALID_CONFIG(reason="subject delete markers forbidden on sources")

    def has_both(request: Request) -> bool:
        fields = body_of(request) or {}
        return bool(fields.get("sources") and fields.get("subject_delete_marker_ttl"))

    refuse(broker, "stream_create", error, has_both)


@method_defect(Stream.expire, "JS-PUB-090")
def markers_come_beside_other_messages(self: Stream, seq: int, now: int) -> None:
    """Each message that goes by its time leaves a marker, whatever is left of its subject."""
    message = self.store.load(seq)
    Stream.expire(self, seq, now)
    left = self.store.last_of(message.subject) if message is not None else None
    if left is not None and not markers.is_marker(left):
        self.store.append(left.subject, markers.header_block("MaxAge", 1), b"", now)


@method_defect(Stream.expire, "JS-PUB-090")
def markers_leave_markers(self: Stream, seq: int, now: int) -> None:
    """A marker that goes by its time leaves another one."""
    message = self.store.load(seq)
    Stream.expire(self, seq, now)
    if message is not None and markers.is_marker(message):
        self.append(message.subject, message.header_block, b"", now)
