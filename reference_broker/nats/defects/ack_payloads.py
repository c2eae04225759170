"""Defects in what the acknowledgement payloads do, and in the empty replies to them."""

from __future__ import annotations

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_acks,
    alter_consumers,
    jetstream_defect,
)
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckState, AckSubject
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.wire.durations import HOUR
from plumbline.wire.nats.jetstream import Ack, AckKind


def _unheard(broker: Broker, payload: bytes) -> None:
    """One payload is answered, and acknowledges nothing."""

    def acknowledged(
        self: Consumer, subject: AckSubject, reply: bytes | None, given: bytes, now: int
    ) -> None:
        if given != payload:
            Consumer.acknowledged(self, subject, reply, given, now)
        elif reply is not None:
            self.answer_ack(reply)

    alter_consumers(broker, acknowledged=acknowledged)


def _unanswered(broker: Broker, kind: AckKind) -> None:
    """One kind of payload works, and its reply subject gets nothing."""

    def acknowledged(
        self: Consumer, subject: AckSubject, reply: bytes | None, given: bytes, now: int
    ) -> None:
        silent = Ack.parse(given).kind is kind
        Consumer.acknowledged(self, subject, None if silent else reply, given, now)

    alter_consumers(broker, acknowledged=acknowledged)


@jetstream_defect(
    "ack-empty-is-ignored", breaks=("JS-ACK-005",), summary="An empty payload does not acknowledge."
)
def _(broker: Broker) -> None:
    _unheard(broker, b"")


@jetstream_defect("ack-is-ignored", breaks=("JS-ACK-006",), summary="+ACK does not acknowledge.")
def _(broker: Broker) -> None:
    _unheard(broker, b"+ACK")


@jetstream_defect(
    "ack-is-not-answered",
    breaks=("JS-ACK-005", "JS-ACK-006"),
    summary="An acknowledgement with a reply subject gets no empty reply.",
)
def _(broker: Broker) -> None:
    _unanswered(broker, AckKind.ACK)


@jetstream_defect(
    "ack-twice-is-not-answered",
    breaks=("JS-ACK-025",),
    summary="A second acknowledgement of a delivery gets no empty reply.",
)
def _(broker: Broker) -> None:
    def ack(self: Consumer, subject: AckSubject, now: int, *, sampled: bool) -> bool:
        pending = subject.stream_seq in self.acks.pending
        return Consumer.ack(self, subject, now, sampled=sampled) and pending

    alter_consumers(broker, ack=ack)


@jetstream_defect(
    "ack-of-the-first-delivery-expires",
    breaks=("JS-ACK-031",),
    summary="After a redelivery the subject of the first delivery no longer acknowledges.",
)
def _(broker: Broker) -> None:
    def ack(self: Consumer, subject: AckSubject, now: int, *, sampled: bool) -> bool:
        if subject.deliveries <= self.acks.redelivered.get(subject.stream_seq, 0):
            return True
        return Consumer.ack(self, subject, now, sampled=sampled)

    alter_consumers(broker, ack=ack)


@jetstream_defect(
    "nak-is-not-answered", breaks=("JS-ACK-008",), summary="-NAK with a reply subject gets no empty reply."
)
def _(broker: Broker) -> None:
    _unanswered(broker, AckKind.NAK)


@jetstream_defect(
    "nak-acknowledges",
    breaks=("JS-ACK-008", "JS-ACK-009"),
    summary="-NAK acknowledges the message instead of having it delivered again.",
)
def _(broker: Broker) -> None:
    def nak(self: Consumer, subject: AckSubject, delay: int | None, now: int) -> None:
        self.ack(subject, now, sampled=False)

    alter_consumers(broker, nak=nak)


@jetstream_defect(
    "nak-comes-after-new-messages",
    breaks=("JS-ACK-009",),
    summary="A message that got -NAK is delivered only once nothing new is left.",
)
def _(broker: Broker) -> None:
    def next_redelivery(self: AckState) -> int | None:
        return None if vars(self).get("passed_over") else AckState.next_redelivery(self)

    def candidate(self: Consumer, now: int) -> object:
        vars(self.acks)["passed_over"] = self.num_pending > 0
        return Consumer.candidate(self, now)

    alter_acks(broker, next_redelivery=next_redelivery)
    alter_consumers(broker, candidate=candidate)


@jetstream_defect(
    "nak-delay-is-ignored", breaks=("JS-ACK-010",), summary="-NAK with a delay redelivers at once."
)
def _(broker: Broker) -> None:
    def nak(self: Consumer, subject: AckSubject, delay: int | None, now: int) -> None:
        Consumer.nak(self, subject, None, now)

    alter_consumers(broker, nak=nak)


@jetstream_defect(
    "nak-after-ack-redelivers",
    breaks=("JS-ACK-026",),
    summary="-NAK brings back a message that is already acknowledged.",
)
def _(broker: Broker) -> None:
    def may_nak(self: Consumer, subject: AckSubject) -> bool:
        return subject.stream_seq < self.position.next_seq

    alter_consumers(broker, may_nak=may_nak)


@jetstream_defect("progress-is-ignored", breaks=("JS-ACK-013",), summary="+WPI does not restart ack_wait.")
def _(broker: Broker) -> None:
    def progress(self: Consumer, subject: AckSubject, now: int) -> None:
        pass

    alter_consumers(broker, progress=progress)


@jetstream_defect(
    "progress-is-not-answered",
    breaks=("JS-ACK-013",),
    summary="+WPI with a reply subject gets no empty reply.",
)
def _(broker: Broker) -> None:
    _unanswered(broker, AckKind.PROGRESS)


@jetstream_defect(
    "progress-lasts-for-ever",
    breaks=("JS-ACK-014",),
    summary="After +WPI a message is not delivered again for an hour.",
)
def _(broker: Broker) -> None:
    def progress(self: Consumer, subject: AckSubject, now: int) -> None:
        Consumer.progress(self, subject, now + HOUR)

    alter_consumers(broker, progress=progress)


@jetstream_defect(
    "next-is-answered",
    breaks=("JS-ACK-015",),
    summary="+NXT sends an empty reply besides the next message.",
)
def _(broker: Broker) -> None:
    def next_(self: Consumer, reply: bytes | None, body: bytes, now: int) -> bool:
        Consumer.next(self, reply, body, now)
        return True

    alter_consumers(broker, next=next_)


@jetstream_defect(
    "next-does-not-acknowledge",
    breaks=("JS-ACK-015", "JS-ACK-016", "JS-ACK-017"),
    summary="+NXT asks for messages and does not acknowledge.",
)
def _(broker: Broker) -> None:
    def other_ack(self: Consumer, subject: AckSubject, reply: bytes | None, payload: bytes, now: int) -> bool:
        ack = Ack.parse(payload)
        if ack.kind is AckKind.NEXT:
            return self.next(reply, ack.argument, now)
        return Consumer.other_ack(self, subject, reply, payload, now)

    alter_consumers(broker, other_ack=other_ack)


@jetstream_defect(
    "next-number-is-one", breaks=("JS-ACK-016",), summary="+NXT with a number asks for one message."
)
def _(broker: Broker) -> None:
    def next_(self: Consumer, reply: bytes | None, body: bytes, now: int) -> bool:
        return Consumer.next(self, reply, b"1" if body.isdigit() else body, now)

    alter_consumers(broker, next=next_)


@jetstream_defect(
    "next-json-asks-for-nothing",
    breaks=("JS-ACK-017", "JS-ACK-018"),
    summary="+NXT with a JSON body acknowledges and asks for nothing.",
)
def _(broker: Broker) -> None:
    def next_(self: Consumer, reply: bytes | None, body: bytes, now: int) -> bool:
        return False if body.startswith(b"{") else Consumer.next(self, reply, body, now)

    alter_consumers(broker, next=next_)


@jetstream_defect(
    "next-no-wait-waits", breaks=("JS-ACK-018",), summary='+NXT {"no_wait": true} waits for a message.'
)
def _(broker: Broker) -> None:
    def next_(self: Consumer, reply: bytes | None, body: bytes, now: int) -> bool:
        return Consumer.next(self, reply, body.replace(b"no_wait", b"waits"), now)

    alter_consumers(broker, next=next_)


@jetstream_defect("term-is-ignored", breaks=("JS-ACK-020",), summary="+TERM is answered and ends nothing.")
def _(broker: Broker) -> None:
    def terminate(self: Consumer, subject: AckSubject, reason: str, now: int) -> bool:
        return True

    alter_consumers(broker, terminate=terminate)


@jetstream_defect(
    "term-is-not-answered", breaks=("JS-ACK-020",), summary="+TERM with a reply subject gets no empty reply."
)
def _(broker: Broker) -> None:
    _unanswered(broker, AckKind.TERM)
