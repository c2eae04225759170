"""Delete markers: what a stream leaves in the place of a subject's last message when time has removed it.

Knows the stream that it is to mark, and no timer. Source: ADR-48, "Retrieving Values"; headers and their
order as observed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.wire.nats.headers import encode_headers
from plumbline.wire.units import format_duration

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

MARKER_REASON = "Nats-Marker-Reason"


def leave_marker(stream: Stream, removed: StoredMessage, now: int) -> None:
    """``removed`` was removed by its own lifetime or by max_age; markers themselves leave nothing."""
    ttl = stream.config.subject_delete_marker_ttl
    if ttl <= 0 or stream.store.count_of(removed.subject) or is_marker(removed):
        return
    marker = stream.append(removed.subject, header_block("MaxAge", ttl), b"", now)
    stream.begin_lifetime(marker.seq, ttl, now)
    stream.enforce_limits(removed.subject, now)
    stream.on_stored(marker, now)


def is_marker(message: StoredMessage) -> bool:
    """Whether a server left it in the place of another one."""
    return MARKER_REASON.encode() in message.header_block


def header_block(reason: str, ttl: int) -> bytes:
    """The headers of a marker: why the message has gone, and how long the marker stays."""
    fields = ((MARKER_REASON, reason), ("Nats-TTL", format_duration(ttl)), ("Nats-Rollup", "sub"))
    return encode_headers(fields)
