"""Advisories and metrics: what JetStream tells whoever listens on ``$JS.EVENT.>``; nothing if nobody does.

Source: docs.nats.io, "JetStream wire API Reference", Advisories; deep dive, "Ack Sampling".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reference_broker.nats.jetstream.ack import AckSubject
    from reference_broker.nats.jetstream.consumer import Consumer
    from reference_broker.nats.jetstream.delivery import Delivery
    from reference_broker.nats.jetstream.stream import Stream

_ADVISORY = "$JS.EVENT.ADVISORY"
_ACK_METRIC = "$JS.EVENT.METRIC.CONSUMER.ACK"


def stream_action(stream: Stream, event: str, action: str, now: int) -> None:
    """``event`` is CREATED, UPDATED or DELETED; ``action`` create, modify or delete."""
    name = stream.config.name
    subject = f"{_ADVISORY}.STREAM.{event}.{name}"
    stream.jetstream.advise(subject, "advisory.v1.stream_action", {"stream": name, "action": action}, now)


def consumer_action(consumer: Consumer, event: str, action: str, now: int) -> None:
    """``event`` is CREATED or DELETED; ``action`` create or delete."""
    _tell(consumer, f"{_ADVISORY}.CONSUMER.{event}", "advisory.v1.consumer_action", {"action": action}, now)


def max_deliveries(consumer: Delivery, seq: int, deliveries: int, now: int) -> None:
    """A message was delivered as often as it may be."""
    fields = {"stream_seq": seq, "deliveries": deliveries}
    _tell(consumer, f"{_ADVISORY}.CONSUMER.MAX_DELIVERIES", "advisory.v1.max_deliver", fields, now)


def nak(consumer: Consumer, subject: AckSubject, now: int) -> None:
    """-NAK came."""
    _tell(consumer, f"{_ADVISORY}.CONSUMER.MSG_NAKED", "advisory.v1.nak", _delivery(subject), now)


def terminated(consumer: Consumer, subject: AckSubject, reason: str, now: int) -> None:
    """+TERM came, or the stream lost a message that was pending."""
    fields = _delivery(subject) | ({"reason": reason} if reason else {})
    _tell(consumer, f"{_ADVISORY}.CONSUMER.MSG_TERMINATED", "advisory.v1.terminated", fields, now)


def ack_sample(consumer: Consumer, subject: AckSubject, now: int) -> None:
    """One in 100/sample_freq acknowledgements, evenly."""
    pending = consumer.acks.pending.get(subject.stream_seq)
    if pending is None:
        return
    consumer.sample_debt += int(consumer.config.sample_freq.removesuffix("%") or 0)
    if consumer.sample_debt < 100:
        return
    consumer.sample_debt = min(consumer.sample_debt - 100, 100)
    fields = _delivery(subject) | {"ack_time": now - pending.stamp}
    _tell(consumer, _ACK_METRIC, "metric.v1.consumer_ack", fields, now)


def _delivery(subject: AckSubject) -> dict[str, Any]:
    return {
        "consumer_seq": subject.consumer_seq,
        "stream_seq": subject.stream_seq,
        "deliveries": subject.deliveries,
    }


def _tell(consumer: Delivery, subject: str, kind: str, fields: dict[str, Any], now: int) -> None:
    stream = consumer.stream.config.name
    names = {"stream": stream, "consumer": consumer.name}
    consumer.stream.jetstream.advise(f"{subject}.{stream}.{consumer.name}", kind, names | fields, now)
