"""Defects in stored messages as the API gives and deletes them, in what streams deny, and in direct gets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import add, defect, new, replace
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_body,
    alter_direct_body,
    alter_direct_get,
    alter_request,
    alter_success,
    first_of_the_subject,
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
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats.headers import Headers, Status, encode_headers
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


@defect("JS-API-182")
def direct_gets_of_nothing_are_empty_batches(broker: Broker) -> None:
    """A batch of direct gets that nothing matches is answered with 204, as the end of others is."""
    _ends_with(broker, Status(404, "Message Not Found"), Status(204, "EOB"))


@defect("JS-API-182")
def direct_gets_of_nothing_are_empty_requests(broker: Broker) -> None:
    """A batch of direct gets that nothing matches is answered with 408."""
    _ends_with(broker, Status(404, "Message Not Found"), Status(408, "Empty Request"))


@defect("JS-API-183")
def direct_get_subjects_beside_multi_last_are_ignored(broker: Broker) -> None:
    """DIRECT.GET with multi_last does not look at last_by_subj and next_by_subj."""

    def change(fields: Fields, path: bytes) -> None:
        if fields.get("multi_last"):
            fields.pop("last_by_subj", None)
            fields.pop("next_by_subj", None)

    alter_direct_body(broker, change)


def _ends_with(broker: Broker, right: Status, wrong: Status) -> None:
    """A direct get of several messages ends with another status."""
    host = jetstream_of(broker).host
    publish, request = host.publish, jetstream_of(broker).api.request
    several = False

    def asked(path: bytes, reply: bytes | None, header_block: bytes, body: bytes, now: int) -> bool:
        nonlocal several
        several = b'"batch"' in body or b'"multi_last"' in body
        return request(path, reply, header_block, body, now)

    def published(subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes) -> int:
        if several and header_block == encode_headers((), right):
            header_block = encode_headers((), wrong)
        return publish(subject, reply, header_block, payload)

    replace(jetstream_of(broker).api, "request", asked)
    replace(host, "publish", published)


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


# Direct gets


def _sent(broker: Broker, change: Callable[[Headers, bytes], tuple[bytes, bytes]]) -> None:
    """What the service sends with headers has others, or another payload."""
    host = jetstream_of(broker).host
    publish = host.publish

    def altered(subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes) -> object:
        if header_block:
            with contextlib.suppress(ProtocolError):
                header_block, payload = change(Headers.parse(header_block), payload)
        return publish(subject, reply, header_block, payload)

    replace(host, "publish", altered)


@defect("JS-API-110")
def direct_get_has_no_time(broker: Broker) -> None:
    """A direct get lacks the header Nats-Time-Stamp."""

    def change(headers: Headers, payload: bytes) -> tuple[bytes, bytes]:
        fields = [(name, value) for name, value in headers.fields if name != "Nats-Time-Stamp"]
        return encode_headers(fields, headers.status), payload

    _sent(broker, change)


@defect("JS-API-111")
def direct_get_of_the_last_is_of_another_subject(broker: Broker) -> None:
    """DIRECT.GET with last_by_subj looks at another subject with the same first token."""

    def change(fields: Fields, path: bytes) -> None:
        if "last_by_subj" in fields:
            fields["last_by_subj"] = fields["last_by_subj"].rpartition(".")[0] + ".b"

    alter_direct_body(broker, change)


@defect("JS-API-112")
def direct_get_of_a_subject_gives_the_first(broker: Broker) -> None:
    """DIRECT.GET.<stream>.<subject> gives the first message on that subject."""
    alter_direct_get(broker, first_of_the_subject)


# Statuses: the requirement, the name, what is wrong, the status, the other, and of which requests.
_STATUSES: tuple[tuple[str, str, str, str, str, Callable[[bytes, bytes], bool]], ...] = (
    ("JS-API-114", "direct-get-of-none", "a missing sequence", "404 Message Not Found", "404 No Messages",
     lambda path, body: b"1000" in body),
    ("JS-API-115", "direct-get-with-empty-body", "an empty body", "408 Empty Request", "400 Bad Request",
     lambda path, body: not body and b"." not in path),
    ("JS-API-116", "direct-get-with-invalid-json", "invalid JSON", "408 Malformed Request", "408 Bad Request",
     lambda path, body: body[:1] != b"{"),
    ("JS-API-117", "direct-get-of-nothing", "an empty object", "408 Empty Request", "404 Message Not Found",
     lambda path, body: body == b"{}"),
    ("JS-API-118", "direct-get-of-two", "both seq and last_by_subj", "408 Bad Request", "408 Empty Request",
     lambda path, body: b"last_by_subj" in body),
    ("JS-API-119", "direct-get-of-an-empty-subject", "a subject without messages", "404 Message Not Found",
     "408 Bad Request", lambda path, body: path.endswith(b".zzz")),
)  # fmt: skip


def _status(
    requirement: str, name: str, of: str, status: str, instead: str, when: Callable[[bytes, bytes], bool]
) -> None:
    def alter(broker: Broker) -> None:
        is_it = [False]
        code, _, description = instead.partition(" ")

        def look(path: bytes, body: bytes) -> tuple[bytes, bytes]:
            is_it[0] = when(path, body)
            return path, body

        def change(headers: Headers, payload: bytes) -> tuple[bytes, bytes]:
            if is_it[0] and headers.status is not None and str(headers.status) == status:
                return encode_headers((), Status(int(code), description)), payload
            return encode_headers(headers.fields, headers.status), payload

        alter_direct_get(broker, look)
        _sent(broker, change)

    summary = f"DIRECT.GET of {of} is answered with {instead} in place of {status}."
    add(new(f"{name}-has-another-status", (requirement,), summary, alter))


for _wrong in _STATUSES:
    _status(*_wrong)
