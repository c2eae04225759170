"""Defects in stored messages as the API gives and deletes them, in what streams deny, and in direct gets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import replace
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_answer,
    alter_body,
    alter_request,
    alter_success,
    body_of,
)
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_streams,
    jetstream_defect,
    jetstream_of,
)
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats.headers import Headers, Status, encode_headers

GET, DELETE = "stream_msg_get", "stream_msg_delete"
BAD_REQUEST, NO_MESSAGE, NO_SEQUENCE, NO_STREAM, SEALED = 10003, 10037, 10043, 10059, 10109


def _error(broker: Broker, kind: str, err_code: int, instead: int, when: Callable[[Request], object]) -> None:
    """One error bears another err_code, of some requests alone."""

    def change(fields: Fields, request: Request) -> None:
        error = fields.get("error")
        if error and error["err_code"] == err_code and when(request):
            error["err_code"] = instead

    alter_answer(broker, kind, change)


def _always(request: Request) -> object:
    return True


def _is_beyond(request: Request) -> object:
    return (body_of(request) or {}).get("seq", 0) >= 1000


# Refused, but with another err_code: the requirement, the name, the kind, the err_codes, of which requests.
_ERRORS: tuple[tuple[str, str, str, int, int, Callable[[Request], object]], ...] = (
    ("JS-API-088", "message-get-of-none", GET, NO_MESSAGE, NO_STREAM, _is_beyond),
    ("JS-API-089", "message-get-of-deleted", GET, NO_MESSAGE, NO_SEQUENCE, lambda r: not _is_beyond(r)),
    ("JS-API-090", "message-get-with-empty-body", GET, BAD_REQUEST, 10025, lambda r: not r.body),
    ("JS-API-091", "message-get-of-nothing", GET, BAD_REQUEST, NO_MESSAGE, lambda r: r.body == b"{}"),
    ("JS-API-092", "message-get-of-two", GET, BAD_REQUEST, 10025, lambda r: len(body_of(r) or {}) > 1),
    ("JS-API-093", "message-get-without-stream", GET, NO_STREAM, NO_MESSAGE, _always),
    ("JS-API-096", "message-delete-of-deleted", DELETE, NO_SEQUENCE, 10057, lambda r: not _is_beyond(r)),
    ("JS-API-097", "message-delete-of-none", DELETE, NO_SEQUENCE, NO_MESSAGE, _is_beyond),
    ("JS-API-098", "message-delete-with-empty-body", DELETE, BAD_REQUEST, 10025, _always),
    ("JS-API-101", "deny-delete", DELETE, 10057, SEALED, _always),
    ("JS-API-102", "deny-purge", "stream_purge", 10110, SEALED, _always),
    ("JS-API-105", "stream-created-sealed", "stream_create", 10052, SEALED, lambda r: b"sealed" in r.body),
    ("JS-API-108", "purge-of-sealed", "stream_purge", SEALED, 10110, _always),
    ("JS-API-109", "message-delete-of-sealed", DELETE, SEALED, 10057, _always),
)


def _register(
    requirement: str, name: str, kind: str, err_code: int, instead: int, when: Callable[[Request], object]
) -> None:
    @jetstream_defect(
        f"{name}-has-another-code",
        breaks=(requirement,),
        summary=f"A refusal of {kind.replace('_', '.').upper()} with {err_code} has err_code {instead}.",
    )
    def _(broker: Broker) -> None:
        _error(broker, kind, err_code, instead, when)


for _refusal in _ERRORS:
    _register(*_refusal)


# Stored messages


@jetstream_defect(
    "message-get-has-no-headers", breaks=("JS-API-085",), summary="STREAM.MSG.GET leaves out the headers."
)
def _(broker: Broker) -> None:
    alter_success(broker, GET, lambda fields, _: fields["message"].pop("hdrs", None))


@jetstream_defect(
    "message-get-has-plain-data",
    breaks=("JS-API-085",),
    summary="STREAM.MSG.GET gives data as it is, not as base64.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        message = fields["message"]
        stored = jetstream_of(broker).streams[request.names[0]].store.load(message["seq"])
        if stored is not None and stored.payload:
            message["data"] = stored.payload.decode("utf-8", "replace")

    alter_success(broker, GET, change)


def _asked(broker: Broker, change: Callable[[Fields], object]) -> None:
    alter_body(broker, GET, lambda fields, _: change(fields))


@jetstream_defect(
    "message-get-of-the-last-is-of-any-subject",
    breaks=("JS-API-086",),
    summary="STREAM.MSG.GET with last_by_subj gives the last message of the stream.",
)
def _(broker: Broker) -> None:
    _asked(broker, lambda fields: "last_by_subj" in fields and fields.update(last_by_subj=">"))


@jetstream_defect(
    "message-get-of-the-next-is-behind",
    breaks=("JS-API-087",),
    summary="STREAM.MSG.GET with next_by_subj leaves out the message at seq itself.",
)
def _(broker: Broker) -> None:
    _asked(broker, lambda fields: "next_by_subj" in fields and fields.update(seq=fields["seq"] + 1))


@jetstream_defect(
    "message-delete-has-no-success",
    breaks=("JS-API-094",),
    summary="The answer to STREAM.MSG.DELETE lacks success.",
)
def _(broker: Broker) -> None:
    alter_success(broker, DELETE, lambda fields, _: fields.pop("success"))


@jetstream_defect(
    "message-delete-takes-last-seq-back",
    breaks=("JS-API-095",),
    summary="When the last message is deleted last_seq is that of the one before.",
)
def _(broker: Broker) -> None:
    def remove(self: Stream, seq: int, now: int) -> bool:
        was_last = seq == self.store.last_seq
        removed = Stream.remove(self, seq, now)
        if was_last and removed:
            self.store.last_seq -= 1
        return removed

    alter_streams(broker, remove=remove)


def _purged(broker: Broker, change: Callable[[Stream], object]) -> None:
    """Something else happens to a stream that was purged of everything."""

    def purge(self: Stream, now: int, subject: bytes | None = None, *, below: int = 0, keep: int = 0) -> int:
        count = Stream.purge(self, now, subject, below=below, keep=keep)
        if not len(self.store):
            change(self)
        return count

    alter_streams(broker, purge=purge)


@jetstream_defect(
    "purge-of-all-starts-anew",
    breaks=("JS-API-099",),
    summary="A purge of everything sets the sequences to 0.",
)
def _(broker: Broker) -> None:
    def change(stream: Stream) -> None:
        stream.store.first_seq = stream.store.last_seq = 0

    _purged(broker, change)


@jetstream_defect(
    "purge-of-all-skips-a-sequence",
    breaks=("JS-API-100",),
    summary="A purge of everything uses up a sequence.",
)
def _(broker: Broker) -> None:
    _purged(broker, lambda stream: stream.store.skip())


# What a stream may deny


@jetstream_defect(
    "stream-denials-are-kept",
    breaks=("JS-API-103",),
    summary="An update that switches deny_delete or deny_purge off is accepted, and leaves them on.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        stream = jetstream_of(broker).streams.get(request.names[0])
        for name in ("deny_delete", "deny_purge"):
            if stream is not None and getattr(stream.config, name):
                fields[name] = True

    alter_body(broker, "stream_update", change)


@jetstream_defect(
    "deny-delete-keeps-the-stream",
    breaks=("JS-API-104",),
    summary="A stream with deny_delete cannot be deleted.",
)
def _(broker: Broker) -> None:
    service = jetstream_of(broker)

    def another(request: Request) -> Request:
        stream = service.streams.get(request.names[0])
        denied = stream is not None and stream.config.deny_delete
        return msgspec.structs.replace(request, body=b"denied") if denied else request

    alter_request(broker, "stream_delete", another)


@jetstream_defect(
    "stream-sealed-may-be-purged",
    breaks=("JS-API-106",),
    summary="The configuration of a sealed stream has deny_purge false.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields, request: Request) -> None:
        if fields["config"]["sealed"]:
            fields["config"]["deny_purge"] = False

    alter_success(broker, "stream_update", change)


@jetstream_defect(
    "stream-sealed-takes-messages",
    breaks=("JS-API-107",),
    summary="A sealed stream takes messages as any other.",
)
def _(broker: Broker) -> None:
    def check_size(self: Stream, header_size: int, payload_size: int) -> None:
        try:
            Stream.check_size(self, header_size, payload_size)
        except JetStreamError as error:
            if error.err_code != errors.STREAM_SEALED.err_code:
                raise

    alter_streams(broker, check_size=check_size)


# Direct gets


def _direct(broker: Broker, change: Callable[[bytes, bytes], tuple[bytes, bytes]]) -> None:
    """A direct get is answered as if it had another path (stream and subject) and body."""
    api = jetstream_of(broker).api
    handle = api.request
    prefix = b"DIRECT.GET."

    def request(path: bytes, reply: bytes | None, header_block: bytes, body: bytes, now: int) -> bool:
        if path.startswith(prefix):
            rest, body = change(path.removeprefix(prefix), body)
            path = prefix + rest
        return handle(path, reply, header_block, body, now)

    replace(api, "request", request)


def _direct_body(broker: Broker, change: Callable[[Fields], object]) -> None:
    def altered(path: bytes, body: bytes) -> tuple[bytes, bytes]:
        try:
            fields: Any = msgspec.json.decode(body)
        except msgspec.DecodeError:
            return path, body
        change(fields)
        return path, msgspec.json.encode(fields)

    _direct(broker, altered)


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


@jetstream_defect(
    "direct-get-has-no-time", breaks=("JS-API-110",), summary="A direct get lacks the header Nats-Time-Stamp."
)
def _(broker: Broker) -> None:
    def change(headers: Headers, payload: bytes) -> tuple[bytes, bytes]:
        fields = [(name, value) for name, value in headers.fields if name != "Nats-Time-Stamp"]
        return encode_headers(fields, headers.status), payload

    _sent(broker, change)


@jetstream_defect(
    "direct-get-of-the-last-is-of-another-subject",
    breaks=("JS-API-111",),
    summary="DIRECT.GET with last_by_subj looks at another subject with the same first token.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields) -> None:
        if "last_by_subj" in fields:
            fields["last_by_subj"] = fields["last_by_subj"].rpartition(".")[0] + ".b"

    _direct_body(broker, change)


@jetstream_defect(
    "direct-get-of-a-subject-gives-the-first",
    breaks=("JS-API-112",),
    summary="DIRECT.GET.<stream>.<subject> gives the first message on that subject.",
)
def _(broker: Broker) -> None:
    def change(path: bytes, body: bytes) -> tuple[bytes, bytes]:
        stream, _, subject = path.partition(b".")
        if not subject:
            return path, body
        return stream, msgspec.json.encode({"seq": 1, "next_by_subj": subject.decode()})

    _direct(broker, change)


@jetstream_defect(
    "direct-get-of-the-next-ignores-the-subject",
    breaks=("JS-API-113",),
    summary="DIRECT.GET with next_by_subj gives the next message of any subject.",
)
def _(broker: Broker) -> None:
    def change(fields: Fields) -> None:
        if "next_by_subj" in fields:
            fields["next_by_subj"] = ">"

    _direct_body(broker, change)


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
    @jetstream_defect(
        f"{name}-has-another-status",
        breaks=(requirement,),
        summary=f"DIRECT.GET of {of} is answered with {instead} in place of {status}.",
    )
    def _(broker: Broker) -> None:
        is_it = [False]
        code, _, description = instead.partition(" ")

        def look(path: bytes, body: bytes) -> tuple[bytes, bytes]:
            is_it[0] = when(path, body)
            return path, body

        def change(headers: Headers, payload: bytes) -> tuple[bytes, bytes]:
            if is_it[0] and headers.status is not None and str(headers.status) == status:
                return encode_headers((), Status(int(code), description)), payload
            return encode_headers(headers.fields, headers.status), payload

        _direct(broker, look)
        _sent(broker, change)


for _wrong in _STATUSES:
    _status(*_wrong)
