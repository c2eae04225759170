"""Defects in direct gets. ADR-31."""

from __future__ import annotations

from collections.abc import Callable

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import add, defect, new, replace
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_body,
    alter_direct_body,
    alter_direct_get,
    alter_sent,
    alter_success,
    body_of,
    first_of_the_subject,
)
from plumbline.reference_broker.nats.defects.methods import jetstream_of, method_defect
from plumbline.reference_broker.nats.jetstream import subjects
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.nats.headers import Headers, Status, encode_headers
from plumbline.wire.nats.jetstream.times import format_time, parse_time

END_OF_BATCH = b"NATS/1.0 204"
LAST_SEQUENCE, UP_TO_SEQUENCE = "Nats-Last-Sequence", "Nats-UpTo-Sequence"


@defect("JS-API-110")
def direct_get_has_no_time(broker: Broker) -> None:
    """A direct get lacks the header Nats-Time-Stamp."""

    def change(headers: Headers, payload: bytes) -> tuple[bytes, bytes]:
        fields = [(name, value) for name, value in headers.fields if name != "Nats-Time-Stamp"]
        return encode_headers(fields, headers.status), payload

    alter_sent(broker, change)


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
    ("JS-API-236", "direct-get-batch-of-the-last", "both batch and last_by_subj", "408 Bad Request",
     "408 Empty Request", lambda path, body: b"batch" in body and b"last_by_subj" in body),
    ("JS-API-237", "direct-get-of-a-negative-sequence", "a negative sequence", "408 Malformed Request",
     "408 Empty Request", lambda path, body: b"-1" in body),
    ("JS-API-237", "direct-get-from-no-time", "no time", "408 Malformed Request", "404 Message Not Found",
     lambda path, body: b"start_time" in body),
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
        alter_sent(broker, change)

    summary = f"DIRECT.GET of {of} is answered with {instead} in place of {status}."
    add(new(f"{name}-has-another-status", (requirement,), summary, alter))


for _wrong in _STATUSES:
    _status(*_wrong)


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


@defect("JS-API-120")
def direct_get_needs_no_permission(broker: Broker) -> None:
    """DIRECT.GET works on streams without allow_direct."""
    streams = jetstream_of(broker).streams

    def change(fields: Fields, path: bytes) -> None:
        if path.decode() in streams:
            streams[path.decode()].config.allow_direct = True

    alter_direct_body(broker, change)


@method_defect(Broker.publish, "JS-API-121", "JS-API-122")
def direct_get_batch_has_no_end(
    broker: Broker, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes
) -> int:
    """No status follows the messages of a batch of direct gets."""
    if header_block.startswith(END_OF_BATCH):
        return 1
    return Broker.publish(broker, subject, reply, header_block, payload)


# -- of many messages ------------------------------------------------------------------------------


def _with_header(broker: Broker, name: str, value: Callable[[Headers], str]) -> None:
    """Where a header of this name is sent, it has another value."""

    def change(headers: Headers, payload: bytes) -> tuple[bytes, bytes]:
        fields = [(each, value(headers) if each == name else text) for each, text in headers.fields]
        return encode_headers(fields, headers.status), payload

    alter_sent(broker, change)


@defect("JS-API-192")
def direct_get_max_bytes_is_ignored(broker: Broker) -> None:
    """DIRECT.GET with batch does not look at max_bytes."""
    alter_direct_body(broker, lambda fields, path: fields.pop("max_bytes", None))


@defect("JS-API-192")
def max_bytes_is_for_batches(broker: Broker) -> None:
    """DIRECT.GET with multi_last sends all, whatever max_bytes is."""

    def change(fields: Fields, path: bytes) -> None:
        if "multi_last" in fields:
            fields.pop("max_bytes", None)

    alter_direct_body(broker, change)


@defect("JS-API-192")
def direct_get_max_bytes_ends_as_if_it_were_all(broker: Broker) -> None:
    """The status at the end of a batch of direct gets has 0 messages left."""

    def left(headers: Headers) -> str:
        return "0" if headers.status is not None else headers.get("Nats-Num-Pending") or ""

    _with_header(broker, "Nats-Num-Pending", left)


@defect("JS-API-193")
def direct_get_of_a_time_is_of_later_ones(broker: Broker) -> None:
    """DIRECT.GET with start_time leaves out what was stored at exactly that time."""

    def change(fields: Fields, path: bytes) -> None:
        if moment := parse_time(fields.get("start_time", "")):
            fields["start_time"] = format_time(moment + 1)

    alter_direct_body(broker, change)


def _from_the_first(broker: Broker, field: str) -> None:
    """start_time is passed over in requests that have this field."""

    def change(fields: Fields, path: bytes) -> None:
        if field in fields and fields.pop("start_time", None):
            fields["seq"] = 1

    alter_direct_body(broker, change)


@defect("JS-API-193")
def direct_get_of_a_time_and_a_subject_is_of_any_time(broker: Broker) -> None:
    """DIRECT.GET with start_time and next_by_subj gives the first message of the subject."""
    _from_the_first(broker, "next_by_subj")


@defect("JS-API-193")
def direct_get_batch_of_a_time_begins_with_the_first(broker: Broker) -> None:
    """DIRECT.GET with start_time and batch begins with the first message of the stream."""
    _from_the_first(broker, "batch")


@defect("JS-API-194")
def direct_get_up_to_a_sequence_goes_on(broker: Broker) -> None:
    """DIRECT.GET with multi_last does not look at up_to_seq."""
    alter_direct_body(broker, lambda fields, path: fields.pop("up_to_seq", None))


@defect("JS-API-194")
def direct_get_up_to_a_sequence_ends_before_it(broker: Broker) -> None:
    """DIRECT.GET with up_to_seq leaves out the message with that sequence."""

    def change(fields: Fields, path: bytes) -> None:
        if fields.get("up_to_seq", 0) > 1:
            fields["up_to_seq"] -= 1

    alter_direct_body(broker, change)


@defect("JS-API-194")
def direct_get_up_to_a_sequence_shows_the_last_one(broker: Broker) -> None:
    """Nats-UpTo-Sequence is the last sequence of the stream, whatever up_to_seq is."""
    streams = jetstream_of(broker).streams
    _with_header(
        broker, UP_TO_SEQUENCE, lambda headers: str(max(one.store.last_seq for one in streams.values()))
    )


@defect("JS-API-195")
def direct_get_up_to_a_time_goes_on(broker: Broker) -> None:
    """DIRECT.GET with multi_last does not look at up_to_time."""
    alter_direct_body(broker, lambda fields, path: fields.pop("up_to_time", None))


@defect("JS-API-194", "JS-API-195")
def direct_get_up_to_leaves_out_what_has_changed(broker: Broker) -> None:
    """DIRECT.GET with multi_last leaves out the subjects that have a newer message than asked for."""
    streams = jetstream_of(broker).streams

    def change(fields: Fields, path: bytes) -> None:
        stream = streams.get(path.decode())
        if stream is None or not (fields.get("up_to_seq") or fields.get("up_to_time")):
            return
        moment = parse_time(fields.get("up_to_time", ""))
        matches = subjects.matcher([each.encode() for each in fields["multi_last"]])
        last = {message.subject: message for message in stream.store.messages()}
        fields["multi_last"] = [
            subject.decode()
            for subject, message in last.items()
            if matches(subject)
            and (message.time < moment if moment else message.seq <= fields.get("up_to_seq", 0))
        ] or ["none"]

    alter_direct_body(broker, change)


@defect("JS-API-196")
def direct_get_of_too_many_gives_all(broker: Broker) -> None:
    """DIRECT.GET with multi_last has no limit."""
    replace(jetstream_of(broker), "most_subjects", 1_000_000)


@defect("JS-API-196")
def direct_get_of_a_thousand_is_too_many(broker: Broker) -> None:
    """DIRECT.GET with multi_last that matches more than 1000 subjects gets status 413."""
    replace(jetstream_of(broker), "most_subjects", 1000)


@defect("JS-API-196")
def direct_get_of_too_many_is_a_bad_request(broker: Broker) -> None:
    """DIRECT.GET with multi_last that matches more than 1024 subjects gets status 408."""

    def change(headers: Headers, payload: bytes) -> tuple[bytes, bytes]:
        status = headers.status
        is_it = status is not None and status.code == 413
        return encode_headers(headers.fields, Status(408, "Bad Request") if is_it else status), payload

    alter_sent(broker, change)


@defect("JS-API-197")
def direct_get_of_a_subject_ignores_its_body(broker: Broker) -> None:
    """DIRECT.GET.<stream>.<subject> does not look at its body."""
    alter_direct_get(broker, lambda path, body: (path, b"" if b"." in path else body))


@defect("JS-API-197")
def direct_get_of_a_subject_takes_its_body(broker: Broker) -> None:
    """DIRECT.GET.<stream>.<subject> with a body is answered as the body asks."""
    alter_direct_get(broker, lambda path, body: (path.partition(b".")[0] if body else path, body))


@defect("JS-API-201")
def direct_get_of_some_last_messages_gives_all(broker: Broker) -> None:
    """DIRECT.GET with multi_last does not look at batch."""

    def change(fields: Fields, path: bytes) -> None:
        if "multi_last" in fields:
            fields.pop("batch", None)

    alter_direct_body(broker, change)


@defect("JS-API-201")
def direct_get_of_some_last_messages_gives_the_last(broker: Broker) -> None:
    """DIRECT.GET with multi_last and batch gives the last so many."""
    streams = jetstream_of(broker).streams

    def change(fields: Fields, path: bytes) -> None:
        stream = streams.get(path.decode())
        if stream is not None and "multi_last" in fields and fields.get("batch"):
            last = {message.subject: message.seq for message in stream.store.messages()}
            matches = subjects.matcher([each.encode() for each in fields["multi_last"]])
            found = sorted((seq, subject) for subject, seq in last.items() if matches(subject))
            fields["multi_last"] = [subject.decode() for _, subject in found[-fields["batch"] :]]

    alter_direct_body(broker, change)


@method_defect(Stream.direct_responders, "JS-API-232")
def mirror_answers_only_for_itself(self: Stream) -> list[Stream]:
    """DIRECT.GET of a stream is not answered by its mirrors."""
    return [self]


@method_defect(Stream.direct_responders, "JS-API-232")
def mirror_answers_what_its_origin_has(self: Stream) -> list[Stream]:
    """A mirror answers DIRECT.GET of its origin as long as the origin has messages."""
    return Stream.direct_responders(self) if len(self.store) else [self]


# -- without headers -------------------------------------------------------------------------------


@defect("JS-API-233", "JS-API-234", "JS-API-235")
def no_hdr_is_unknown(broker: Broker) -> None:
    """no_hdr says nothing, as before 2.12."""
    replace(jetstream_of(broker).rules, "gets_without_headers", False)


def _sent_without(broker: Broker, drop: Callable[[str], bool]) -> None:
    """A direct get with no_hdr is answered with headers, but those that ``drop`` names."""
    asked = [False]

    def look(fields: Fields, path: bytes) -> None:
        asked[0] = bool(fields.pop("no_hdr", False))

    def change(headers: Headers, payload: bytes) -> tuple[bytes, bytes]:
        if not asked[0] or headers.status is not None:
            return encode_headers(headers.fields, headers.status), payload
        left = [(name, value) for name, value in headers.fields if not drop(name)]
        return encode_headers(left) if left else b"", payload

    alter_direct_body(broker, look)
    alter_sent(broker, change)


@defect("JS-API-233", "JS-API-234")
def no_hdr_leaves_what_was_stored(broker: Broker) -> None:
    """DIRECT.GET with no_hdr leaves out Nats-Stream and the other headers about the message alone."""
    _sent_without(broker, lambda name: name.startswith("Nats-"))


@defect("JS-API-233", "JS-API-234")
def no_hdr_leaves_what_the_message_is(broker: Broker) -> None:
    """DIRECT.GET with no_hdr leaves out the stored headers alone."""
    _sent_without(broker, lambda name: not name.startswith("Nats-"))


def _no_hdr_only(broker: Broker, when: Callable[[Fields], object]) -> None:
    """DIRECT.GET looks at no_hdr only in requests with other fields that ``when`` accepts."""

    def change(fields: Fields, path: bytes) -> None:
        if not when(fields):
            fields.pop("no_hdr", None)

    alter_direct_body(broker, change)


@defect("JS-API-233")
def no_hdr_is_for_sequences(broker: Broker) -> None:
    """DIRECT.GET looks at no_hdr only where seq says which message is meant."""
    _no_hdr_only(broker, lambda fields: "batch" in fields or "seq" in fields)


@defect("JS-API-233")
def no_hdr_is_not_for_the_last(broker: Broker) -> None:
    """DIRECT.GET does not look at no_hdr beside last_by_subj."""
    _no_hdr_only(broker, lambda fields: "last_by_subj" not in fields)


@defect("JS-API-233")
def no_hdr_is_always_true(broker: Broker) -> None:
    """DIRECT.GET with no_hdr false is answered as with true."""
    alter_direct_body(
        broker, lambda fields, path: fields.update({"no_hdr": True} if "no_hdr" in fields else {})
    )


@defect("JS-API-234")
def no_hdr_is_not_for_batches(broker: Broker) -> None:
    """DIRECT.GET does not look at no_hdr beside batch."""
    _no_hdr_only(broker, lambda fields: "batch" not in fields)


@defect("JS-API-234")
def no_hdr_leaves_out_the_end_of_the_batch(broker: Broker) -> None:
    """The status 204 behind a batch with no_hdr has no Nats-Num-Pending and no Nats-Last-Sequence."""
    asked = [False]

    def look(fields: Fields, path: bytes) -> None:
        asked[0] = bool(fields.get("no_hdr"))

    def change(headers: Headers, payload: bytes) -> tuple[bytes, bytes]:
        return encode_headers(() if asked[0] else headers.fields, headers.status), payload

    alter_direct_body(broker, look)
    alter_sent(broker, change)


@defect("JS-API-235")
def no_hdr_is_for_direct_gets(broker: Broker) -> None:
    """STREAM.MSG.GET does not look at no_hdr."""
    alter_body(broker, "stream_msg_get", lambda fields, request: fields.pop("no_hdr", None))


@defect("JS-API-235")
def no_hdr_of_the_last_leaves_headers(broker: Broker) -> None:
    """STREAM.MSG.GET looks at no_hdr only beside seq."""
    alter_body(
        broker,
        "stream_msg_get",
        lambda fields, request: "last_by_subj" in fields and fields.pop("no_hdr", None),
    )


@defect("JS-API-235")
def no_hdr_leaves_out_the_sequence(broker: Broker) -> None:
    """STREAM.MSG.GET with no_hdr is answered with the payload alone, as DIRECT.GET is."""

    def change(fields: Fields, request: Request) -> None:
        if (body_of(request) or {}).get("no_hdr"):
            fields["message"] = {name: fields["message"][name] for name in ("data",)}

    alter_success(broker, "stream_msg_get", change)


@defect("JS-API-236")
def direct_get_of_the_last_ignores_batch(broker: Broker) -> None:
    """DIRECT.GET with last_by_subj does not look at batch."""
    alter_direct_body(broker, lambda fields, path: "last_by_subj" in fields and fields.pop("batch", None))


@defect("JS-API-236")
def direct_get_batch_begins_with_the_last(broker: Broker) -> None:
    """DIRECT.GET with batch and last_by_subj gives the messages of that subject."""

    def change(fields: Fields, path: bytes) -> None:
        if "last_by_subj" in fields and "batch" in fields:
            fields["next_by_subj"] = fields.pop("last_by_subj")

    alter_direct_body(broker, change)


@defect("JS-API-237")
def direct_get_of_a_negative_sequence_is_of_the_first(broker: Broker) -> None:
    """DIRECT.GET of a sequence below 0 gives the first message."""
    alter_direct_body(
        broker, lambda fields, path: fields.update({"seq": abs(fields["seq"])} if "seq" in fields else {})
    )


@defect("JS-API-237")
def direct_get_from_no_time_is_from_the_beginning(broker: Broker) -> None:
    """DIRECT.GET with a start_time that is no time gives the first message."""

    def change(fields: Fields, path: bytes) -> None:
        if "start_time" in fields and parse_time(fields["start_time"]) is None:
            fields["start_time"] = format_time(0)

    alter_direct_body(broker, change)


@defect("JS-API-237")
def direct_get_batches_from_no_time_are_from_the_beginning(broker: Broker) -> None:
    """DIRECT.GET with batch and a start_time that is no time gives the first messages."""

    def change(fields: Fields, path: bytes) -> None:
        if "batch" in fields and parse_time(fields.get("start_time", "")) is None:
            fields["start_time"] = format_time(0)

    alter_direct_body(broker, change)
