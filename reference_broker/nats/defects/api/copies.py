"""Defects in mirrors, sources and restored streams."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_body,
    alter_success,
)
from plumbline.reference_broker.nats.defects.methods import (
    alter_consumers,
    alter_streams,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams import copying
from plumbline.reference_broker.nats.jetstream.streams.config import StreamConfig
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
    self: Stream, source: dict[str, Any], message: StoredMessage, now: int
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
    self: Stream, source: dict[str, Any], message: StoredMessage, now: int
) -> StoredMessage | None:
    """A stream leaves out the message at the opt_start_seq of its source."""
    starts = {copying.starts_at(source) for source in copying.origins(self)}
    return None if message.seq in starts else Stream.store_sourced(self, source, message, now)


def _without(stream: Stream, field: str, origin: str, message: StoredMessage) -> Iterable[dict[str, Any]]:
    """Which sources take a message if none of them has ``field``."""
    sources = [{**source, field: None} for source in stream.config.sources or ()]
    return copying.matching_sources(sources, origin, message)


@method_defect(Stream.sources_that_take, "JS-API-181")
def source_filters_what_there_was(
    self: Stream, origin: str, message: StoredMessage
) -> Iterable[dict[str, Any]]:
    """The filter_subject of a source is for what its origin had when the stream was made."""
    if message.time <= self.created:
        return Stream.sources_that_take(self, origin, message)
    return _without(self, "filter_subject", origin, message)


@method_defect(Stream.sources_that_take, "JS-API-215")
def source_begins_before_its_time(
    self: Stream, origin: str, message: StoredMessage
) -> Iterable[dict[str, Any]]:
    """A source gives what its origin stored before opt_start_time, too."""
    return _without(self, "opt_start_time", origin, message)


@method_defect(Stream.sources_that_take, "JS-API-181", "JS-API-221")
def one_source_has_one_filter(self: Stream, origin: str, message: StoredMessage) -> Iterable[dict[str, Any]]:
    """Of two sources with the same name the first counts."""
    named = {source["name"]: source for source in reversed(self.config.sources or ())}
    return copying.matching_sources(named.values(), origin, message)


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


# -- restored streams ------------------------------------------------------------------------------


@method_defect(Stream.restore_message, "JS-API-199")
def restore_numbers_anew(self: Stream, message: StoredMessage) -> None:
    """A stream that is restored gives its messages the sequences from 1 on."""
    if not len(self.store):
        self.store.restart_at(1)
    Stream.restore_message(self, message)


@method_defect(Stream.restore_message, "JS-API-199")
def restore_drops_the_headers(self: Stream, message: StoredMessage) -> None:
    """The messages of a stream that is restored have no headers."""
    Stream.restore_message(self, msgspec.structs.replace(message, header_block=b""))


@method_defect(Stream.restore_message, "JS-API-199")
def restore_stamps_anew(self: Stream, message: StoredMessage) -> None:
    """The messages of a stream that is restored have the time of the restore."""
    Stream.restore_message(self, msgspec.structs.replace(message, time=self.jetstream.now))


@method_defect(Stream.restore_message, "JS-API-199")
def restore_drops_empty_messages(self: Stream, message: StoredMessage) -> None:
    """A stream that is restored lacks the messages without a payload."""
    if message.payload:
        Stream.restore_message(self, message)


@defect("JS-API-200")
def snapshots_have_no_consumers(broker: Broker) -> None:
    """A snapshot holds no consumers, whatever no_consumers is."""
    alter_body(broker, "stream_snapshot", lambda body, request: body.update(no_consumers=True))


@defect("JS-API-200")
def restored_consumers_begin_anew(broker: Broker) -> None:
    """The consumers of a stream that is restored deliver all of its messages again."""
    restored: set[int] = set()

    def restore_message(self: Stream, message: StoredMessage) -> None:
        restored.add(id(self))
        Stream.restore_message(self, message)

    def resume(self: Consumer, now: int) -> None:
        if id(self.stream) in restored:
            self.reset(1, now)
        Consumer.resume(self, now)

    alter_streams(broker, restore_message=restore_message)
    alter_consumers(broker, resume=resume)


@method_defect(Stream.store_mirrored, "JS-API-168")
def mirror_drops_headers(self: Stream, message: StoredMessage) -> StoredMessage | None:
    """A mirror has the messages of its origin without their headers."""
    return Stream.store_mirrored(self, msgspec.structs.replace(message, header_block=b""))


@method_defect(Stream.store_mirrored, "JS-API-168")
def mirror_has_times_of_its_own(self: Stream, message: StoredMessage) -> StoredMessage | None:
    """A mirror shows when it got a message, not when its origin stored it."""
    return Stream.store_mirrored(self, msgspec.structs.replace(message, time=self.jetstream.now))


@method_defect(Stream.store_sourced, "JS-API-214")
def source_beyond_the_first_begins_later(
    self: Stream, source: dict[str, Any], message: StoredMessage, now: int
) -> StoredMessage | None:
    """From every source but the first, a stream takes only what comes after its creation."""
    first = (self.config.sources or [{}])[0].get("name")
    if source["name"] != first and message.time < self.created:
        return None
    return Stream.store_sourced(self, source, message, now)


# -- what a copied message expects of its origin ------------------------------------------------------


def _refuses_copies(kind: str, header: str, *, halts: bool) -> None:
    """A mirror, or a stream with sources, refuses messages with ``header``, and perhaps all behind one."""

    def give(broker: Broker) -> None:
        halted: set[str] = set()

        def takes(self: Stream, message: StoredMessage) -> bool:
            if self.config.name in halted or f"{header}:".encode() not in message.header_block:
                return self.config.name not in halted
            if halts:
                halted.add(self.config.name)
            return False

        def store_mirrored(self: Stream, message: StoredMessage) -> StoredMessage | None:
            return Stream.store_mirrored(self, message) if takes(self, message) else None

        def store_sourced(
            self: Stream, source: dict[str, Any], message: StoredMessage, now: int
        ) -> StoredMessage | None:
            return Stream.store_sourced(self, source, message, now) if takes(self, message) else None

        if kind == "mirror":
            alter_streams(broker, store_mirrored=store_mirrored)
        else:
            alter_streams(broker, store_sourced=store_sourced)

    verb = "halts at" if halts else "leaves out"
    give.__doc__ = f"A {kind} {verb} a message with {header}."
    defect("JS-API-242", name=f"{kind}-{verb}-{header}".lower().replace(" ", "-"))(give)


for _header in (
    "Nats-Expected-Stream",
    "Nats-Expected-Last-Sequence",
    "Nats-Expected-Last-Subject-Sequence",
    "Nats-Expected-Last-Msg-Id",
):
    _refuses_copies("mirror", _header, halts=True)
    _refuses_copies("source", _header, halts=False)


# -- sources that come and go ----------------------------------------------------------------------


@method_defect(Stream.take_new_sources, "JS-API-238")
def source_added_later_begins_with_new_messages(
    self: Stream, before: Iterable[dict[str, Any]], now: int
) -> None:
    """A source that an update adds is copied from the next message on."""


@method_defect(Stream.take_new_sources, "JS-API-238")
def source_added_later_copies_all_sources_again(
    self: Stream, before: Iterable[dict[str, Any]], now: int
) -> None:
    """An update that adds a source copies those that there were once more."""
    copying.catch_up(self, now)


@method_defect(Stream.take_new_sources, "JS-API-238")
def source_added_later_is_not_followed(self: Stream, before: Iterable[dict[str, Any]], now: int) -> None:
    """A source that an update adds is copied as it is then, and no further."""
    Stream.take_new_sources(self, before, now)
    known = [source.get("name") for source in before]
    for name, origin in self.jetstream.streams.items():
        if name not in known and self in origin.copies:
            origin.copies.remove(self)


@method_defect(Stream.take_new_sources, "JS-API-238")
def source_added_with_its_like_begins_with_new_messages(
    self: Stream, before: Iterable[dict[str, Any]], now: int
) -> None:
    """Of several sources of one stream that an update adds only the first is copied from its beginning."""
    sources = self.config.sources or ()
    names = [source.get("name") for source in sources]
    others = [each for place, each in enumerate(sources) if each.get("name") in names[:place]]
    Stream.take_new_sources(self, [*before, *others], now)


@method_defect(Stream.last_copied, "JS-API-238", "JS-API-239")
def source_added_later_begins_with_its_last_message(self: Stream, origin: str) -> int:
    """A source that an update adds is copied from its last message on."""
    return max(self.jetstream.streams[origin].store.last_seq - 1, 0)


@method_defect(Stream.last_copied, "JS-API-239", "JS-PUB-094")
def source_added_again_begins_with_new_messages(self: Stream, origin: str) -> int:
    """A source that was one before is copied from the next message on."""
    known = Stream.last_copied(self, origin)
    return self.jetstream.streams[origin].store.last_seq if known else 0


@method_defect(Stream.last_copied, "JS-API-239")
def source_added_again_is_copied_again(self: Stream, origin: str) -> int:
    """A source that was one before is copied from its first message on."""
    return 0


@method_defect(Stream.reconfigure, "JS-API-239")
def source_stays_without_being_named(self: Stream, config: StreamConfig, now: int) -> None:
    """An update without sources leaves the stream with those that it has."""
    Stream.reconfigure(
        self, msgspec.structs.replace(config, sources=config.sources or self.config.sources), now
    )
