"""Defects of atomic batches. What is right: ``jetstream.batches``."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.methods import (
    jetstream_of,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream.streams.batches import Batches, Part, Staged
from plumbline.reference_broker.nats.jetstream.streams.store import Message
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


@defect("JS-PUB-049", "JS-PUB-054")
def pub_batches_are_unknown(broker: Broker) -> None:
    """The messages of a batch are stored one by one, as they come."""
    replace(jetstream_of(broker).rules, "atomic_batches", False)


class _Gaps(Batches):
    def accept(self, part: Part, message: Staged, now: int) -> tuple[Message | None, bytes]:
        batch = self.open.get(part.batch_id)
        if batch is not None and part.sequence is not None:
            part = Part(part.batch_id, len(batch.messages) + 1, part.commit)
        return super().accept(part, message, now)


@method_defect(Stream.configured, "JS-PUB-054")
def pub_batches_may_have_gaps(self: Stream) -> None:
    """Gaps in Nats-Batch-Sequence are not noticed."""
    Stream.configured(self)
    self.batches = _Gaps(self)
