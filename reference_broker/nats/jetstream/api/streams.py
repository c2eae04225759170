"""API requests about account, streams and messages: each gives the reply's fields, or raises an error.

Source: docs.nats.io, "JetStream wire API Reference"; order of the checks as servers answer.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from plumbline.reference_broker.nats.jetstream import advisories, errors, subjects
from plumbline.reference_broker.nats.jetstream.api import limits
from plumbline.reference_broker.nats.jetstream.api.requests import (
    LIST_LIMIT,
    NAMES_LIMIT,
    PageRequest,
    Request,
    decode,
    decode_object,
    is_empty,
    page,
    stream_of,
)
from plumbline.reference_broker.nats.jetstream.rules import Rules
from plumbline.reference_broker.nats.jetstream.streams import config as stream_config
from plumbline.reference_broker.nats.jetstream.streams import copying
from plumbline.reference_broker.nats.jetstream.streams.config import StreamConfig
from plumbline.reference_broker.nats.jetstream.streams.store import Store, StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.nats.jetstream.times import NEVER, format_time, parse_time

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.service import JetStream


class InfoRequest(Struct, kw_only=True):
    """The body of STREAM.INFO."""

    offset: int = 0
    deleted_details: bool = False
    subjects_filter: str = ""


class PurgeRequest(Struct, kw_only=True):
    """The body of STREAM.PURGE: below ``seq``, or all but the last ``keep``; ``filter`` is a subject."""

    seq: int = 0
    keep: int = 0
    filter: str = ""


class MessageGetRequest(Struct, kw_only=True):
    """The body of STREAM.MSG.GET and DIRECT.GET."""

    seq: int = 0
    last_by_subj: str = ""
    next_by_subj: str = ""
    start_time: str = ""
    no_hdr: bool = False
    batch: int = 0
    max_bytes: int = 0
    multi_last: list[str] = []
    up_to_seq: int = 0
    up_to_time: str = ""

    @property
    def misread(self) -> str | None:
        """What a server cannot read: a sequence below 0, or a time that is none."""
        for name, number in (("seq", self.seq), ("up_to_seq", self.up_to_seq)):
            if number < 0:
                return f"number {number} of {name}"
        times = (self.start_time, self.up_to_time)
        return next((f'parsing time "{one}"' for one in times if one and parse_time(one) is None), None)


class MessageDeleteRequest(Struct, kw_only=True):
    """The body of STREAM.MSG.DELETE."""

    seq: int = 0
    no_erase: bool = False


def account_info(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """INFO."""
    streams = jetstream.streams.values()
    used = {
        kind: sum(s.store.size for s in streams if s.config.storage == kind) for kind in ("memory", "file")
    }
    rules, api = jetstream.rules, jetstream.api
    reserved = reservations(jetstream) if rules.account_info_has_reservations else {}
    level = {"level": rules.api_level} if rules.api_level else {}
    return {
        "memory": used["memory"],
        "storage": used["file"],
        **reserved,
        "streams": len(jetstream.streams),
        "consumers": sum(len(stream.consumers) for stream in streams),
        **({"domain": jetstream.config.domain} if jetstream.config.domain else {}),
        "limits": structs.asdict(jetstream.config.limits),
        # A request counts itself only afterwards.
        "api": {**level, "total": api.total - 1, "errors": api.failed},
    }


def reservations(jetstream: JetStream) -> dict[str, int]:
    """The bytes that streams may take by their max_bytes."""
    reserved = {"reserved_memory": 0, "reserved_storage": 0}
    for stream in jetstream.streams.values():
        kind = "reserved_storage" if stream.config.storage == "file" else "reserved_memory"
        reserved[kind] += max(stream.config.max_bytes, 0)
    return reserved


def create(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """STREAM.CREATE.<stream>; the same again is no error."""
    requested_config = decode(jetstream, request.body, StreamConfig)
    check_name(request, requested_config)
    if requested_config.sealed:
        raise errors.STREAM_INVALID_CONFIG(reason="stream configuration for create can not be sealed")
    if requested_config.mirror_direct and requested_config.mirror is None:
        raise errors.STREAM_INVALID_CONFIG(reason="stream has no mirror but does have mirror direct")
    config = with_direct_of_origin(jetstream, stream_config.check(requested_config, jetstream.rules))
    stream = jetstream.streams.get(config.name)
    if stream is not None and stream.config != config:
        raise errors.STREAM_NAME_IN_USE()
    if stream is None:
        if config.num_replicas > 1:
            raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
        limits.check_stream(jetstream, config)
        check_overlap(jetstream, config)
        stream = jetstream.streams[config.name] = jetstream.stream_type(jetstream, config, request.now)
        jetstream.on_streams_changed()
        advisories.stream_action(stream, "CREATED", "create", request.now)
        copying.catch_up(stream, request.now)
    return {**describe(jetstream, stream, request.now), "did_create": True}


def update(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """STREAM.UPDATE.<stream>."""
    config = stream_config.check(decode(jetstream, request.body, StreamConfig), jetstream.rules)
    if config.name != request.names[0]:
        raise errors.STREAM_MISMATCH()
    stream = stream_of(jetstream, config.name)
    config = stream_config.check_update(stream.config, config, jetstream.rules)
    config = with_direct_of_origin(jetstream, config)
    limits.check_bytes(jetstream, config)
    check_overlap(jetstream, config)
    sources_before = stream.config.sources or ()
    stream.reconfigure(config, request.now)
    jetstream.on_streams_changed()
    stream.take_new_sources(sources_before, request.now)
    advisories.stream_action(stream, "UPDATED", "modify", request.now)
    return describe(jetstream, stream, request.now)


def with_direct_of_origin(jetstream: JetStream, config: StreamConfig) -> StreamConfig:
    """A mirror answers direct gets if its origin does (ADR-31, "Mirrored streams")."""
    mirror = config.mirror or {}
    origin = None if mirror.get("external") else jetstream.streams.get(mirror.get("name") or "")
    return config if origin is None else structs.replace(config, mirror_direct=origin.config.allow_direct)


def check_name(request: Request, config: StreamConfig) -> None:
    """Raises ``JetStreamError`` for a name that differs from the subject, or would be a path."""
    if config.name != request.names[0]:
        raise errors.STREAM_MISMATCH()
    if "/" in config.name or "\\" in config.name:
        raise errors.STREAM_NAME_HAS_PATH_SEPARATORS()


def check_overlap(jetstream: JetStream, config: StreamConfig) -> None:
    """A message is captured by one stream at most."""
    for other in jetstream.streams.values():
        if other.config.name != config.name and any(
            subjects.collide(pattern, other_pattern)
            for pattern in config.patterns
            for other_pattern in other.config.patterns
        ):
            raise errors.STREAM_SUBJECT_OVERLAP()


def info(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """STREAM.INFO.<stream>."""
    details = decode_object(jetstream, request.body, InfoRequest)
    stream = stream_of(jetstream, request.names[0])
    reply = describe(jetstream, stream, request.now)
    if details.deleted_details and (deleted := deleted_seqs(stream.store)):
        reply["state"]["deleted"] = deleted
    if details.subjects_filter:
        pattern = details.subjects_filter.encode()
        counts = {
            subject.decode("utf-8", "replace"): stream.store.count_of(subject)
            for subject in sorted(stream.store.subjects())
            if subjects.covers(pattern, subject)
        }
        if counts:
            reply["state"]["subjects"] = counts
            reply |= {"total": len(counts), "offset": details.offset, "limit": 100_000}
    if jetstream.rules.info_names_leader:
        reply["cluster"] = {"leader": jetstream.host.requester()["server"]}
    return {"total": 0, "offset": 0, "limit": 0} | reply


def names(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """STREAM.NAMES."""
    page_request = decode_object(jetstream, request.body, PageRequest)
    paging, found = page(
        [stream.config.name for stream in listed(jetstream, page_request)], page_request.offset, NAMES_LIMIT
    )
    return {**paging, "streams": found or None}


def list_(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """STREAM.LIST."""
    page_request = decode_object(jetstream, request.body, PageRequest)
    paging, found = page(listed(jetstream, page_request), page_request.offset, LIST_LIMIT)
    return {**paging, "streams": [describe(jetstream, stream, request.now) for stream in found]}


def listed(jetstream: JetStream, page_request: PageRequest) -> list[Stream]:
    """The streams a list request asks for, by name."""
    streams = [stream for _, stream in sorted(jetstream.streams.items())]
    if not page_request.subject:
        return streams
    subject = page_request.subject.encode()
    return [s for s in streams if any(subjects.collide(subject, pattern) for pattern in s.config.patterns)]


def delete(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """STREAM.DELETE.<stream>."""
    if not is_empty(request.body):
        raise errors.NOT_EMPTY_REQUEST()
    stream = stream_of(jetstream, request.names[0])
    stream.close(request.now)
    del jetstream.streams[stream.config.name]
    jetstream.on_streams_changed()
    advisories.stream_action(stream, "DELETED", "delete", request.now)
    return {"success": True}


def purge(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """STREAM.PURGE.<stream>."""
    purge_request = decode_object(jetstream, request.body, PurgeRequest)
    if purge_request.seq > 0 and purge_request.keep > 0:
        raise errors.BAD_REQUEST()
    stream = stream_of(jetstream, request.names[0])
    if stream.config.sealed:
        raise errors.STREAM_SEALED()
    if stream.config.deny_purge:
        raise errors.STREAM_PURGE_FAILED()
    subject = purge_request.filter.encode() or None
    purged = (
        0
        if purge_request.seq == 1
        else stream.purge(request.now, subject, below=purge_request.seq, keep=purge_request.keep)
    )
    return {"success": True, "purged": purged}


def message_get(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """STREAM.MSG.GET.<stream>."""
    if is_empty(request.body):
        raise errors.BAD_REQUEST()
    get_request = known_fields(decode(jetstream, request.body, MessageGetRequest), jetstream.rules)
    if get_request.misread is not None:
        raise errors.INVALID_JSON(detail=f": {get_request.misread}")
    wants = [get_request.seq > 0, bool(get_request.last_by_subj), bool(get_request.start_time)]
    if (
        sum(wants) > 1
        or get_request.batch
        or not (any(wants) or get_request.next_by_subj)
        or (get_request.last_by_subj and get_request.next_by_subj)
    ):
        raise errors.BAD_REQUEST()
    message = find_message(stream_of(jetstream, request.names[0]).store, get_request)
    if message is None:
        raise errors.NO_MESSAGE_FOUND()
    fields: dict[str, Any] = {"subject": message.subject.decode("utf-8", "replace"), "seq": message.seq}
    if message.header_block and not get_request.no_hdr:
        fields["hdrs"] = b64encode(message.header_block).decode()
    if message.payload:
        fields["data"] = b64encode(message.payload).decode()
    return {"message": {**fields, "time": format_time(message.time)}}


def known_fields(get_request: MessageGetRequest, rules: Rules) -> MessageGetRequest:
    """The request as this release reads it: it does not know the fields of later ones."""
    if not rules.direct_gets_in_batches:
        get_request = structs.replace(
            get_request, batch=0, multi_last=[], start_time="", up_to_seq=0, up_to_time=""
        )
    return get_request if rules.gets_without_headers else structs.replace(get_request, no_hdr=False)


def find_message(store: Store, get_request: MessageGetRequest) -> StoredMessage | None:
    """The stored message a request asks for."""
    seq = get_request.seq
    if get_request.start_time:
        moment = parse_time(get_request.start_time) or 0
        seq = next(
            (message.seq for message in store.messages() if message.time >= moment), store.last_seq + 1
        )
    if get_request.next_by_subj:
        return store.next(seq, subjects.matcher([get_request.next_by_subj.encode()]))
    return store.load(seq) if seq else last_on(store, get_request.last_by_subj.encode())


def last_on(store: Store, pattern: bytes) -> StoredMessage | None:
    """The last message on a subject that may hold wildcards."""
    if subjects.is_literal(pattern):
        return store.last_of(pattern)
    found = [store.last_of(subject) for subject in store.subjects() if subjects.covers(pattern, subject)]
    return max((message for message in found if message), key=lambda message: message.seq, default=None)


def message_delete(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """STREAM.MSG.DELETE.<stream>."""
    if is_empty(request.body):
        raise errors.BAD_REQUEST()
    delete_request = decode(jetstream, request.body, MessageDeleteRequest)
    stream = stream_of(jetstream, request.names[0])
    if stream.config.sealed:
        raise errors.STREAM_SEALED()
    if stream.config.deny_delete:
        raise errors.MESSAGE_DELETE_FAILED()
    if not stream.remove(delete_request.seq, request.now):
        raise _missing_message_error(stream, delete_request.seq)
    return {"success": True}


def _missing_message_error(stream: Stream, seq: int) -> errors.JetStreamError:
    """What a file does not reach is an error of the store (observed, nats-server 2.9.10 and 2.15)."""
    store = stream.store
    if stream.config.storage == "file" and seq > store.last_seq:
        return errors.STORE_REFUSED(reason="stream store EOF")
    if stream.config.storage == "file" and seq < max(store.first_seq, 1):
        return errors.STORE_REFUSED(reason="no message found")
    return errors.SEQUENCE_NOT_FOUND(seq=seq)


def describe(jetstream: JetStream, stream: Stream, now: int) -> dict[str, Any]:
    """A stream's configuration and state, as every reply shows them."""
    fields = {
        "config": stream.config.echo(jetstream.rules),
        "created": format_time(stream.created),
        "state": state(stream),
        **origins(stream, now),
    }
    return fields | ({"ts": format_time(now)} if jetstream.rules.info_has_timestamp else {})


def origins(stream: Stream, now: int) -> dict[str, Any]:
    """``mirror`` or ``sources`` of an info: this broker's copies never lag."""
    rows = [
        {"name": origin.get("name"), "lag": 0, "active": inactive_for(stream, origin, now)}
        for origin in copying.origins(stream)
    ]
    if not rows:
        return {}
    return {"mirror": rows[0]} if stream.config.mirror is not None else {"sources": rows}


def inactive_for(stream: Stream, origin: dict[str, Any], now: int) -> int:
    """Nanoseconds since the last message of an origin, or since the copy began; -1: nothing was heard."""
    source = stream.jetstream.streams.get(origin.get("name") or "")
    if source is None or now <= stream.created:
        return -1
    return max(now - max(stream.created, source.store.last_time or 0), 1)


def state(stream: Stream) -> dict[str, Any]:
    """The ``state`` object of a stream."""
    store = stream.store
    first = store.load(store.first_seq)
    fields: dict[str, Any] = {
        "messages": len(store),
        "bytes": store.size,
        "first_seq": store.first_seq,
        "first_ts": format_time(first.time) if first else NEVER,
        "last_seq": store.last_seq,
        "last_ts": NEVER if store.last_time is None else format_time(store.last_time),
    }
    if subject_count := sum(1 for _ in store.subjects()):
        fields["num_subjects"] = subject_count
    if deleted := max(store.last_seq - store.first_seq + 1 - len(store), 0) if len(store) else 0:
        fields["num_deleted"] = deleted
    return {**fields, "consumer_count": len(stream.consumers)}


def deleted_seqs(store: Store) -> list[int]:
    """The gaps between first and last message."""
    held = {message.seq for message in store.messages()}
    return [seq for seq in range(store.first_seq, store.last_seq + 1) if seq not in held] if held else []
