"""DIRECT.GET: stored messages straight to the inbox, with what is known of them in headers.

Source: ADR-31.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from plumbline.errors import UNDECODABLE
from plumbline.reference_broker.nats.jetstream import subjects
from plumbline.reference_broker.nats.jetstream.api.requests import typed
from plumbline.reference_broker.nats.jetstream.api.streams import (
    MessageGetRequest,
    find_message,
    known_fields,
)
from plumbline.reference_broker.nats.jetstream.rules import Rules
from plumbline.reference_broker.nats.jetstream.streams.store import Store, StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.nats.headers import Status, append_headers, encode_headers
from plumbline.wire.nats.jetstream.times import format_time, parse_time

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.service import JetStream

NOT_FOUND = Status(404, "Message Not Found")
NO_RESULTS = Status(404, "No Results")  # of several subjects
EMPTY = Status(408, "Empty Request")
MALFORMED = Status(408, "Malformed Request")
BAD = Status(408, "Bad Request")
TOO_MANY = Status(413, "Too Many Results")
END_OF_BATCH = Status(204, "EOB")
EMPTY_FIELDS: Mapping[str, str] = MappingProxyType({})


class _StatusError(Exception):
    def __init__(self, status: Status) -> None:
        super().__init__(str(status))
        self.status = status


def get(jetstream: JetStream, path: bytes, reply: bytes | None, body: bytes) -> bool:
    """``path``: a stream, or a stream and a subject.

    False if the stream does not allow it, which is answered with 503.
    """
    name, _, subject = path.decode("utf-8", "replace").partition(".")
    stream = jetstream.streams.get(name)
    if stream is None or not stream.config.allow_direct:
        return not jetstream.rules.disabled_direct_get_gets_503
    if reply is None:
        return True
    if len(responders := stream.direct_responders()) > 1:
        stream = jetstream.config.random.choice(responders)
    try:
        get_request = read(subject, body, jetstream.rules)
        if get_request.multi_last or get_request.batch:
            send_batch(stream, get_request, reply)
        else:
            message = require_found(find_message(stream.store, get_request))
            block = b"" if get_request.no_hdr else header_block(stream, message)
            jetstream.host.publish(reply, None, block, message.payload)
    except _StatusError as refusal:
        jetstream.host.publish(reply, None, encode_headers((), refusal.status), b"")
    return True


def require_found(message: StoredMessage | None, if_none: Status = NOT_FOUND) -> StoredMessage:
    """Raises ``_StatusError``."""
    if message is None:
        raise _StatusError(if_none)
    return message


def send_batch(stream: Stream, get_request: MessageGetRequest, reply: bytes) -> None:
    """ADR-31, "Batched requests": each message says how many are left, and a status ends them.

    Raises ``_StatusError`` if there is none.
    """
    end = up_to(stream.store, get_request)
    messages = (
        last_of_each(stream, get_request, end)
        if get_request.multi_last
        else messages_from(stream, get_request)
    )
    require_found(messages[0] if messages else None, NO_RESULTS if get_request.multi_last else NOT_FOUND)
    has_headers = not get_request.no_hdr or bool(get_request.multi_last)
    if get_request.multi_last and len(messages) > stream.jetstream.most_subjects:
        raise _StatusError(TOO_MANY)
    remaining, last_seq, size = len(messages), 0, 0
    for message in messages[: max(get_request.batch, 0) if get_request.batch else None]:
        remaining -= 1
        fields = {"Nats-Num-Pending": str(remaining), "Nats-Last-Sequence": str(last_seq)}
        block = header_block(stream, message, fields) if has_headers else b""
        stream.jetstream.host.publish(reply, None, block, message.payload)
        last_seq = message.seq
        size += len(message.subject) + len(message.header_block) + len(message.payload)
        if 0 < get_request.max_bytes <= size:
            break
    fields = {"Nats-Num-Pending": str(remaining), "Nats-Last-Sequence": str(last_seq)}
    if get_request.multi_last:
        fields["Nats-UpTo-Sequence"] = str(end)
    stream.jetstream.host.publish(reply, None, encode_headers(fields.items(), END_OF_BATCH), b"")


def messages_from(stream: Stream, get_request: MessageGetRequest) -> list[StoredMessage]:
    """All messages from the one that a request without batch would get."""
    first = find_message(stream.store, get_request)
    if first is None:
        return []
    subject_filter = (
        subjects.matcher([get_request.next_by_subj.encode()]) if get_request.next_by_subj else None
    )
    return [
        one
        for one in stream.store.messages(first.seq)
        if subject_filter is None or subject_filter(one.subject)
    ]


def up_to(store: Store, get_request: MessageGetRequest) -> int:
    """The last sequence that counts for ``multi_last``."""
    if get_request.up_to_time:
        moment = parse_time(get_request.up_to_time) or 0
        return max((message.seq for message in store.messages() if message.time < moment), default=0)
    return get_request.up_to_seq or store.last_seq


def last_of_each(stream: Stream, get_request: MessageGetRequest, end: int) -> list[StoredMessage]:
    """The last message up to ``end`` of each subject that matches, in the order of their sequences."""
    subject_filter = subjects.matcher(pattern.encode() for pattern in get_request.multi_last)
    start = parse_time(get_request.start_time) or 0 if get_request.start_time else 0
    last = {
        message.subject: message
        for message in stream.store.messages()
        if message.seq <= end and subject_filter(message.subject)
    }
    return sorted(
        (one for one in last.values() if one.seq >= get_request.seq and one.time >= start),
        key=lambda message: message.seq,
    )


def read(subject: str, body: bytes, rules: Rules) -> MessageGetRequest:
    """Raises ``_StatusError``."""
    if not body and not subject:
        raise _StatusError(EMPTY)
    try:
        get_request = typed(body or b"{}", MessageGetRequest)
    except UNDECODABLE:
        raise _StatusError(MALFORMED) from None
    get_request = known_fields(get_request, rules)
    if get_request.misread is not None:
        raise _StatusError(MALFORMED)
    if get_request.multi_last:
        if (
            subject
            or get_request.last_by_subj
            or get_request.next_by_subj
            or (get_request.up_to_seq and get_request.up_to_time)
        ):
            raise _StatusError(BAD)
        return get_request
    wants = [
        get_request.seq > 0,
        bool(get_request.last_by_subj),
        bool(get_request.next_by_subj),
        bool(get_request.start_time),
    ]
    if subject:
        if any(wants):
            raise _StatusError(BAD)
        return MessageGetRequest(last_by_subj=subject, no_hdr=get_request.no_hdr)
    if not any(wants):
        raise _StatusError(EMPTY)
    if sum(wants) > 1 and not (get_request.next_by_subj and not get_request.last_by_subj):
        raise _StatusError(BAD)
    if get_request.batch and get_request.last_by_subj:
        raise _StatusError(BAD)
    return get_request


def header_block(stream: Stream, message: StoredMessage, more: Mapping[str, str] = EMPTY_FIELDS) -> bytes:
    """The stored headers, and what is known of the message after them, then ``more``."""
    fields = {
        "Nats-Stream": stream.config.name,
        "Nats-Subject": message.subject.decode("utf-8", "surrogateescape"),
        "Nats-Sequence": str(message.seq),
        "Nats-Time-Stamp": format_time(message.time),
        **more,
    }
    return append_headers(message.header_block, fields.items())
