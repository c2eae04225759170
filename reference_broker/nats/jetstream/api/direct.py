"""DIRECT.GET: stored messages straight to the inbox, with what is known of them in headers.

Source: ADR-31.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from plumbline.reference_broker.nats.jetstream import subjects
from plumbline.reference_broker.nats.jetstream.api.streams import MessageGetRequest, find_message
from plumbline.reference_broker.nats.jetstream.rules import Rules
from plumbline.reference_broker.nats.jetstream.streams.store import Message
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.reference_broker.nats.jetstream.times import format_time
from plumbline.wire.nats.headers import VERSION, Status, encode_headers

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.service import JetStream

NOT_FOUND = Status(404, "Message Not Found")
EMPTY = Status(408, "Empty Request")
MALFORMED = Status(408, "Malformed Request")
BAD = Status(408, "Bad Request")
END_OF_BATCH = Status(204, "EOB")
EMPTY_FIELDS: Mapping[str, str] = MappingProxyType({})


class _Refused(Exception):
    def __init__(self, status: Status) -> None:
        super().__init__(str(status))
        self.status = status


def get(jetstream: JetStream, path: bytes, reply: bytes | None, body: bytes) -> bool:
    """``path``: a stream, or a stream and a subject.

    False if the stream does not allow it, and that is told with 503.
    """
    name, _, subject = path.decode("utf-8", "replace").partition(".")
    stream = jetstream.streams.get(name)
    if stream is None or not stream.config.allow_direct:
        return not jetstream.rules.direct_get_off_has_no_responder
    if reply is None:
        return True
    try:
        asked = read(subject, body, jetstream.rules)
        if asked.multi_last or asked.batch:
            send_batch(stream, asked, reply)
        else:
            message = found(find_message(stream.store, asked))
            jetstream.host.publish(reply, None, header_block(stream, message), message.payload)
    except _Refused as refusal:
        jetstream.host.publish(reply, None, encode_headers((), refusal.status), b"")
    return True


def found(message: Message | None) -> Message:
    """Raises ``_Refused``."""
    if message is None:
        raise _Refused(NOT_FOUND)
    return message


def send_batch(stream: Stream, asked: MessageGetRequest, reply: bytes) -> None:
    """ADR-31, "Batched requests": each message says how many are left, and a status ends them.

    Raises ``_Refused`` if there is none.
    """
    messages = last_of_each(stream, asked) if asked.multi_last else following(stream, asked)
    found(messages[0] if messages else None)
    left, last_seq = len(messages), 0
    for message in messages[: asked.batch or None]:
        left -= 1
        fields = {"Nats-Num-Pending": str(left), "Nats-Last-Sequence": str(last_seq)}
        stream.jetstream.host.publish(reply, None, header_block(stream, message, fields), message.payload)
        last_seq = message.seq
    fields = {"Nats-Num-Pending": str(left), "Nats-Last-Sequence": str(last_seq)}
    if asked.multi_last:
        fields["Nats-UpTo-Sequence"] = str(asked.up_to_seq or stream.store.last_seq)
    stream.jetstream.host.publish(reply, None, encode_headers(fields.items(), END_OF_BATCH), b"")


def following(stream: Stream, asked: MessageGetRequest) -> list[Message]:
    """All messages from the one that a request without batch would get."""
    first = find_message(stream.store, asked)
    if first is None:
        return []
    wanted = subjects.matcher([asked.next_by_subj.encode()]) if asked.next_by_subj else None
    return [one for one in stream.store.messages(first.seq) if wanted is None or wanted(one.subject)]


def last_of_each(stream: Stream, asked: MessageGetRequest) -> list[Message]:
    """The last message of each subject that matches, in the order of their sequences."""
    wanted = subjects.matcher(pattern.encode() for pattern in asked.multi_last)
    last: dict[bytes, Message] = {}
    for message in stream.store.messages():
        if asked.up_to_seq and message.seq > asked.up_to_seq:
            break
        if wanted(message.subject):
            last[message.subject] = message
    return sorted(last.values(), key=lambda message: message.seq)


def read(subject: str, body: bytes, rules: Rules) -> MessageGetRequest:
    """Raises ``_Refused``."""
    if not body and not subject:
        raise _Refused(EMPTY)
    try:
        asked = msgspec.json.decode(body or b"{}", type=MessageGetRequest)
    except (msgspec.DecodeError, RecursionError):
        raise _Refused(MALFORMED) from None
    if not rules.direct_gets_in_batches:
        asked = msgspec.structs.replace(asked, batch=0, multi_last=[])
    if asked.multi_last:
        if subject or asked.seq or asked.last_by_subj or asked.next_by_subj:
            raise _Refused(BAD)
        return asked
    wants = [asked.seq > 0, bool(asked.last_by_subj), bool(asked.next_by_subj), bool(asked.start_time)]
    if subject:
        if any(wants):
            raise _Refused(BAD)
        return MessageGetRequest(last_by_subj=subject)
    if not any(wants):
        raise _Refused(EMPTY)
    if sum(wants) > 1 and not (asked.next_by_subj and not asked.last_by_subj):
        raise _Refused(BAD)
    return asked


def header_block(stream: Stream, message: Message, more: Mapping[str, str] = EMPTY_FIELDS) -> bytes:
    """The stored headers, and what is known of the message after them, then ``more``."""
    head = message.header_block[:-2] or VERSION + b"\r\n"
    fields = {
        "Nats-Stream": stream.config.name,
        "Nats-Subject": message.subject.decode("utf-8", "surrogateescape"),
        "Nats-Sequence": str(message.seq),
        "Nats-Time-Stamp": format_time(message.time),
        **more,
    }
    return head + encode_headers(fields.items()).split(b"\r\n", 1)[1]
