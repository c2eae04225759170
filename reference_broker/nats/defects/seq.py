"""Defects in sequence counters and in what consumer and stream info report."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_acks,
    alter_consumers,
    alter_streams,
    jetstream_defect,
)
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckState, SequencePair
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.store import MemoryStore, Message, Store
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


@jetstream_defect(
    "seq-delivered-shows-what-comes-next",
    breaks=("JS-SEQ-001", "JS-SEQ-002"),
    summary="Consumer info shows the next consumer sequence as delivered, as an old tool did.",
)
def _(broker: Broker) -> None:
    def reported_delivered(self: Consumer) -> SequencePair:
        delivered = Consumer.reported_delivered(self)
        return SequencePair(delivered.consumer + 1, delivered.stream)

    alter_consumers(broker, reported_delivered=reported_delivered)


@jetstream_defect(
    "seq-delivery-is-not-ack-pending",
    breaks=("JS-SEQ-001", "JS-SEQ-005"),
    summary="The first delivery does not count in num_ack_pending.",
)
def _(broker: Broker) -> None:
    def reported_ack_pending(self: Consumer) -> int:
        pending = self.acks.pending.values()
        return sum(delivery.consumer_seq > 1 for delivery in pending)

    alter_consumers(broker, reported_ack_pending=reported_ack_pending)


@jetstream_defect(
    "seq-fresh-stream-starts-at-one",
    breaks=("JS-SEQ-002",),
    summary="A stream that never held a message shows first_seq 1.",
)
def _(broker: Broker) -> None:
    def open_store(self: Stream) -> Store:
        store = Stream.open_store(self)
        store.restart_at(1)
        return store

    alter_streams(broker, open_store=open_store)


@jetstream_defect(
    "seq-stream-counts-no-bytes",
    breaks=("JS-SEQ-003",),
    summary="Stream info counts a byte for each message, whatever its size.",
)
def _(broker: Broker) -> None:
    def open_store(self: Stream) -> Store:
        return MemoryStore(lambda subject, header_block, payload: 1)

    alter_streams(broker, open_store=open_store)


@jetstream_defect(
    "seq-pending-lags-by-one",
    breaks=("JS-SEQ-004",),
    summary="num_pending leaves out the newest message.",
)
def _(broker: Broker) -> None:
    def reported_pending(self: Consumer) -> int:
        return max(self.num_pending - 1, 0)

    alter_consumers(broker, reported_pending=reported_pending)


@jetstream_defect(
    "seq-pending-keeps-what-is-delivered",
    breaks=("JS-SEQ-005",),
    summary="A delivered message stays in num_pending until it is acknowledged.",
)
def _(broker: Broker) -> None:
    def reported_pending(self: Consumer) -> int:
        return self.num_pending + len(self.acks.pending)

    alter_consumers(broker, reported_pending=reported_pending)


@jetstream_defect(
    "seq-floor-lags-by-one",
    breaks=("JS-SEQ-006", "JS-SEQ-007"),
    summary="ack_floor is one behind what is acknowledged.",
)
def _(broker: Broker) -> None:
    def reported_floor(self: Consumer) -> SequencePair:
        floor = self.acks.floor
        return SequencePair(max(floor.consumer - 1, 0), max(floor.stream - 1, 0))

    alter_consumers(broker, reported_floor=reported_floor)


@jetstream_defect(
    "seq-delivery-moves-the-floor",
    breaks=("JS-SEQ-007",),
    summary="A second delivery moves ack_floor as if it were acknowledged.",
)
def _(broker: Broker) -> None:
    def record_delivery(self: AckState, seq: int, deliveries: int, now: int) -> None:
        AckState.record_delivery(self, seq, deliveries, now)
        if self.delivered.consumer == 2:
            self.floor.consumer, self.floor.stream = self.delivered.consumer, self.delivered.stream

    alter_acks(broker, record_delivery=record_delivery)


@jetstream_defect(
    "seq-redelivery-is-not-counted",
    breaks=("JS-SEQ-008",),
    summary="num_redelivered stays 0.",
)
def _(broker: Broker) -> None:
    def reported_redelivered(self: Consumer) -> int:
        return 0

    alter_consumers(broker, reported_redelivered=reported_redelivered)


@jetstream_defect(
    "seq-redelivery-keeps-its-consumer-sequence",
    breaks=("JS-SEQ-008",),
    summary="A redelivery does not raise delivered's consumer sequence.",
)
def _(broker: Broker) -> None:
    def reported_delivered(self: Consumer) -> SequencePair:
        delivered = Consumer.reported_delivered(self)
        return SequencePair(delivered.consumer - sum(self.acks.redelivered.values()), delivered.stream)

    alter_consumers(broker, reported_delivered=reported_delivered)


@jetstream_defect(
    "seq-redeliveries-add-up",
    breaks=("JS-SEQ-009",),
    summary="num_redelivered counts each redelivery of a message, not the message.",
)
def _(broker: Broker) -> None:
    def reported_redelivered(self: Consumer) -> int:
        return sum(self.acks.redelivered.values())

    alter_consumers(broker, reported_redelivered=reported_redelivered)


@jetstream_defect(
    "seq-floor-tells-the-first-delivery",
    breaks=("JS-SEQ-010",),
    summary="After a redelivery is acknowledged ack_floor has the consumer sequence of the first delivery.",
)
def _(broker: Broker) -> None:
    def advance_floor(self: AckState, consumer_seq: int, seq: int) -> None:
        AckState.advance_floor(self, consumer_seq, seq)
        if not self.pending and seq == self.delivered.stream:
            self.floor.consumer = consumer_seq

    alter_acks(broker, advance_floor=advance_floor)


@jetstream_defect(
    "seq-redelivered-survives-the-ack",
    breaks=("JS-SEQ-010",),
    summary="A redelivered message stays in num_redelivered when it is acknowledged.",
)
def _(broker: Broker) -> None:
    def forget_redelivery(self: AckState, seq: int) -> None:
        self.queue.pop(seq, None)

    alter_acks(broker, forget_redelivery=forget_redelivery)


@jetstream_defect(
    "seq-floor-stays-behind-delivered",
    breaks=("JS-SEQ-011",),
    summary="When the last acknowledgement comes out of order ack_floor does not reach delivered.",
)
def _(broker: Broker) -> None:
    def advance_floor(self: AckState, consumer_seq: int, seq: int) -> None:
        if self.pending or consumer_seq == self.delivered.consumer:
            AckState.advance_floor(self, consumer_seq, seq)
        else:
            self.floor.consumer, self.floor.stream = consumer_seq, seq

    alter_acks(broker, advance_floor=advance_floor)


@jetstream_defect(
    "seq-filter-counts-everything",
    breaks=("JS-SEQ-012",),
    summary="num_pending of a filtered consumer counts messages that do not match.",
)
def _(broker: Broker) -> None:
    def reported_pending(self: Consumer) -> int:
        return sum(1 for _ in self.stream.store.messages(self.position.next_seq))

    alter_consumers(broker, reported_pending=reported_pending)


@jetstream_defect(
    "seq-filter-leaves-gaps",
    breaks=("JS-SEQ-013",),
    summary="The consumer sequence of a filtered consumer also counts messages that do not match.",
)
def _(broker: Broker) -> None:
    def ack_subject(self: Consumer, message: Message, deliveries: int) -> bytes:
        if deliveries == 1 and self.config.filters:
            self.acks.delivered.consumer = message.seq - 1
        return Consumer.ack_subject(self, message, deliveries)

    alter_consumers(broker, ack_subject=ack_subject)


@jetstream_defect(
    "seq-filter-floor-counts-the-stream",
    breaks=("JS-SEQ-014",),
    summary="ack_floor of a filtered consumer has the stream sequence as its consumer sequence.",
)
def _(broker: Broker) -> None:
    def reported_floor(self: Consumer) -> SequencePair:
        floor = self.acks.floor
        return SequencePair(floor.stream, floor.stream) if self.config.filters else floor

    alter_consumers(broker, reported_floor=reported_floor)


@jetstream_defect(
    "seq-deleted-messages-leave-gaps",
    breaks=("JS-SEQ-016",),
    summary="A deleted message uses up a consumer sequence.",
)
def _(broker: Broker) -> None:
    def ack_subject(self: Consumer, message: Message, deliveries: int) -> bytes:
        if deliveries == 1 and not self.config.filters:
            self.acks.delivered.consumer += message.seq - self.acks.delivered.stream - 1
        return Consumer.ack_subject(self, message, deliveries)

    alter_consumers(broker, ack_subject=ack_subject)


@jetstream_defect(
    "seq-redelivery-leaves-the-floor",
    breaks=("JS-SEQ-018",),
    summary="The ack of a redelivery leaves ack_floor where it is, as in nats-server 2.10.0 to 2.10.9.",
)
def _(broker: Broker) -> None:
    def acknowledge_one(self: AckState, seq: int, consumer_seq: int) -> list[int]:
        floor = SequencePair(self.floor.consumer, self.floor.stream)
        redelivered = seq in self.redelivered
        settled = AckState.acknowledge_one(self, seq, consumer_seq)
        if redelivered and self.pending:
            self.floor.consumer, self.floor.stream = floor.consumer, floor.stream
        return settled

    alter_acks(broker, acknowledge_one=acknowledge_one)
