"""Defects in acknowledgement subjects and in what the policies none, all and explicit count."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_acks,
    alter_consumers,
    alter_service,
    jetstream_defect,
    jetstream_of,
)
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckState
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.reference_broker.nats.jetstream.streams.store import Message

# The subject


@jetstream_defect(
    "ack-subject-names-a-domain",
    breaks=("JS-ACK-001",),
    summary="Ack subjects have 11 tokens, with a domain and an account, though there is no domain.",
)
def _(broker: Broker) -> None:
    extra = b"$JS.ACK._.HASH."

    def ack_subject(self: Consumer, message: Message, deliveries: int) -> bytes:
        return extra + Consumer.ack_subject(self, message, deliveries).removeprefix(b"$JS.ACK.")

    def acknowledge(self: JetStream, subject: bytes, reply: bytes | None, payload: bytes, now: int) -> bool:
        plain = b"$JS.ACK." + subject.removeprefix(extra) if subject.startswith(extra) else subject
        return JetStream.acknowledge(self, plain, reply, payload, now)

    alter_consumers(broker, ack_subject=ack_subject)
    alter_service(broker, acknowledge=acknowledge)


@jetstream_defect(
    "ack-subject-counts-itself-as-pending",
    breaks=("JS-ACK-002",),
    summary="The last token of the ack subject counts the delivered message as still to be delivered.",
)
def _(broker: Broker) -> None:
    def pending_after(self: Consumer, deliveries: int) -> int:
        return Consumer.pending_after(self, deliveries) + 1

    alter_consumers(broker, pending_after=pending_after)


@jetstream_defect(
    "ack-subject-tells-milliseconds",
    breaks=("JS-ACK-003",),
    summary="The timestamp of the ack subject is in milliseconds.",
)
def _(broker: Broker) -> None:
    def ack_subject(self: Consumer, message: Message, deliveries: int) -> bytes:
        *tokens, stamp, pending = Consumer.ack_subject(self, message, deliveries).split(b".")
        return b".".join([*tokens, stamp[:-6], pending])

    alter_consumers(broker, ack_subject=ack_subject)


@jetstream_defect(
    "ack-subject-tells-when-delivered",
    breaks=("JS-ACK-003",),
    summary="The timestamp of the ack subject is the time of the delivery.",
)
def _(broker: Broker) -> None:
    def ack_subject(self: Consumer, message: Message, deliveries: int) -> bytes:
        *tokens, _, pending = Consumer.ack_subject(self, message, deliveries).split(b".")
        return b".".join([*tokens, b"%d" % jetstream_of(broker).now, pending])

    alter_consumers(broker, ack_subject=ack_subject)


@jetstream_defect(
    "redelivery-counts-as-the-first",
    breaks=("JS-ACK-004",),
    summary="The delivery count in the ack subject is always 1.",
)
def _(broker: Broker) -> None:
    def ack_subject(self: Consumer, message: Message, deliveries: int) -> bytes:
        tokens = Consumer.ack_subject(self, message, deliveries).split(b".")
        return b".".join([*tokens[:4], b"1", *tokens[5:]])

    alter_consumers(broker, ack_subject=ack_subject)


# none and all


@jetstream_defect(
    "ack-none-waits-for-acks",
    breaks=("JS-ACK-033",),
    summary="With ack_policy none the floor stays 0/0 for ever.",
)
def _(broker: Broker) -> None:
    def count_as_acknowledged(self: AckState, seq: int) -> None:
        pass

    alter_acks(broker, count_as_acknowledged=count_as_acknowledged)


@jetstream_defect(
    "ack-all-is-acknowledged-when-delivered",
    breaks=("JS-ACK-035",),
    summary="With ack_policy all a delivery counts as acknowledged, until the first acknowledgement.",
)
def _(broker: Broker) -> None:
    def reported_ack_pending(self: Consumer) -> int:
        untouched = self.config.ack_policy == "all" and self.acks.last_ack is None
        return 0 if untouched else Consumer.reported_ack_pending(self)

    alter_consumers(broker, reported_ack_pending=reported_ack_pending)


@jetstream_defect(
    "ack-all-acknowledges-one",
    breaks=("JS-ACK-036",),
    summary="With ack_policy all an acknowledgement is for its own message alone.",
)
def _(broker: Broker) -> None:
    def acknowledge_up_to(self: AckState, seq: int, consumer_seq: int) -> list[int]:
        return self.acknowledge_one(seq, consumer_seq)

    alter_acks(broker, acknowledge_up_to=acknowledge_up_to)


@jetstream_defect(
    "ack-all-moves-the-floor-back",
    breaks=("JS-ACK-037",),
    summary="With ack_policy all an acknowledgement of an older message moves the floor back to it.",
)
def _(broker: Broker) -> None:
    def acknowledge_up_to(self: AckState, seq: int, consumer_seq: int) -> list[int]:
        settled = AckState.acknowledge_up_to(self, seq, consumer_seq)
        self.floor.consumer, self.floor.stream = consumer_seq, seq
        return settled

    alter_acks(broker, acknowledge_up_to=acknowledge_up_to)


# explicit


@jetstream_defect(
    "ack-floor-follows-every-ack",
    breaks=("JS-ACK-038", "JS-ACK-039"),
    summary="With ack_policy explicit the floor moves to whatever was acknowledged last.",
)
def _(broker: Broker) -> None:
    def advance_floor(self: AckState, consumer_seq: int, seq: int) -> None:
        self.floor.consumer, self.floor.stream = consumer_seq, seq

    alter_acks(broker, advance_floor=advance_floor)


@jetstream_defect(
    "ack-floor-passes-a-gap",
    breaks=("JS-ACK-039",),
    summary="An acknowledgement next to the floor moves it to the highest one acknowledged, over gaps.",
)
def _(broker: Broker) -> None:
    def advance_floor(self: AckState, consumer_seq: int, seq: int) -> None:
        highest = vars(self)["highest"] = max(vars(self).get("highest", (0, 0)), (consumer_seq, seq))
        if consumer_seq == self.floor.consumer + 1:
            self.floor.consumer, self.floor.stream = highest

    alter_acks(broker, advance_floor=advance_floor)


@jetstream_defect(
    "ack-floor-stops-at-what-was-acknowledged-before",
    breaks=("JS-ACK-040",),
    summary="The acknowledgement that closes a gap moves the floor to its own message only.",
)
def _(broker: Broker) -> None:
    def advance_floor(self: AckState, consumer_seq: int, seq: int) -> None:
        if not self.pending:
            AckState.advance_floor(self, consumer_seq, seq)
        elif consumer_seq == self.floor.consumer + 1:
            self.floor.consumer, self.floor.stream = consumer_seq, seq

    alter_acks(broker, advance_floor=advance_floor)
