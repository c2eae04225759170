"""Defects in what a stream republishes (ADR-28)."""

from __future__ import annotations

from collections.abc import Callable

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_body,
    alter_sent,
)
from plumbline.reference_broker.nats.defects.methods import alter_streams, jetstream_of, method_defect
from plumbline.reference_broker.nats.defects.streams.transforms import in_order
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.reference_broker.nats.jetstream.subjects import collide
from plumbline.wire.nats.headers import Headers, encode_headers

# -- headers ---------------------------------------------------------------------------------------


def _republished(broker: Broker, change: Callable[[list[tuple[str, str]]], list[tuple[str, str]]]) -> None:
    """What a stream republishes has other headers."""

    def altered(headers: Headers, payload: bytes) -> tuple[bytes, bytes]:
        fields = headers.fields
        is_it = headers.status is None and "Nats-Last-Sequence" in dict(fields)
        return encode_headers(change(list(fields)) if is_it else fields, headers.status), payload

    alter_sent(broker, altered)


# -- what is republished, and where to -------------------------------------------------------------


@defect("JS-API-171")
def republish_takes_every_subject(broker: Broker) -> None:
    """A stream republishes all messages, whatever the src of its republish is."""

    def change(body: Fields, request: Request) -> None:
        if "republish" in body:
            body["republish"]["src"] = ">"

    alter_body(broker, "stream_create", change)


@defect("JS-API-171")
def republish_last_sequence_is_of_any_subject(broker: Broker) -> None:
    """Nats-Last-Sequence of a republished message is the sequence before its own."""

    def change(fields: list[tuple[str, str]]) -> list[tuple[str, str]]:
        before = str(int(dict(fields)["Nats-Sequence"]) - 1)
        return [(name, before if name == "Nats-Last-Sequence" else value) for name, value in fields]

    _republished(broker, change)


@defect("JS-API-171", "JS-API-198")
def republish_drops_the_headers(broker: Broker) -> None:
    """A republished message lacks the headers that it was published with."""
    _republished(broker, lambda fields: [(name, value) for name, value in fields if name.startswith("Nats-")])


@defect("JS-API-198")
def republish_has_no_size(broker: Broker) -> None:
    """A message that is republished without its payload lacks Nats-Msg-Size."""
    _republished(broker, lambda fields: [(name, value) for name, value in fields if name != "Nats-Msg-Size"])


@defect("JS-API-198")
def republish_has_the_size_of_nothing(broker: Broker) -> None:
    """Nats-Msg-Size of a republished message is that of the empty payload."""
    _republished(
        broker,
        lambda fields: [(name, "0" if name == "Nats-Msg-Size" else value) for name, value in fields],
    )


@defect("JS-API-230")
def republish_remembers_what_is_deleted(broker: Broker) -> None:
    """Nats-Last-Sequence of a republished message may be that of one that was deleted or purged."""
    last: dict[str, str] = {}

    def change(fields: list[tuple[str, str]]) -> list[tuple[str, str]]:
        subject, sequence = dict(fields)["Nats-Subject"], dict(fields)["Nats-Sequence"]
        before, last[subject] = last.get(subject, "0"), sequence
        return [(name, before if name == "Nats-Last-Sequence" else value) for name, value in fields]

    _republished(broker, change)


# -- the configuration -----------------------------------------------------------------------------


def _read(broker: Broker, kind: str, change: Callable[[Fields, Stream | None], None]) -> None:
    """``change`` alters the body of each such request, and gets the stream, if it is there."""

    def changed(fields: Fields, request: Request) -> None:
        change(fields, jetstream_of(broker).streams.get(request.names[0]))

    alter_body(broker, kind, changed)


@defect("JS-API-226")
def republish_needs_a_src(broker: Broker) -> None:
    """A republish without src is of no subject."""

    def change(fields: Fields, stream: Stream | None) -> None:
        if "republish" in fields and not fields["republish"].get("src"):
            del fields["republish"]

    _read(broker, "stream_create", change)


@defect("JS-API-171")
def republish_wildcards_come_in_order(broker: Broker) -> None:
    """The wildcards in the dest of a republish come in the order of its src."""

    def change(fields: Fields, stream: Stream | None) -> None:
        if "dest" in fields.get("republish", {}):
            fields["republish"]["dest"] = in_order(fields["republish"]["dest"])

    _read(broker, "stream_create", change)


def _leads_back(fields: Fields) -> bool:
    dest = fields.get("republish", {}).get("dest", "").encode()
    return any(collide(dest, subject.encode()) for subject in fields.get("subjects") or ())


@defect("JS-API-227")
def republish_cycles_are_equal_subjects(broker: Broker) -> None:
    """A new stream may have a republish whose dest overlaps with one of its subjects but is not the same."""

    def change(fields: Fields, stream: Stream | None) -> None:
        if _leads_back(fields) and fields["republish"]["dest"] not in fields["subjects"]:
            del fields["republish"]

    _read(broker, "stream_create", change)


@defect("JS-API-227")
def republish_cycles_may_come_by_updates(broker: Broker) -> None:
    """An update to a republish that leads into the stream is accepted, and changes nothing."""

    def change(fields: Fields, stream: Stream | None) -> None:
        if _leads_back(fields):
            del fields["republish"]

    _read(broker, "stream_update", change)


@defect("JS-API-228")
def republish_outlives_its_removal(broker: Broker) -> None:
    """An update without republish leaves the stream the one that it has."""

    def change(fields: Fields, stream: Stream | None) -> None:
        if stream is not None and stream.config.republish and "republish" not in fields:
            fields["republish"] = stream.config.republish

    _read(broker, "stream_update", change)


@defect("JS-API-228")
def republish_is_never_changed(broker: Broker) -> None:
    """An update with another republish leaves the stream the one that it has."""

    def change(fields: Fields, stream: Stream | None) -> None:
        if stream is not None and stream.config.republish and "republish" in fields:
            fields["republish"] = stream.config.republish

    _read(broker, "stream_update", change)


# -- what is not stored, and what is copied --------------------------------------------------------


def _unstored(chosen: Callable[[bytes], bool]) -> Callable[[Broker], None]:
    """A message is republished also if the stream has not stored it, if its headers are chosen."""

    def publish(
        self: Stream, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes, now: int
    ) -> None:
        before = self.store.last_seq
        Stream.publish(self, subject, reply, header_block, payload, now)
        if self.republish is not None and self.store.last_seq == before and chosen(header_block):
            self.republish.send(StoredMessage(before + 1, subject, header_block, payload, now), now)

    return lambda broker: alter_streams(broker, publish=publish)


@defect("JS-API-229")
def republish_takes_duplicates(broker: Broker) -> None:
    """A stream republishes also duplicates."""
    _unstored(lambda header_block: b"Nats-Msg-Id" in header_block)(broker)


@defect("JS-API-229")
def republish_takes_what_is_refused(broker: Broker) -> None:
    """A stream republishes also what it refuses."""
    _unstored(lambda header_block: b"Nats-Msg-Id" not in header_block)(broker)


def _without_republish(stream: Stream, message: StoredMessage, now: int) -> None:
    republish, stream.republish = stream.republish, None
    try:
        Stream.on_stored(stream, message, now)
    finally:
        stream.republish = republish


@method_defect(Stream.on_stored, "JS-API-231")
def republish_is_not_for_sources(self: Stream, message: StoredMessage, now: int) -> None:
    """A stream does not republish what comes from its sources."""
    (_without_republish if self.config.sources else Stream.on_stored)(self, message, now)


@method_defect(Stream.on_stored, "JS-API-231")
def republish_is_not_for_mirrors(self: Stream, message: StoredMessage, now: int) -> None:
    """A mirror does not republish what it gets."""
    (_without_republish if self.config.mirror else Stream.on_stored)(self, message, now)
