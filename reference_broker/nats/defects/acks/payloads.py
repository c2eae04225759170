"""Defects in what the acknowledgement payloads do, and in the empty replies to them."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import (
    alter_acks,
    alter_consumers,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckState, AckSubjectFields
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.wire.nats.jetstream import Ack, AckKind
from plumbline.wire.units import HOUR


def _unheard(broker: Broker, payload: bytes) -> None:
    """One payload is answered, and acknowledges nothing."""

    def acknowledged(
        self: Consumer, subject: AckSubjectFields, reply: bytes | None, given: bytes, now: int
    ) -> None:
        if given != payload:
            Consumer.acknowledged(self, subject, reply, given, now)
        elif reply is not None:
            self.answer_ack(reply)

    alter_consumers(broker, acknowledged=acknowledged)


def _unanswered(broker: Broker, kind: AckKind) -> None:
    """One kind of payload works, and its reply subject gets nothing."""

    def acknowledged(
        self: Consumer, subject: AckSubjectFields, reply: bytes | None, given: bytes, now: int
    ) -> None:
        silent = Ack.parse(given).kind is kind
        Consumer.acknowledged(self, subject, None if silent else reply, given, now)

    alter_consumers(broker, acknowledged=acknowledged)


@defect("JS-ACK-005")
def ack_empty_is_ignored(broker: Broker) -> None:
    """An empty payload does not acknowledge."""
    _unheard(broker, b"")


@defect("JS-ACK-006")
def ack_is_ignored(broker: Broker) -> None:
    """+ACK does not acknowledge."""
    _unheard(broker, b"+ACK")


@defect("JS-ACK-005", "JS-ACK-006")
def ack_is_not_answered(broker: Broker) -> None:
    """An acknowledgement with a reply subject gets no empty reply."""
    _unanswered(broker, AckKind.ACK)


@method_defect(Consumer.ack, "JS-ACK-025")
def ack_twice_is_not_answered(self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool) -> bool:
    """A second acknowledgement of a delivery gets no empty reply."""
    pending = subject.stream_seq in self.acks.pending
    return Consumer.ack(self, subject, now, sampled=sampled) and pending


@method_defect(Consumer.ack, "JS-ACK-031")
def ack_of_the_first_delivery_expires(
    self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool
) -> bool:
    """After a redelivery the subject of the first delivery no longer acknowledges."""
    if subject.deliveries <= self.acks.redelivered.get(subject.stream_seq, 0):
        return True
    return Consumer.ack(self, subject, now, sampled=sampled)


@defect("JS-ACK-008")
def nak_is_not_answered(broker: Broker) -> None:
    """-NAK with a reply subject gets no empty reply."""
    _unanswered(broker, AckKind.NAK)


@method_defect(Consumer.nak, "JS-ACK-008", "JS-ACK-009")
def nak_acknowledges(self: Consumer, subject: AckSubjectFields, delay: int | None, now: int) -> None:
    """-NAK acknowledges the message instead of having it delivered again."""
    self.ack(subject, now, sampled=False)


@defect("JS-ACK-009")
def nak_comes_after_new_messages(broker: Broker) -> None:
    """A message that got -NAK is delivered only once nothing new is left."""

    def next_redelivery(self: AckState) -> int | None:
        return None if vars(self).get("passed_over") else AckState.next_redelivery(self)

    def candidate(self: Consumer, now: int) -> object:
        vars(self.acks)["passed_over"] = self.num_pending > 0
        return Consumer.next_message(self, now)

    alter_acks(broker, next_redelivery=next_redelivery)
    alter_consumers(broker, next_message=candidate)


@method_defect(Consumer.nak, "JS-ACK-010")
def nak_delay_is_ignored(self: Consumer, subject: AckSubjectFields, delay: int | None, now: int) -> None:
    """-NAK with a delay redelivers at once."""
    Consumer.nak(self, subject, None, now)


@method_defect(Consumer.may_nak, "JS-ACK-026")
def nak_after_ack_redelivers(self: Consumer, subject: AckSubjectFields) -> bool:
    """-NAK brings back a message that is already acknowledged."""
    return subject.stream_seq < self.position.next_seq


@method_defect(Consumer.progress, "JS-ACK-013")
def progress_is_ignored(self: Consumer, subject: AckSubjectFields, now: int) -> None:
    """+WPI does not restart ack_wait."""


@defect("JS-ACK-013")
def progress_is_not_answered(broker: Broker) -> None:
    """+WPI with a reply subject gets no empty reply."""
    _unanswered(broker, AckKind.PROGRESS)


@method_defect(Consumer.progress, "JS-ACK-014")
def progress_lasts_for_ever(self: Consumer, subject: AckSubjectFields, now: int) -> None:
    """After +WPI a message is not delivered again for an hour."""
    Consumer.progress(self, subject, now + HOUR)


@method_defect(Consumer.next, "JS-ACK-015")
def next_is_answered(self: Consumer, reply: bytes | None, body: bytes, now: int) -> bool:
    """+NXT sends an empty reply besides the next message."""
    Consumer.next(self, reply, body, now)
    return True


@method_defect(Consumer.other_ack, "JS-ACK-015", "JS-ACK-016", "JS-ACK-017")
def next_does_not_acknowledge(
    self: Consumer, subject: AckSubjectFields, reply: bytes | None, payload: bytes, now: int
) -> bool:
    """+NXT asks for messages and does not acknowledge."""
    ack = Ack.parse(payload)
    if ack.kind is AckKind.NEXT:
        return self.next(reply, ack.argument, now)
    return Consumer.other_ack(self, subject, reply, payload, now)


@method_defect(Consumer.next, "JS-ACK-016")
def next_number_is_one(self: Consumer, reply: bytes | None, body: bytes, now: int) -> bool:
    """+NXT with a number asks for one message."""
    return Consumer.next(self, reply, b"1" if body.isdigit() else body, now)


@method_defect(Consumer.next, "JS-ACK-017", "JS-ACK-018")
def next_json_asks_for_nothing(self: Consumer, reply: bytes | None, body: bytes, now: int) -> bool:
    """+NXT with a JSON body acknowledges and asks for nothing."""
    return False if body.startswith(b"{") else Consumer.next(self, reply, body, now)


@method_defect(Consumer.next, "JS-ACK-018")
def next_no_wait_waits(self: Consumer, reply: bytes | None, body: bytes, now: int) -> bool:
    """+NXT {"no_wait": true} waits for a message."""
    return Consumer.next(self, reply, body.replace(b"no_wait", b"waits"), now)


@method_defect(Consumer.terminate, "JS-ACK-020")
def term_is_ignored(self: Consumer, subject: AckSubjectFields, reason: str, now: int) -> bool:
    """+TERM is answered and ends nothing."""
    return True


@defect("JS-ACK-020")
def term_is_not_answered(broker: Broker) -> None:
    """+TERM with a reply subject gets no empty reply."""
    _unanswered(broker, AckKind.TERM)
