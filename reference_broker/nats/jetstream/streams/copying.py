"""What a stream passes on: copies to its mirrors and to streams it is a source of; republished messages.

A mirror keeps sequences, subjects and times; a stream with sources has its own sequences, and a header
says where a message came from.

Sources: docs.nats.io, "Source and Mirror Streams"; ADR-28, "JetStream RePublish".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import structs

from plumbline.bounds import MAX_COPIES, MAX_COPY_DEPTH
from plumbline.reference_broker.nats.jetstream.streams.mapping import mapping, mapping_ends
from plumbline.reference_broker.nats.jetstream.streams.origins import (
    ANY_SUBJECT,
    identity,
    stored_subject,
    transforms,
)
from plumbline.reference_broker.nats.jetstream.streams.publish import STREAM_SOURCE
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats.headers import VERSION, Headers, append_headers
from plumbline.wire.nats.jetstream.times import format_time, parse_time
from plumbline.wire.units import read_number

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.service import JetStream
    from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

CONDITIONS = (b"Nats-Expected-", b"Nats-Batch-")
NO_HEADERS = VERSION + b"\r\n\r\n"


def origins(stream: Stream) -> list[dict[str, Any]]:
    """Where a stream copies from: its mirror, or its sources."""
    config = stream.config
    return [config.mirror] if config.mirror is not None else list(config.sources or ())


def connect(jetstream: JetStream) -> None:
    """Streams were made, changed or deleted: find out again who copies from whom."""
    streams = jetstream.streams
    for stream in streams.values():
        stream.copies = []
    for copier in streams.values():
        for origin in streams_of_origin(copier):
            origin.copies.append(copier)


def streams_of_origin(stream: Stream) -> list[Stream]:
    """The streams that a stream copies from, each once, though several sources may name it."""
    streams = stream.jetstream.streams
    names = dict.fromkeys(origin.get("name", "") for origin in origins(stream))
    return [streams[name] for name in names if name in streams]


def catch_up(stream: Stream, now: int) -> None:
    """A new stream takes what its origins hold already."""
    for origin in streams_of_origin(stream):
        for message in list(origin.store.messages()):
            copy(origin, stream, message, now)


def catch_up_with_new_sources(stream: Stream, before: Iterable[dict[str, Any]], now: int) -> None:
    """A changed stream takes what its new sources hold already; of one that was a source once, what it lacks.

    ``before`` are the sources that it had.
    """
    known = {identity(source) for source in before}
    streams = stream.jetstream.streams
    added = [
        source
        for source in stream.config.sources or ()
        if source.get("name", "") in streams and identity(source) not in known
    ]
    copied = {name: stream.last_copied(name) for name in {source["name"] for source in added}}
    for source in added:
        name = source["name"]
        for message in list(streams[name].store.messages(copied[name] + 1)):
            _take(stream, matching_sources([source], name, message), message, now)


class CopyRoute:
    """The streams that one published message passes on its way: copies of copies, and republished ones.

    Streams may copy from each other in a circle, which a message does not close.
    """

    def __init__(self) -> None:
        self._passed: list[Stream] = []
        self._count = 0

    @contextmanager
    def passing(self, stream: Stream) -> Iterator[None]:
        """While ``stream`` passes a message on."""
        if not self._passed:
            self._count = 0
        self._passed.append(stream)
        try:
            yield
        finally:
            self._passed.pop()

    def may_enter(self, stream: Stream) -> bool:
        """Whether the message may enter ``stream`` as well."""
        self._count += 1
        is_within = len(self._passed) <= MAX_COPY_DEPTH and self._count <= MAX_COPIES
        return is_within and all(each is not stream for each in self._passed)


def copy(origin: Stream, stream: Stream, message: StoredMessage, now: int) -> None:
    """One message of ``origin`` enters a stream that copies from it."""
    if stream.config.mirror is not None:
        _enter(stream, stream.store_mirrored(message), now)
    else:
        _take(stream, stream.sources_that_take(origin.config.name, message), message, now)


def _take(stream: Stream, sources: Iterable[dict[str, Any]], message: StoredMessage, now: int) -> None:
    """``stream`` stores a message once for each of these sources."""
    for source in sources:
        _enter(stream, stream.store_sourced(source, message, now), now)


def unconditional(message: StoredMessage) -> StoredMessage:
    """A message as it is copied: no part of a batch, and one that expects nothing of the stream it enters."""
    lines = message.header_block.split(b"\r\n")
    left = [line for line in lines if not line.startswith(CONDITIONS)]
    if len(left) == len(lines):
        return message
    block = b"\r\n".join(left)
    return structs.replace(message, header_block=b"" if block == NO_HEADERS else block)


def _enter(stream: Stream, taken: StoredMessage | None, now: int) -> None:
    """What follows when ``stream`` has stored a message of an origin."""
    if taken is not None:
        stream.enforce_limits(taken.subject, now)
        stream.on_stored(taken, now)


def starts_at(origin: dict[str, Any]) -> int:
    """The first sequence that is copied."""
    return origin.get("opt_start_seq") or 0


def matching_sources(
    sources: Iterable[dict[str, Any]], origin: str, message: StoredMessage
) -> Iterator[dict[str, Any]]:
    """Those of ``sources`` that take this message of ``origin``, each once."""
    for source in sources:
        begins = message.seq >= starts_at(source) and message.time >= _start_time(source)
        if source.get("name") == origin and begins and stored_subject(source, message.subject) is not None:
            yield source


def _start_time(source: dict[str, Any]) -> int:
    """The time from which messages are copied."""
    time = source.get("opt_start_time")
    return (parse_time(time) or 0) if isinstance(time, str) else 0


def with_source(stream: Stream, source: dict[str, Any], message: StoredMessage) -> bytes:
    """The headers of a message, and where it came from."""
    value = f"{source['name']} {message.seq}"
    if stream.jetstream.rules.source_header_has_subjects:
        ends = transforms(source) or [(source.get("filter_subject") or ANY_SUBJECT, "")]
        filters = "\f".join(src or ANY_SUBJECT for src, _ in ends)
        targets = "\f".join(dest or ANY_SUBJECT for _, dest in ends)
        value += f" {filters} {targets} {message.subject.decode('utf-8', 'replace')}"
    return append_headers(message.header_block, [(STREAM_SOURCE, value)])


def copied_sequence(header_block: bytes) -> tuple[str, int] | None:
    """The origin of a message of a stream with sources, and its sequence there."""
    if STREAM_SOURCE.encode() not in header_block:
        return None
    try:
        name, sequence, *_ = (Headers.parse(header_block).get(STREAM_SOURCE) or "").split(" ")
    except (ProtocolError, ValueError):
        return None
    number = read_number(sequence)
    return None if number is None else (name, number)


class Republish:
    """The ``republish`` of a stream's configuration, at work."""

    def __init__(self, stream: Stream) -> None:
        config = stream.config.republish or {}
        self.stream = stream
        self.target = mapping(*mapping_ends(config))
        self.headers_only = bool(config.get("headers_only"))
        self._before: dict[int, int] = {}  # sequence of a message to be sent -> of the one before it

    def note_last(self, subject: bytes) -> None:
        """A message of ``subject`` is about to be stored: which one is the last of it until now."""
        store = self.stream.store
        last = store.last_of(subject)
        self._before[store.last_seq + 1] = 0 if last is None else last.seq
        while (oldest := next(iter(self._before))) < store.first_seq:  # removed before it could be sent
            del self._before[oldest]

    def send(self, message: StoredMessage, now: int) -> None:
        """A message that was stored goes out again, if its subject is asked for."""
        target = self.target(message.subject)
        last = self._before.pop(message.seq, 0)
        if target is None:
            return
        jetstream = self.stream.jetstream
        stamped = {"Nats-Time-Stamp": format_time(message.time)} if jetstream.rules.info_has_timestamp else {}
        fields = {
            "Nats-Stream": self.stream.config.name,
            "Nats-Subject": message.subject.decode("utf-8", "surrogateescape"),
            "Nats-Sequence": str(message.seq),
            **stamped,
            "Nats-Last-Sequence": str(last),
            **({"Nats-Msg-Size": str(len(message.payload))} if self.headers_only else {}),
        }
        block = append_headers(message.header_block, fields.items())
        payload = b"" if self.headers_only else message.payload
        jetstream.host.publish(target, None, block, payload)
        other = jetstream.find_stream(target)
        if other is not None and jetstream.route.may_enter(other):
            other.publish(target, None, block, payload, now)
