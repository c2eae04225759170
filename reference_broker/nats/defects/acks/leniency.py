"""Defects in how acknowledgements are read: odd payloads, odd subjects, who they name."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import add, new
from plumbline.reference_broker.nats.defects.methods import (
    alter_consumers,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream.consumers.ack import AckSubjectFields
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.wire.nats.jetstream import Ack, AckKind

ACK_PREFIX = b"$JS.ACK."
JUNK = b"junk"  # acknowledges nothing, and is answered

Reading = Callable[[bytes, bytes | None], bytes | None]


def _read(broker: Broker, reading: Reading) -> None:
    """``reading`` gets a payload and its reply subject, and says as which payload it is taken; None: not at
    all."""

    def acknowledged(
        self: Consumer, subject: AckSubjectFields, reply: bytes | None, payload: bytes, now: int
    ) -> None:
        taken = reading(payload, reply)
        if taken is not None:
            Consumer.acknowledged(self, subject, reply, taken, now)

    alter_consumers(broker, acknowledged=acknowledged)


def _is_nonsense(payload: bytes) -> bool:
    """Whether it is -NAK with an argument that says no delay."""
    ack = Ack.parse(payload)
    return ack.kind is AckKind.NAK and payload != b"-NAK" and ack.delay is None


# The name, the requirement, what is wrong, and as what a payload is read.
_READINGS: tuple[tuple[str, str, str, Reading], ...] = (
    ("plus-ok-is-unknown", "JS-ACK-007", "+OK acknowledges nothing.",
     lambda payload, reply: JUNK if payload == b"+OK" else payload),
    ("nak-knows-no-durations", "JS-ACK-011", "-NAK with a duration as text acts at once.",
     lambda payload, reply: b"-NAK" if payload.startswith(b"-NAK ") and b"{" not in payload else payload),
    ("nak-with-nonsense-is-unknown", "JS-ACK-012", "-NAK with an argument that is no delay changes nothing.",
     lambda payload, reply: JUNK if _is_nonsense(payload) else payload),
    ("next-needs-a-reply", "JS-ACK-019", "+NXT without reply subject acknowledges nothing.",
     lambda payload, reply: None if payload.startswith(b"+NXT") and reply is None else payload),
    ("term-knows-no-reasons", "JS-ACK-021", "+TERM with a reason changes nothing.",
     lambda payload, reply: JUNK if payload.startswith(b"+TERM ") else payload),
    ("anything-acknowledges", "JS-ACK-022", "A payload that is none of the types acknowledges.",
     lambda payload, reply: b"+ACK" if Ack.parse(payload).kind is AckKind.UNKNOWN else payload),
    ("lower-case-acknowledges", "JS-ACK-023", "The types are read without case.",
     lambda payload, reply: payload.upper()),
    ("trailing-blanks-are-dropped", "JS-ACK-024", "Blanks behind +ACK are passed over.",
     lambda payload, reply: payload.rstrip()),
)  # fmt: skip


def _reading(name: str, requirement: str, summary: str, reading: Reading) -> None:
    add(new(f"ack-{name}", (requirement,), summary, lambda broker: _read(broker, reading)))


for _row in _READINGS:
    _reading(*_row)


@method_defect(Consumer.ack, "JS-ACK-027")
def ack_beyond_the_stream_acknowledges_the_last(
    self: Consumer, subject: AckSubjectFields, now: int, *, sampled: bool
) -> bool:
    """An acknowledgement of a sequence beyond the stream is one of the last message delivered."""
    last = min(subject.stream_seq, self.acks.delivered.stream)
    return Consumer.ack(self, msgspec.structs.replace(subject, stream_seq=last), now, sampled=sampled)


@method_defect(JetStream.acknowledge, "JS-ACK-028")
def ack_of_a_missing_consumer_is_silent(
    self: JetStream, subject: bytes, reply: bytes | None, payload: bytes, now: int
) -> bool:
    """An acknowledgement that names a consumer that does not exist gets no answer."""
    JetStream.acknowledge(self, subject, reply, payload, now)
    return True


@method_defect(JetStream.acknowledge, "JS-ACK-029")
def ack_subject_may_be_short(
    self: JetStream, subject: bytes, reply: bytes | None, payload: bytes, now: int
) -> bool:
    """An acknowledgement needs no timestamp and no num_pending in its subject."""
    missing = max(9 - len(subject.split(b".")), 0)
    return JetStream.acknowledge(self, subject + b".0" * missing, reply, payload, now)


@method_defect(JetStream.acknowledge, "JS-ACK-030")
def ack_of_twelve_tokens_counts_unseen(
    self: JetStream, subject: bytes, reply: bytes | None, payload: bytes, now: int
) -> bool:
    """An acknowledgement to 12 tokens is answered with 503, and acknowledges all the same."""
    tokens = subject.split(b".")
    if len(tokens) != 12:
        return JetStream.acknowledge(self, subject, reply, payload, now)
    nine = b".".join((*tokens[:2], *tokens[4:11]))
    JetStream.acknowledge(self, nine, None, payload, now)
    return False


@method_defect(JetStream.command, "JS-ACK-032")
def ack_with_headers_is_ignored(
    self: JetStream, subject: bytes, reply: bytes | None, header_block: bytes, payload: bytes, now: int
) -> bool:
    """An acknowledgement that comes with headers is passed over."""
    if header_block and subject.startswith(ACK_PREFIX):
        return True
    return JetStream.command(self, subject, reply, header_block, payload, now)


@method_defect(JetStream.acknowledge, "JS-ACK-034")
def ack_without_acks_is_answered_with_text(
    self: JetStream, subject: bytes, reply: bytes | None, payload: bytes, now: int
) -> bool:
    """An acknowledgement to a consumer with ack_policy none is answered with -ERR."""
    parsed = AckSubjectFields.parse(subject)
    consumer = self.find_consumer(parsed.stream, parsed.consumer) if parsed else None
    if consumer is not None and consumer.config.ack_policy == "none" and reply is not None:
        self.host.publish(reply, None, b"", b"-ERR")
        return True
    return JetStream.acknowledge(self, subject, reply, payload, now)
