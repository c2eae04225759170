"""Defects in stored messages as the API gives and deletes them, and in what streams deny."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_body,
    alter_request,
    alter_success,
)
from plumbline.reference_broker.nats.defects.methods import (
    alter_streams,
    jetstream_of,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.reference_broker.nats.jetstream.streams.config import StreamConfig
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.nats.subjects import is_valid

GET = "stream_msg_get"


# Stored messages


@defect("JS-API-085")
def message_get_has_plain_data(broker: Broker) -> None:
    """STREAM.MSG.GET gives data as it is, not as base64."""

    def change(fields: Fields, request: Request) -> None:
        message = fields["message"]
        stored = jetstream_of(broker).streams[request.names[0]].store.load(message["seq"])
        if stored is not None and stored.payload:
            message["data"] = stored.payload.decode("utf-8", "replace")

    alter_success(broker, GET, change)


@method_defect(Stream.remove, "JS-API-095")
def message_delete_takes_last_seq_back(self: Stream, seq: int, now: int) -> bool:
    """When the last message is deleted last_seq is that of the one before."""
    was_last = seq == self.store.last_seq
    removed = Stream.remove(self, seq, now)
    if was_last and removed:
        self.store.last_seq -= 1
    return removed


def _purged(broker: Broker, change: Callable[[Stream], object]) -> None:
    """Something else happens to a stream that was purged of everything."""

    def purge(self: Stream, now: int, subject: bytes | None = None, *, below: int = 0, keep: int = 0) -> int:
        count = Stream.purge(self, now, subject, below=below, keep=keep)
        if not len(self.store):
            change(self)
        return count

    alter_streams(broker, purge=purge)


@defect("JS-API-099")
def purge_of_all_starts_anew(broker: Broker) -> None:
    """A purge of everything sets the sequences to 0."""

    def change(stream: Stream) -> None:
        stream.store.first_seq = stream.store.last_seq = 0

    _purged(broker, change)


@defect("JS-API-100")
def purge_of_all_skips_a_sequence(broker: Broker) -> None:
    """A purge of everything uses up a sequence."""
    _purged(broker, lambda stream: stream.store.skip())


@method_defect(JetStream.find_stream, "JS-API-189")
def leading_wildcards_match_nothing(self: JetStream, subject: bytes) -> Stream | None:
    """A stream whose subject begins with a wildcard stores nothing."""
    found = JetStream.find_stream(self, subject)
    leading = found is not None and all(pattern.startswith(b"*") for pattern in found.config.patterns)
    return None if leading else found


@method_defect(JetStream.find_stream, "JS-API-189")
def leading_wildcards_match_everything(self: JetStream, subject: bytes) -> Stream | None:
    """A stream whose subject begins with a wildcard stores all messages of so many tokens."""
    for stream in self.streams.values():
        for pattern in stream.config.patterns:
            if pattern.startswith(b"*.") and pattern.count(b".") == subject.count(b"."):
                return None if subject.startswith(b"$") else stream
    return JetStream.find_stream(self, subject)


@defect("JS-API-187")
def streams_on_invalid_subjects_are_made(broker: Broker) -> None:
    """A stream on an invalid subject is made, on another subject."""

    def change(fields: Fields, request: Request) -> None:
        subjects = fields.get("subjects")
        if isinstance(subjects, list):
            fields["subjects"] = [
                one if is_valid(str(one).encode()) else f"{request.names[0]}.other" for one in subjects
            ]

    alter_body(broker, "stream_create", change)


@method_defect(Stream.reconfigure, "JS-API-188")
def sealing_makes_room_first(self: Stream, config: StreamConfig, now: int) -> None:
    """An update that seals a stream removes what is beyond its limits."""
    if config.sealed:
        Stream.reconfigure(self, msgspec.structs.replace(config, discard="old"), now)
    Stream.reconfigure(self, config, now)


# What a stream may deny


@defect("JS-API-103")
def stream_denials_are_kept(broker: Broker) -> None:
    """An update that switches deny_delete or deny_purge off is accepted, and leaves them on."""

    def change(fields: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams.get(request.names[0])
        for name in ("deny_delete", "deny_purge"):
            if stream is not None and getattr(stream.config, name):
                fields[name] = True

    alter_body(broker, "stream_update", change)


@defect("JS-API-104")
def deny_delete_keeps_the_stream(broker: Broker) -> None:
    """A stream with deny_delete cannot be deleted."""
    service = jetstream_of(broker)

    def another(request: Request) -> Request:
        stream = service.streams.get(request.names[0])
        denied = stream is not None and stream.config.deny_delete
        return msgspec.structs.replace(request, body=b"denied") if denied else request

    alter_request(broker, "stream_delete", another)


@method_defect(Stream.check_size, "JS-API-107")
def stream_sealed_takes_messages(self: Stream, header_size: int, payload_size: int) -> None:
    """A sealed stream takes messages as any other."""
    try:
        Stream.check_size(self, header_size, payload_size)
    except JetStreamError as error:
        if error.err_code != errors.STREAM_SEALED.err_code:
            raise
