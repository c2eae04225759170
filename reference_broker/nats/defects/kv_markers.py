"""Defects of keys with a lifetime. What is right: ``jetstream.markers``."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.jetstream_parts import alter_streams, jetstream_defect
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


@jetstream_defect(
    "kv-key-leaves-no-marker",
    breaks=("JS-KV-017",),
    summary="subject_delete_marker_ttl is ignored: a key whose time is over just goes.",
)
def _(broker: Broker) -> None:
    def expire(self: Stream, seq: int, now: int) -> None:
        self.remove(seq, now)

    alter_streams(broker, expire=expire)
