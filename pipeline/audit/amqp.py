"""Reads one AMQP connection for the delivery audit: publish attempts, queues, deliveries."""

from __future__ import annotations

from plumbline.monitors import AmqpReader, Observation
from plumbline.monitors.amqp import facts as amqp_facts
from plumbline.monitors.amqp.consuming import settled_by
from plumbline.monitors.amqp.publishing import confirmed_by
from plumbline.monitors.histories import PublishOutcome, Settlement
from plumbline.pipeline.audit.delivery_audit import Attempt, AuditedDelivery, DeliveryAudit, Receiver, digest
from plumbline.wire import amqp

_GET, _DECLARE = "basic.get", "queue.declare"
MAX_MANDATORY = 10_000  # of a channel, that basic.return may come for


class _AuditedChannel:
    """What is under way on one channel."""

    def __init__(self) -> None:
        self.unconfirmed: dict[int, Attempt] = {}
        self.unanswered: list[Attempt] = []  # published without confirms
        self.mandatory: list[Attempt] = []
        self.outstanding: dict[int, AuditedDelivery] = {}
        self.pending_requests: dict[str, list[tuple[int, str]]] = {
            _GET: [],
            _DECLARE: [],
        }  # when, for which queue
        self.transacted = False


class AmqpAuditor:
    """Operations of one connection in, entries of the audit out."""

    def __init__(self, connection: str, entries: DeliveryAudit) -> None:
        self._entries = entries
        self._connection = connection
        self._reader = AmqpReader()
        self._channels: dict[int, _AuditedChannel] = {}
        self._receivers: set[str] = set()  # queues that it consumes

    def observe(self, seen: Observation) -> None:
        """What ``seen`` adds."""
        operation = seen.operation
        if not isinstance(operation, amqp.Method):
            return
        channel = self._channels.setdefault(operation.channel, _AuditedChannel())
        if seen.sender is amqp.Sender.CLIENT:
            self._on_request(channel, operation, seen.at)
        else:
            self._on_answer(channel, operation, seen.at)
        for fact in self._reader.read(seen):
            match fact:
                case amqp_facts.ChannelOpened():
                    self._channels[operation.channel] = _AuditedChannel()
                case amqp_facts.TransactionSelected():
                    channel.transacted = True
                case amqp_facts.AmqpPublish():
                    self._published(channel, fact, operation)
                case amqp_facts.PublishConfirmed():
                    outcome = PublishOutcome.OK if fact.kind == "ack" else PublishOutcome.UNKNOWN
                    for number in confirmed_by(fact, channel.unconfirmed):
                        channel.unconfirmed.pop(number).ended(outcome, fact.place.at)
                case amqp_facts.MessageReturned():
                    self._returned(channel, fact, operation)
                case amqp_facts.ConsumerStarted():
                    self._queue(fact.queue)
                case amqp_facts.AmqpDelivery():
                    self._delivered(channel, fact, operation)
                case amqp_facts.AmqpAck():
                    is_back = fact.kind != "ack" and fact.requeue
                    for tag in settled_by(fact, dict.fromkeys(channel.outstanding, 0)):
                        arrival = channel.outstanding.pop(tag)
                        arrival.settlement = Settlement.OPEN if is_back else Settlement.UNKNOWN
                case amqp_facts.ChannelRecovered():
                    channel.outstanding.clear()

    def ended(self) -> None:
        """The connection, or the capture, ended."""

    def mark_incomplete(self) -> None:
        """Something of this connection was not recorded."""
        self._entries.incomplete_publishers.add(self._connection)
        for name in self._receivers:
            self._entries.receivers[name].has_gaps = True

    # -- requests that tell something --

    def _on_request(self, channel: _AuditedChannel, operation: amqp.Method, at: int) -> None:
        arguments = operation.arguments
        if operation.method in channel.pending_requests and not arguments.get("no_wait"):
            channel.pending_requests[operation.method].append((at, arguments["queue"]))
        elif operation.method == "queue.bind" and not arguments["arguments"]:
            route = self._route(arguments["exchange"], arguments["routing_key"])
            self._entries.bindings.add((self._named(arguments["queue"]), route))

    def _on_answer(self, channel: _AuditedChannel, operation: amqp.Method, at: int) -> None:
        arguments = operation.arguments
        match operation.method:
            case "basic.get-ok" if channel.pending_requests[_GET]:
                channel.pending_requests[_GET].pop(0)
            case "basic.get-empty" if channel.pending_requests[_GET]:
                self._read_until(*channel.pending_requests[_GET].pop(0))
            case "queue.declare-ok" if channel.pending_requests[_DECLARE]:
                requested_at, _ = channel.pending_requests[_DECLARE].pop(0)
                if arguments["message_count"] == 0:
                    self._read_until(requested_at, arguments["queue"])
            case "tx.commit-ok":
                self._end(channel, PublishOutcome.OK, at)
            case "tx.rollback-ok":
                self._end(channel, PublishOutcome.FAILED, at)
            case "channel.close-ok" if not channel.transacted:
                self._end(channel, PublishOutcome.OK, at)
            case "connection.close-ok":
                for each in self._channels.values():
                    if not each.transacted:
                        self._end(each, PublishOutcome.OK, at)

    def _end(self, channel: _AuditedChannel, outcome: PublishOutcome, at: int) -> None:
        """The server has read what the channel published, and says how it ends."""
        for attempt in channel.unanswered:
            attempt.ended(outcome, at)
        channel.unanswered.clear()

    def _read_until(self, at: int, queue: str) -> None:
        receiver = self._entries.receivers.get(self._named(queue))
        if receiver is not None:
            receiver.read_until = max(receiver.read_until, at)

    # -- publishers --

    def _published(
        self, channel: _AuditedChannel, fact: amqp_facts.AmqpPublish, operation: amqp.Method
    ) -> None:
        route = self._route(fact.exchange, fact.routing_key)
        attempt = Attempt(
            fact.place, route, digest(operation.body), f"{self._connection}/{fact.channel} {route}",
            fact.message_id, asks=fact.number > 0,
        )  # fmt: skip
        self._entries.attempts.append(attempt)
        if fact.number:
            channel.unconfirmed[fact.number] = attempt
        else:
            channel.unanswered.append(attempt)
        if fact.mandatory:
            channel.mandatory.append(attempt)
            del channel.mandatory[:-MAX_MANDATORY]

    def _returned(
        self, channel: _AuditedChannel, fact: amqp_facts.MessageReturned, operation: amqp.Method
    ) -> None:
        """It was in no queue. Its confirm follows, and is an ack."""
        sought = (self._route(fact.exchange, fact.routing_key), digest(operation.body))
        for number, attempt in enumerate(channel.mandatory):
            if (attempt.route, attempt.payload) == sought:
                attempt.ended(PublishOutcome.FAILED, fact.place.at)
                del channel.mandatory[: number + 1]  # returns keep the order of publishing
                return

    # -- queues --

    def _queue(self, queue: str) -> Receiver:
        name = self._named(queue)
        self._receivers.add(name)
        known = self._entries.receivers.setdefault(name, Receiver(name))
        known.accepts = _RouteMatcher(name, self._route("", queue), self._entries.bindings)
        return known

    def _delivered(
        self, channel: _AuditedChannel, fact: amqp_facts.AmqpDelivery, operation: amqp.Method
    ) -> None:
        if not fact.queue:
            return  # its consumer was not seen: the connection is torn
        arrival = AuditedDelivery(
            fact.place, self._route(fact.exchange, fact.routing_key), digest(operation.body), fact.message_id,
            is_redelivered=fact.redelivered,
            settlement=Settlement.CONFIRMED if fact.no_ack else Settlement.OPEN,
        )  # fmt: skip
        self._queue(fact.queue).arrivals.append(arrival)
        if not fact.no_ack:
            channel.outstanding[fact.delivery_tag] = arrival

    def _named(self, queue: str) -> str:
        vhost = self._reader.state.vhost
        return f"queue {queue}" if vhost in ("", "/") else f"queue {queue} of vhost {vhost}"

    def _route(self, exchange: str, routing_key: str) -> str:
        vhost = self._reader.state.vhost
        where = "" if vhost in ("", "/") else f"{vhost} "
        return f"{where}{exchange or '(default)'} {routing_key}"


class _RouteMatcher:
    """Whether a route leads to a queue: by the default exchange, or by a binding of just that key."""

    def __init__(self, queue: str, default: str, bindings: set[tuple[str, str]]) -> None:
        self._queue = queue
        self._default = default
        self._bindings = bindings

    def __call__(self, route: str) -> bool | None:
        return route == self._default or (self._queue, route) in self._bindings or None
