"""What a consumer has delivered, what was acknowledged, what is to be redelivered.

Knows no wire, no store and no timer; every rule of counting is one small method. A pair is consumer
sequence (counts deliveries) and stream sequence (position). Source: deep dive, "Acknowledgement Models";
facts as observed on servers.
"""

from __future__ import annotations

import re
from collections import OrderedDict

from msgspec import Struct

from plumbline.reference_broker.nats.jetstream.consumers.config import AckPolicy
from plumbline.reference_broker.nats.jetstream.rules import Rules

# A message has one in the common case, so it is not put together of calls of ``units.read_number``.
_ACK_SUBJECT = re.compile(
    rb"[^.]*\.[^.]*\.([^.]*)\.([^.]*)\.([0-9]{1,19})\.([0-9]{1,19})\.([0-9]{1,19})\.[0-9]+\.[0-9]+", re.DOTALL
)


class Pending(Struct):
    """A delivered message that waits for its acknowledgement.

    ``consumer_seq`` stays that of the first delivery.
    """

    consumer_seq: int
    stamp: int  # when its ack_wait started


class Sequences(Struct):
    """Consumer sequence and stream sequence of one moment."""

    consumer: int
    stream: int


class AckSubjectFields(Struct, frozen=True, gc=False):
    """What a server reads from the 9 tokens of an ack subject (ADR-15)."""

    stream: bytes
    consumer: bytes
    deliveries: int
    stream_seq: int
    consumer_seq: int

    @classmethod
    def parse(cls, subject: bytes) -> AckSubjectFields | None:
        """None for a subject that no server without a domain has written."""
        found = _ACK_SUBJECT.fullmatch(subject)
        if found is None:
            return None
        stream, consumer, deliveries, stream_seq, consumer_seq = found.groups()
        return cls(stream, consumer, int(deliveries), int(stream_seq), int(consumer_seq))


class AckState:
    """The counters of one consumer whose first message is at stream sequence ``start``."""

    def __init__(self, policy: AckPolicy, start: int, rules: Rules) -> None:
        self.policy = policy
        self.rules = rules
        self.delivered = Sequences(0, start - 1)
        self.floor = Sequences(0, start - 1 if rules.floor_starts_at_position else 0)
        self.pending: dict[int, Pending] = {}  # by stream sequence, ascending
        self.redelivered: dict[int, int] = {}  # how often beyond the first time, by stream sequence
        self.queue: OrderedDict[int, None] = OrderedDict()  # to redeliver, oldest request first
        self.last_delivery: int | None = None
        self.last_ack: int | None = None

    # Delivering

    @property
    def next_consumer_seq(self) -> int:
        return self.delivered.consumer + 1

    def next_redelivery(self) -> int | None:
        """The stream sequence at the head of the redelivery queue."""
        return next(iter(self.queue), None)

    def next_delivery_of(self, seq: int) -> int:
        """The delivery count that the next redelivery of ``seq`` bears: 2 for the first one."""
        return self.redelivered.get(seq, 0) + 2

    def record_delivery(self, seq: int, deliveries: int, now: int) -> None:
        """Count a delivery that reached somebody."""
        delivered = self.delivered
        delivered.consumer += 1
        if seq > delivered.stream:
            delivered.stream = seq
        self.last_delivery = now
        if deliveries > 1:
            self.queue.pop(seq, None)
            self.redelivered[seq] = deliveries - 1
        if self.policy == "none":
            self.count_as_acknowledged(seq)
            return
        known = self.pending.get(seq)
        if known is None:
            self.pending[seq] = Pending(delivered.consumer, now)
        else:
            known.stamp = now

    def count_as_acknowledged(self, seq: int) -> None:
        self.floor.consumer = self.delivered.consumer
        if seq > self.floor.stream:
            self.floor.stream = seq

    # Acknowledging

    def acknowledge(self, seq: int, consumer_seq: int, now: int) -> list[int]:
        """+ACK, and what counts like it: the stream sequences that are settled by it."""
        self.last_ack = now
        if self.policy == "explicit":
            return self.acknowledge_one(seq, consumer_seq)
        if self.policy in ("all", "flow_control"):
            return self.acknowledge_up_to(seq, consumer_seq)
        return []

    def acknowledge_one(self, seq: int, consumer_seq: int) -> list[int]:
        known = self.pending.pop(seq, None)
        self.forget_redelivery(seq)
        if known is not None:
            self.advance_floor(known.consumer_seq, seq)
            return [seq]
        if not self.rules.future_ack_is_ignored:
            self.advance_floor(consumer_seq, seq)
        return []

    def acknowledge_up_to(self, seq: int, consumer_seq: int) -> list[int]:
        """Deep dive, "AckAll": everything up to ``seq`` is done; an older ack says nothing new."""
        if consumer_seq <= self.floor.consumer or seq <= self.floor.stream:
            return []
        settled = []
        for pending_seq in self.pending:
            if pending_seq > seq:
                break
            settled.append(pending_seq)
        for settled_seq in settled:
            del self.pending[settled_seq]
            self.forget_redelivery(settled_seq)
        self.floor.consumer, self.floor.stream = consumer_seq, seq
        return settled

    def advance_floor(self, consumer_seq: int, seq: int) -> None:
        """The floor passes what is acknowledged without a gap, and all of it when nothing is pending."""
        floor = self.floor
        if not self.pending:
            floor.consumer, floor.stream = self.delivered.consumer, self.delivered.stream
        elif consumer_seq == floor.consumer + 1:
            floor.consumer, floor.stream = consumer_seq, seq
            for later in range(seq + 1, self.delivered.stream + 1):
                known = self.pending.get(later)
                if known is not None:
                    floor.consumer, floor.stream = known.consumer_seq - 1, later - 1
                    break

    # Redelivering

    def forget_redelivery(self, seq: int) -> None:
        self.redelivered.pop(seq, None)
        self.queue.pop(seq, None)

    def request_redelivery(self, seq: int) -> None:
        """-NAK, or ack_wait has passed: it comes before everything new."""
        self.queue.setdefault(seq)

    def max_deliveries_reached(self, seq: int) -> None:
        """max_deliver is reached: no longer pending, never again delivered; the floor stays where it is."""
        self.redelivered[seq] = self.redelivered.get(seq, 0) + 1
        self.queue.pop(seq, None)
        self.pending.pop(seq, None)

    # Losing messages

    def message_removed(self, seq: int, now: int) -> bool:
        """The stream has removed a message: it counts as acknowledged. True if it was pending."""
        known = self.pending.get(seq)
        if known is None:
            self.forget_redelivery(seq)
            return False
        self.acknowledge(seq, known.consumer_seq, now)
        self.pending.pop(seq, None)  # with ack_policy all the floor may be past its first delivery
        self.forget_redelivery(seq)
        return True

    def restart_at(self, position: int, still_pending: set[int], now: int, start: int) -> None:
        """After a purge up to ``start``: only ``still_pending`` stays pending, no counter lies behind
        ``position``."""
        floor, moved = self.floor, self.floor.stream < start
        removed = [
            seq for seq in self.pending if seq not in still_pending or self.rules.purge_drops_all_pending
        ]
        for seq in removed:
            acknowledged = self.pending.pop(seq).consumer_seq
            if moved:
                floor.consumer = max(floor.consumer, acknowledged)
            self.forget_redelivery(seq)
            self.last_ack = now
        if moved:
            floor.stream = start - 1
            if self.rules.purge_drops_all_pending:
                floor.consumer = self.delivered.consumer
        self.delivered.stream = max(self.delivered.stream, position - 1)
        if not self.pending and not self.rules.purge_drops_all_pending:
            self.redelivered.clear()
            self.queue.clear()
            self.floor.consumer, self.floor.stream = self.delivered.consumer, self.delivered.stream

    def needs(self, seq: int, position: int) -> bool:
        """Whether ``seq`` is still to be delivered or acknowledged; ``position`` is what comes next."""
        if seq in self.redelivered:
            return True  # past max_deliver: kept for who looks into it
        if seq <= self.floor.stream:
            return False
        return self.policy != "explicit" or seq >= position or seq in self.pending
