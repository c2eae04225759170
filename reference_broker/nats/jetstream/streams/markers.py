"""Delete markers: what a stream leaves in the place of a subject's last message when time has removed it.

Knows the stream it is told to mark, and no timer. Source: ADR-48, "Retrieving Values"; headers and their
order as observed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plumbline.reference_broker.nats.jetstream.streams.store import Message
from plumbline.wire.nats.headers import encode_headers
from plumbline.wire.units import format_duration

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

MARKER_REASON = "Nats-Marker-Reason"


def leave(stream: Stream, gone: Message, now: int) -> None:
    """``gone`` was removed by its own lifetime or by max_age; markers themselves leave nothing."""
    ttl = stream.config.subject_delete_marker_ttl
    if ttl <= 0 or stream.store.count_of(gone.subject) or MARKER_REASON.encode() in gone.header_block:
        return
    marker = stream.store.append(gone.subject, header_block("MaxAge", ttl), b"", now)
    stream.begin_lifetime(marker.seq, ttl, now)
    stream.enforce_limits(gone.subject, now)
    stream.stored(marker, now)


def header_block(reason: str, ttl: int) -> bytes:
    """The headers of a marker: why the message has gone, and how long the marker stays."""
    fields = ((MARKER_REASON, reason), ("Nats-TTL", format_duration(ttl)), ("Nats-Rollup", "sub"))
    return encode_headers(fields)
