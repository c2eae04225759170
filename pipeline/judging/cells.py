"""An operation and its facts as the cells of a row of the table ``operations``."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from plumbline.captures.observation import CaptureObservation
from plumbline.monitors.amqp import facts as amqp_facts
from plumbline.monitors.facts import Fact
from plumbline.monitors.nats import facts as nats_facts
from plumbline.wire import amqp, nats
from plumbline.wire.errors import ProtocolError

Cells = dict[str, Any]
_MAX_LONG = (1 << 63) - 1
HASH_BYTES = 16


class WithoutPayload(CaptureObservation, frozen=True, dict=True):
    """An observation whose line leaves its payload out: its size is in its place."""

    def line(self) -> str:
        return text_without_payload(self.operation)


def text_without_payload(operation: Any) -> str:
    """The line of a trace, its payload's size in brackets; headers are shown."""
    if isinstance(operation, nats.Payload):
        line = nats.printable(operation.raw[: operation.head].rstrip(b"\r\n"))
        headers, size = operation.header_block, len(operation.payload)
        text = f"{line} | {nats.printable(headers)}" if headers else line
        return f"{text} ({size} bytes)" if headers else f"{line} | ({size} bytes)"
    if isinstance(operation, amqp.Method) and operation.properties is not None:
        return operation.line_with_body(f"({len(operation.body)} bytes)")
    return str(operation)


def digest(payload: bytes) -> str:
    """As ``payload_hash`` has it."""
    return blake2b(payload, digest_size=HASH_BYTES).hexdigest()


def cells_of(operation: Any) -> Cells:
    """What the operation itself says."""
    if isinstance(operation, nats.Operation):
        return _nats(operation)
    return _amqp(operation)


def _nats(operation: nats.Operation) -> Cells:
    cells: Cells = {"op": operation.verb, "size": len(operation.raw)}
    if isinstance(operation, nats.Payload):
        payload = operation.payload
        cells["subject"] = operation.subject
        cells["reply"] = operation.reply
        cells["payload"] = payload
        cells["payload_size"] = len(payload)
        cells["payload_hash"] = digest(payload)
        if isinstance(operation, (nats.Msg, nats.HMsg)):
            cells["sid"] = operation.sid
        if isinstance(operation, nats.HeaderPayload):
            _headers(operation, cells)
    elif isinstance(operation, nats.Sub):
        cells["subject"], cells["sid"], cells["queue"] = operation.subject, operation.sid, operation.queue
    elif isinstance(operation, nats.Unsub):
        cells["sid"] = operation.sid
    return cells


def _headers(operation: nats.HeaderPayload, cells: Cells) -> None:
    try:
        headers = operation.headers
    except ProtocolError:
        return
    if headers is not None:
        cells["message_id"] = headers.get("Nats-Msg-Id") or None
        if headers.status is not None:
            cells["status"], cells["description"] = headers.status.code, headers.status.description


def _amqp(operation: amqp.Operation) -> Cells:
    cells: Cells = {"op": operation.method, "size": len(operation.raw), "channel": operation.channel}
    if not isinstance(operation, amqp.Method):
        return cells
    arguments = operation.arguments
    cells["subject"] = arguments.get("routing_key")
    for name in ("queue", "exchange", "consumer_tag", "multiple", "redelivered"):
        if name in arguments:
            cells[name] = arguments[name]
    if "delivery_tag" in arguments:
        cells["delivery_tag"] = long(arguments["delivery_tag"])
    if "reply_code" in arguments:
        cells["status"], cells["description"] = arguments["reply_code"], arguments.get("reply_text")
    if operation.properties is not None:
        body = operation.body
        cells["payload"], cells["payload_size"], cells["payload_hash"] = body, len(body), digest(body)
        cells["reply"] = _text(operation.properties.get("reply_to"))
        cells["message_id"] = _text(operation.properties.get("message_id"))
    return cells


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def long(number: int) -> int | None:
    """``number``, if signed 64 bits hold it."""
    return number if number <= _MAX_LONG else None


def add_fact(cells: Cells, fact: Fact) -> None:
    """What a fact adds to the cells of its operation."""
    add = _FACTS.get(type(fact))
    if add is not None:
        add(cells, fact)


def _about(kind: str, cells: Cells, fact: Any) -> None:
    cells["fact"], cells["stream"], cells["domain"] = kind, fact.stream, fact.domain


def _delivered(cells: Cells, fact: nats_facts.JetStreamDelivery) -> None:
    _about("delivery", cells, fact)
    cells["consumer"], cells["delivered"] = fact.consumer, long(fact.delivered)
    cells["stream_seq"], cells["consumer_seq"] = long(fact.stream_seq), long(fact.consumer_seq)
    cells["stored_ns"], cells["pending"] = long(fact.timestamp), long(fact.pending)
    cells["redelivered"] = fact.delivered > 1


def _acknowledged(cells: Cells, fact: nats_facts.JetStreamAck) -> None:
    _about("ack", cells, fact)
    cells["consumer"], cells["delivered"] = fact.consumer, long(fact.delivered)
    cells["stream_seq"], cells["consumer_seq"] = long(fact.stream_seq), long(fact.consumer_seq)
    cells["kind"] = fact.kind


def _ack_answered(cells: Cells, fact: nats_facts.AckConfirmed) -> None:
    _about("ack-answer", cells, fact)
    cells["consumer"], cells["kind"] = fact.consumer, fact.kind
    cells["stream_seq"], cells["consumer_seq"] = long(fact.stream_seq), long(fact.consumer_seq)


def _pulled(cells: Cells, fact: nats_facts.PullRequested) -> None:
    if cells.get("fact") is None:  # +NXT is an acknowledgement before it is a request
        _about("pull", cells, fact)
    cells["consumer"], cells["sid"], cells["batch"] = fact.consumer, fact.sid, long(fact.batch)
    cells["expires_ns"], cells["no_wait"] = long(fact.expires), fact.no_wait
    cells["max_bytes"], cells["idle_heartbeat_ns"] = long(fact.max_bytes), long(fact.idle_heartbeat)


def _pull_status(cells: Cells, fact: nats_facts.PullStatus) -> None:
    cells["fact"] = "pull-status"
    cells["pending"] = None if fact.pending is None else long(fact.pending)


def _nats_published(cells: Cells, _: nats_facts.NatsPublish) -> None:
    cells["fact"] = "publish"


def _publish_answered(cells: Cells, fact: nats_facts.PublishStored) -> None:
    _about("publish-answer", cells, fact)
    cells["stream_seq"], cells["duplicate"], cells["kind"] = long(fact.seq), fact.duplicate, "PubAck"
    cells["message_id"] = fact.msg_id or None


def _read(cells: Cells, fact: nats_facts.MessageRead) -> None:
    _about("read", cells, fact)
    cells["stream_seq"] = long(fact.seq)


def _consumer_stated(cells: Cells, fact: nats_facts.ConsumerStated) -> None:
    _about("consumer-info", cells, fact)
    cells["consumer"], cells["stream_seq"] = fact.consumer, long(fact.ack_floor)


def _administered(cells: Cells, fact: nats_facts.AssetChanged) -> None:
    _about("administration", cells, fact)
    cells["consumer"] = fact.consumer


def _amqp_delivered(cells: Cells, fact: amqp_facts.AmqpDelivery) -> None:
    cells["fact"], cells["queue"], cells["consumer_tag"] = "delivery", fact.queue or None, fact.consumer_tag


def _amqp_acknowledged(cells: Cells, fact: amqp_facts.AmqpAck) -> None:
    cells["fact"], cells["kind"] = "ack", fact.kind


def _amqp_published(cells: Cells, _: amqp_facts.AmqpPublish) -> None:
    cells["fact"] = "publish"


def _amqp_confirmed(cells: Cells, fact: amqp_facts.PublishConfirmed) -> None:
    cells["fact"], cells["kind"] = "publish-answer", fact.kind


def _amqp_returned(cells: Cells, _: amqp_facts.MessageReturned) -> None:
    cells["fact"] = "return"


_FACTS: dict[type[Fact], Callable[[Cells, Any], None]] = {
    nats_facts.JetStreamDelivery: _delivered,
    nats_facts.JetStreamAck: _acknowledged,
    nats_facts.AckConfirmed: _ack_answered,
    nats_facts.PullRequested: _pulled,
    nats_facts.PullStatus: _pull_status,
    nats_facts.NatsPublish: _nats_published,
    nats_facts.PublishStored: _publish_answered,
    nats_facts.MessageRead: _read,
    nats_facts.ConsumerStated: _consumer_stated,
    nats_facts.AssetChanged: _administered,
    amqp_facts.AmqpDelivery: _amqp_delivered,
    amqp_facts.AmqpAck: _amqp_acknowledged,
    amqp_facts.AmqpPublish: _amqp_published,
    amqp_facts.PublishConfirmed: _amqp_confirmed,
    amqp_facts.MessageReturned: _amqp_returned,
}


def library_of(operation: Any) -> str | None:
    """Client library and version, if this operation is where the client says so."""
    if isinstance(operation, nats.Connect):
        try:
            properties = operation.fields
        except ProtocolError:
            return None
        return _named(properties.get("lang"), properties.get("version"))
    if isinstance(operation, amqp.Method) and operation.method == "connection.start-ok":
        properties = operation.arguments.get("client_properties") or {}
        return _named(properties.get("product"), properties.get("version"))
    return None


def _named(*words: Any) -> str | None:
    return " ".join(str(word) for word in words if word) or None
