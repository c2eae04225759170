"""Defects in acknowledgement subjects and in what the policies none, all and explicit count."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import (
    alter_consumers,
    alter_service,
    jetstream_of,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckState
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage

# The subject


@defect("JS-ACK-001")
def ack_subject_has_ten_tokens(broker: Broker) -> None:
    """Ack subjects have ten tokens: a domain without the hash of the account."""
    extra = b"$JS.ACK._."

    def ack_subject(self: Consumer, message: StoredMessage, deliveries: int) -> bytes:
        return extra + Consumer.ack_subject(self, message, deliveries).removeprefix(b"$JS.ACK.")

    def acknowledge(self: JetStream, subject: bytes, reply: bytes | None, payload: bytes, now: int) -> bool:
        plain = b"$JS.ACK." + subject.removeprefix(extra) if subject.startswith(extra) else subject
        return JetStream.acknowledge(self, plain, reply, payload, now)

    alter_consumers(broker, ack_subject=ack_subject)
    alter_service(broker, acknowledge=acknowledge)


@method_defect(Consumer.pending_after, "JS-ACK-002")
def ack_subject_counts_itself_as_pending(self: Consumer, deliveries: int) -> int:
    """The last token of the ack subject counts the delivered message as still to be delivered."""
    return Consumer.pending_after(self, deliveries) + 1


@method_defect(Consumer.ack_subject, "JS-ACK-003")
def ack_subject_tells_milliseconds(self: Consumer, message: StoredMessage, deliveries: int) -> bytes:
    """The timestamp of the ack subject is in milliseconds."""
    *tokens, stamp, pending = Consumer.ack_subject(self, message, deliveries).split(b".")
    return b".".join([*tokens, stamp[:-6], pending])


@defect("JS-ACK-003")
def ack_subject_tells_when_delivered(broker: Broker) -> None:
    """The timestamp of the ack subject is the time of the delivery."""

    def ack_subject(self: Consumer, message: StoredMessage, deliveries: int) -> bytes:
        *tokens, _, pending = Consumer.ack_subject(self, message, deliveries).split(b".")
        return b".".join([*tokens, b"%d" % jetstream_of(broker).now, pending])

    alter_consumers(broker, ack_subject=ack_subject)


@method_defect(Consumer.ack_subject, "JS-ACK-004")
def redelivery_counts_as_the_first(self: Consumer, message: StoredMessage, deliveries: int) -> bytes:
    """The delivery count in the ack subject is always 1."""
    tokens = Consumer.ack_subject(self, message, deliveries).split(b".")
    return b".".join([*tokens[:4], b"1", *tokens[5:]])


# none and all


@method_defect(AckState.count_as_acknowledged, "JS-ACK-033")
def ack_none_waits_for_acks(self: AckState, seq: int) -> None:
    """With ack_policy none the floor stays 0/0 for ever."""


@method_defect(Consumer.reported_ack_pending, "JS-ACK-035")
def ack_all_is_acknowledged_when_delivered(self: Consumer) -> int:
    """With ack_policy all a delivery counts as acknowledged, until the first acknowledgement."""
    untouched = self.config.ack_policy == "all" and self.acks.last_ack is None
    return 0 if untouched else Consumer.reported_ack_pending(self)


@method_defect(AckState.acknowledge_up_to, "JS-ACK-036")
def ack_all_acknowledges_one(self: AckState, seq: int, consumer_seq: int) -> list[int]:
    """With ack_policy all an acknowledgement is for its own message alone."""
    return self.acknowledge_one(seq, consumer_seq)


@method_defect(AckState.acknowledge_up_to, "JS-ACK-037")
def ack_all_moves_the_floor_back(self: AckState, seq: int, consumer_seq: int) -> list[int]:
    """With ack_policy all an acknowledgement of an older message moves the floor back to it."""
    settled = AckState.acknowledge_up_to(self, seq, consumer_seq)
    self.floor.consumer, self.floor.stream = consumer_seq, seq
    return settled


# explicit


@method_defect(AckState.advance_floor, "JS-ACK-038", "JS-ACK-039")
def ack_floor_follows_every_ack(self: AckState, consumer_seq: int, seq: int) -> None:
    """With ack_policy explicit the floor moves to whatever was acknowledged last."""
    self.floor.consumer, self.floor.stream = consumer_seq, seq


@method_defect(AckState.advance_floor, "JS-ACK-039")
def ack_floor_passes_a_gap(self: AckState, consumer_seq: int, seq: int) -> None:
    """An acknowledgement next to the floor moves it to the highest one acknowledged, over gaps."""
    highest = vars(self)["highest"] = max(vars(self).get("highest", (0, 0)), (consumer_seq, seq))
    if consumer_seq == self.floor.consumer + 1:
        self.floor.consumer, self.floor.stream = highest


@method_defect(AckState.acknowledge_one, "JS-ACK-045")
def ack_floor_goes_back_to_what_is_acknowledged_again(
    self: AckState, seq: int, consumer_seq: int
) -> list[int]:
    """A second acknowledgement behind the floor moves it to its own message."""
    if seq not in self.pending and seq < self.floor.stream:
        self.floor.consumer, self.floor.stream = consumer_seq, seq
    return AckState.acknowledge_one(self, seq, consumer_seq)


@method_defect(AckState.request_redelivery, "JS-ACK-045")
def ack_floor_goes_back_at_a_nak(self: AckState, seq: int) -> None:
    """The floor goes one message back when a message before it is to be delivered again."""
    if self.floor.stream and seq in self.pending:
        self.floor.consumer, self.floor.stream = self.floor.consumer - 1, self.floor.stream - 1
    AckState.request_redelivery(self, seq)


@method_defect(AckState.advance_floor, "JS-ACK-040")
def ack_floor_stops_at_what_was_acknowledged_before(self: AckState, consumer_seq: int, seq: int) -> None:
    """The acknowledgement that closes a gap moves the floor to its own message only."""
    if not self.pending:
        AckState.advance_floor(self, consumer_seq, seq)
    elif consumer_seq == self.floor.consumer + 1:
        self.floor.consumer, self.floor.stream = consumer_seq, seq
