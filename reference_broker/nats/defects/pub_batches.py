"""Defects of atomic batches. What is right: ``jetstream.batches``."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import replace
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_streams,
    jetstream_defect,
    jetstream_of,
)
from plumbline.reference_broker.nats.jetstream.streams.batches import Batches, Part, Staged
from plumbline.reference_broker.nats.jetstream.streams.store import Message
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


@jetstream_defect(
    "pub-batches-are-unknown",
    breaks=("JS-PUB-049", "JS-PUB-054"),
    summary="The messages of a batch are stored one by one, as they come.",
)
def _(broker: Broker) -> None:
    replace(jetstream_of(broker).rules, "atomic_batches", False)


class _Gaps(Batches):
    def accept(self, part: Part, message: Staged, now: int) -> tuple[Message | None, bytes]:
        batch = self.open.get(part.batch_id)
        if batch is not None and part.sequence is not None:
            part = Part(part.batch_id, len(batch.messages) + 1, part.commit)
        return super().accept(part, message, now)


@jetstream_defect(
    "pub-batches-may-have-gaps",
    breaks=("JS-PUB-054",),
    summary="Gaps in Nats-Batch-Sequence are not noticed.",
)
def _(broker: Broker) -> None:
    def configured(self: Stream) -> None:
        Stream.configured(self)
        self.batches = _Gaps(self)

    alter_streams(broker, configured=configured)
