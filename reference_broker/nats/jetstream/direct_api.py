"""DIRECT.GET: stored messages straight to the inbox, with what is known of them in headers.

Source: ADR-31.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reference_broker.nats.jetstream.store import Message
from reference_broker.nats.jetstream.stream import Stream
from reference_broker.nats.jetstream.stream_api import MessageGetRequest, find_message
from reference_broker.nats.jetstream.times import format_time
from wire.headers import VERSION, Status, encode_headers

if TYPE_CHECKING:
    from reference_broker.nats.jetstream.service import JetStream

NOT_FOUND = Status(404, "Message Not Found")
EMPTY = Status(408, "Empty Request")
MALFORMED = Status(408, "Malformed Request")
BAD = Status(408, "Bad Request")


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
        message = find(stream, subject, body)
    except _Refused as refusal:
        jetstream.host.publish(reply, None, encode_headers((), refusal.status), b"")
        return True
    jetstream.host.publish(reply, None, header_block(stream, message), message.payload)
    return True


def find(stream: Stream, subject: str, body: bytes) -> Message:
    """Raises ``_Refused``."""
    message = find_message(stream.store, read(subject, body))
    if message is None:
        raise _Refused(NOT_FOUND)
    return message


def read(subject: str, body: bytes) -> MessageGetRequest:
    """Raises ``_Refused``."""
    if not body and not subject:
        raise _Refused(EMPTY)
    try:
        asked = msgspec.json.decode(body or b"{}", type=MessageGetRequest)
    except (msgspec.DecodeError, RecursionError):
        raise _Refused(MALFORMED) from None
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


def header_block(stream: Stream, message: Message) -> bytes:
    """The stored headers, and what is known of the message after them."""
    head = message.header_block[:-2] or VERSION + b"\r\n"
    fields = {
        "Nats-Stream": stream.config.name,
        "Nats-Subject": message.subject.decode("utf-8", "surrogateescape"),
        "Nats-Sequence": str(message.seq),
        "Nats-Time-Stamp": format_time(message.time),
    }
    return head + encode_headers(fields.items()).split(b"\r\n", 1)[1]
