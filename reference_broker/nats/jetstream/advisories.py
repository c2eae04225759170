"""Advisories and metrics on ``$JS.EVENT.>``; they are built only if there is a subscriber.

Source: docs.nats.io, "JetStream wire API Reference", Advisories; deep dive, "Ack Sampling"; ADR-42.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plumbline.wire.nats.jetstream.times import NEVER, format_time
from plumbline.wire.units import read_number

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.consumers.ack import AckSubjectFields
    from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
    from plumbline.reference_broker.nats.jetstream.consumers.delivery import ConsumerDelivery
    from plumbline.reference_broker.nats.jetstream.service import JetStream
    from plumbline.reference_broker.nats.jetstream.streams.stream import Stream

_ADVISORY = "$JS.EVENT.ADVISORY"
_AUDIT = f"{_ADVISORY}.API"
_ACCOUNT = "$G"
_ACK_METRIC = "$JS.EVENT.METRIC.CONSUMER.ACK"


def stream_action(stream: Stream, event: str, action: str, now: int) -> None:
    """``event`` is CREATED, UPDATED or DELETED; ``action`` create, modify or delete."""
    name = stream.config.name
    subject = f"{_ADVISORY}.STREAM.{event}.{name}"
    stream.jetstream.advise(subject, "advisory.v1.stream_action", {"stream": name, "action": action}, now)


def batch_abandoned(stream: Stream, batch_id: str, reason: str, now: int) -> None:
    """``reason`` is incomplete, large or timeout. ADR-50."""
    name = stream.config.name
    fields = {"stream": name, "batch": batch_id, "reason": reason}
    subject = f"{_ADVISORY}.STREAM.BATCH_ABANDONED.{name}"
    stream.jetstream.advise(subject, "advisory.v1.stream_batch_abandoned", fields, now)


def consumer_action(consumer: Consumer, event: str, action: str, now: int) -> None:
    """``event`` is CREATED or DELETED; ``action`` create or delete."""
    _publish_advisory(
        consumer, f"{_ADVISORY}.CONSUMER.{event}", "advisory.v1.consumer_action", {"action": action}, now
    )


def api_audit(jetstream: JetStream, path: bytes, request: bytes, response: bytes, now: int) -> None:
    """Somebody asked the API for ``path``; whoever listens may see what, and what the answer was."""
    if not jetstream.has_listeners(_AUDIT):
        return
    client = jetstream.host.requester()
    if "start" in client:
        client["start"] = format_time(client["start"])
    fields = {"server": client["server"], "client": client, "subject": f"$JS.API.{_text(path)}"}
    request_fields = {"request": _text(request)} if request else {}
    jetstream.advise(
        _AUDIT, "advisory.v1.api_audit", {**fields, **request_fields, "response": _text(response)}, now
    )


def snapshot_created(jetstream: JetStream, stream: str, state: dict[str, Any], now: int) -> None:
    """A snapshot of ``stream`` begins."""
    _archived(jetstream, "snapshot_create", stream, {"state": state}, now)


def snapshot_completed(jetstream: JetStream, stream: str, began: int, error: str, now: int) -> None:
    """All of it is sent, or it has ended for another reason."""
    fields = {**_times(began, now), **({"error": error} if error else {})}
    _archived(jetstream, "snapshot_complete", stream, fields, now)


def restore_created(jetstream: JetStream, stream: str, now: int) -> None:
    """A restore of ``stream`` begins."""
    _archived(jetstream, "restore_create", stream, {}, now)


def restore_completed(jetstream: JetStream, stream: str, began: int, size: int, now: int) -> None:
    """All of it has come: ``size`` bytes; or it has failed."""
    _archived(jetstream, "restore_complete", stream, {**_times(began, now), "bytes": size}, now)


def _times(began: int, now: int) -> dict[str, str]:
    return {"start": format_time(began), "end": format_time(now)}


def _archived(jetstream: JetStream, what: str, stream: str, fields: dict[str, Any], now: int) -> None:
    subject = f"{_ADVISORY}.STREAM.{what.upper()}.{stream}"
    if not jetstream.has_listeners(subject):
        return
    client = jetstream.host.requester()
    if "start" in client:
        client["start"] = format_time(client["start"])
    body = {"stream": stream, **fields, "client": client}
    jetstream.advise(subject, f"advisory.v1.{what}", body, now)


def pause(consumer: ConsumerDelivery, now: int) -> None:
    """A consumer is paused, or no longer."""
    until = consumer.paused_until
    fields = {"paused": until > now, "pause_until": format_time(until) if until else NEVER}
    _publish_advisory(consumer, f"{_ADVISORY}.CONSUMER.PAUSE", "advisory.v1.consumer_pause", fields, now)


def pinned(consumer: ConsumerDelivery, pin: str, now: int) -> None:
    """ADR-42: a client of a priority group is the one that is served."""
    fields = {"account": _ACCOUNT, "group": consumer.config.priority_groups[0], "pinned_id": pin}
    _publish_advisory(
        consumer, f"{_ADVISORY}.CONSUMER.PINNED", "advisory.v1.consumer_group_pinned", fields, now
    )


def unpinned(consumer: ConsumerDelivery, reason: str, now: int) -> None:
    """It no longer is; ``reason`` is admin or timeout."""
    fields = {"account": _ACCOUNT, "group": consumer.config.priority_groups[0], "reason": reason}
    _publish_advisory(
        consumer, f"{_ADVISORY}.CONSUMER.UNPINNED", "advisory.v1.consumer_group_unpinned", fields, now
    )


def max_deliveries(consumer: ConsumerDelivery, seq: int, deliveries: int, now: int) -> None:
    """A message was delivered as often as it may be."""
    fields = {"stream_seq": seq, "deliveries": deliveries}
    _publish_advisory(
        consumer, f"{_ADVISORY}.CONSUMER.MAX_DELIVERIES", "advisory.v1.max_deliver", fields, now
    )


def nak(consumer: Consumer, subject: AckSubjectFields, now: int) -> None:
    """-NAK came."""
    _publish_advisory(consumer, f"{_ADVISORY}.CONSUMER.MSG_NAKED", "advisory.v1.nak", _delivery(subject), now)


def terminated(consumer: Consumer, subject: AckSubjectFields, reason: str, now: int) -> None:
    """+TERM came, or the stream lost a message that was pending."""
    fields = _delivery(subject) | ({"reason": reason} if reason else {})
    _publish_advisory(consumer, f"{_ADVISORY}.CONSUMER.MSG_TERMINATED", "advisory.v1.terminated", fields, now)


def ack_sample(consumer: Consumer, subject: AckSubjectFields, now: int) -> None:
    """One in 100/sample_freq acknowledgements, evenly."""
    pending = consumer.acks.pending.get(subject.stream_seq)
    if pending is None:
        return
    consumer.sample_debt += read_number(consumer.config.sample_freq.removesuffix("%")) or 0
    if consumer.sample_debt < 100:
        return
    consumer.sample_debt = min(consumer.sample_debt - 100, 100)
    fields = _delivery(subject) | {"ack_time": now - pending.stamp}
    _publish_advisory(consumer, _ACK_METRIC, "metric.v1.consumer_ack", fields, now)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _delivery(subject: AckSubjectFields) -> dict[str, Any]:
    return {
        "consumer_seq": subject.consumer_seq,
        "stream_seq": subject.stream_seq,
        "deliveries": subject.deliveries,
    }


def _publish_advisory(
    consumer: ConsumerDelivery, subject: str, kind: str, fields: dict[str, Any], now: int
) -> None:
    stream = consumer.stream.config.name
    names = {"stream": stream, "consumer": consumer.name}
    consumer.stream.jetstream.advise(f"{subject}.{stream}.{consumer.name}", kind, names | fields, now)
