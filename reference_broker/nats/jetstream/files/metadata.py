"""What the metadata files of streams and consumers hold; times are nanoseconds since the epoch."""

from __future__ import annotations

from msgspec import Struct

from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.streams.config import StreamConfig


class StreamMetadata(Struct, frozen=True):
    """``stream.json``."""

    config: StreamConfig
    created: int


class ConsumerMetadata(Struct, frozen=True):
    """``consumers/<c>.json``. With replay policy ``original``, ``replay_until`` is the last sequence that is
    replayed with its distance in time."""

    name: str
    config: ConsumerConfig
    created: int
    replay_until: int | None = None
