"""Defects in sequence counters and in what consumer and stream info report."""

from __future__ import annotations

from plumbline.reference_broker.nats.defects.methods import (
    method_defect,
)
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckState, Sequences
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.streams.store import MemoryStore, Store, StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


@method_defect(Consumer.reported_delivered, "JS-SEQ-001", "JS-SEQ-002")
def seq_delivered_shows_what_comes_next(self: Consumer) -> Sequences:
    """Consumer info shows the next consumer sequence as delivered, as an old tool did."""
    delivered = Consumer.reported_delivered(self)
    return Sequences(delivered.consumer + 1, delivered.stream)


@method_defect(Consumer.reported_ack_pending, "JS-SEQ-001", "JS-SEQ-005")
def seq_delivery_is_not_ack_pending(self: Consumer) -> int:
    """The first delivery does not count in num_ack_pending."""
    pending = self.acks.pending.values()
    return sum(delivery.consumer_seq > 1 for delivery in pending)


@method_defect(Stream.open_store, "JS-SEQ-002")
def seq_fresh_stream_starts_at_one(self: Stream) -> Store:
    """A stream that never held a message shows first_seq 1."""
    store = Stream.open_store(self)
    store.restart_at(1)
    return store


@method_defect(Stream.open_store, "JS-SEQ-003")
def seq_stream_counts_no_bytes(self: Stream) -> Store:
    """Stream info counts a byte for each message, whatever its size."""
    return MemoryStore(lambda subject, header_block, payload: 1)


@method_defect(Consumer.reported_pending, "JS-SEQ-004")
def seq_pending_lags_by_one(self: Consumer) -> int:
    """num_pending leaves out the newest message."""
    return max(self.num_pending - 1, 0)


@method_defect(Consumer.reported_pending, "JS-SEQ-005")
def seq_pending_keeps_what_is_delivered(self: Consumer) -> int:
    """A delivered message stays in num_pending until it is acknowledged."""
    return self.num_pending + len(self.acks.pending)


@method_defect(Consumer.reported_floor, "JS-SEQ-006", "JS-SEQ-007")
def seq_floor_lags_by_one(self: Consumer) -> Sequences:
    """ack_floor is one behind what is acknowledged."""
    floor = self.acks.floor
    return Sequences(max(floor.consumer - 1, 0), max(floor.stream - 1, 0))


@method_defect(AckState.record_delivery, "JS-SEQ-007")
def seq_delivery_moves_the_floor(self: AckState, seq: int, deliveries: int, now: int) -> None:
    """A second delivery moves ack_floor as if it were acknowledged."""
    AckState.record_delivery(self, seq, deliveries, now)
    if self.delivered.consumer == 2:
        self.floor.consumer, self.floor.stream = self.delivered.consumer, self.delivered.stream


@method_defect(Consumer.reported_redelivered, "JS-SEQ-008")
def seq_redelivery_is_not_counted(self: Consumer) -> int:
    """num_redelivered stays 0."""
    return 0


@method_defect(Consumer.reported_delivered, "JS-SEQ-008")
def seq_redelivery_keeps_its_consumer_sequence(self: Consumer) -> Sequences:
    """A redelivery does not raise delivered's consumer sequence."""
    delivered = Consumer.reported_delivered(self)
    return Sequences(delivered.consumer - sum(self.acks.redelivered.values()), delivered.stream)


@method_defect(Consumer.reported_redelivered, "JS-SEQ-009")
def seq_redeliveries_add_up(self: Consumer) -> int:
    """num_redelivered counts each redelivery of a message, not the message."""
    return sum(self.acks.redelivered.values())


@method_defect(AckState.advance_floor, "JS-SEQ-010")
def seq_floor_tells_the_first_delivery(self: AckState, consumer_seq: int, seq: int) -> None:
    """After a redelivery is acknowledged ack_floor has the consumer sequence of the first delivery."""
    AckState.advance_floor(self, consumer_seq, seq)
    if not self.pending and seq == self.delivered.stream:
        self.floor.consumer = consumer_seq


@method_defect(AckState.forget_redelivery, "JS-SEQ-010")
def seq_redelivered_survives_the_ack(self: AckState, seq: int) -> None:
    """A redelivered message stays in num_redelivered when it is acknowledged."""
    self.queue.pop(seq, None)


@method_defect(AckState.advance_floor, "JS-SEQ-011")
def seq_floor_stays_behind_delivered(self: AckState, consumer_seq: int, seq: int) -> None:
    """When the last acknowledgement comes out of order ack_floor does not reach delivered."""
    if self.pending or consumer_seq == self.delivered.consumer:
        AckState.advance_floor(self, consumer_seq, seq)
    else:
        self.floor.consumer, self.floor.stream = consumer_seq, seq


@method_defect(Consumer.reported_pending, "JS-SEQ-012")
def seq_filter_counts_everything(self: Consumer) -> int:
    """num_pending of a filtered consumer counts messages that do not match."""
    return sum(1 for _ in self.stream.store.messages(self.position.next_seq))


@method_defect(Consumer.ack_subject, "JS-SEQ-013")
def seq_filter_leaves_gaps(self: Consumer, message: StoredMessage, deliveries: int) -> bytes:
    """The consumer sequence of a filtered consumer also counts messages that do not match."""
    if deliveries == 1 and self.config.filters:
        self.acks.delivered.consumer = message.seq - 1
    return Consumer.ack_subject(self, message, deliveries)


@method_defect(Consumer.reported_floor, "JS-SEQ-014")
def seq_filter_floor_counts_the_stream(self: Consumer) -> Sequences:
    """ack_floor of a filtered consumer has the stream sequence as its consumer sequence."""
    floor = self.acks.floor
    return Sequences(floor.stream, floor.stream) if self.config.filters else floor


@method_defect(Consumer.ack_subject, "JS-SEQ-016")
def seq_deleted_messages_leave_gaps(self: Consumer, message: StoredMessage, deliveries: int) -> bytes:
    """A deleted message uses up a consumer sequence."""
    if deliveries == 1 and not self.config.filters:
        self.acks.delivered.consumer += message.seq - self.acks.delivered.stream - 1
    return Consumer.ack_subject(self, message, deliveries)


@method_defect(AckState.acknowledge_one, "JS-SEQ-018")
def seq_redelivery_leaves_the_floor(self: AckState, seq: int, consumer_seq: int) -> list[int]:
    """The ack of a redelivery leaves ack_floor where it is, as in nats-server 2.10.0 to 2.10.9."""
    floor = Sequences(self.floor.consumer, self.floor.stream)
    redelivered = seq in self.redelivered
    settled = AckState.acknowledge_one(self, seq, consumer_seq)
    if redelivered and self.pending:
        self.floor.consumer, self.floor.stream = floor.consumer, floor.stream
    return settled


@method_defect(Consumer.on_stored, "JS-SEQ-022")
def seq_rollups_count_twice(self: Consumer, message: StoredMessage, now: int) -> None:
    """num_pending counts a rollup once for the purge and once for itself."""
    self.counted_up_to = 0
    Consumer.on_stored(self, message, now)


@method_defect(Stream.roll_up, "JS-SEQ-022")
def seq_rollups_leave_what_they_replace(self: Stream, subject: bytes, rollup: str, now: int) -> None:
    """num_pending still counts the messages that a rollup has replaced."""
    before = [(consumer, consumer.num_pending) for consumer in self.consumers.values()]
    Stream.roll_up(self, subject, rollup, now)
    if rollup:
        for consumer, pending in before:
            consumer.num_pending = pending + 1
