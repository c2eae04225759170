"""Reads one NATS connection for the delivery audit: publish attempts, receivers, deliveries."""

from __future__ import annotations

from collections import deque
from functools import partial

from msgspec import Struct

from plumbline.monitors import NatsReader, Observation, Place
from plumbline.monitors.facts import Fact
from plumbline.monitors.histories import PublishOutcome, Settlement
from plumbline.monitors.nats import facts
from plumbline.pipeline.audit.delivery_audit import Attempt, AuditedDelivery, DeliveryAudit, Receiver, digest
from plumbline.wire import nats
from plumbline.wire.errors import ProtocolError
from plumbline.wire.json_text import json_object
from plumbline.wire.nats import jetstream
from plumbline.wire.nats.subjects import covers

_INBOX = "_INBOX."
_CONSUMER_INFO = b"io.nats.jetstream.api.v1.consumer_"
_NOTHING_LEFT = (404, 408)  # No Messages, Request Timeout
_NO_RESPONDERS = 503
_NOT_YET = 1 << 62  # ns: a subscription that the server may not know


class _ConsumerQuery(Struct):
    """Whom a pull request or a CONSUMER.INFO asks about, and when. ``consumer`` empty: its answer tells."""

    at: int
    consumer: str = ""


class NatsAuditor:
    """Operations of one connection in, entries of the audit out."""

    def __init__(self, connection: str, entries: DeliveryAudit) -> None:
        self._entries = entries
        self._connection = connection
        self._reader = NatsReader()
        self._subscriptions: dict[str, Receiver] = {}
        self._receivers: set[str] = set()  # of the audit, that this connection is one of
        self._waiting: dict[str, Attempt] = {}  # by reply subject
        self._unread: deque[tuple[int, Attempt | Receiver]] = deque()  # by number
        self._pings: list[int] = []  # numbers of the PINGs that were not answered
        self._requests: dict[str, int] = {}  # numbers of requests to JetStream, by reply subject
        self._last = 0
        self._queries: dict[str, _ConsumerQuery] = {}  # by inbox
        self._unsettled: dict[str, dict[int, AuditedDelivery]] = {}  # by consumer, by consumer_seq

    def observe(self, seen: Observation) -> None:
        """What ``seen`` adds."""
        operation = seen.operation
        for fact in self._reader.read(seen):
            if isinstance(operation, nats.Payload):
                self._message(fact, operation)
            else:
                self._control(fact)
        self._last = seen.at
        if isinstance(operation, nats.Pub | nats.HPub) and operation.reply:
            self._entries.inboxes.add(operation.reply)
            if operation.subject.startswith("$JS.API."):
                self._requests[operation.reply] = seen.index
                self._queries.setdefault(operation.reply, _ConsumerQuery(seen.at))
        elif isinstance(operation, nats.Err):
            self._refused(operation.message, seen.at)

    def _message(self, fact: Fact, operation: nats.Payload) -> None:
        match fact:
            case facts.NatsPublish():
                self._published(fact, operation)
            case facts.PublishStored():
                self._stored(fact, operation)
            case facts.MessageReceived():
                self._received(fact, operation)
            case facts.JetStreamDelivery():
                self._delivered(fact, operation)
            case facts.JetStreamAck():
                self._acknowledged(fact)
            case facts.AckConfirmed():
                self._confirmed(fact)
            case facts.PullRequested():
                self._queries[fact.inbox] = _ConsumerQuery(fact.place.at, self._consumer(fact).name)
            case facts.PullStatus():
                self._status(fact)

    def _control(self, fact: Fact) -> None:
        match fact:
            case facts.Subscribed():
                self._subscribed(fact)
            case facts.Unsubscribed(max_msgs=None):
                if (receiver := self._subscriptions.pop(fact.sid, None)) is not None:
                    receiver.until = max(receiver.until or 0, fact.place.at)
            case facts.Pinged():
                self._pings.append(fact.place.index)
            case facts.Ponged() if self._pings:
                self._mark_read(self._pings.pop(0), fact.place.at)

    def ended(self) -> None:
        """The connection, or the capture, ended."""
        for receiver in self._subscriptions.values():
            receiver.until = max(receiver.until or 0, self._last)
        self._subscriptions.clear()

    def mark_incomplete(self) -> None:
        """Something of this connection was not recorded."""
        self._entries.incomplete_publishers.add(self._connection)
        for name in self._receivers:
            self._entries.receivers[name].has_gaps = True

    # -- publishers --

    def _published(self, fact: facts.NatsPublish, operation: nats.Payload) -> None:
        if fact.subject.startswith((_INBOX, "$SYS.")) or fact.subject in self._entries.inboxes:
            return  # an answer
        attempt = Attempt(
            fact.place, fact.subject, digest(operation.payload), self._connection, fact.msg_id,
            asks=bool(fact.reply),
        )  # fmt: skip
        self._entries.attempts.append(attempt)
        self._unread.append((fact.place.index, attempt))
        if fact.reply:
            self._waiting[fact.reply] = attempt

    def _stored(self, fact: facts.PublishStored, operation: nats.Payload) -> None:
        attempt = self._waiting.pop(operation.subject, None)
        if attempt is not None:
            attempt.stream, attempt.position = fact.stream, fact.seq
            attempt.ended(PublishOutcome.OK, fact.place.at)

    def _refused(self, message: str, at: int) -> None:
        """-ERR 'Permissions Violation for Publish to "a.b"'."""
        before, _, subject = message.partition(" to ")
        if before.lower().strip("' ").endswith("violation for publish"):
            for _, one in self._unread:
                if isinstance(one, Attempt) and one.route == subject.strip("'\""):
                    one.ended(PublishOutcome.FAILED, at)

    def _mark_read(self, number: int, at: int) -> None:
        """The server answers operation ``number``, so it has read all before. That stores nothing."""
        while self._unread and self._unread[0][0] < number:
            _, one = self._unread.popleft()
            if isinstance(one, Receiver):
                one.since = min(one.since, at)
            elif one.outcome is not PublishOutcome.FAILED:
                one.read = one.read or at

    def _answered(self, attempt: Attempt, operation: nats.Payload, place: Place) -> None:
        """By a stream that refuses it, or by a service; a PubAck is recognised before."""
        attempt.read = attempt.read or place.at
        try:
            refused = jetstream.ApiError.of(json_object(operation.payload)) is not None
        except ProtocolError:
            refused = False
        if refused:
            attempt.ended(PublishOutcome.FAILED, place.at)

    # -- receivers --

    def _subscribed(self, fact: facts.Subscribed) -> None:
        if fact.subject.startswith(_INBOX) or fact.sid in self._subscriptions:
            return
        whose = (
            f"queue group {fact.queue}" if fact.queue else f"connection {self._connection}, sid {fact.sid}"
        )
        receiver = self._known(f"subscription {fact.subject} of {whose}")
        receiver.is_subscription = True
        receiver.accepts = partial(covers, fact.subject)
        receiver.since = receiver.since or _NOT_YET
        self._subscriptions[fact.sid] = receiver
        self._unread.append((fact.place.index, receiver))

    def _known(self, name: str, stream: str = "") -> Receiver:
        self._receivers.add(name)
        return self._entries.receivers.setdefault(name, Receiver(name, stream))

    def _received(self, fact: facts.MessageReceived, operation: nats.Payload) -> None:
        attempt = self._waiting.get(fact.subject)
        receiver = self._subscriptions.get(fact.sid)
        if fact.delivery:
            return
        if (number := self._requests.pop(fact.subject, None)) is not None:
            self._mark_read(number, fact.place.at)
        if attempt is not None:
            if fact.status == _NO_RESPONDERS:
                attempt.ended(PublishOutcome.FAILED, fact.place.at)
            else:
                self._answered(attempt, operation, fact.place)
        elif fact.subject in self._queries:
            self._on_consumer_info(self._queries[fact.subject], operation)
        elif receiver is not None and fact.status is None and fact.subject not in self._entries.inboxes:
            receiver.since = min(receiver.since, fact.place.at)
            receiver.arrivals.append(
                AuditedDelivery(
                    fact.place, fact.subject, digest(operation.payload), message_id(operation),
                    settlement=Settlement.CONFIRMED,
                )
            )  # fmt: skip

    def _consumer(self, fact: facts.PullRequested | facts.JetStreamDelivery) -> Receiver:
        return self._known(*_named(fact.stream, fact.consumer))

    def _delivered(self, fact: facts.JetStreamDelivery, operation: nats.Payload) -> None:
        receiver = self._consumer(fact)
        if not receiver.arrivals and fact.consumer_seq > 1:
            receiver.since = max(receiver.since, fact.timestamp)  # what came before was not recorded
        arrival = AuditedDelivery(
            fact.place, fact.subject, digest(operation.payload), message_id(operation), fact.stream_seq,
            is_redelivered=fact.delivered > 1, stored_ns=fact.timestamp,
        )  # fmt: skip
        receiver.arrivals.append(arrival)
        if receiver.ack_policy == "none":
            arrival.settlement = Settlement.CONFIRMED
        else:
            self._unsettled.setdefault(receiver.name, {})[fact.consumer_seq] = arrival

    def _acknowledged(self, fact: facts.JetStreamAck) -> None:
        name, stream = _named(fact.stream, fact.consumer)
        unsettled = self._unsettled.setdefault(name, {})
        if fact.consumer_seq not in unsettled or fact.kind not in ("+ACK", "+TERM", "+NXT"):
            return
        settles_all = fact.kind == "+ACK" and self._known(name, stream).ack_policy == "all"
        for number in [one for one in unsettled if settles_all and one < fact.consumer_seq]:
            unsettled.pop(number).settlement = Settlement.UNKNOWN
        unsettled[fact.consumer_seq].settlement = Settlement.UNKNOWN
        if not fact.reply or fact.kind == "+NXT":
            del unsettled[fact.consumer_seq]

    def _confirmed(self, fact: facts.AckConfirmed) -> None:
        name, _ = _named(fact.stream, fact.consumer)
        arrival = self._unsettled.get(name, {}).pop(fact.consumer_seq, None)
        if arrival is not None and fact.kind in ("+ACK", "+TERM"):
            arrival.settlement = Settlement.CONFIRMED

    def _status(self, fact: facts.PullStatus) -> None:
        """404 and 408: at the time of the request nothing was left, unless acknowledgements held it back."""
        query = self._queries.get(fact.inbox)
        if query is None or fact.code not in _NOTHING_LEFT:
            return
        if not self._unsettled.get(query.consumer):
            receiver = self._entries.receivers[query.consumer]
            receiver.read_until = max(receiver.read_until, query.at)

    def _on_consumer_info(self, query: _ConsumerQuery, operation: nats.Payload) -> None:
        """CONSUMER.INFO and CONSUMER.CREATE: what the consumer wants, and what is left for it."""
        if _CONSUMER_INFO not in operation.payload[:80]:
            return
        try:
            info = jetstream.ConsumerInfo.parse(operation.payload)
        except ProtocolError:
            return  # an error
        receiver = self._known(*_named(info.stream_name, info.name))
        filters = info.config.get("filter_subjects") or [info.config.get("filter_subject") or ">"]
        receiver.accepts = partial(_any_matches, tuple(filters))
        receiver.ack_policy = str(info.config.get("ack_policy", ""))
        if info.config.get("deliver_policy", "all") != "all":
            receiver.since = receiver.since or query.at
        if info.num_pending == 0:
            receiver.read_until = max(receiver.read_until, query.at)


def _named(stream: str, consumer: str) -> tuple[str, str]:
    return f"consumer {consumer} of stream {stream}", stream


def _any_matches(patterns: tuple[str, ...], route: str) -> bool:
    return any(covers(pattern, route) for pattern in patterns)


def message_id(operation: nats.Payload) -> str:
    """The Nats-Msg-Id; empty if it has none."""
    try:
        headers = operation.headers
    except ProtocolError:
        return ""
    return "" if headers is None else headers.get("Nats-Msg-Id") or ""
